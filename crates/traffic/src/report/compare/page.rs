//! A comparison as a page: ratios with their intervals, drawn; effect sizes; and every row.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use super::{Change, Comparison, Figure, Problem, Shown, Verdict};
use crate::measure::statistics::Interval;
use crate::report::html::axis::Axis;
use crate::report::html::bars::{Bar, Bars, Group};
use crate::report::html::escape::escape;
use crate::report::html::svg::Svg;
use crate::report::html::{self, draw, page};

/// Marks of the axis, symmetrical about 1. Ratios beyond the last are drawn there.
const MARKS: [f64; 17] = [0.01, 0.1, 0.25, 0.5, 0.67, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.25, 1.5, 2.0, 4.0, 10.0, 100.0];
/// The verdicts that have a ratio, and the class of their colour.
const COLOURS: [(Verdict, &str); 5] = [
    (Verdict::Regression, "c1"),
    (Verdict::Improvement, "c2"),
    (Verdict::Noise, "c6"),
    (Verdict::Unclear, "c4"),
    (Verdict::TooFew, "c5"),
];

const METHOD: &str = "<section><h2>How to read this</h2><p>A ratio is the second over the first, with its 95 % interval: \
above 1 is more, which is worse of times, bytes and failures and better of rates. The effect is Cliff's delta: how probable it \
is that a repetition of the second is above one of the first, less how probable it is that it is below; negligible up to \
0.147, small to 0.33, medium to 0.474, large beyond. It says how well the two can be told apart at all, and not by how much \
they differ: a difference of one percent is large if repetitions scatter by less. The chance is the share of chance among \
the findings at least as significant as this one.</p></section>\n";

impl Comparison {
    /// The page. `sides` names the two, with whatever tells them apart.
    #[must_use]
    pub fn html(&self, sides: [&str; 2]) -> String {
        let mut body = String::from("<header><h1>fogmux bench compare</h1><dl class=\"facts\">");
        for (name, side) in ["before", "after"].into_iter().zip(sides) {
            let _ = write!(body, "<div><dt>{name}</dt><dd>{}</dd></div>", escape(side));
        }
        body.push_str("</dl></header>\n");
        let lines: Vec<String> =
            self.circumstances.iter().cloned().chain(self.problems.iter().map(Problem::line)).collect();
        if !lines.is_empty() {
            body.push_str("<section class=\"warnings\" aria-label=\"Warnings\"><h2>Before you believe it</h2><ul>");
            lines.iter().for_each(|line| body.push_str(&format!("<li>{}</li>", escape(line))));
            body.push_str("</ul></section>\n");
        }
        body.push_str("<section id=\"ratios\"><h2>Ratios</h2><div class=\"panels\">");
        self.drawings().iter().for_each(|panel| draw(&mut body, panel));
        let head: Vec<String> = self.head().iter().map(|name| (*name).to_owned()).collect();
        body.push_str("</div></section>\n<section class=\"wide\"><h2>Figures</h2><p class=\"caption\">");
        body.push_str(&escape(self.closing().trim()));
        body.push_str("</p>");
        html::grid(&mut body, &head, &self.rows(Shown::Everything));
        body.push_str("</section>\n");
        body.push_str(METHOD);
        page("fogmux bench compare", &body)
    }

    /// Writes `compare.html`, `compare.md` and the plots into a directory, and returns their paths.
    ///
    /// # Errors
    /// The directory cannot be created or a file cannot be written.
    pub fn render(&self, directory: &Path, sides: [&str; 2]) -> io::Result<Vec<PathBuf>> {
        std::fs::create_dir_all(directory)?;
        let drawings = self.drawings();
        let drawn = (1..).zip(&drawings).map(|(number, svg)| (format!("compare.ratio-{number}.svg"), svg.file()));
        let files = [
            ("compare.html".to_owned(), self.html(sides)),
            ("compare.md".to_owned(), self.markdown(Shown::Everything)),
        ];
        let write = |(name, text): (String, String)| {
            let path = directory.join(name);
            crate::report::write_private(&path, &text)?;
            Ok(path)
        };
        files.into_iter().chain(drawn).map(write).collect()
    }

    /// The figures of one experiment in one panel; of several, all of them in a panel for each figure.
    fn drawings(&self) -> Vec<Svg> {
        let is_one = self.changes.windows(2).all(|pair| match pair {
            [one, other] => one.experiment == other.experiment,
            _ => true,
        });
        if is_one {
            let name = self.changes.first().map_or("", |change| change.experiment.as_str());
            return panel(name, self.changes.iter(), |change| change.figure.meaning().title.to_owned())
                .into_iter()
                .collect();
        }
        let of = |figure: Figure| {
            let changes = self.changes.iter().filter(move |change| change.figure == figure);
            panel(figure.meaning().title, changes, |change| change.experiment.clone())
        };
        Figure::ALL.into_iter().filter_map(of).collect()
    }
}

fn panel<'a>(head: &str, changes: impl Iterator<Item = &'a Change>, name: impl Fn(&Change) -> String) -> Option<Svg> {
    let mut shown = Vec::new();
    let bar = |change: &'a Change| {
        let ratio = clipped(change.ratio?);
        let colour = COLOURS.iter().find(|(verdict, _)| *verdict == change.verdict);
        let class = colour.map_or("c6", |(_, class)| class);
        if !shown.contains(&change.verdict) {
            shown.push(change.verdict);
        }
        let text = format!("{:.3}", change.ratio?.median);
        Some(Bar { name: name(change), parts: vec![(class.to_owned(), ratio.median)], interval: Some(ratio), text })
    };
    let bars: Vec<Bar> = changes.filter_map(bar).collect();
    let intervals = || bars.iter().filter_map(|bar| bar.interval);
    let lowest = intervals().map(|interval| interval.low).fold(1.0, f64::min);
    let highest = intervals().map(|interval| interval.high).fold(1.0, f64::max);
    let legend = COLOURS.into_iter().filter(|(verdict, _)| shown.contains(verdict));
    let legend = legend.map(|(verdict, class)| (format!("bar {class}"), verdict.word().to_owned())).collect();
    (!bars.is_empty()).then(|| {
        Bars {
            head: head.to_owned(),
            description: format!("ratio of after to before, {head}"),
            axis: Axis::log_at("after / before", ticks(lowest, highest)),
            groups: vec![Group { name: String::new(), bars }],
            legend,
            middle: Some(1.0),
        }
        .draw()
    })
}

fn clipped(ratio: Interval) -> Interval {
    let within = |value: f64| if value.is_finite() { value.clamp(0.01, 100.0) } else { 100.0 };
    Interval { median: within(ratio.median), low: within(ratio.low), high: within(ratio.high) }
}

/// As far to both sides of 1 as the farther of both reaches, with so few marks that none of them gives way to others.
fn ticks(lowest: f64, highest: f64) -> Vec<(f64, String)> {
    let farthest = highest.max(lowest.recip());
    let end = MARKS.into_iter().find(|mark| *mark >= farthest.max(1.05)).unwrap_or(100.0);
    let fine: &[f64] = match end {
        100.0 => &[1.05, 1.1, 1.25, 1.5, 2.0, 4.0],
        10.0 | 4.0 => &[1.05, 1.1, 1.25, 1.5],
        2.0 => &[1.05, 1.1],
        _ => &[],
    };
    // Marks below 1 are rounded.
    let beyond = |mark: f64| if mark < 1.0 { (mark.recip() * 20.0).round() / 20.0 } else { mark };
    let marks = MARKS.into_iter().filter(|mark| beyond(*mark) <= end && !fine.contains(&beyond(*mark)));
    marks.map(|mark| (mark, mark.to_string())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_axis_has_one_and_everything_that_is_drawn() {
        let marks = |low, high| ticks(low, high).into_iter().map(|(mark, _)| mark).collect::<Vec<_>>();
        assert_eq!(marks(1.0, 1.0), [0.95, 1.0, 1.05]);
        assert_eq!(marks(0.91, 1.3), [0.67, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.25, 1.5]);
        assert_eq!(marks(0.3, 3.0), [0.25, 0.5, 1.0, 2.0, 4.0]);
        assert_eq!(marks(0.01, 3.0), [0.01, 0.1, 1.0, 10.0, 100.0]);
        let ratios = [1.001, 1.02, 1.07, 1.2, 1.4, 1.9, 3.0, 8.0, 50.0, 100.0];
        for (low, high) in ratios.iter().flat_map(|low| ratios.map(|high| (1.0 / low, high))) {
            let axis = Axis::log_at("ratio", ticks(low, high));
            assert!(axis.ticks.iter().any(|(mark, _)| *mark == 1.0), "{low} to {high}: {:?}", axis.ticks);
        }
    }
}
