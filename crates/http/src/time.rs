//! Time on the wire: RFC 3339 in UTC with milliseconds, and HTTP dates (RFC 9110 §5.6.7).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

const DAY_SECONDS: u64 = 86_400;

/// The length of what [`push_rfc3339`] writes for years up to 9999.
pub const RFC3339_BYTES: usize = 24;

/// Appends `2026-11-21T05:39:10.123Z`. Milliseconds, because that is what the bus keeps; UTC, because a gateway's zone
/// is nobody's business. Years after 9999 are written as 9999.
pub fn push_rfc3339(unix_ms: u64, out: &mut Vec<u8>) {
    let seconds = unix_ms / 1000;
    let (year, month, day) = civil(seconds / DAY_SECONDS);
    let second_of_day = seconds % DAY_SECONDS;
    push_digits(year.min(9999), 4, out);
    for (separator, value) in [
        (b'-', month),
        (b'-', day),
        (b'T', second_of_day / 3600),
        (b':', second_of_day / 60 % 60),
        (b':', second_of_day % 60),
    ] {
        out.push(separator);
        push_digits(value, 2, out);
    }
    out.push(b'.');
    push_digits(unix_ms % 1000, 3, out);
    out.push(b'Z');
}

/// Year, month and day of a day since 1970-01-01 in the proleptic Gregorian calendar (Hinnant, `civil_from_days`).
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

fn push_digits(value: u64, digits: u32, out: &mut Vec<u8>) {
    for place in (0..digits).rev() {
        out.push(b'0' + u8::try_from(value / 10_u64.pow(place) % 10).unwrap_or(0));
    }
}

/// An `IMF-fixdate`, for `Last-Modified`.
#[must_use]
pub fn http_date(unix_ms: u64) -> String {
    // httpdate panics after the year 9999.
    let seconds = (unix_ms / 1000).min(253_402_300_799);
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(seconds))
}

/// Seconds since 1970 of any of the three forms of an HTTP date.
#[must_use]
pub fn parse_http_date(value: &str) -> Option<u64> {
    let time: SystemTime = httpdate::parse_http_date(value.trim()).ok()?;
    time.duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rfc3339(unix_ms: u64) -> String {
        let mut out = Vec::new();
        push_rfc3339(unix_ms, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn times_are_utc_with_milliseconds() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(rfc3339(951_782_400_007), "2000-02-29T00:00:00.007Z");

        assert_eq!(rfc3339(253_402_300_799_999), "9999-12-31T23:59:59.999Z");
        assert_eq!(rfc3339(u64::MAX).len(), RFC3339_BYTES);
    }

    #[test]
    fn http_dates_round_trip() {
        assert_eq!(http_date(784_111_777_999), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777));
        assert_eq!(parse_http_date("Sunday, 06-Nov-94 08:49:37 GMT"), Some(784_111_777));
        assert_eq!(parse_http_date("nonsense"), None);
    }
}
