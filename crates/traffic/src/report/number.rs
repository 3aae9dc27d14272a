//! Formatting of numbers: as many digits as the measurement supports, one unit for a whole column.

use crate::measure::statistics::Interval;

/// The unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Things a second.
    PerSecond,
    /// Time, in microseconds.
    Microseconds,
    /// Sizes, in bytes.
    Bytes,
    /// Sizes that are compared to the byte and so are never shown in anything larger.
    ExactBytes,
    /// Bytes a second.
    BytesPerSecond,
    /// Energy, in millijoules.
    Millijoules,
    /// Things.
    Count,
}

/// The unit that a column or an axis is shown in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// The text of the unit; empty for plain counts.
    pub name: &'static str,
    /// The divisor of values.
    pub divisor: f64,
}

/// As it is.
pub(crate) const PLAIN: Scale = Scale { name: "", divisor: 1.0 };
const TIMES: [Scale; 3] = [
    Scale { name: "µs", divisor: 1.0 },
    Scale { name: "ms", divisor: 1_000.0 },
    Scale { name: "s", divisor: 1_000_000.0 },
];
const SIZES: [Scale; 4] = [
    Scale { name: "B", divisor: 1.0 },
    Scale { name: "KiB", divisor: 1_024.0 },
    Scale { name: "MiB", divisor: 1_048_576.0 },
    Scale { name: "GiB", divisor: 1_073_741_824.0 },
];
const ENERGIES: [Scale; 3] =
    [Scale { name: "µJ", divisor: 1e-3 }, Scale { name: "mJ", divisor: 1.0 }, Scale { name: "J", divisor: 1e3 }];
const SPEEDS: [Scale; 4] = [
    Scale { name: "B/s", divisor: 1.0 },
    Scale { name: "KiB/s", divisor: 1_024.0 },
    Scale { name: "MiB/s", divisor: 1_048_576.0 },
    Scale { name: "GiB/s", divisor: 1_073_741_824.0 },
];

/// Digits of a value whose spread is not known: one repetition.
const DIGITS_ALONE: i32 = 3;
/// The most digits that any interval justifies: the histogram keeps three, and machines drift by more than the rest.
const DIGITS_MOST: i32 = 4;
/// The fewest, so that two values can be told apart at all.
const DIGITS_LEAST: i32 = 2;

impl Unit {
    /// The largest unit in which the middle one of these values is not below 1.
    pub fn scale(self, values: impl IntoIterator<Item = f64>) -> Scale {
        let mut values: Vec<f64> = values.into_iter().filter(|value| value.is_finite() && *value > 0.0).collect();
        values.sort_by(f64::total_cmp);
        let middle = values.get(values.len() / 2).copied().unwrap_or_default();
        let scales: &[Scale] = match self {
            Self::Microseconds => &TIMES,
            Self::Bytes => &SIZES,
            Self::BytesPerSecond => &SPEEDS,
            Self::Millijoules => &ENERGIES,
            Self::ExactBytes => &[Scale { name: "B", divisor: 1.0 }],
            Self::PerSecond => &[Scale { name: "/s", divisor: 1.0 }],
            Self::Count => &[PLAIN],
        };
        let first = scales.first().copied().unwrap_or(PLAIN);
        scales.iter().rev().find(|scale| middle >= scale.divisor).copied().unwrap_or(first)
    }
}

impl Scale {
    /// The median, with the digits that its interval leaves certain.
    #[must_use]
    pub fn median(self, interval: &Interval) -> String {
        let value = interval.median / self.divisor;
        grouped(value, decimals(value, spread(interval) / self.divisor))
    }

    /// Both ends of the interval with the digits of the median: `12 340–12 560`.
    #[must_use]
    pub fn range(self, interval: &Interval) -> String {
        let decimals = decimals(interval.median / self.divisor, spread(interval) / self.divisor);
        let [low, high] = [interval.low, interval.high].map(|end| grouped(end / self.divisor, decimals));
        format!("{low}–{high}")
    }

    /// A value of which nothing else is known.
    #[must_use]
    pub fn value(self, value: f64) -> String {
        let value = value / self.divisor;
        grouped(value, decimals(value, 0.0))
    }
}

/// A value with its unit: `1.23 ms`.
#[must_use]
pub fn with_unit(unit: Unit, value: f64) -> String {
    let scale = unit.scale([value]);
    format!("{}{}{}", scale.value(value), if scale.name.starts_with('/') { "" } else { NARROW_SPACE }, scale.name)
        .trim_end()
        .to_owned()
}

/// A size that somebody chose: `64 B`, `1 KiB`, `10 kB`, whichever is round.
#[must_use]
pub fn size(bytes: f64) -> String {
    const ROUND: [(f64, &str); 6] =
        [(1_073_741_824.0, "GiB"), (1e9, "GB"), (1_048_576.0, "MiB"), (1e6, "MB"), (1_024.0, "KiB"), (1e3, "kB")];
    let (divisor, name) =
        ROUND.into_iter().find(|(unit, _)| bytes >= *unit && bytes % unit == 0.0).unwrap_or((1.0, "B"));
    format!("{}{NARROW_SPACE}{name}", grouped(bytes / divisor, 0))
}

/// Between thousands and before units: does not break, and is one column wide on a terminal.
pub(crate) const NARROW_SPACE: &str = "\u{202f}";

/// Half of the interval; 0 when there is only one value, or all are equal.
fn spread(interval: &Interval) -> f64 {
    (interval.high - interval.low).abs() / 2.0
}

/// How many digits follow the point; negative ones are rounded before it.
fn decimals(value: f64, spread: f64) -> i32 {
    if value == 0.0 || !value.is_finite() {
        return 0;
    }
    let leading = exponent(value);
    // Less than that is what adding up in another order leaves.
    if spread <= value.abs() * 1e-9 {
        // Counts are exact.
        return if value.fract() == 0.0 { 0 } else { (DIGITS_ALONE - 1 - leading).max(0) };
    }
    let certain = -exponent(spread);
    certain.clamp(DIGITS_LEAST - 1 - leading, DIGITS_MOST - 1 - leading)
}

/// Of the power of ten that the first digit stands for.
pub(crate) fn exponent(value: f64) -> i32 {
    format!("{value:e}").rsplit('e').next().and_then(|digits| digits.parse().ok()).unwrap_or_default()
}

/// Rounded to this many digits behind the point, thousands apart.
fn grouped(value: f64, decimals: i32) -> String {
    let factor = 10f64.powi(decimals);
    let rounded = (value * factor).round() / factor;
    let text = format!("{rounded:.*}", usize::try_from(decimals).unwrap_or_default());
    let (sign, text) = text.strip_prefix('-').map_or(("", text.as_str()), |rest| ("-", rest));
    let (whole, fraction) = text.split_once('.').map_or((text, None), |(whole, fraction)| (whole, Some(fraction)));
    let mut out = String::from(sign);
    for (position, digit) in whole.chars().enumerate() {
        // Four digits read well as they are.
        if position > 0 && whole.len() > 4 && (whole.len() - position).is_multiple_of(3) {
            out.push_str(NARROW_SPACE);
        }
        out.push(digit);
    }
    if let Some(fraction) = fraction {
        out.push('.');
        out.push_str(fraction);
    }
    out
}

/// `2 h 5 min`, `1 min 20 s`, `7 s`: the two largest parts.
#[must_use]
pub fn duration(seconds: f64) -> String {
    let seconds = seconds.max(0.0).round();
    let (hours, minutes) = ((seconds / 3_600.0).floor(), (seconds / 60.0).floor());
    match (hours >= 1.0, minutes >= 1.0) {
        (true, _) => format!("{hours} h {} min", minutes % 60.0),
        (false, true) => format!("{minutes} min {} s", seconds % 60.0),
        (false, false) => format!("{seconds} s"),
    }
}

/// A moment in ISO 8601, UTC. Days to dates after Howard Hinnant, "chrono-compatible low-level date algorithms".
#[must_use]
pub fn moment(unix_s: u64) -> String {
    let (days, second) = (unix_s / 86_400, unix_s % 86_400);
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year}-{month:02}-{day:02} {:02}:{:02} UTC", second / 3_600, second / 60 % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(median: f64, low: f64, high: f64) -> String {
        PLAIN.median(&Interval { median, low, high }).replace(NARROW_SPACE, " ")
    }

    #[test]
    fn the_interval_says_how_many_digits_are_shown() {
        assert_eq!(of(12_345.6, 12_000.0, 12_700.0), "12 300");
        assert_eq!(of(12_345.6, 12_340.0, 12_350.0), "12 350");
        assert_eq!(of(12_345.6, 2_000.0, 42_700.0), "12 000");
        assert_eq!(of(0.123_456, 0.12, 0.13), "0.123");
        assert_eq!(of(1.5, 1.5, 1.5), "1.50");
        assert_eq!(of(68.0, 68.0, 68.0), "68");
        assert_eq!(of(0.0, 0.0, 0.0), "0");
    }

    #[test]
    fn thousands_stand_apart_and_four_digits_do_not() {
        assert_eq!(grouped(1_234_567.0, 0), "1\u{202f}234\u{202f}567");
        assert_eq!(grouped(1_234.5, 1), "1234.5");
        assert_eq!(grouped(-12_345.0, 0), "-12\u{202f}345");
    }

    #[test]
    fn a_column_has_the_unit_of_its_middle_value() {
        assert_eq!(Unit::Microseconds.scale([80.0, 2_000.0, 9_000_000.0]).name, "ms");
        assert_eq!(Unit::Bytes.scale([5e6]).name, "MiB");
        assert_eq!(Unit::Microseconds.scale([]).name, "µs");
        assert_eq!(with_unit(Unit::Microseconds, 1_234.0), "1.23\u{202f}ms");
        assert_eq!(with_unit(Unit::PerSecond, 1_234.0), "1234/s");
        assert_eq!(with_unit(Unit::Count, 3.0), "3");
    }

    #[test]
    fn chosen_sizes_are_round() {
        let shown = [1.0, 64.0, 1_000.0, 1_024.0, 65_536.0, 10_000_000.0, 1_500.0].map(size);
        let shown = shown.each_ref().map(|text| text.replace(NARROW_SPACE, " "));
        assert_eq!(shown, ["1 B", "64 B", "1 kB", "1 KiB", "64 KiB", "10 MB", "1500 B"]);
    }

    #[test]
    fn moments_are_those_of_the_calendar() {
        assert_eq!(moment(0), "1970-01-01 00:00 UTC");
        assert_eq!(moment(951_782_399), "2000-02-28 23:59 UTC");
        assert_eq!(moment(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(moment(1_795_310_965), "2026-11-22 01:29 UTC");
    }

    #[test]
    fn durations_name_two_parts() {
        assert_eq!(duration(7.4), "7 s");
        assert_eq!(duration(80.0), "1 min 20 s");
        assert_eq!(duration(7_500.0), "2 h 5 min");
    }
}
