//! A rule's filter with its placeholders `%u`, `%c`, `%g` and `%{claim}`, and the filters it expands to for one
//! principal.

use std::sync::Arc;

use super::filter;
use crate::source::grant::Variables;

/// Filters that one pattern may expand to. An allow rule loses those beyond; a deny rule then applies to all values.
const FILTERS_MAX: usize = 256;

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
    /// The values of the credential's claim with this name.
    Variable(Box<str>),
}

/// The values of the placeholders.
#[derive(Debug, Clone, Copy)]
pub(super) struct Names<'a> {
    /// `None` for anonymous clients.
    pub(super) user: Option<&'a str>,
    pub(super) client: &'a str,
    pub(super) groups: &'a [Arc<str>],
    pub(super) variables: Option<&'a Variables>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum PatternError {
    #[error("a % must be followed by u, c, g, % or the {{name}} of a variable")]
    Placeholder,
    #[error("not a topic filter: # only as the last level, + only as a whole level, no NUL, 1 to 65535 bytes")]
    Filter,
}

impl Pattern {
    pub(super) fn parse(text: &str) -> Result<Self, PatternError> {
        let pieces = pieces(text)?;
        let pattern = Self { text: text.into(), pieces };
        let sample: String = pattern.pieces.iter().map(|piece| piece.literal().unwrap_or("x")).collect();
        match filter::is_valid(&sample) {
            true => Ok(pattern),
            false => Err(PatternError::Filter),
        }
    }

    pub(super) fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it expands differently for different principals.
    pub(super) fn has_placeholders(&self) -> bool {
        self.pieces.iter().any(|piece| piece.literal().is_none())
    }

    /// Whether it depends on the client identifier.
    pub(super) fn names_client(&self) -> bool {
        self.pieces.contains(&Piece::Client)
    }

    /// The filters it allows, one for each value of a placeholder; none when a name is missing or could be mistaken for
    /// more than one level.
    pub(super) fn allowed(&self, names: &Names<'_>) -> Vec<String> {
        let fillings = fillings(&self.pieces, names).into_iter();
        let plain = fillings.filter(|filling| filling.iter().all(|name| is_plain(name))).take(FILTERS_MAX);
        plain.filter_map(|filling| self.fill(&filling)).collect()
    }

    /// The filters it denies. A name that could be mistaken for more than one level denies any name and itself, so that
    /// nobody escapes a rule by a strange name; so does a client identifier that the door does not have. Other missing
    /// names deny nothing.
    pub(super) fn denied(&self, names: &Names<'_>) -> Vec<String> {
        let fillings = fillings(&self.pieces, names);
        let values = || self.pieces.iter().flat_map(|piece| piece.values(names));
        let too_many = fillings.len() > FILTERS_MAX;
        let mut filters = match (fillings.is_empty(), too_many) {
            (true, _) => return Vec::new(),
            (false, true) if values().any(|name| name.contains('/')) => vec![self.widened_below()],
            (false, true) => vec![self.widened()],
            (false, false) if values().all(is_plain) => Vec::new(),
            (false, false) => vec![self.widened()],
        };
        let covered = |filling: &[&str]| !filters.is_empty() && filling.iter().all(|name| is_plain(name));
        let real = |filling: &[&str]| filling.iter().all(|name| !name.is_empty() && !name.contains(NOT_IN_TOPICS));
        let itself: Vec<String> = fillings
            .iter()
            .filter(|filling| real(filling) && !covered(filling))
            .take(FILTERS_MAX)
            .filter_map(|filling| self.fill(filling))
            .collect();
        filters.extend(itself);
        filters
    }

    /// The filter for one combination of names, unless it is too long.
    fn fill(&self, names: &[&str]) -> Option<String> {
        let mut filled = String::with_capacity(self.text.len() + 16);
        let mut names = names.iter();
        for piece in &self.pieces {
            filled.push_str(match piece.literal() {
                Some(text) => text,
                None => names.next()?,
            });
        }
        (filled.len() <= filter::BYTES_MAX).then_some(filled)
    }

    /// Every level with a placeholder becomes `+`.
    fn widened(&self) -> String {
        let marked = self.marked();
        let levels: Vec<&str> = marked.split('/').map(|level| if level.contains('\0') { "+" } else { level }).collect();
        levels.join("/")
    }

    /// Everything from the first level with a placeholder on.
    fn widened_below(&self) -> String {
        let marked = self.marked();
        let levels = marked.split('/').take_while(|level| !level.contains('\0'));
        levels.chain(["#"]).collect::<Vec<_>>().join("/")
    }

    /// With NUL, which no pattern contains, for every placeholder.
    fn marked(&self) -> String {
        self.pieces.iter().map(|piece| piece.literal().unwrap_or("\0")).collect()
    }
}

impl Piece {
    fn literal(&self) -> Option<&str> {
        match self {
            Self::Literal(text) => Some(text),
            Self::User | Self::Client | Self::Group | Self::Variable(_) => None,
        }
    }

    /// The values that may stand for it.
    fn values<'a>(&self, names: &Names<'a>) -> Vec<&'a str> {
        match self {
            Self::Literal(_) => Vec::new(),
            Self::User => names.user.into_iter().collect(),
            // Empty where the door has none: no allow is filled by it, and every deny is widened.
            Self::Client => vec![names.client],
            Self::Group => names.groups.iter().map(|group| &**group).collect(),
            Self::Variable(name) => {
                let values = names.variables.and_then(|variables| variables.get(name));
                values.map(|values| values.iter().map(|value| &**value).collect()).unwrap_or_default()
            }
        }
    }
}

/// Every combination of values, in the order of the placeholders. The same placeholder has the same value throughout.
fn fillings<'a>(pieces: &[Piece], names: &Names<'a>) -> Vec<Vec<&'a str>> {
    let mut known: Vec<&Piece> = Vec::new();
    let mut order = Vec::new();
    for piece in pieces.iter().filter(|piece| piece.literal().is_none()) {
        let at = known.iter().position(|seen| *seen == piece).unwrap_or_else(|| {
            known.push(piece);
            known.len() - 1
        });
        order.push(at);
    }
    let mut combinations: Vec<Vec<&str>> = vec![Vec::new()];
    for piece in known {
        let values = piece.values(names);
        let longer = combinations
            .iter()
            .flat_map(|begun| values.iter().map(|value| begun.iter().copied().chain([*value]).collect::<Vec<_>>()));
        // One more than allowed shows that it was too many.
        combinations = longer.take(FILTERS_MAX + 1).collect();
    }
    let ordered = |values: &Vec<&'a str>| order.iter().filter_map(|at| values.get(*at).copied()).collect();
    combinations.iter().map(ordered).collect()
}

fn pieces(text: &str) -> Result<Vec<Piece>, PatternError> {
    let mut pieces = Vec::new();
    let mut rest = text;
    let mut literal = String::new();
    while let Some((before, after)) = rest.split_once('%') {
        literal.push_str(before);
        let mut characters = after.chars();
        let piece = match characters.next() {
            Some('u') => Piece::User,
            Some('c') => Piece::Client,
            Some('g') => Piece::Group,
            Some('%') => {
                literal.push('%');
                rest = characters.as_str();
                continue;
            }
            Some('{') => {
                let (name, after) = characters.as_str().split_once('}').ok_or(PatternError::Placeholder)?;
                if name.is_empty() {
                    return Err(PatternError::Placeholder);
                }
                characters = after.chars();
                Piece::Variable(name.into())
            }
            Some(_) | None => return Err(PatternError::Placeholder),
        };
        if !literal.is_empty() {
            pieces.push(Piece::Literal(std::mem::take(&mut literal)));
        }
        pieces.push(piece);
        rest = characters.as_str();
    }
    literal.push_str(rest);
    if !literal.is_empty() {
        pieces.push(Piece::Literal(literal));
    }
    Ok(pieces)
}

/// A character that no topic contains: a name with it fills no placeholder.
const NOT_IN_TOPICS: [char; 3] = ['+', '#', '\0'];

/// Whether a name is part of one level: no separator, no wildcard, no leading `$`.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('$') && !name.contains(['/', '+', '#', '\0'])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn expand(pattern: &str, user: &str, client: &str, groups: &[&str]) -> Vec<String> {
        filled(pattern, user, client, groups, Pattern::allowed)
    }

    fn denied(pattern: &str, user: &str, client: &str, groups: &[&str]) -> Vec<String> {
        filled(pattern, user, client, groups, Pattern::denied)
    }

    fn filled(
        pattern: &str,
        user: &str,
        client: &str,
        groups: &[&str],
        fill: impl FnOnce(&Pattern, &Names<'_>) -> Vec<String>,
    ) -> Vec<String> {
        let groups: Vec<Arc<str>> = groups.iter().map(|group| Arc::from(*group)).collect();
        let variables = Variables::from([
            ("site".into(), ["north".into()].into()),
            ("cell".into(), ["a".into(), "b".into()].into()),
        ]);
        let names = Names { user: Some(user), client, groups: &groups, variables: Some(&variables) };
        fill(&Pattern::parse(pattern).unwrap(), &names)
    }

    #[test]
    fn placeholders_are_filled() {
        assert_eq!(expand("a/%u/%c/#", "bob", "c1", &[]), ["a/bob/c1/#"]);
        assert_eq!(expand("g/%g/dev-%u", "bob", "", &["x", "y"]), ["g/x/dev-bob", "g/y/dev-bob"]);
        assert_eq!(expand("100%%/%%u", "bob", "", &[]), ["100%/%u"]);
        assert_eq!(expand("%{site}/%{cell}/#", "bob", "", &[]), ["north/a/#", "north/b/#"]);
        assert_eq!(expand("%{cell}/x/%{cell}", "bob", "", &[]), ["a/x/a", "b/x/b"]);
        assert!(expand("%{other}/#", "bob", "", &[]).is_empty());
        assert!(expand("g/%g", "bob", "", &[]).is_empty());
    }

    #[test]
    fn names_that_are_more_than_names_allow_nothing_and_deny_all() {
        for name in ["a/b", "+", "#", "a+", "$SYS", "a\0"] {
            assert!(expand("%u/x", name, "c", &[]).is_empty(), "{name:?}");
            assert!(expand("%c/x", "u", name, &[]).is_empty(), "{name:?}");
            assert!(expand("%g/x", "u", "c", &[name]).is_empty(), "{name:?}");
            assert_eq!(denied("p/%u-1/x/#", name, "c", &[])[0], "p/+/x/#", "{name:?}");
            assert_eq!(denied("p/%g/%%", "u", "c", &["plain", name])[0], "p/+/%", "{name:?}");
        }
        assert_eq!(denied("p/%u/x", "a/b", "c", &[]), ["p/+/x", "p/a/b/x"], "what it stands for itself");
        assert_eq!(denied("%u/x", "$a", "c", &[]), ["+/x", "$a/x"]);
        assert_eq!(denied("%u/x", "#", "c", &[]), ["+/x"]);
        // A door without client identifiers.
        assert_eq!(denied("p/%c/x", "u", "", &[]), ["p/+/x"]);
        assert!(expand("p/%c/x", "u", "", &[]).is_empty());
        assert!(denied("p/%c/%g", "u", "", &[]).is_empty(), "nobody's group");
        assert_eq!(denied("p/%u/%g", "u", "c", &["x", "y"]), ["p/u/x", "p/u/y"]);
        assert!(denied("p/%g", "u", "c", &[]).is_empty() && denied("p/%{other}", "u", "c", &[]).is_empty());
        // A name that looks like a placeholder is not filled again.
        assert_eq!(expand("%u/x", "%c", "c", &[]), ["%c/x"]);
    }

    #[test]
    fn too_many_values_are_cut_for_an_allow_and_widen_a_deny() {
        let groups: Vec<String> = (0..20).map(|number| format!("g{number}")).collect();
        let groups: Vec<&str> = groups.iter().map(String::as_str).collect();
        let values: Vec<Box<str>> = (0..20).map(|number| format!("v{number}").into()).collect();
        let variables = Variables::from([("v".into(), values.into())]);
        let named: Vec<Arc<str>> = groups.iter().map(|group| Arc::from(*group)).collect();
        let names = Names { user: None, client: "", groups: &named, variables: Some(&variables) };
        let pattern = Pattern::parse("%g/%{v}").unwrap();
        assert_eq!(pattern.allowed(&names).len(), FILTERS_MAX);
        assert_eq!(pattern.denied(&names), ["+/+"]);
        let strange: Vec<Arc<str>> = named.iter().cloned().chain(["a/b".into()]).collect();
        assert_eq!(pattern.denied(&Names { groups: &strange, ..names })[0], "#");
    }

    #[test]
    fn malformed_patterns() {
        for text in ["", "a/#/b", "a#", "+a", "a/b+", "#%u", "+%u", "a\0b"] {
            assert_eq!(Pattern::parse(text).err(), Some(PatternError::Filter), "{text:?}");
        }
        for text in ["%", "a/%", "%x", "%U", "%{", "%{}", "%{a"] {
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
            for filled in denied("a/%u/+/%c/#", &name, &name, &[&name]) {
                prop_assert!(filter::is_valid(&filled));
            }
        }

        #[test]
        fn any_text_is_answered(text in "[%ucg{}a/+#]{0,12}") {
            let _ = Pattern::parse(&text).map(|pattern| pattern.widened());
        }
    }
}
