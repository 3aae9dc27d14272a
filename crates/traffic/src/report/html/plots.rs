//! The plots of a report: what each shows, and in which panels.

use super::axis::{Axis, nines};
use super::bars::{Bar, Bars, Group};
use super::lines::{Line, Lines, Point, Spread};
use super::panels::{self, Panel, look};
use super::ramp;
use super::svg::Svg;
use crate::measure::statistics::{Interval, median};
use crate::report::figure::Figure;
use crate::report::label::{DOOR, PAYLOAD, SECURITY, Varying};
use crate::report::number::{Unit, size, with_unit};
use crate::report::summary::Summary;

/// Plots that show the same of different runs.
pub(crate) struct Plots {
    /// Of files and links.
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    /// How to read them.
    pub(crate) caption: String,
    pub(crate) panels: Vec<Svg>,
}

/// Points of the speed over time at most; longer times are averaged.
const SPEED_POINTS: usize = 150;
/// From this ratio between the largest and the smallest on, bars would hide the small ones.
const WIDE: f64 = 40.0;
/// An interval is drawn from the median divided by this up to the median times this.
const DRAWN_MOST: f64 = 3.0;
/// The layers' names, and the classes of their colours.
const LAYERS: [(&str, &str); 4] = [("l0", "payload"), ("l1", "protocol"), ("l2", "security"), ("l3", "transport")];

/// All for which there is something to show.
pub(crate) fn all(summaries: &[Summary<'_>], varying: &Varying) -> Vec<Plots> {
    let of = |figure| bars(summaries, varying, figure);
    let plots = [
        Plots {
            id: "rate",
            title: "Rate",
            caption: "Messages a second, as subscribers received them or as they were answered. Whiskers: 95 % interval of the median, up to three times its value.".to_owned(),
            panels: of(Figure::Rate),
        },
        Plots {
            id: "payload",
            title: "Throughput against payload",
            caption: "Messages a second, and the payload they carried, against the size of a payload. Both axes are logarithmic.".to_owned(),
            panels: by_payload(summaries, varying),
        },
        Plots {
            id: "latency",
            title: "Latency",
            caption: "Time from when a message was due to be sent until it was received, of all repetitions together. The axis below gives every nine of the tail the same room: at 99.9, one of a thousand messages took longer.".to_owned(),
            panels: latencies(summaries, varying),
        },
        Plots {
            id: "tail",
            title: "99th percentile of latency",
            caption: "The median of the repetitions' 99th percentiles, with its 95 % interval.".to_owned(),
            panels: of(Figure::LatencyP99),
        },
        Plots {
            id: "cpu",
            title: "Processor time of the gateway",
            caption: "Per message, in user and system mode of all its threads.".to_owned(),
            panels: of(Figure::GatewayCpu),
        },
        Plots {
            id: "connect",
            title: "Connecting",
            caption: "Median time until the first operation may be sent: transport, TLS or DTLS, and the protocol's own beginning.".to_owned(),
            panels: of(Figure::ConnectP50),
        },
        Plots {
            id: "bytes",
            title: "Bytes of a message",
            caption: "Both directions, acknowledgements included: the payload, what the protocol adds, what TLS, DTLS or OSCORE adds, and – only where the link counts – what TCP, UDP, IP and Ethernet add. Connecting is not part of it.".to_owned(),
            panels: layers(summaries, varying),
        },
        Plots {
            id: "ramp",
            title: "Ramp",
            caption: "Operations a second that began, and the 99th percentile of latency, against those that were due: of each tenth of the time, medians of the repetitions.".to_owned(),
            panels: ramp::panels(summaries, varying),
        },
        Plots {
            id: "time",
            title: "Speed over time",
            caption: "Messages a second since the first; the line is the median of the repetitions, the area reaches from the slowest to the fastest.".to_owned(),
            panels: speeds(summaries, varying),
        },
    ];
    plots.into_iter().filter(|plots| !plots.panels.is_empty()).collect()
}

pub(super) fn names(summaries: &[Summary<'_>], varying: &Varying, keys: &[String]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for summary in summaries {
        let name = panels::name(summary, varying, keys);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

pub(super) fn panels_of<'s, 'r>(summaries: &'s [Summary<'r>], varying: &Varying, inner: &[&str]) -> Vec<Panel<'s, 'r>> {
    panels::by(summaries, |summary| varying.part(summary.run, |key| !inner.contains(&key)))
}

pub(super) fn as_refs(keys: &[String]) -> Vec<&str> {
    keys.iter().map(String::as_str).collect()
}

/// The part of an interval that is drawn: those of two or three repetitions would leave no room for anything else.
fn clipped(interval: &Interval) -> Interval {
    let Interval { median, low, high } = *interval;
    Interval { median, low: low.max(median / DRAWN_MOST), high: high.min(median * DRAWN_MOST) }
}

/// A bar for each run: grouped by door, one for each kind of protection; else one for each run.
fn bars(summaries: &[Summary<'_>], varying: &Varying, figure: Figure) -> Vec<Svg> {
    let inner = bar_keys(summaries, varying);
    let inner = as_refs(&inner);
    let draw = |panel: Panel<'_, '_>| {
        let runs: Vec<&Summary<'_>> = panel.runs.iter().copied().filter(|run| run.get(figure).is_some()).collect();
        let drawn = || runs.iter().filter_map(|run| run.get(figure)).map(clipped);
        let highest = drawn().map(|interval| interval.high).fold(0.0, f64::max);
        let lowest = drawn().map(|interval| interval.low).fold(f64::MAX, f64::min);
        if highest <= 0.0 {
            return None;
        }
        let meaning = figure.meaning();
        let is_wide = lowest > 0.0 && highest / lowest > WIDE && meaning.unit == Unit::Microseconds;
        let axis = if is_wide {
            Axis::log(meaning.title, meaning.unit, lowest, highest)
        } else {
            Axis::linear(meaning.title, meaning.unit, highest)
        };
        // The axis's own.
        let scale = meaning.unit.scale([highest]);
        let bar = |name: String, summary: &Summary<'_>| {
            let interval = summary.get(figure).copied()?;
            let classes = look(&protection(summary, varying), &[]).classes();
            let bound = if summary.is_bound && figure == Figure::Rate { "≥" } else { "" };
            let unit = if is_wide { with_unit(meaning.unit, interval.median) } else { scale.median(&interval) };
            Some(Bar {
                name,
                parts: vec![(classes, interval.median)],
                interval: Some(clipped(&interval)),
                text: format!("{bound}{unit}"),
            })
        };
        let groups = groups(&runs, varying, &inner, bar);
        let description = described(meaning.title, &panel.name);
        Some(
            Bars {
                head: head(&panel.name, meaning.title),
                description,
                axis,
                groups,
                legend: Vec::new(),
                middle: None,
            }
            .draw(),
        )
    };
    panels_of(summaries, varying, &inner).into_iter().filter_map(draw).collect()
}

/// Bars stand together that differ in door and protection; if neither differs, in whatever does.
fn bar_keys(summaries: &[Summary<'_>], varying: &Varying) -> Vec<String> {
    if varying.has(DOOR) || varying.has(SECURITY) {
        return vec![DOOR.to_owned(), SECURITY.to_owned()];
    }
    panels::line_keys(summaries, varying, &[])
}

/// The kind of protection gives a bar its colour, even where all have the same.
fn protection(summary: &Summary<'_>, varying: &Varying) -> String {
    if varying.has(SECURITY) || !varying.has(DOOR) {
        return summary.run.experiment.security.to_string();
    }
    summary.run.experiment.door.to_string()
}

fn groups(
    runs: &[&Summary<'_>],
    varying: &Varying,
    inner: &[&str],
    bar: impl Fn(String, &Summary<'_>) -> Option<Bar>,
) -> Vec<Group> {
    let is_nested = varying.has(DOOR) && varying.has(SECURITY);
    let outer =
        |summary: &Summary<'_>| if is_nested { varying.part(summary.run, |key| key == DOOR) } else { String::new() };
    let name = |summary: &Summary<'_>| {
        let name = varying.part(summary.run, |key| inner.contains(&key) && !(is_nested && key == DOOR));
        if name.is_empty() { summary.label.clone() } else { name }
    };
    panels::by(runs.iter().copied(), outer)
        .into_iter()
        .map(|group| Group {
            bars: group.runs.iter().filter_map(|run| bar(name(run), run)).collect(),
            name: group.name,
        })
        .collect()
}

/// The bytes of a message in layers.
fn layers(summaries: &[Summary<'_>], varying: &Varying) -> Vec<Svg> {
    let inner = bar_keys(summaries, varying);
    let inner = as_refs(&inner);
    let length = |summary: &Summary<'_>, layer| summary.get(layer).map(|interval| interval.median);
    let bar = |name: String, summary: &Summary<'_>| {
        let parts = Figure::LAYERS.into_iter().zip(LAYERS);
        let parts: Vec<(String, f64)> =
            parts.filter_map(|(layer, (class, _))| Some((class.to_owned(), length(summary, layer)?))).collect();
        let total: f64 = parts.iter().map(|(_, length)| length).sum();
        let total = Interval { median: total, low: total, high: total };
        let text = Unit::ExactBytes.scale([]).median(&total);
        (!parts.is_empty()).then_some(Bar { name, parts, interval: None, text })
    };
    let draw = |panel: Panel<'_, '_>| {
        let groups = groups(&panel.runs, varying, &inner, bar);
        let highest = groups.iter().flat_map(|group| &group.bars).map(Bar::end).fold(0.0, f64::max);
        let counted = |layer| panel.runs.iter().any(|run| length(run, layer).is_some());
        let legend = Figure::LAYERS.into_iter().zip(LAYERS).filter(|(layer, _)| counted(*layer));
        let legend = legend.map(|(_, (class, name))| (format!("bar {class}"), name.to_owned())).collect();
        let axis = Axis::linear("bytes a message", Unit::ExactBytes, highest);
        let description = described("bytes of a message by layer", &panel.name);
        let bars = Bars { head: head(&panel.name, "by layer"), description, axis, groups, legend, middle: None };
        (highest > 0.0).then(|| bars.draw())
    };
    panels_of(summaries, varying, &inner).into_iter().filter_map(draw).collect()
}

fn latencies(summaries: &[Summary<'_>], varying: &Varying) -> Vec<Svg> {
    let keys = panels::line_keys(summaries, varying, &[]);
    let names = names(summaries, varying, &keys);
    let draw = |panel: Panel<'_, '_>| {
        let line = |summary: &&Summary<'_>| {
            let name = panels::name(summary, varying, &keys);
            let points = tail(summary);
            (!points.is_empty()).then(|| Line { look: look(&name, &names), name, points })
        };
        let lines: Vec<Line> = panel.runs.iter().filter_map(line).collect();
        let points = || lines.iter().flat_map(|line| &line.points);
        let (low, high) = points().fold((f64::MAX, 0.0f64), |(low, high), point| (low.min(point.y), high.max(point.y)));
        let end = points().map(|point| point.x).fold(0.0, f64::max);
        (high > 0.0).then(|| {
            Lines {
                head: head(&panel.name, "latency"),
                description: described("latency by percentile", &panel.name),
                x: Axis::percentiles("percentile of messages", end),
                y: Axis::log("latency", Unit::Microseconds, low, high),
                lines,
                spread: Spread::None,
            }
            .draw()
        })
    };
    panels_of(summaries, varying, &as_refs(&keys)).into_iter().filter_map(draw).collect()
}

/// Latency in microseconds by the nines of its percentile: as steps, each value from the share of those below it to the
/// share of those not above.
fn tail(summary: &Summary<'_>) -> Vec<Point> {
    let latency = summary.latency();
    let all = latency.count() as f64;
    let mut below = 0.0;
    let mut points = Vec::new();
    for (ns, count) in latency.counts() {
        let us = ns as f64 / 1_000.0;
        let upto = below + count as f64;
        // The last one ends where one of all is: beyond that nothing is known.
        let ends = [nines(below / all), nines((upto / all).min(1.0 - 1.0 / all.max(2.0)))];
        points.extend(ends.map(|x| Point { x, y: us, low: us, high: us }));
        below = upto;
    }
    points
}

/// Two panels for each set of lines: messages, and the bytes they carry.
fn by_payload(summaries: &[Summary<'_>], varying: &Varying) -> Vec<Svg> {
    if !varying.has(PAYLOAD) {
        return Vec::new();
    }
    let keys = panels::line_keys(summaries, varying, &[PAYLOAD]);
    let names = names(summaries, varying, &keys);
    let mut inner = as_refs(&keys);
    inner.push(PAYLOAD);
    let mut plots = Vec::new();
    for panel in panels_of(summaries, varying, &inner) {
        let mut sizes: Vec<f64> = panel.runs.iter().map(|run| run.run.experiment.payload_bytes as f64).collect();
        sizes.sort_by(f64::total_cmp);
        sizes.dedup();
        sizes.retain(|bytes| *bytes > 0.0);
        if sizes.len() < 2 {
            continue;
        }
        let x = Axis::log_at("payload", sizes.into_iter().map(|bytes| (bytes, size(bytes))).collect());
        for (figure, title) in [(Figure::Rate, "messages"), (Figure::Goodput, "payload bytes")] {
            let lines = panels::by(panel.runs.iter().copied(), |run| panels::name(run, varying, &keys));
            let lines =
                lines.into_iter().map(|line| over_payload(line, figure, &names)).filter(|line| !line.points.is_empty());
            plots.extend(rising(&panel.name, title, figure, x.clone(), lines.collect()));
        }
    }
    plots
}

fn over_payload(runs: Panel<'_, '_>, figure: Figure, names: &[String]) -> Line {
    let point = |run: &&Summary<'_>| {
        let Interval { median, low, high } = clipped(run.get(figure)?);
        Some(Point { x: run.run.experiment.payload_bytes as f64, y: median, low, high })
    };
    let mut points: Vec<Point> =
        runs.runs.iter().filter_map(point).filter(|point| point.x > 0.0 && point.low > 0.0).collect();
    points.sort_by(|left, right| left.x.total_cmp(&right.x));
    Line { look: look(&runs.name, names), name: runs.name, points }
}

fn rising(panel: &str, title: &str, figure: Figure, x: Axis, lines: Vec<Line>) -> Option<Svg> {
    let points = || lines.iter().flat_map(|line| &line.points);
    let lowest = points().map(|point| point.low).fold(f64::MAX, f64::min);
    let highest = points().map(|point| point.high).fold(0.0, f64::max);
    let meaning = figure.meaning();
    (highest > 0.0).then(|| {
        Lines {
            head: head(panel, &format!("{title} a second")),
            description: described(&format!("{title} a second against payload"), panel),
            x,
            y: Axis::log(meaning.title, meaning.unit, lowest, highest),
            lines,
            spread: Spread::Whiskers,
        }
        .draw()
    })
}

fn speeds(summaries: &[Summary<'_>], varying: &Varying) -> Vec<Svg> {
    let keys = panels::line_keys(summaries, varying, &[]);
    let names = names(summaries, varying, &keys);
    let draw = |panel: Panel<'_, '_>| {
        let line = |summary: &&Summary<'_>| {
            let name = panels::name(summary, varying, &keys);
            let points = speed(summary);
            // A second or less is no course of time.
            (points.len() > 10).then(|| Line { look: look(&name, &names), name, points })
        };
        let lines: Vec<Line> = panel.runs.iter().filter_map(line).collect();
        let points = || lines.iter().flat_map(|line| &line.points);
        let highest = points().map(|point| point.high).fold(0.0, f64::max);
        let end = points().map(|point| point.x).fold(0.0, f64::max);
        (highest > 0.0).then(|| {
            Lines {
                head: head(&panel.name, "speed over time"),
                description: described("messages a second over time", &panel.name),
                x: Axis::seconds("time", end),
                y: Axis::linear("rate", Unit::PerSecond, highest),
                lines,
                spread: Spread::Band,
            }
            .draw()
        })
    };
    panels_of(summaries, varying, &as_refs(&keys)).into_iter().filter_map(draw).collect()
}

/// A second, for each part of a repetition: the median of all, the slowest and the fastest. It ends with the shortest
/// repetition, whose last tenth of a second is not whole and is left out.
fn speed(summary: &Summary<'_>) -> Vec<Point> {
    let shortest = summary.used.iter().map(|outcome| outcome.per_tenth.len()).min().unwrap_or_default();
    let tenths = shortest.saturating_sub(1);
    let together = tenths.div_ceil(SPEED_POINTS).max(1);
    let chunk = |index: usize| {
        let of = |outcome: &&crate::outcome::Outcome| {
            let tenths = outcome.per_tenth.iter().skip(index * together).take(together);
            tenths.sum::<u64>() as f64 * 10.0 / together as f64
        };
        let all: Vec<f64> = summary.used.iter().map(of).collect();
        let median = median(&all)?;
        let (low, high) = all.iter().fold((f64::MAX, 0.0f64), |(low, high), one| (low.min(*one), high.max(*one)));
        Some(Point { x: (index as f64 + 0.5) * together as f64 / 10.0, y: median, low, high })
    };
    (0..tenths / together).filter_map(chunk).collect()
}

/// A panel is named by what its runs share; when nothing differs, by what it shows.
pub(super) fn head(name: &str, what: &str) -> String {
    if name.is_empty() { what.to_owned() } else { format!("{name}: {what}") }
}

/// For those who do not see the plot.
pub(super) fn described(what: &str, panel: &str) -> String {
    if panel.is_empty() { what.to_owned() } else { format!("{what}, {panel}") }
}
