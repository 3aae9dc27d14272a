//! Percent-decoding, exactly once (RFC 3986 §2.1), to valid UTF-8 without NUL.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

/// Why an encoded component is not text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Malformed {
    /// A `%` that two hexadecimal digits do not follow.
    Percent,
    /// The decoded bytes are not UTF-8.
    Utf8,
}

/// Decodes one component. Borrowed when there is nothing to decode.
pub(crate) fn decode(encoded: &str) -> Result<Cow<'_, str>, Malformed> {
    if !encoded.as_bytes().contains(&b'%') {
        return Ok(Cow::Borrowed(encoded));
    }
    // RFC 3986 §2.4: a percent sign that starts no triplet is an error; the crate would pass it through.
    let mut rest = encoded.as_bytes();
    while let Some(at) = rest.iter().position(|&byte| byte == b'%') {
        let (Some(high), Some(low)) = (rest.get(at + 1), rest.get(at + 2)) else { return Err(Malformed::Percent) };
        if !high.is_ascii_hexdigit() || !low.is_ascii_hexdigit() {
            return Err(Malformed::Percent);
        }
        rest = rest.get(at + 3..).unwrap_or_default();
    }
    percent_decode_str(encoded).decode_utf8().map_err(|_| Malformed::Utf8)
}

/// The characters that are encoded in a path: all but `pchar` and `/` (RFC 3986 §3.3).
const PATH: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// The characters that are encoded in a query value. `+` is included, since some readers decode it as a space.
const QUERY: &AsciiSet = &PATH.add(b'&').add(b'+').add(b'=').add(b'\'');

/// Encodes a topic for a path. `/` stays; a level `.` or `..` is escaped against dot-segment removal (RFC 3986 §5.2.4).
pub(crate) fn encode_path(topic: &str, out: &mut String) {
    for (index, level) in topic.split('/').enumerate() {
        if index > 0 {
            out.push('/');
        }
        match level {
            "." => out.push_str("%2E"),
            ".." => out.push_str("%2E%2E"),
            other => out.extend(utf8_percent_encode(other, PATH)),
        }
    }
}

/// Encodes a value for a query.
pub(crate) fn encode_query(value: &str, out: &mut String) {
    out.extend(utf8_percent_encode(value, QUERY));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_component_is_decoded_once() {
        assert_eq!(decode("a%2541").unwrap(), "a%41");
        assert_eq!(decode("a+b").unwrap(), "a+b");
        assert_eq!(decode("%c3%A4").unwrap(), "ä");
    }

    #[test]
    fn broken_triplets_and_broken_utf8_are_errors() {
        for broken in ["%", "%4", "a%zz", "%%41", "%4g"] {
            assert_eq!(decode(broken), Err(Malformed::Percent), "{broken}");
        }
        assert_eq!(decode("%ff"), Err(Malformed::Utf8));
        assert_eq!(decode("%c3"), Err(Malformed::Utf8));
    }
}
