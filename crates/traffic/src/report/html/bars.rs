//! Bars from left to right in groups: one value with its interval, or the layers of which a sum is made.

use super::axis::Axis;
use super::legend::{Legend, Sample};
use super::lines::WIDTH;
use super::svg::{Anchor, Svg, fitted, text_width};
use crate::measure::statistics::Interval;

const HEAD: f64 = 24.0;
const ROW: f64 = 18.0;
const BAR: f64 = 11.0;
/// Before the first and after the last bar of a group.
const GAP: f64 = 6.0;
const FOOT: f64 = 40.0;
/// Room for names before the bars.
const NAMES_MAX: f64 = WIDTH * 0.42;

/// A bar.
#[derive(Clone, Debug)]
pub(crate) struct Bar {
    pub(crate) name: String,
    /// Class and length of each part.
    pub(crate) parts: Vec<(String, f64)>,
    /// Of the whole.
    pub(crate) interval: Option<Interval>,
    /// Written at its end.
    pub(crate) text: String,
}

impl Bar {
    /// As far to the right as it reaches.
    pub(crate) fn end(&self) -> f64 {
        self.length().max(self.interval.map_or(0.0, |interval| interval.high))
    }

    fn length(&self) -> f64 {
        self.parts.iter().map(|(_, length)| length).sum()
    }
}

/// Bars under one heading; without one, they follow those before.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) name: String,
    pub(crate) bars: Vec<Bar>,
}

/// A plot of bars. On an axis without a zero the value is a point, since a length would mean nothing.
#[derive(Clone, Debug)]
pub(crate) struct Bars {
    pub(crate) head: String,
    pub(crate) description: String,
    pub(crate) axis: Axis,
    pub(crate) groups: Vec<Group>,
    /// Class and name of each part, if bars have several.
    pub(crate) legend: Vec<(String, String)>,
    /// A value that all are compared with.
    pub(crate) middle: Option<f64>,
}

/// Where the axis begins and ends.
struct Frame {
    left: f64,
    right: f64,
}

impl Bars {
    /// Draws it.
    pub(crate) fn draw(&self) -> Svg {
        let bars = || self.groups.iter().flat_map(|group| &group.bars);
        let widest = |texts: &mut dyn Iterator<Item = &String>| texts.map(|text| text_width(text)).fold(0.0, f64::max);
        let names = widest(&mut bars().map(|bar| &bar.name)).min(NAMES_MAX);
        let values = widest(&mut bars().map(|bar| &bar.text));
        let frame = Frame { left: names + 14.0, right: WIDTH - values - 10.0 };
        let legend = self.legend.iter().map(|(class, name)| (Sample::Box(class.clone()), name.clone())).collect();
        let legend = Legend::new(legend, WIDTH - frame.left);
        let rows: f64 = self.groups.iter().map(Group::height).sum();
        let mut svg = Svg::new(WIDTH, HEAD + rows + FOOT + legend.height, &self.description);
        svg.text("head", (4.0, 14.0), Anchor::Start, &fitted(&self.head, WIDTH - 8.0));
        self.draw_axis(&mut svg, &frame, HEAD + rows);
        let mut top = HEAD;
        for group in &self.groups {
            self.draw_group(&mut svg, &frame, group, top);
            top += group.height();
        }
        legend.draw(&mut svg, (frame.left - 10.0, HEAD + rows + FOOT));
        svg
    }

    fn draw_axis(&self, svg: &mut Svg, frame: &Frame, bottom: f64) {
        for (value, text) in &self.axis.ticks {
            let x = frame.at(&self.axis, *value);
            svg.line("grid", (x, HEAD), (x, bottom));
            svg.text("soft", (x, bottom + 14.0), Anchor::Middle, text);
        }
        if let Some(middle) = self.middle {
            let x = frame.at(&self.axis, middle);
            svg.line("axis", (x, HEAD), (x, bottom));
        }
        if self.axis.has_zero() {
            svg.line("axis", (frame.left, HEAD), (frame.left, bottom));
        }
        svg.text("", (f64::midpoint(frame.left, frame.right), bottom + 31.0), Anchor::Middle, &self.axis.label);
    }

    fn draw_group(&self, svg: &mut Svg, frame: &Frame, group: &Group, top: f64) {
        let mut middle = top + GAP + ROW / 2.0;
        if !group.name.is_empty() {
            svg.text("head", (4.0, middle + 4.0), Anchor::Start, &group.name);
            middle += ROW;
        }
        for bar in &group.bars {
            svg.text("", (frame.left - 8.0, middle + 4.0), Anchor::End, &fitted(&bar.name, NAMES_MAX));
            self.draw_bar(svg, frame, bar, middle);
            middle += ROW;
        }
    }

    fn draw_bar(&self, svg: &mut Svg, frame: &Frame, bar: &Bar, middle: f64) {
        let mut from = 0.0;
        for (class, length) in &bar.parts {
            let (left, right) = (frame.at(&self.axis, from), frame.at(&self.axis, from + length));
            if self.axis.has_zero() {
                svg.rectangle(format!("bar {class}"), (left, middle - BAR / 2.0), right - left, BAR);
            } else {
                svg.rectangle(format!("bar {class}"), (right - 3.5, middle - 3.5), 7.0, 7.0);
            }
            from += length;
        }
        if let Some(interval) = bar.interval.filter(|interval| interval.low < interval.high) {
            let ends = [interval.low, interval.high].map(|end| frame.at(&self.axis, end));
            let [low, high] = ends;
            svg.line("whisker", (low, middle), (high, middle));
            ends.iter().for_each(|end| svg.line("whisker", (*end, middle - 3.0), (*end, middle + 3.0)));
        }
        let end = frame.at(&self.axis, bar.end());
        svg.text("soft", (end + 6.0, middle + 4.0), Anchor::Start, &bar.text);
    }
}

impl Group {
    fn height(&self) -> f64 {
        let rows = self.bars.iter().map(|_| ROW).sum::<f64>() + if self.name.is_empty() { 0.0 } else { ROW };
        rows + GAP
    }
}

impl Frame {
    fn at(&self, axis: &Axis, value: f64) -> f64 {
        self.left + axis.place(value) * (self.right - self.left)
    }
}
