//! Topic filters of rules, and the relations between them that the index of rules is tested against: matches a topic,
//! covers a filter, overlaps a filter. MQTT 5 §4.7.
//!
//! The bus routes by filters of its own, which have fewer levels. The tests here hold the two together: a filter
//! matches a topic if `fogmux_bus::Filter` says so.

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
fn hidden_from(wildcards: &str, other: &str) -> bool {
    other.starts_with('$') && wildcards.starts_with(['+', '#'])
}

/// Whether `filter` matches `topic`, a name without wildcards: as the bus routes.
#[cfg(test)]
pub(crate) fn matches(filter: &str, topic: &str) -> bool {
    fogmux_bus::Filter::new(filter).unwrap().matches(topic)
}

/// Whether every topic that `inner` matches is matched by `outer`. May return `false` for `+/#` beside `#`, which is
/// the safe side.
#[must_use]
pub fn covers(outer: &str, inner: &str) -> bool {
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
#[must_use]
pub fn overlaps(one: &str, other: &str) -> bool {
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
    use fogmux_bus::{Filter, FilterError};
    use proptest::prelude::*;

    use super::*;

    fn filters() -> impl Strategy<Value = String> {
        "(\\$?[ab]|\\+|)(/([ab]|\\+|)){0,3}(/#)?|#".prop_filter("not empty", |filter| !filter.is_empty())
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

    /// Text that is a filter, or nearly.
    fn nearly() -> impl Strategy<Value = String> {
        prop_oneof!["[ab+#/$\\x00]{0,8}", "((a|\\+|b\\+|#)?/){0,4}(a|\\+|#|##|a#)?"]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(5000))]
        #[test]
        fn rules_and_subscriptions_accept_the_same_filters(text in nearly()) {
            prop_assert_eq!(is_valid(&text), Filter::new(&text).is_ok(), "{:?}", text);
        }

        #[test]
        fn rules_and_subscriptions_agree_on_what_is_exact(filter in filters()) {
            prop_assert_eq!(is_exact(&filter), Filter::new(&filter).unwrap().is_exact(), "{:?}", filter);
        }
    }

    #[test]
    fn only_the_number_of_levels_is_limited_for_subscriptions_alone() {
        let deep = "/".repeat(fogmux_bus::LEVELS_MAX);
        assert_eq!(Filter::new(&deep), Err(FilterError::TooDeep));
        assert!(is_valid(&deep));
        for length in [BYTES_MAX, BYTES_MAX + 1] {
            let long = "a".repeat(length);
            assert_eq!(is_valid(&long), Filter::new(&long).is_ok(), "{length} bytes");
        }
    }
}
