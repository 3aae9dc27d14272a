//! Ramps: what was achieved, and how long it took, against what was offered.

use super::axis::Axis;
use super::lines::{Line, Lines, Point, Spread};
use super::panels::{self, Panel, look};
use super::plots::{as_refs, described, head, names, panels_of};
use super::svg::Svg;
use crate::report::label::Varying;
use crate::report::number::Unit;
use crate::report::slices::{self, Row};
use crate::report::summary::Summary;

/// A figure of a slice.
struct Drawn {
    title: &'static str,
    unit: Unit,
    of: fn(&Row) -> Option<f64>,
}

const DRAWN: [Drawn; 2] = [
    Drawn { title: "achieved", unit: Unit::PerSecond, of: Row::achieved },
    Drawn { title: "p99", unit: Unit::Microseconds, of: Row::p99 },
];

/// Two panels for each set of ramps.
pub(super) fn panels(summaries: &[Summary<'_>], varying: &Varying) -> Vec<Svg> {
    let keys = panels::line_keys(summaries, varying, &[]);
    let names = names(summaries, varying, &keys);
    let panels = panels_of(summaries, varying, &as_refs(&keys));
    let draw = |panel: &Panel<'_, '_>| {
        DRAWN.iter().filter_map(|drawn| one(panel, drawn, varying, (&keys, &names))).collect::<Vec<_>>()
    };
    panels.iter().flat_map(draw).collect()
}

fn one(panel: &Panel<'_, '_>, drawn: &Drawn, varying: &Varying, (keys, names): (&[String], &[String])) -> Option<Svg> {
    let point = |row: Row| {
        let (x, y) = (row.offered()?, (drawn.of)(&row)?);
        Some(Point { x, y, low: y, high: y })
    };
    let line = |summary: &&Summary<'_>| {
        let name = panels::name(summary, varying, keys);
        let points: Vec<Point> = slices::rows(summary).into_iter().filter_map(point).collect();
        (!points.is_empty()).then(|| Line { look: look(&name, names), name, points })
    };
    let lines: Vec<Line> = panel.runs.iter().filter_map(line).collect();
    let points = || lines.iter().flat_map(|line| &line.points);
    let highest = |of: fn(&Point) -> f64| points().map(of).fold(0.0, f64::max);
    let offered = highest(|point| point.x);
    let (most, lowest) = (highest(|point| point.y), points().map(|point| point.y).fold(f64::MAX, f64::min));
    (most > 0.0).then(|| {
        Lines {
            head: head(&panel.name, drawn.title),
            description: described(&format!("{} against offered", drawn.title), &panel.name),
            x: Axis::linear("offered", Unit::PerSecond, offered),
            y: if drawn.unit == Unit::Microseconds {
                Axis::log(drawn.title, drawn.unit, lowest.max(f64::MIN_POSITIVE), most)
            } else {
                Axis::linear(drawn.title, drawn.unit, most)
            },
            lines,
            spread: Spread::None,
        }
        .draw()
    })
}
