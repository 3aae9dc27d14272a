//! Topic filters, and the relations between them that the index of rules is tested against: matches a topic, covers a
//! filter, overlaps a filter. MQTT 5 §4.7.
//!
//! `bus` has filters of its own for routing; these exist so that `auth` depends on no other crate.

pub(crate) const BYTES_MAX: usize = 65_535;

/// Whether a text is a filter: `#` only as the last level, `+` only as a whole level ([MQTT-4.7.1-1], [MQTT-4.7.1-2]).
pub(crate) fn is_valid(filter: &str) -> bool {
    if filter.is_empty() || filter.len() > BYTES_MAX || filter.contains('\0') {
        return false;
    }
    let mut levels = filter.split('/').peekable();
    while let Some(level) = levels.next() {
        let fits = match level {
            "#" => levels.peek().is_none(),
            "+" => true,
            literal => !literal.contains(['+', '#']),
        };
        if !fits {
            return false;
        }
    }
    true
}

/// Whether the filter has no wildcard, so that it matches one topic.
pub(crate) fn is_exact(filter: &str) -> bool {
    !filter.contains(['+', '#'])
}

/// Whether a leading wildcard does not match because the other begins with `$` ([MQTT-4.7.2-1]).
#[cfg(test)]
fn hidden_from(wildcards: &str, other: &str) -> bool {
    other.starts_with('$') && wildcards.starts_with(['+', '#'])
}

/// Whether `filter` matches `topic`, a name without wildcards.
#[cfg(test)]
pub(crate) fn matches(filter: &str, topic: &str) -> bool {
    if hidden_from(filter, topic) {
        return false;
    }
    let mut levels = topic.split('/');
    for wanted in filter.split('/') {
        match (wanted, levels.next()) {
            ("#", _) => return true,
            (_, None) => return false,
            ("+", Some(_)) => {}
            (literal, Some(level)) => {
                if literal != level {
                    return false;
                }
            }
        }
    }
    levels.next().is_none()
}

/// Whether every topic that `inner` matches is matched by `outer`. May return `false` for `+/#` beside `#`, which is
/// the safe side.
#[cfg(test)]
pub(crate) fn covers(outer: &str, inner: &str) -> bool {
    if hidden_from(outer, inner) {
        return false;
    }
    let mut levels = inner.split('/');
    for wanted in outer.split('/') {
        match (wanted, levels.next()) {
            ("#", _) => return true,
            (_, None | Some("#")) => return false,
            ("+", Some(_)) => {}
            (literal, Some(level)) => {
                if literal != level {
                    return false;
                }
            }
        }
    }
    levels.next().is_none()
}

/// Whether some topic could match both.
#[cfg(test)]
pub(crate) fn overlaps(one: &str, other: &str) -> bool {
    if hidden_from(one, other) || hidden_from(other, one) {
        return false;
    }
    let (mut ours, mut theirs) = (one.split('/'), other.split('/'));
    loop {
        match (ours.next(), theirs.next()) {
            (None, None) | (Some("#"), _) | (_, Some("#")) => return true,
            (None, Some(_)) | (Some(_), None) => return false,
            (Some(a), Some(b)) => {
                if a != b && a != "+" && b != "+" {
                    return false;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn s4_7_examples_of_the_standard() {
        for (filter, topic, expected) in [
            ("sport/tennis/player1/#", "sport/tennis/player1", true),
            ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon", true),
            ("sport/#", "sport", true),
            ("#", "a/b/c", true),
            ("sport/tennis/+", "sport/tennis/player1", true),
            ("sport/tennis/+", "sport/tennis/player1/ranking", false),
            ("sport/+", "sport", false),
            ("sport/+", "sport/", true),
            ("+/+", "/finance", true),
            ("/+", "/finance", true),
            ("+", "/finance", false),
            ("#", "$SYS/x", false),
            ("+/monitor/Clients", "$SYS/monitor/Clients", false),
            ("$SYS/#", "$SYS/x", true),
            ("a/b", "a/b", true),
            ("a/b", "a/b/", false),
        ] {
            assert_eq!(matches(filter, topic), expected, "{filter} {topic}");
        }
    }

    fn filters() -> impl Strategy<Value = String> {
        "(\\$?[ab]|\\+|)(/([ab]|\\+|)){0,3}(/#)?|#"
    }

    fn topics() -> impl Strategy<Value = String> {
        "(\\$?[ab]|)(/([ab]|)){0,4}".prop_filter("not empty", |topic| !topic.is_empty())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn covering_and_overlapping_agree_with_matching(a in filters(), b in filters(), topic in topics()) {
            let (in_a, in_b) = (matches(&a, &topic), matches(&b, &topic));
            if in_a && in_b {
                prop_assert!(overlaps(&a, &b) && overlaps(&b, &a));
            }
            if covers(&a, &b) && in_b {
                prop_assert!(in_a);
            }
            prop_assert!(covers(&a, &a) );
            prop_assert_eq!(covers(&a, &topic), in_a);
        }
    }
}
