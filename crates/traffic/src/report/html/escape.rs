//! Text that stays text.

/// For the inside of elements and of attributes in double quotes. Control characters, which XML has no way to write,
/// become U+FFFD.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\r' | '\t' => out.push(' '),
            other if other.is_control() => out.push(char::REPLACEMENT_CHARACTER),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_markup_comes_of_text() {
        assert_eq!(escape("<a href=\"x\" b='y'>&\u{0}\n"), "&lt;a href=&quot;x&quot; b=&#39;y&#39;&gt;&amp;\u{fffd} ");
    }
}
