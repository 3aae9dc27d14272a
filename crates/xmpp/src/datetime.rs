//! Dates and times of XMPP (XEP-0082 §2): `2026-11-22T23:59:59Z`, with fractions of a second and time zones.

const DAY_S: i64 = 86_400;

/// Parses a date and time into whole seconds since 1970-01-01T00:00:00Z. Fractions of a second are truncated.
#[must_use]
pub fn parse(text: &str) -> Option<u64> {
    let (date, rest) = text.trim().split_once('T')?;
    let mut date = date.splitn(3, '-').map(|part| number(part, 2..=4));
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let clock = rest.get(..8)?;
    let mut clock = clock.splitn(3, ':').map(|part| number(part, 2..=2));
    let (hour, minute, second) = (clock.next()??, clock.next()??, clock.next()??);
    let zone = rest.get(8..)?;
    let zone =
        zone.strip_prefix('.').map_or(zone, |fraction| fraction.trim_start_matches(|c: char| c.is_ascii_digit()));
    let in_range = (1..=12).contains(&month) && (1..=days(year, month)).contains(&day);
    // Second 60 is a leap second (XEP-0082 §2.3 follows ISO 8601).
    if !in_range || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let unix = days_since_1970(year, month, day) * DAY_S + hour * 3600 + minute * 60 + second - offset(zone)?;
    u64::try_from(unix).ok()
}

/// Formats seconds since 1970-01-01T00:00:00Z as UTC.
#[must_use]
pub fn format(unix_s: u64) -> String {
    let unix = i64::try_from(unix_s).unwrap_or(i64::MAX).min(MAX_UNIX_S);
    let (mut day, second) = (unix / DAY_S, unix % DAY_S);
    let (mut year, mut month) = (1970, 1);
    // One step a year: the latest year has four digits.
    while day >= days_of_year(year) {
        day -= days_of_year(year);
        year += 1;
    }
    while day >= days(year, month) {
        day -= days(year, month);
        month += 1;
    }
    format!("{year:04}-{month:02}-{:02}T{:02}:{:02}:{:02}Z", day + 1, second / 3600, second / 60 % 60, second % 60)
}

/// 9999-12-31T23:59:59Z: years have four digits.
const MAX_UNIX_S: i64 = 253_402_300_799;

fn number(text: &str, digits: std::ops::RangeInclusive<usize>) -> Option<i64> {
    let plain = digits.contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    if plain { text.parse().ok() } else { None }
}

/// `Z`, or `+hh:mm` or `-hh:mm`, in seconds east of UTC.
fn offset(zone: &str) -> Option<i64> {
    if zone == "Z" {
        return Some(0);
    }
    let (sign, rest) =
        zone.strip_prefix('+').map(|rest| (1, rest)).or_else(|| zone.strip_prefix('-').map(|r| (-1, r)))?;
    let (hours, minutes) = rest.split_once(':')?;
    let (hours, minutes) = (number(hours, 2..=2)?, number(minutes, 2..=2)?);
    if hours > 23 || minutes > 59 { None } else { Some(sign * (hours * 3600 + minutes * 60)) }
}

const fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

const fn days_of_year(year: i64) -> i64 {
    if is_leap(year) { 366 } else { 365 }
}

const fn days(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from 1970-01-01 to a date of the Gregorian calendar.
const fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    // Years begin in March here, so that the leap day is the last of a year.
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_read_and_written() {
        assert_eq!(parse("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(parse("2006-02-28T11:59:59Z"), Some(1_141_127_999));
        assert_eq!(parse("2024-02-29T23:59:59.123-06:00"), Some(1_709_272_799));
        assert_eq!(parse("2000-03-01T00:00:00+01:00"), Some(951_865_200));
        for unix in [0, 1, 951_782_399, 951_782_400, 1_709_251_199, 4_102_444_800, 253_402_300_799] {
            assert_eq!(parse(&format(unix)), Some(unix), "{}", format(unix));
        }
        assert_eq!(format(u64::MAX), "9999-12-31T23:59:59Z");
    }

    #[test]
    fn what_is_no_moment_is_refused() {
        for text in [
            "",
            "presence",
            "2006-02-28",
            "2006-02-30T00:00:00Z",
            "2006-13-01T00:00:00Z",
            "2006-02-28T24:00:00Z",
            "2006-02-28T11:59:59",
            "2006-02-28T11:59:59+1:00",
            "1969-12-31T23:59:59Z",
            "2006-02-28T11:59Z",
            "+006-02-28T11:59:59Z",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
