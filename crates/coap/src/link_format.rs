//! Links in `application/link-format` (RFC 6690): written one by one, filtered by query (§4.1).

use crate::request::Query;

/// One link.
#[derive(Clone, Copy, Debug, Default)]
pub struct Link<'a> {
    /// The target, already a URI reference.
    pub href: &'a str,
    /// `rt`: resource types, separated by blanks (§3.1).
    pub resource_types: &'a str,
    /// `if`: interfaces, separated by blanks (§3.2).
    pub interfaces: &'a str,
    /// `ct`: the Content-Format (RFC 7252 §7.2.1).
    pub content_format: Option<u16>,
    /// `sz`: bytes of the representation (§3.3).
    pub size: Option<usize>,
    /// `obs`: worth observing (RFC 7641 §6).
    pub observable: bool,
}

impl Link<'_> {
    /// Appends the link, behind a comma when there are others (§2).
    pub fn write(&self, to: &mut String) {
        if !to.is_empty() {
            to.push(',');
        }
        to.push('<');
        to.push_str(self.href);
        to.push('>');
        for (name, value) in [(";rt=", self.resource_types), (";if=", self.interfaces)] {
            if !value.is_empty() {
                to.push_str(name);
                write_quoted(to, value);
            }
        }
        if let Some(format) = self.content_format {
            to.push_str(";ct=");
            to.push_str(&format.to_string());
        }
        if let Some(size) = self.size {
            to.push_str(";sz=");
            to.push_str(&size.to_string());
        }
        if self.observable {
            to.push_str(";obs");
        }
    }

    /// Whether a query asks for this link: `name=value` with one `*` at the end of the value, on one of the values
    /// where an attribute has several (§4.1).
    #[must_use]
    pub fn matches(&self, query: &Query<'_>) -> bool {
        let any = |values: &str| values.split(' ').any(|value| value_matches(query.value, value));
        match query.name {
            "href" => value_matches(query.value, self.href),
            "rt" => any(self.resource_types),
            "if" => any(self.interfaces),
            "ct" => self.content_format.is_some_and(|format| value_matches(query.value, &format.to_string())),
            "sz" => self.size.is_some_and(|size| value_matches(query.value, &size.to_string())),
            "obs" => self.observable,
            _ => false,
        }
    }
}

fn value_matches(wanted: &str, value: &str) -> bool {
    match wanted.strip_suffix('*') {
        Some(prefix) => value.starts_with(prefix),
        None => wanted == value,
    }
}

/// A quoted-string (§2).
fn write_quoted(to: &mut String, value: &str) {
    to.push('"');
    for letter in value.chars() {
        if matches!(letter, '"' | '\\') {
            to.push('\\');
        }
        to.push(letter);
    }
    to.push('"');
}

/// Appends a path segment as a URI writes it: all that is not unreserved or a sub-delimiter is percent-encoded
/// (RFC 3986 §3.3). What would end a link or a list of them is encoded too.
pub fn write_segment(to: &mut String, segment: &str) {
    for byte in segment.bytes() {
        let plain = byte.is_ascii_alphanumeric() || b"-._~!$&'()*+=:@".contains(&byte);
        if plain {
            to.push(char::from(byte));
        } else {
            to.push('%');
            for nibble in [byte >> 4, byte & 0xf] {
                to.extend(char::from_digit(nibble.into(), 16).map(|digit| digit.to_ascii_uppercase()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK: Link<'_> = Link {
        href: "/ps/a",
        resource_types: "core.ps.data temperature-c",
        interfaces: "sensor",
        content_format: Some(50),
        size: None,
        observable: true,
    };

    #[test]
    fn s2_links_are_joined_by_commas() {
        let mut text = String::new();
        LINK.write(&mut text);
        Link { href: "/b", resource_types: "a\"b", ..Link::default() }.write(&mut text);
        assert_eq!(text, r#"</ps/a>;rt="core.ps.data temperature-c";if="sensor";ct=50;obs,</b>;rt="a\"b""#);
    }

    #[test]
    fn s4_1_queries() {
        for (query, expected) in [
            ("rt=temperature-c", true),
            ("rt=temperature*", true),
            ("rt=temp", false),
            ("rt=*", true),
            ("href=/ps/a", true),
            ("href=/ps/*", true),
            ("href=/other*", false),
            ("if=sensor", true),
            ("ct=50", true),
            ("foo=bar", false),
        ] {
            assert_eq!(LINK.matches(&Query::split(query)), expected, "{query}");
        }
    }

    #[test]
    fn segments_are_encoded() {
        let mut text = String::new();
        write_segment(&mut text, "a b/é>,;\"");
        assert_eq!(text, "a%20b%2F%C3%A9%3E%2C%3B%22");
    }
}
