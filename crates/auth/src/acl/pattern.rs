//! A rule's filter with `%u`, `%c` and `%g` still in it, and what it becomes for one principal.

use std::sync::Arc;

use super::filter;

/// A parsed filter with placeholders.
#[derive(Debug, Clone)]
pub(super) struct Pattern {
    text: Arc<str>,
    pieces: Vec<Piece>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Literal(String),
    User,
    Client,
    Group,
}

/// What fills the placeholders.
#[derive(Debug, Clone, Copy)]
pub(super) struct Names<'a> {
    /// None for the anonymous: their name is nobody's.
    pub(super) user: Option<&'a str>,
    pub(super) client: &'a str,
    pub(super) groups: &'a [Arc<str>],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum PatternError {
    #[error("a % must be followed by u, c, g or %")]
    Placeholder,
    #[error("not a topic filter: # only as the last level, + only as a whole level, no NUL, 1 to 65535 bytes")]
    Filter,
}

impl Pattern {
    pub(super) fn parse(text: &str) -> Result<Self, PatternError> {
        let mut pieces = Vec::new();
        let mut literal = String::new();
        let mut characters = text.chars();
        while let Some(character) = characters.next() {
            if character != '%' {
                literal.push(character);
                continue;
            }
            let piece = match characters.next() {
                Some('u') => Piece::User,
                Some('c') => Piece::Client,
                Some('g') => Piece::Group,
                Some('%') => {
                    literal.push('%');
                    continue;
                }
                Some(_) | None => return Err(PatternError::Placeholder),
            };
            if !literal.is_empty() {
                pieces.push(Piece::Literal(std::mem::take(&mut literal)));
            }
            pieces.push(piece);
        }
        if !literal.is_empty() {
            pieces.push(Piece::Literal(literal));
        }
        let pattern = Self { text: text.into(), pieces };
        let sample = pattern.fill(&Names { user: Some("x"), client: "x", groups: &[] }, "x");
        match sample.is_some_and(|sample| filter::is_valid(&sample)) {
            true => Ok(pattern),
            false => Err(PatternError::Filter),
        }
    }

    pub(super) fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether what it becomes depends on the client identifier.
    pub(super) fn names_client(&self) -> bool {
        self.pieces.contains(&Piece::Client)
    }

    /// The filters it stands for: none when a name is missing or could be mistaken for more than a name, one for each
    /// group with `%g`.
    pub(super) fn expand(&self, names: &Names<'_>) -> Vec<String> {
        if self.pieces.contains(&Piece::Group) {
            names.groups.iter().filter_map(|group| self.fill(names, group)).collect()
        } else {
            self.fill(names, "").into_iter().collect()
        }
    }

    fn fill(&self, names: &Names<'_>, group: &str) -> Option<String> {
        let mut filled = String::with_capacity(self.text.len() + 16);
        for piece in &self.pieces {
            match piece {
                Piece::Literal(text) => filled.push_str(text),
                Piece::User => filled.push_str(names.user.filter(|name| is_plain(name))?),
                Piece::Client => filled.push_str(Some(names.client).filter(|name| is_plain(name))?),
                Piece::Group => filled.push_str(Some(group).filter(|name| is_plain(name))?),
            }
        }
        (filled.len() <= filter::BYTES_MAX).then_some(filled)
    }
}

/// A name that stays one piece of one level: no separator, no wildcard, not the `$` that marks topics of our own.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('$') && !name.contains(['/', '+', '#', '\0'])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn expand(pattern: &str, user: &str, client: &str, groups: &[&str]) -> Vec<String> {
        let groups: Vec<Arc<str>> = groups.iter().map(|group| Arc::from(*group)).collect();
        Pattern::parse(pattern).unwrap().expand(&Names { user: Some(user), client, groups: &groups })
    }

    #[test]
    fn placeholders_are_filled() {
        assert_eq!(expand("a/%u/%c/#", "bob", "c1", &[]), ["a/bob/c1/#"]);
        assert_eq!(expand("g/%g/dev-%u", "bob", "", &["x", "y"]), ["g/x/dev-bob", "g/y/dev-bob"]);
        assert_eq!(expand("100%%/%%u", "bob", "", &[]), ["100%/%u"]);
        assert!(expand("g/%g", "bob", "", &[]).is_empty());
        assert!(expand("c/%c", "bob", "", &[]).is_empty());
    }

    #[test]
    fn names_cannot_inject_levels_or_wildcards() {
        for name in ["#", "+", "a/b", "a/#", "$SYS", "", "a\0"] {
            assert!(expand("%u/x", name, "c", &[]).is_empty(), "{name:?}");
            assert!(expand("%c/x", "u", name, &[]).is_empty(), "{name:?}");
            assert!(expand("%g/x", "u", "c", &[name]).is_empty(), "{name:?}");
        }
        // A name that looks like a placeholder is not filled again.
        assert_eq!(expand("%u/x", "%c", "c", &[]), ["%c/x"]);
    }

    #[test]
    fn malformed_patterns() {
        for text in ["", "a/#/b", "a#", "+a", "a/b+", "#%u", "+%u", "a\0b"] {
            assert_eq!(Pattern::parse(text).err(), Some(PatternError::Filter), "{text:?}");
        }
        for text in ["%", "a/%", "%x", "%U"] {
            assert_eq!(Pattern::parse(text).err(), Some(PatternError::Placeholder), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn an_expansion_has_the_levels_and_wildcards_of_its_pattern(name in "[a-z+#/$%]{0,6}") {
            for filled in expand("a/%u/+/%c/#", &name, &name, &[]) {
                prop_assert_eq!(filled.matches('/').count(), 4);
                prop_assert_eq!(filled.matches(['+', '#']).count(), 2);
                prop_assert!(filter::is_valid(&filled));
            }
        }
    }
}
