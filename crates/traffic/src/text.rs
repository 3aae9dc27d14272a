//! Text of others, made harmless before it reaches a terminal or a report.
//!
//! A reason string, a diagnostic payload, or a report that somebody else wrote may contain what moves a cursor, changes
//! a title or hides a line.

/// The longest text of another end that is kept, in characters.
const CHARS_MAX: usize = 500;

/// Whether a terminal acts on a character instead of showing it: controls (C0, DEL and C1), and those that turn the
/// direction of writing (UAX #9).
pub(crate) fn is_acted_on(c: char) -> bool {
    let turns = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || turns
}

/// One line without control characters: a space for each that is white space, an escape for others.
#[must_use]
pub fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            c if !is_acted_on(c) => out.push(c),
            c if c.is_whitespace() => out.push(' '),
            c => out.extend(c.escape_unicode()),
        }
    }
    out
}

/// The same of what another end says, which may be of any length.
#[must_use]
pub fn said(text: &str) -> String {
    match text.char_indices().nth(CHARS_MAX) {
        Some((end, _)) => plain(text.get(..end).unwrap_or_default()) + "…",
        None => plain(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_acts_on_is_shown() {
        assert_eq!(plain("\u{1b}[2Jno\u{7}\u{9b}31m"), "\\u{1b}[2Jno\\u{7}\\u{9b}31m");
        assert_eq!(plain("two\nlines\tand\r\nmore"), "two lines and  more");
        assert_eq!(plain("a\u{202e}b"), "a\\u{202e}b");
        assert_eq!(plain("mqtt→coap 21.5 °C ü"), "mqtt→coap 21.5 °C ü");
    }

    #[test]
    fn a_long_text_is_cut() {
        assert_eq!(said(&"ü".repeat(10_000)), "ü".repeat(CHARS_MAX) + "…");
        assert_eq!(said(&"ü".repeat(CHARS_MAX)), "ü".repeat(CHARS_MAX));
    }
}
