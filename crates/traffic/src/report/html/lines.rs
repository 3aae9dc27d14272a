//! Lines over two axes, with what is uncertain about them.

use super::axis::Axis;
use super::legend::{Legend, Sample};
use super::svg::{Anchor, Look, Svg, fitted};

pub(crate) const WIDTH: f64 = 400.0;
const PLOT_HEIGHT: f64 = 200.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 25.0;
const HEAD: f64 = 24.0;
/// Marks and label of the axis below.
const FOOT: f64 = 40.0;
/// Points nearer than this to the one before are left out.
const NEAR: f64 = 0.7;

/// A point, and between what it may lie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Point {
    pub(crate) x: f64,
    pub(crate) y: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// One series.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) look: Look,
    pub(crate) points: Vec<Point>,
}

/// How uncertainty is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spread {
    /// Not at all: there are too many points.
    None,
    /// A mark with a whisker at each point.
    Whiskers,
    /// An area.
    Band,
}

/// A plot of lines.
#[derive(Clone, Debug)]
pub(crate) struct Lines {
    pub(crate) head: String,
    pub(crate) description: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) lines: Vec<Line>,
    pub(crate) spread: Spread,
}

impl Lines {
    /// Draws it.
    pub(crate) fn draw(&self) -> Svg {
        let entries = self.lines.iter().map(|line| (Sample::Line(line.look), line.name.clone())).collect();
        let legend = Legend::new(entries, WIDTH - LEFT);
        let mut svg = Svg::new(WIDTH, HEAD + PLOT_HEIGHT + FOOT + legend.height, &self.description);
        svg.text("head", (4.0, 14.0), Anchor::Start, &fitted(&self.head, WIDTH - 8.0));
        self.draw_axes(&mut svg);
        if self.spread == Spread::Band {
            self.lines.iter().for_each(|line| self.draw_band(&mut svg, line));
        }
        self.lines.iter().for_each(|line| self.draw_line(&mut svg, line));
        legend.draw(&mut svg, (LEFT, HEAD + PLOT_HEIGHT + FOOT));
        svg
    }

    fn at(&self, x: f64, y: f64) -> (f64, f64) {
        (LEFT + self.x.place(x) * (WIDTH - LEFT - RIGHT), HEAD + (1.0 - self.y.place(y)) * PLOT_HEIGHT)
    }

    fn draw_axes(&self, svg: &mut Svg) {
        let (right, bottom) = (WIDTH - RIGHT, HEAD + PLOT_HEIGHT);
        for (value, text) in &self.y.ticks {
            let y = HEAD + (1.0 - self.y.place(*value)) * PLOT_HEIGHT;
            svg.line("grid", (LEFT, y), (right, y));
            svg.text("soft", (LEFT - 6.0, y + 3.5), Anchor::End, text);
        }
        for (value, text) in &self.x.ticks {
            let x = LEFT + self.x.place(*value) * (WIDTH - LEFT - RIGHT);
            svg.line("grid", (x, HEAD), (x, bottom));
            svg.text("soft", (x, bottom + 14.0), Anchor::Middle, text);
        }
        svg.line("axis", (LEFT, bottom), (right, bottom));
        svg.text("", (f64::midpoint(LEFT, right), bottom + 31.0), Anchor::Middle, &self.x.label);
        svg.text_upwards("", (12.0, HEAD + PLOT_HEIGHT / 2.0), &self.y.label);
    }

    fn draw_band(&self, svg: &mut Svg, line: &Line) {
        let upper = line.points.iter().map(|point| self.at(point.x, point.high));
        let lower = line.points.iter().rev().map(|point| self.at(point.x, point.low));
        let around: Vec<_> = upper.chain(lower).collect();
        svg.path(format!("band {}", line.look.classes()), &around);
    }

    fn draw_line(&self, svg: &mut Svg, line: &Line) {
        let places = line.points.iter().map(|point| self.at(point.x, point.y));
        svg.path(format!("series {}", line.look.classes()), &thinned(places));
        if self.spread != Spread::Whiskers {
            return;
        }
        for point in &line.points {
            if point.low < point.high {
                let (low, high) = (self.at(point.x, point.low), self.at(point.x, point.high));
                svg.line(format!("range {}", line.look.classes()), low, high);
            }
            svg.mark(line.look, self.at(point.x, point.y));
        }
    }
}

/// Without points that nobody could tell from those before them; the last always stays.
fn thinned(places: impl Iterator<Item = (f64, f64)>) -> Vec<(f64, f64)> {
    let mut kept: Vec<(f64, f64)> = Vec::new();
    let mut left_out = None;
    for place in places {
        let is_near = |last: &(f64, f64)| (last.0 - place.0).abs() < NEAR && (last.1 - place.1).abs() < NEAR;
        if kept.last().is_some_and(is_near) {
            left_out = Some(place);
        } else {
            kept.push(place);
            left_out = None;
        }
    }
    kept.extend(left_out);
    kept
}
