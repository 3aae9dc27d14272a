//! Axes: where a value lies, and where the marks are.

use crate::report::number::{Unit, exponent, size, with_unit};

/// The smallest distance of ticks, as a share of the axis, at which their text does not overlap.
const APART: f64 = 0.1;
/// The end of a linear axis, as a factor of the highest value.
const ROOM: f64 = 1.02;

/// One axis of a plot.
#[derive(Clone, Debug)]
pub(crate) struct Axis {
    /// The label, with the unit.
    pub(crate) label: String,
    /// Ticks with their text, ascending.
    pub(crate) ticks: Vec<(f64, String)>,
    kind: Kind,
    low: f64,
    high: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Linear,
    Log,
}

impl Axis {
    /// From zero to just beyond the highest; the unit goes into the label.
    pub(crate) fn linear(what: &str, unit: Unit, highest: f64) -> Self {
        let scale = unit.scale([highest]);
        let most = (highest / scale.divisor).max(f64::MIN_POSITIVE);
        let step = round_step(most / 4.0);
        let high = most * ROOM;
        let marks = (0u8..=10).map(|mark| f64::from(mark) * step).filter(|mark| *mark <= high);
        let ticks = marks.map(|mark| (mark * scale.divisor, tidy(mark))).collect();
        let label = labelled(what, scale.name);
        Self { label, ticks, kind: Kind::Linear, low: 0.0, high: high * scale.divisor }
    }

    /// Around these values, with a mark at each power of ten; where there are few of those, at 2 and 5 too.
    pub(crate) fn log(what: &str, unit: Unit, lowest: f64, highest: f64) -> Self {
        let (low, high) = around(lowest, highest);
        let (first, last) = (exponent(low) - 1, exponent(high) + 1);
        let wide = (high / low).log10() > 2.5;
        let steps: &[f64] = if wide { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let marks = (first..=last).flat_map(|power| steps.iter().map(move |step| step * 10f64.powi(power)));
        let ticks = marks.filter(|mark| (low..=high).contains(mark)).map(|mark| (mark, marked(unit, mark))).collect();
        Self { label: labelled(what, own_unit(unit)), ticks, kind: Kind::Log, low, high }.thinned()
    }

    /// The same with marks at given values.
    pub(crate) fn log_at(what: &str, ticks: Vec<(f64, String)>) -> Self {
        let lowest = ticks.first().map_or(1.0, |(value, _)| *value);
        let highest = ticks.last().map_or(1.0, |(value, _)| *value);
        let (low, high) = if lowest < highest { (lowest, highest) } else { around(lowest, highest) };
        Self { label: what.to_owned(), ticks, kind: Kind::Log, low, high }.thinned()
    }

    /// Percentiles so that each nine of the tail takes as much room as the one before. Values on it come from
    /// [`nines`].
    pub(crate) fn percentiles(what: &str, highest: f64) -> Self {
        const MARKS: [(f64, &str); 8] = [
            (0.0, "0"),
            (50.0, "50"),
            (90.0, "90"),
            (99.0, "99"),
            (99.9, "99.9"),
            (99.99, "99.99"),
            (99.999, "99.999"),
            (99.9999, "99.9999"),
        ];
        let high = highest.max(1.0);
        let marks = MARKS.map(|(percent, text)| (nines(percent / 100.0), text.to_owned()));
        // Just beyond the end counts as the end: 99.9 of a thousand values.
        let ticks = marks.into_iter().filter(|(mark, _)| *mark <= high + 1e-9).collect();
        Self { label: what.to_owned(), ticks, kind: Kind::Linear, low: 0.0, high }.thinned()
    }

    /// Time from 0 to the end.
    pub(crate) fn seconds(what: &str, highest: f64) -> Self {
        Self { label: format!("{what} (s)"), ..Self::linear(what, Unit::Count, highest) }.up_to(highest)
    }

    fn up_to(mut self, high: f64) -> Self {
        self.high = high;
        self.ticks.retain(|(mark, _)| *mark <= high * 1.001);
        self
    }

    /// 0 at the beginning, 1 at the end.
    pub(crate) fn place(&self, value: f64) -> f64 {
        let share = match self.kind {
            Kind::Linear => (value - self.low) / (self.high - self.low),
            Kind::Log => (value.max(self.low) / self.low).ln() / (self.high / self.low).ln(),
        };
        share.clamp(0.0, 1.0)
    }

    /// Whether lengths from the beginning mean anything.
    pub(crate) fn has_zero(&self) -> bool {
        self.kind == Kind::Linear
    }

    fn thinned(mut self) -> Self {
        let mut kept: Vec<(f64, String)> = Vec::new();
        for tick in std::mem::take(&mut self.ticks) {
            if kept.last().is_none_or(|last| self.place(tick.0) - self.place(last.0) >= APART) {
                kept.push(tick);
            }
        }
        self.ticks = kept;
        self
    }
}

/// How many nines a share has: 0.9 has one, 0.999 three, 0.5 has 0.3.
pub(crate) fn nines(share: f64) -> f64 {
    -(1.0 - share).max(1e-12).log10()
}

/// Returns the text of a tick on a logarithmic axis, whose ticks have different units.
fn marked(unit: Unit, value: f64) -> String {
    match unit {
        Unit::Microseconds | Unit::Millijoules => with_unit(unit, value),
        Unit::Bytes | Unit::ExactBytes => size(value),
        Unit::BytesPerSecond => format!("{}/s", size(value)),
        Unit::PerSecond | Unit::Count => tidy(value),
    }
}

/// Returns the unit to show beside such an axis.
fn own_unit(unit: Unit) -> &'static str {
    match unit {
        Unit::PerSecond => "/s",
        Unit::Microseconds
        | Unit::Millijoules
        | Unit::Bytes
        | Unit::ExactBytes
        | Unit::BytesPerSecond
        | Unit::Count => "",
    }
}

fn labelled(what: &str, unit: &str) -> String {
    match unit {
        "" => what.to_owned(),
        "/s" => format!("{what} (1/s)"),
        unit => format!("{what} ({unit})"),
    }
}

/// A little room on both sides, and never nothing between them.
fn around(lowest: f64, highest: f64) -> (f64, f64) {
    let lowest = if lowest > 0.0 { lowest } else { 1.0 };
    (lowest / 1.25, highest.max(lowest) * 1.25)
}

/// The next of 1, 2, 5, 10, … that is not below it.
fn round_step(step: f64) -> f64 {
    let power = 10f64.powi(exponent(step));
    let digits = [1.0, 2.0, 5.0, 10.0];
    digits.into_iter().map(|digit| digit * power).find(|round| *round >= step * 0.999_999).unwrap_or(power)
}

/// Short, and without what multiplying left behind.
fn tidy(value: f64) -> String {
    let text = format!("{value:.6}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    match value {
        value if value >= 1e6 => format!("{}M", tidy(value / 1e6)),
        value if value >= 1e4 => format!("{}k", tidy(value / 1e3)),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|(_, text)| text.as_str()).collect()
    }

    #[test]
    fn linear_axes_begin_at_zero() {
        let axis = Axis::linear("rate", Unit::PerSecond, 87_000.0);
        assert_eq!(axis.label, "rate (1/s)");
        assert_eq!(texts(&axis), ["0", "50k"]);
        assert_eq!((axis.place(0.0), axis.place(87_000.0 * ROOM)), (0.0, 1.0));
        assert_eq!(texts(&Axis::linear("p99", Unit::Microseconds, 1_700.0)), ["0", "0.5", "1", "1.5"]);
    }

    #[test]
    fn logarithmic_axes_mark_powers_of_ten() {
        let axis = Axis::log("latency", Unit::Microseconds, 40.0, 2e6);
        assert_eq!(texts(&axis), ["100\u{202f}µs", "1\u{202f}ms", "10\u{202f}ms", "100\u{202f}ms", "1\u{202f}s"]);
        assert!(axis.place(40.0) > 0.0 && axis.place(2e6) < 1.0);
    }

    #[test]
    fn each_nine_of_the_tail_takes_the_same_room() {
        let axis = Axis::percentiles("percentile", 4.0);
        assert_eq!(texts(&axis), ["0", "90", "99", "99.9", "99.99"]);
        assert!((axis.place(nines(0.99)) - 0.5).abs() < 1e-9);
    }

    #[test]
    fn marks_at_chosen_values_do_not_run_into_each_other() {
        let ticks = [1.0, 2.0, 3.0, 1_000.0].map(|value| (value, value.to_string())).to_vec();
        assert_eq!(texts(&Axis::log_at("payload", ticks)), ["1", "2", "1000"]);
        let one = Axis::log_at("payload", vec![(64.0, "64 B".to_owned())]);
        assert!((one.place(64.0) - 0.5).abs() < 1e-9);
    }
}
