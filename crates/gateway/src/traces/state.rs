//! `tracestate` (W3C Trace Context, level 1, §3.3): what each tracing system adds to a context. It is only sent on.

/// The most list members (§3.3.1.1).
const MEMBERS_MAX: usize = 32;
/// The length up to which a list is always sent on (§3.3.1.5); a longer one loses members.
const LENGTH_MAX: usize = 512;
/// Members that are longer go first.
const LONG: usize = 128;
/// The longest key and value (§3.3.1.3).
const KEY_MAX: usize = 256;
const TENANT_MAX: usize = 241;
const SYSTEM_MAX: usize = 14;
const VALUE_MAX: usize = 256;

/// Combines lists to one of 512 characters at most, of which no member is cut; `None` if a list is not valid, there are
/// too many members, or there are none.
pub(crate) fn bounded<'t>(lists: impl Iterator<Item = &'t str>) -> Option<Box<str>> {
    let is_space = |character: char| matches!(character, ' ' | '\t');
    // Members may be empty (§3.3.1.2).
    let members = lists.flat_map(|list| list.split(',')).map(|member| member.trim_matches(is_space));
    let mut kept = Vec::new();
    for member in members.filter(|member| !member.is_empty()) {
        if kept.len() == MEMBERS_MAX || !is_valid(member) {
            return None;
        }
        kept.push(member);
    }
    let length = |kept: &[&str]| kept.iter().map(|member| member.len() + 1).sum::<usize>().saturating_sub(1);
    while length(&kept) > LENGTH_MAX {
        let longest = kept.iter().rposition(|member| member.len() > LONG);
        kept.remove(longest.unwrap_or(kept.len() - 1));
    }
    (!kept.is_empty()).then(|| kept.join(",").into())
}

fn is_valid(member: &str) -> bool {
    member.split_once('=').is_some_and(|(key, value)| is_key(key) && is_value(value))
}

/// §3.3.1.3.1: a name, or a tenant of a system.
fn is_key(key: &str) -> bool {
    let is_rest =
        |text: &str| text.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'*' | b'/'));
    let begins_with_letter = |text: &str| text.starts_with(|first: char| first.is_ascii_lowercase());
    let begins_with_digit = |text: &str| text.starts_with(|first: char| first.is_ascii_digit());
    match key.split_once('@') {
        None => key.len() <= KEY_MAX && begins_with_letter(key) && is_rest(key),
        Some((tenant, system)) => {
            (tenant.len() <= TENANT_MAX && (begins_with_letter(tenant) || begins_with_digit(tenant)) && is_rest(tenant))
                && (system.len() <= SYSTEM_MAX && begins_with_letter(system) && is_rest(system))
        }
    }
}

/// §3.3.1.3.2: printable ASCII but for comma and equals sign; a space is not the last.
fn is_value(value: &str) -> bool {
    let is_inside = |byte: u8| matches!(byte, b' '..=b'~') && !matches!(byte, b',' | b'=');
    (1..=VALUE_MAX).contains(&value.len()) && value.bytes().all(is_inside) && !value.ends_with(' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(list: &str) -> Option<String> {
        bounded(std::iter::once(list)).map(String::from)
    }

    #[test]
    fn lists_are_combined() {
        assert_eq!(bounded(["foo=1", "bar=2 , \tbaz=3"].into_iter()).as_deref(), Some("foo=1,bar=2,baz=3"));
        assert_eq!(one("foo=1,,bar=2,").as_deref(), Some("foo=1,bar=2"));
        assert_eq!(one("fw529a3039@dt=FfD/a b,9@x=-").as_deref(), Some("fw529a3039@dt=FfD/a b,9@x=-"));
        assert_eq!(one(""), None);
        assert_eq!(bounded(std::iter::empty()), None);
    }

    #[test]
    fn what_is_not_valid_is_none() {
        let long = |key: usize, value: usize| format!("{}={}", "k".repeat(key), "v".repeat(value));
        assert!(one(&long(256, 255)).is_some() && one(&long(1, 256)).is_some());
        for list in [
            "foo",
            "foo=",
            "=1",
            "foo =1",
            "FOO=1",
            "1foo=1",
            "foo=1=2",
            "foo=\u{e9}",
            "foo=\u{7f}",
            "foo@=1",
            "@foo=1",
            "foo@1=1",
            "foo@bar@baz=1",
            "foo.bar=1",
            "a=1,foo",
            &long(257, 1),
            &long(1, 257),
            &format!("{}@v=1", "t".repeat(242)),
            &format!("t@{}=1", "v".repeat(15)),
        ] {
            assert_eq!(one(list), None, "{list}");
        }
        let many = |count: usize| (0..count).map(|n| format!("k{n}=1")).collect::<Vec<_>>().join(",");
        assert!(one(&many(32)).is_some());
        assert_eq!(one(&many(33)), None);
    }

    #[test]
    fn a_long_list_loses_whole_members_the_long_ones_first() {
        let (short, long) = (format!("s={}", "v".repeat(98)), format!("l={}", "v".repeat(198)));
        let list = [&*short, &*long, &*short, &*short, &*short].join(",");
        assert_eq!(one(&list).unwrap(), [&*short; 4].join(","));
        // Without long ones the last go.
        let list = (0..10).map(|n| format!("k{n}={}", "v".repeat(97))).collect::<Vec<_>>();
        assert_eq!(one(&list.join(",")).unwrap(), list[..5].join(","));
        assert_eq!(one(&list[..5].join(",")).unwrap().len(), 504);
    }
}
