//! Conditional requests (RFC 9110 §13), with the precedence of §13.2.2.

use crate::time::parse_http_date;

/// The validators of what a topic keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validators {
    /// The bus's tag of the retained message.
    pub etag: u64,
    /// When it arrived.
    pub modified_unix_ms: u64,
}

/// The length of an entity tag as [`format_etag`] writes it.
pub const ETAG_BYTES: usize = 18;

/// The strong entity tag of a tag (RFC 9110 §8.8.3): sixteen hexadecimal digits in quotes.
#[must_use]
pub fn format_etag(etag: u64) -> [u8; ETAG_BYTES] {
    let mut out = [b'"'; ETAG_BYTES];
    let mut rest = etag;
    for place in out.iter_mut().skip(1).take(16).rev() {
        let digit = u8::try_from(rest & 0xf).unwrap_or(0);
        *place = if digit < 10 { b'0' + digit } else { b'a' + digit - 10 };
        rest >>= 4;
    }
    out
}

/// Whether the method reads (RFC 9110 §13.2.2 steps 3 and 4 treat it apart).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// GET and HEAD.
    Read,
    /// Every other method.
    Write,
}

/// The outcome of evaluating the preconditions of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Perform the request.
    Proceed,
    /// Answer 304.
    NotModified,
    /// Answer 412.
    Failed,
}

/// The conditions of one request. Several lines of one field are joined with commas by the caller, or kept apart in
/// the slices.
#[derive(Debug, Clone, Default)]
pub struct Conditions<'a> {
    /// `If-Match`.
    pub if_match: Option<TagList<'a>>,
    /// `If-None-Match`.
    pub if_none_match: Option<TagList<'a>>,
    /// `If-Modified-Since`.
    pub if_modified_since: Option<&'a str>,
    /// `If-Unmodified-Since`.
    pub if_unmodified_since: Option<&'a str>,
}

impl<'a> Conditions<'a> {
    /// Takes the conditions out of a header section. No allocation, and one comparison when there are none.
    #[must_use]
    pub fn of(headers: &'a http::HeaderMap) -> Self {
        use http::header::{IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE};
        if headers.is_empty() {
            return Self::default();
        }
        let date = |name| headers.get(name).and_then(|value: &http::HeaderValue| value.to_str().ok());
        Self {
            if_match: TagList::of(headers, &IF_MATCH),
            if_none_match: TagList::of(headers, &IF_NONE_MATCH),
            if_modified_since: date(IF_MODIFIED_SINCE),
            if_unmodified_since: date(IF_UNMODIFIED_SINCE),
        }
    }

    /// Whether there is no condition.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.if_match.is_none()
            && self.if_none_match.is_none()
            && self.if_modified_since.is_none()
            && self.if_unmodified_since.is_none()
    }

    /// Evaluates in the order of RFC 9110 §13.2.2; `current` is what the topic keeps.
    #[must_use]
    pub fn evaluate(&self, access: Access, current: Option<Validators>) -> Verdict {
        if let Some(tags) = &self.if_match {
            // Step 1; strong comparison (§13.1.1).
            if !tags.matches(current, Comparison::Strong) {
                return Verdict::Failed;
            }
        } else if let Some(since) = self.if_unmodified_since.and_then(parse_http_date) {
            // Step 2. A date that does not parse is ignored (§13.1.4).
            if current.is_some_and(|current| current.modified_unix_ms / 1000 > since) {
                return Verdict::Failed;
            }
        }
        if let Some(tags) = &self.if_none_match {
            // Step 3; weak comparison (§13.1.2).
            if tags.matches(current, Comparison::Weak) {
                return match access {
                    Access::Read => Verdict::NotModified,
                    Access::Write => Verdict::Failed,
                };
            }
        } else if access == Access::Read
            && let Some(since) = self.if_modified_since.and_then(parse_http_date)
            && current.is_some_and(|current| current.modified_unix_ms / 1000 <= since)
        {
            // Step 4.
            return Verdict::NotModified;
        }
        Verdict::Proceed
    }
}

/// RFC 9110 §8.8.3.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Strong,
    Weak,
}

/// `*` or a list of entity tags, over every line of the field.
#[derive(Debug, Clone)]
pub struct TagList<'a> {
    headers: &'a http::HeaderMap,
    name: &'static http::HeaderName,
}

impl<'a> TagList<'a> {
    fn of(headers: &'a http::HeaderMap, name: &'static http::HeaderName) -> Option<Self> {
        headers.contains_key(name).then_some(Self { headers, name })
    }

    fn matches(&self, current: Option<Validators>, comparison: Comparison) -> bool {
        // With no current representation neither `*` nor any tag matches (§13.1.1, §13.1.2).
        let Some(current) = current else { return false };
        let wanted = format_etag(current.etag);
        self.headers.get_all(self.name).iter().any(|line| line_matches(line.as_bytes(), &wanted, comparison))
    }
}

fn line_matches(line: &[u8], wanted: &[u8; ETAG_BYTES], comparison: Comparison) -> bool {
    let mut rest = line.trim_ascii();
    if rest == b"*" {
        return true;
    }
    loop {
        rest = skip_separators(rest);
        let (weak, tag) = match rest.strip_prefix(b"W/") {
            Some(tag) => (true, tag),
            None => (false, rest),
        };
        let Some(inner) = tag.strip_prefix(b"\"") else { return false };
        let Some(end) = inner.iter().position(|&byte| byte == b'"') else { return false };
        let (Some(opaque), Some(after)) = (tag.get(..end + 2), inner.get(end + 1..)) else { return false };
        if opaque == wanted && !(weak && comparison == Comparison::Strong) {
            return true;
        }
        rest = after;
    }
}

fn skip_separators(bytes: &[u8]) -> &[u8] {
    let start = bytes.iter().position(|byte| !matches!(byte, b' ' | b'\t' | b',')).unwrap_or(bytes.len());
    bytes.get(start..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use http::header::{HeaderMap, HeaderValue, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE};
    use proptest::prelude::*;

    use super::*;

    const CURRENT: Option<Validators> = Some(Validators { etag: 0xab, modified_unix_ms: 784_111_777_500 });
    const TAG: &str = "\"00000000000000ab\"";

    fn evaluate(pairs: &[(http::HeaderName, &str)], access: Access, current: Option<Validators>) -> Verdict {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(name, HeaderValue::from_str(value).unwrap());
        }
        Conditions::of(&headers).evaluate(access, current)
    }

    #[test]
    fn s13_1_1_if_match_compares_strongly() {
        assert_eq!(evaluate(&[(IF_MATCH, TAG)], Access::Write, CURRENT), Verdict::Proceed);
        assert_eq!(evaluate(&[(IF_MATCH, "\"x\", \"00000000000000ab\"")], Access::Write, CURRENT), Verdict::Proceed);
        assert_eq!(evaluate(&[(IF_MATCH, "W/\"00000000000000ab\"")], Access::Write, CURRENT), Verdict::Failed);
        assert_eq!(evaluate(&[(IF_MATCH, "*")], Access::Write, CURRENT), Verdict::Proceed);
        assert_eq!(evaluate(&[(IF_MATCH, "*")], Access::Write, None), Verdict::Failed);
        assert_eq!(evaluate(&[(IF_MATCH, "\"x\"")], Access::Read, CURRENT), Verdict::Failed);
    }

    #[test]
    fn s13_1_2_if_none_match_compares_weakly() {
        assert_eq!(evaluate(&[(IF_NONE_MATCH, "W/\"00000000000000ab\"")], Access::Read, CURRENT), Verdict::NotModified);
        assert_eq!(evaluate(&[(IF_NONE_MATCH, TAG)], Access::Write, CURRENT), Verdict::Failed);
        assert_eq!(evaluate(&[(IF_NONE_MATCH, "*")], Access::Write, None), Verdict::Proceed);
        assert_eq!(evaluate(&[(IF_NONE_MATCH, "\"a,b\" , \"c\"")], Access::Read, CURRENT), Verdict::Proceed);
        assert_eq!(
            evaluate(&[(IF_NONE_MATCH, "\"x\""), (IF_NONE_MATCH, TAG)], Access::Read, CURRENT),
            Verdict::NotModified
        );
    }

    #[test]
    fn s13_2_2_tags_win_over_dates() {
        let old = "Sun, 06 Nov 1994 08:49:00 GMT";
        let same = "Sun, 06 Nov 1994 08:49:37 GMT";
        assert_eq!(evaluate(&[(IF_MODIFIED_SINCE, same)], Access::Read, CURRENT), Verdict::NotModified);
        assert_eq!(evaluate(&[(IF_MODIFIED_SINCE, old)], Access::Read, CURRENT), Verdict::Proceed);
        assert_eq!(evaluate(&[(IF_MODIFIED_SINCE, same)], Access::Write, CURRENT), Verdict::Proceed);
        assert_eq!(
            evaluate(&[(IF_NONE_MATCH, "\"x\""), (IF_MODIFIED_SINCE, same)], Access::Read, CURRENT),
            Verdict::Proceed
        );
        assert_eq!(evaluate(&[(IF_UNMODIFIED_SINCE, old)], Access::Write, CURRENT), Verdict::Failed);
        assert_eq!(evaluate(&[(IF_UNMODIFIED_SINCE, old), (IF_MATCH, TAG)], Access::Write, CURRENT), Verdict::Proceed);
        assert_eq!(evaluate(&[(IF_UNMODIFIED_SINCE, "garbage")], Access::Write, CURRENT), Verdict::Proceed);
        assert_eq!(
            evaluate(&[(IF_MATCH, TAG), (IF_NONE_MATCH, TAG)], Access::Read, CURRENT),
            Verdict::NotModified,
            "after a true If-Match comes If-None-Match"
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_answered(line in prop::collection::vec(any::<u8>(), 0..60)) {
            let wanted = format_etag(7);
            line_matches(&line, &wanted, Comparison::Weak);
        }

        #[test]
        fn a_tag_matches_itself(etag: u64) {
            let wanted = format_etag(etag);
            prop_assert!(line_matches(&wanted, &wanted, Comparison::Strong));
            prop_assert_eq!(std::str::from_utf8(&wanted).unwrap(), format!("\"{etag:016x}\""));
        }
    }
}
