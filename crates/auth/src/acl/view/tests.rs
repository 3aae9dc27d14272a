//! The index against a walk over all rules.

use std::path::Path;

use proptest::prelude::*;

use super::*;

/// The decision as the file reads: every deny in its order, then every allow.
fn linear(acl: &Acl, principal: &Principal, client: &str, door: Door, action: Action, topic: &str) -> Decision {
    let names = Names {
        user: (!principal.anonymous).then_some(&principal.name),
        client,
        groups: &principal.groups,
        variables: None,
    };
    if is_built_in(action, topic) {
        return Decision { allowed: false, rule: Some(BUILT_IN.clone()) };
    }
    let first = |effect| {
        acl.rules.iter().find(|rule| {
            let filters = match effect {
                Effect::Allow => rule.pattern.allowed(&names),
                Effect::Deny => rule.pattern.denied(&names),
            };
            rule.effect == effect
                && rule.doors.include(door)
                && rule.who.includes(principal)
                && rule.actions.include(action)
                && filters.iter().any(|filter| filter::matches(filter, topic))
        })
    };
    let (denied, allowed) = (first(Effect::Deny), first(Effect::Allow));
    let rule = denied.or(allowed).map(|rule| rule.reference.clone());
    Decision { allowed: denied.is_none() && allowed.is_some(), rule }
}

fn rule() -> impl Strategy<Value = String> {
    let who = prop_oneof![
        Just("user = \"u\""),
        Just("user = [\"v\", \"u\"]"),
        Just("user = \"v\"\ngroup = \"g\""),
        Just("group = \"g\""),
        Just("group = [\"g\", \"h\"]"),
        Just("authenticated = true"),
        Just("anonymous = true"),
        Just("authenticated = true\nanonymous = true"),
    ];
    let what = prop_oneof![Just("read"), Just("write"), Just("both")];
    let door = prop_oneof![Just(""), Just(""), Just("door = \"mqtt\"\n"), Just("door = [\"http\", \"mqtt\"]\n")];
    let effect = prop_oneof![Just("allow"), Just("allow"), Just("deny")];
    let filter = "(\\$?[abu]|\\+|%u|%c|%g|\\$SYS)(/([abu]|\\+|%u|%c|%g|)){0,3}(/#)?|#";
    (effect, who, door, what, filter)
        .prop_map(|(effect, who, door, what, filter)| format!("[[{effect}]]\n{who}\n{door}{what} = [\"{filter}\"]\n"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]
    #[test]
    fn a_decision_is_that_of_a_walk_over_all_rules(
        rules in proptest::collection::vec(rule(), 0..25),
        who in 0_usize..6,
        client in prop_oneof![Just(""), Just("a"), Just("c/d"), Just("+")],
        topics in proptest::collection::vec("(\\$?[abcugh]|\\$SYS)?(/[abcugh]?){0,4}", 1..12),
        mqtt: bool,
    ) {
        let acl = Acl::parse(Path::new("acl.toml"), &rules.concat()).unwrap();
        let groups = |names: &[&str]| names.iter().map(|name| Arc::from(*name)).collect::<Vec<_>>();
        let principal = match who {
            0 => Principal::anonymous(),
            1 => Principal::user("u", []),
            2 => Principal::user("v", groups(&["g"])),
            3 => Principal::user("u", groups(&["g", "h"])),
            4 => Principal::user("a/b", groups(&["g/h", "a"])),
            _ => Principal::user("$u", groups(&["+"])),
        };
        let door = if mqtt { Door::Mqtt } else { Door::Http };
        let common = Arc::new(acl.common(&principal, door));
        let view = View::new(&acl, &principal, client, door, false, common);
        for topic in &topics {
            for action in [Action::Read, Action::Write] {
                let expected = linear(&acl, &principal, client, door, action, topic);
                prop_assert_eq!(view.decide(action, topic), expected.clone(), "{} in {}", topic, rules.concat());
                prop_assert_eq!(view.allows(action, topic), expected.allowed, "{} in {}", topic, rules.concat());
            }
        }
    }
}
