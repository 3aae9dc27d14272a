//! Content-Formats (RFC 7252 §12.3) and their MIME types.

use std::sync::LazyLock;

use coap_numbers::content_format as registry;
use smallvec::SmallVec;

/// `text/plain;charset=utf-8`
pub const TEXT: u16 = 0;
/// `application/link-format`
pub const LINK_FORMAT: u16 = 40;
/// `application/octet-stream`
pub const OCTET_STREAM: u16 = 42;

/// The formats that devices mostly send come first.
const COMMON: [(&str, u16); 8] = [
    ("application/json", 50),
    ("text/plain;charset=utf-8", TEXT),
    ("application/octet-stream", OCTET_STREAM),
    ("application/cbor", 60),
    ("application/xml", 41),
    ("application/senml+json", 110),
    ("application/senml+cbor", 112),
    ("application/link-format", LINK_FORMAT),
];

/// Numbers up to here may be registered; those above are for experiments (RFC 7252 §12.3).
const REGISTERED_MAX: u16 = 20_100;

/// The MIME type of a Content-Format; `None` when it is not registered, or has a content coding, which a MIME type
/// cannot express.
#[must_use]
pub fn mime_type(format: u16) -> Option<&'static str> {
    if let Some((mime, _)) = COMMON.iter().find(|(_, number)| *number == format) {
        return Some(mime);
    }
    registry::to_str(format).filter(|mime| !mime.contains('@'))
}

/// The Content-Format of a MIME type; `None` when it has none, and the option is left out. Case and white space around
/// parameters are ignored (RFC 9110 §8.3.1). Parameters are not: `text/plain` promises less than
/// `text/plain;charset=utf-8`.
#[must_use]
pub fn from_mime_type(mime: &str) -> Option<u16> {
    if let Some((_, number)) = COMMON.iter().find(|(name, _)| *name == mime) {
        return Some(*number);
    }
    if mime.len() > MIME_BYTES_MAX {
        return None;
    }
    let wanted = significant(mime);
    let found = REGISTERED.binary_search_by(|(name, _)| name.as_slice().cmp(&wanted)).ok()?;
    REGISTERED.get(found).map(|(_, number)| *number)
}

/// The Content-Format of a representation: that of [`from_mime_type`], otherwise that of the type without parameters
/// that mean nothing (the loose mapping of RFC 8075). JSON has no charset (RFC 8259 §11), and `text/plain` whose bytes
/// are UTF-8 is `text/plain;charset=utf-8`.
#[must_use]
pub fn of_representation(mime: &str, payload: &[u8]) -> Option<u16> {
    from_mime_type(mime).or_else(|| loose(mime, payload))
}

#[cold]
fn loose(mime: &str, payload: &[u8]) -> Option<u16> {
    let (essence, parameters) = mime.split_once(';').unwrap_or((mime, ""));
    let only_charset = |parameter: &str| {
        let name = parameter.split('=').next().unwrap_or_default().trim();
        name.is_empty() || name.eq_ignore_ascii_case("charset")
    };
    let is = |name: &str| essence.trim().eq_ignore_ascii_case(name);
    if is("application/json") && parameters.split(';').all(only_charset) {
        return from_mime_type("application/json");
    }
    // A quoted value means the same (RFC 9110 §5.6.6).
    let charset = parameters.trim().split_once('=').map(|(_, value)| value.trim().trim_matches('"'));
    let utf8 = only_charset(parameters) && charset.is_none_or(|charset| charset.eq_ignore_ascii_case("utf-8"));
    (is("text/plain") && utf8 && std::str::from_utf8(payload).is_ok()).then_some(TEXT)
}

/// Longer than any registered one with generous white space.
const MIME_BYTES_MAX: usize = 160;

/// The part of a MIME type that is compared, so that two of the same meaning are equal.
type Significant = SmallVec<[u8; 80]>;

/// Every registered format, sorted by the compared part of its name; built once.
static REGISTERED: LazyLock<Vec<(Significant, u16)>> = LazyLock::new(|| {
    let named = |number| mime_type(number).map(|mime| (significant(mime), number));
    let mut all: Vec<_> = (0..REGISTERED_MAX).filter_map(named).collect();
    all.sort();
    all
});

/// Lower case, without white space outside quotes.
fn significant(mime: &str) -> Significant {
    let mut quoted = false;
    mime.bytes()
        .filter(|byte| {
            quoted ^= *byte == b'"';
            quoted || !byte.is_ascii_whitespace()
        })
        .map(|byte| byte.to_ascii_lowercase())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_registered_format_goes_both_ways() {
        for number in 0..REGISTERED_MAX {
            if let Some(mime) = mime_type(number) {
                assert_eq!(from_mime_type(mime), Some(number), "{mime}");
            }
        }
    }

    #[test]
    fn rfc_8075_loosely_where_parameters_say_nothing() {
        for (mime, payload, format) in [
            ("text/plain", &b"21.5"[..], Some(TEXT)),
            ("Text/Plain", "21,5 °C".as_bytes(), Some(TEXT)),
            ("text/plain", b"", Some(TEXT)),
            ("text/plain", b"\xff\xfe", None),
            ("text/plain; charset=\"UTF-8\"", b"x", Some(TEXT)),
            ("text/plain; charset=iso-8859-1", b"x", None),
            ("text/plain; format=flowed", b"x", None),
            ("application/json; charset=utf-8", b"{}", Some(50)),
            ("application/json;charset=UTF-8;", b"{}", Some(50)),
            ("application/json; profile=x", b"{}", None),
            ("application/xml; charset=utf-8", b"<a/>", None),
            ("application/x-unknown", b"x", None),
        ] {
            assert_eq!(of_representation(mime, payload), format, "{mime}");
        }
    }

    #[test]
    fn case_and_blanks_do_not_matter() {
        assert_eq!(from_mime_type("Text/Plain; charset=UTF-8"), Some(TEXT));
        assert_eq!(from_mime_type("application/cose;cose-type=\"cose-sign\""), Some(98));
        assert_eq!(from_mime_type("text/plain"), None);
        assert_eq!(from_mime_type("image/png"), Some(23));
        assert_eq!(from_mime_type("application/x-unknown"), None);
        assert_eq!(mime_type(11050), None);
        assert_eq!(mime_type(65_000), None);
    }
}
