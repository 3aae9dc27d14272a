//! Durations and sizes: a whole number and a unit, `"10s"`, `"64KiB"`. A bare number is refused, because its unit would
//! be ambiguous.

use std::time::Duration;

const DURATIONS: [(&str, u64); 5] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 24 * 3_600_000)];

const SIZES: [(&str, u64); 4] = [("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];

/// `"250ms"`, `"10s"`, `"5m"`, `"2h"`, `"7d"`.
pub(crate) fn parse_duration(text: &str) -> Option<Duration> {
    scaled(text, &DURATIONS).map(Duration::from_millis)
}

/// `"512B"`, `"64KiB"`, `"1MiB"`, `"2GiB"`.
pub(crate) fn parse_size(text: &str) -> Option<u64> {
    scaled(text, &SIZES)
}

/// Formats the duration in its largest whole unit.
pub(crate) fn show_duration(duration: Duration) -> String {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    if millis == 0 { "0s".to_owned() } else { shown(millis, &DURATIONS) }
}

/// Formats the size in its largest whole unit.
pub(crate) fn show_size(bytes: u64) -> String {
    shown(bytes, &SIZES)
}

fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits)?;
    let (_, scale) = units.iter().find(|(name, _)| *name == unit.trim_start())?;
    number.parse::<u64>().ok()?.checked_mul(*scale)
}

fn shown(value: u64, units: &[(&str, u64)]) -> String {
    let fits = units.iter().rev().find(|(_, scale)| value != 0 && value.is_multiple_of(*scale));
    let (name, scale) = fits.or(units.first()).copied().unwrap_or(("", 1));
    format!("{}{name}", value / scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_a_whole_number_and_a_unit() {
        for (text, millis) in [("0s", 0), ("250ms", 250), ("10s", 10_000), ("5 m", 300_000), ("7d", 604_800_000)] {
            assert_eq!(parse_duration(text), Some(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "10", "s", "-1s", "1.5s", "10 parsecs", "99999999999999999d", "1s "] {
            assert_eq!(parse_duration(text), None, "{text}");
        }
    }

    #[test]
    fn sizes_are_a_whole_number_and_a_unit() {
        for (text, bytes) in [("0B", 0), ("512B", 512), ("64KiB", 65_536), ("1MiB", 1 << 20), ("2GiB", 2 << 30)] {
            assert_eq!(parse_size(text), Some(bytes), "{text}");
        }
        for text in ["", "1", "1K", "1MB", "-1B", "99999999999GiB"] {
            assert_eq!(parse_size(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_shown_reads_back() {
        for bytes in [0, 1, 512, 1024, 1536, 1 << 20, 3 << 30] {
            assert_eq!(parse_size(&show_size(bytes)), Some(bytes));
        }
        for millis in [0, 1, 1500, 60_000, 86_400_000] {
            let duration = Duration::from_millis(millis);
            assert_eq!(parse_duration(&show_duration(duration)), Some(duration));
        }
    }
}
