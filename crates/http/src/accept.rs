//! Content negotiation by media type (RFC 9110 §12.5.1).

/// Returns the quality of one media type in `Accept`, in thousandths; 0 means not acceptable. Without a field, every
/// type has 1000.
///
/// The most specific range wins: `type/subtype`, then `type/*`, then `*/*`. Parameters other than `q` are ignored,
/// since no two representations differ in one. A malformed element is skipped.
#[must_use]
pub fn quality<'a>(lines: impl Iterator<Item = &'a str>, media_type: &str) -> u16 {
    let wanted = essence(media_type);
    let wanted_type = wanted.split('/').next().unwrap_or_default();
    let mut best: Option<(u8, u16)> = None;
    let mut seen = false;
    for range in lines.flat_map(|line| line.split(',')) {
        let name = essence(range);
        if name.is_empty() {
            continue;
        }
        seen = true;
        let specific = if name.eq_ignore_ascii_case(wanted) {
            3
        } else if name.strip_suffix("/*").is_some_and(|kind| kind.eq_ignore_ascii_case(wanted_type)) {
            2
        } else if name == "*/*" {
            1
        } else {
            continue;
        };
        if best.is_none_or(|(so_far, _)| specific > so_far) {
            best = Some((specific, weight(range)));
        }
    }
    match best {
        Some((_, weight)) => weight,
        None if seen => 0,
        None => 1000,
    }
}

/// The best of several offers, the first on a tie; `None` calls for 406.
#[must_use]
pub fn choose<'o>(lines: &[&str], offers: &[&'o str]) -> Option<&'o str> {
    let mut best = None;
    let mut best_quality = 0;
    for offer in offers {
        let quality = quality(lines.iter().copied(), offer);
        if quality > best_quality {
            best_quality = quality;
            best = Some(*offer);
        }
    }
    best
}

/// The type and subtype without parameters.
#[must_use]
pub fn essence(media_type: &str) -> &str {
    media_type.split(';').next().unwrap_or_default().trim()
}

/// RFC 9110 §12.4.2. A weight that does not parse counts as 1.
fn weight(range: &str) -> u16 {
    let Some(value) = range.split(';').skip(1).find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim().eq_ignore_ascii_case("q").then_some(value.trim())
    }) else {
        return 1000;
    };
    let (whole, fraction) = value.split_once('.').unwrap_or((value, ""));
    let thousandths = match fraction.len() {
        0 => Some(0),
        1 => fraction.parse::<u16>().ok().map(|digits| digits * 100),
        2 => fraction.parse::<u16>().ok().map(|digits| digits * 10),
        3 => fraction.parse::<u16>().ok(),
        _ => None,
    };
    match (whole, thousandths) {
        ("0", Some(thousandths)) => thousandths,
        _ => 1000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAMS: [&str; 2] = ["text/event-stream", "application/x-ndjson"];

    #[test]
    fn the_most_specific_range_decides() {
        assert_eq!(choose(&[], &STREAMS), Some("text/event-stream"));
        assert_eq!(choose(&["*/*"], &STREAMS), Some("text/event-stream"));
        assert_eq!(choose(&["application/x-ndjson"], &STREAMS), Some("application/x-ndjson"));
        assert_eq!(choose(&["text/event-stream;q=0.1, application/*;q=0.2"], &STREAMS), Some("application/x-ndjson"));
        assert_eq!(choose(&["text/event-stream;q=0", "*/*;q=0.5"], &STREAMS), Some("application/x-ndjson"));
        assert_eq!(choose(&["text/html"], &STREAMS), None);
        assert_eq!(choose(&["*/*;q=0"], &STREAMS), None);
    }

    #[test]
    fn weights_have_three_digits() {
        assert_eq!(weight("a/b;q=0.125"), 125);
        assert_eq!(weight("a/b; Q=0.5"), 500);
        assert_eq!(weight("a/b;q=1.000"), 1000);
        assert_eq!(weight("a/b;q=nonsense"), 1000);
    }
}
