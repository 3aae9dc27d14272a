//! Which characters XML 1.0 (fifth edition) allows where, and how text is escaped on the way out.

/// `Char` (XML §2.2).
pub(crate) fn is_char(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | ' '..='\u{D7FF}' | '\u{E000}'..='\u{FFFD}' | '\u{10000}'..)
}

/// Whether every character of `text` may stand in an XML document, as itself or as a reference.
pub(crate) fn all_chars(text: &str) -> bool {
    let bytes = text.as_bytes();
    // One branch-free pass over the bytes: the controls below 0x20 that XML forbids.
    let controls = bytes.iter().fold(false, |bad, b| bad | (*b < 0x20 && !matches!(b, b'\t' | b'\n' | b'\r')));
    // U+FFFE and U+FFFF are EF BF BE and EF BF BF.
    !controls
        && !memchr::memchr_iter(0xEF, bytes).any(|at| matches!(bytes.get(at + 1..at + 3), Some([0xBF, 0xBE | 0xBF])))
}

/// `NameStartChar` without the colon (Namespaces in XML §3).
fn is_name_start(c: char) -> bool {
    matches!(c,
        'A'..='Z' | 'a'..='z' | '_' | '\u{C0}'..='\u{D6}' | '\u{D8}'..='\u{F6}' | '\u{F8}'..='\u{2FF}'
        | '\u{370}'..='\u{37D}' | '\u{37F}'..='\u{1FFF}' | '\u{200C}'..='\u{200D}' | '\u{2070}'..='\u{218F}'
        | '\u{2C00}'..='\u{2FEF}' | '\u{3001}'..='\u{D7FF}' | '\u{F900}'..='\u{FDCF}' | '\u{FDF0}'..='\u{FFFD}'
        | '\u{10000}'..='\u{EFFFF}')
}

/// `NameChar` without the colon (XML §2.3).
fn is_name_char(c: char) -> bool {
    is_name_start(c) || matches!(c, '-' | '.' | '0'..='9' | '\u{B7}' | '\u{300}'..='\u{36F}' | '\u{203F}'..='\u{2040}')
}

/// `NCName` (Namespaces in XML §3).
pub(crate) fn is_nc_name(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(is_name_start) && chars.all(is_name_char)
}

/// `S` (XML §2.3).
pub(crate) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// Appends `text` as character data. A carriage return becomes a reference: as itself a parser would turn it into a
/// line feed (XML §2.11).
pub(crate) fn escape_text(out: &mut Vec<u8>, text: &str) {
    escape(out, text, |b| match b {
        b'<' => Some("&lt;"),
        b'>' => Some("&gt;"),
        b'&' => Some("&amp;"),
        b'\r' => Some("&#13;"),
        _ => None,
    });
}

/// Appends `value` for an attribute in either kind of quotes. White space other than blanks becomes references: as
/// itself a parser would turn it into blanks (XML §3.3.3).
pub(crate) fn escape_attribute(out: &mut Vec<u8>, value: &str) {
    escape(out, value, |b| match b {
        b'<' => Some("&lt;"),
        b'>' => Some("&gt;"),
        b'&' => Some("&amp;"),
        b'\'' => Some("&apos;"),
        b'"' => Some("&quot;"),
        b'\t' => Some("&#9;"),
        b'\n' => Some("&#10;"),
        b'\r' => Some("&#13;"),
        _ => None,
    });
}

fn escape(out: &mut Vec<u8>, text: &str, reference: impl Fn(u8) -> Option<&'static str>) {
    let mut rest = text.as_bytes();
    while let Some(at) = rest.iter().position(|b| reference(*b).is_some()) {
        let (plain, tail) = rest.split_at(at);
        out.extend_from_slice(plain);
        let Some((special, tail)) = tail.split_first() else { break };
        out.extend_from_slice(reference(*special).unwrap_or_default().as_bytes());
        rest = tail;
    }
    out.extend_from_slice(rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaping_keeps_what_parsers_would_normalise() {
        let mut out = Vec::new();
        escape_text(&mut out, "a<b>&\r\n'\"");
        assert_eq!(out, b"a&lt;b&gt;&amp;&#13;\n'\"");
        out.clear();
        escape_attribute(&mut out, "\t\r\n'\"&<>x");
        assert_eq!(out, b"&#9;&#13;&#10;&apos;&quot;&amp;&lt;&gt;x");
    }

    #[test]
    fn forbidden_characters_are_found() {
        for bad in ["\0", "\u{1}", "a\u{1f}", "\u{FFFE}", "x\u{FFFF}"] {
            assert!(!all_chars(bad), "{bad:?}");
        }
        for good in ["", "\t\r\n", "\u{7f}", "\u{FFFD}", "ü€𝄞"] {
            assert!(all_chars(good), "{good:?}");
        }
        assert!(is_char('\n') && !is_char('\u{0}') && !is_char('\u{FFFF}'));
    }
}
