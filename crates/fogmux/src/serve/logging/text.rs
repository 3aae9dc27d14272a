//! Text of peers in lines of the log: what a terminal could take for a command is escaped, and its length is bounded.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::str::Chars;

use crate::terminal::is_hidden;

/// The longest value of a field in a line of JSON, in bytes. The few that a line has stay below the 48 KiB at which
/// systemd's journal divides a line (journald.conf(5), `LineMax=`), and its rest would be a line of a peer's own.
const VALUE_BYTES_MAX: usize = 1 << 10;
/// The longest line of text, in bytes, for the same reason.
const LINE_BYTES_MAX: usize = 8 << 10;

/// Makes an event one line without hidden characters, except for the escape character of colours if there are any.
pub(super) fn line(event: &[u8], has_colours: bool) -> Vec<u8> {
    let event = String::from_utf8_lossy(event);
    let event = shortened(event.strip_suffix('\n').unwrap_or(&event), LINE_BYTES_MAX);
    let mut line = String::with_capacity(event.len() + 1);
    for char in event.chars() {
        match u8::try_from(char) {
            Ok(0x1b) if has_colours => line.push(char),
            Ok(byte) if byte.is_ascii_control() => {
                line.extend(std::ascii::escape_default(byte).map(char::from));
            }
            Ok(_) | Err(_) if is_hidden(char) => line.extend(char.escape_unicode()),
            Ok(_) | Err(_) => line.push(char),
        }
    }
    line.push('\n');
    line.into_bytes()
}

/// The beginning of a value that is too long, with the number of bytes that are left out.
pub(super) fn cut(value: &str) -> Cow<'_, str> {
    shortened(value, VALUE_BYTES_MAX)
}

/// The text that Rust's `Debug` has quoted; `None` if it is not one text.
pub(super) fn unquoted(debug: &str) -> Option<String> {
    let quoted = debug.strip_prefix('"')?.strip_suffix('"')?;
    let mut text = String::with_capacity(quoted.len());
    let mut chars = quoted.chars();
    while let Some(char) = chars.next() {
        match char {
            '"' => return None,
            '\\' => text.push(unescaped(&mut chars)?),
            other => text.push(other),
        }
    }
    Some(text)
}

/// The character that an escape stands for, of which the backslash has been read.
fn unescaped(chars: &mut Chars<'_>) -> Option<char> {
    match chars.next()? {
        'n' => Some('\n'),
        'r' => Some('\r'),
        't' => Some('\t'),
        '0' => Some('\0'),
        same @ ('\'' | '"' | '\\') => Some(same),
        'u' => {
            let (digits, rest) = chars.as_str().strip_prefix('{')?.split_once('}')?;
            *chars = rest.chars();
            char::from_u32(u32::from_str_radix(digits, 16).ok()?)
        }
        _ => None,
    }
}

fn shortened(text: &str, bytes_max: usize) -> Cow<'_, str> {
    if text.len() <= bytes_max {
        return Cow::Borrowed(text);
    }
    let begin = text.get(..text.floor_char_boundary(bytes_max)).unwrap_or_default();
    let mut cut = begin.to_owned();
    // Writing to a String cannot fail.
    let _ = write!(cut, "… ({} bytes more)", text.len() - begin.len());
    Cow::Owned(cut)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_could_obey_is_escaped() {
        let told = |text: &str, colours| String::from_utf8(line(text.as_bytes(), colours)).unwrap();
        assert_eq!(told("a\nb\x1b[31m\x7f\u{9b}31m\n", false), "a\\nb\\x1b[31m\\x7f\\u{9b}31m\n");
        assert_eq!(told("\x1b[2mtime\x1b[0m \u{202e}\u{2028}", true), "\x1b[2mtime\x1b[0m \\u{202e}\\u{2028}\n");
        assert_eq!(told("Zürich 東京 \u{1f321}", false), "Zürich 東京 \u{1f321}\n");
    }

    #[test]
    fn a_long_text_says_how_much_is_left_out() {
        let cut = cut(&"ä".repeat(5000)).into_owned();
        assert!(cut.ends_with("ä… (8976 bytes more)"), "{cut}");
        assert_eq!(super::cut("short"), "short");
    }

    #[test]
    fn any_event_is_one_short_line_that_hides_nothing() {
        let all: String = ('\0'..=char::MAX).collect();
        for (event, many) in [(all.as_bytes(), 1), (b"\xff\x80\xc2", 9_000), ("\u{e0001}\x01\u{85}".as_bytes(), 9_000)]
        {
            for event in event.chunks(4_000).map(|chunk| chunk.repeat(many)) {
                let line = String::from_utf8(line(&event, false)).unwrap();
                let text = line.strip_suffix('\n').unwrap();
                assert!(!text.contains(is_hidden), "{text:?}");
                assert!(text.len() <= 4 * LINE_BYTES_MAX + 40, "{}", text.len());
            }
        }
    }

    #[test]
    fn a_quoted_text_is_read_as_it_was() {
        for char in '\0'..=char::MAX {
            let text = format!("{char}\"{char}0\\u{{{char}");
            assert_eq!(unquoted(&format!("{text:?}")).as_ref(), Some(&text));
        }
        for other in ["", "\"", "a", "[\"a\", \"b\"]", "\"a\", \"b\"", "\"\\u{\"", "\"\\u{110000}\"", "\"\\\""] {
            assert_eq!(unquoted(other), None, "{other}");
        }
    }
}
