//! The access rules as doors meet them.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::{path::Path, sync::Arc};

use fogmux_auth::{
    Access, Acl, Action, AnonymousPolicy, Authority, CertificateRules, Door, Named, NotNamed, Principal, Reach, Rules,
    Sources, Users,
};
use proptest::prelude::*;

fn acl(text: &str) -> Acl {
    Acl::parse(Path::new("acl.toml"), text).unwrap()
}

/// Users alice (operators) and bob, and these rules. The hashes are of no interest here.
fn rules(text: Option<&str>) -> Rules {
    let users = "[users.alice]\ngroups = [\"operators\"]\n[users.bob]\n[users.eve]\ndisabled = true\n[users.'+']\n[users.'$SYS']\n";
    let users = Users::parse(Path::new("users.toml"), users).unwrap();
    Rules::new(users, text.map(acl), AnonymousPolicy::Loopback)
}

fn authority(text: Option<&str>) -> Arc<Authority> {
    Arc::new(Authority::new(rules(text)))
}

fn access(authority: &Arc<Authority>, user: &str) -> Access {
    authority.access(&authority.principal(user).unwrap(), "client-1", Door::Mqtt)
}

const RULES: &str = r#"
[[allow]]
authenticated = true
both = ["home/%u/#", "clients/%c"]

[[allow]]
group = "operators"
read = ["sensors/#", "$SYS/#"]
write = "groups/%g/+"

[[deny]]
authenticated = true
both = ["sensors/secret/#"]

[[allow]]
anonymous = true
door = "http"
read = "public/+"
"#;

/// The names of a principal's groups.
fn groups(named: &Named) -> Vec<&str> {
    named.principal.groups.iter().map(|group| &**group).collect()
}

/// Nobody's link.
fn no_link(_: &str) -> Option<Arc<str>> {
    None
}

#[test]
fn rules_are_tested_for_identities_that_are_in_no_file() {
    let acl = "[[allow]]\nuser = \"pump\"\nread = \"a\"\n[[allow]]\ngroup = \"plant\"\nread = \"b\"\n\
               [[allow]]\nuser = \"link:north\"\nread = \"c\"\n[[deny]]\ngroup = \"guests\"\nread = \"#\"\n";
    let authority = authority(Some(acl));
    let line = |named: &Named, topic: &str| {
        let told = authority.explain(&named.principal, "", Action::Read, Door::Mqtt, topic).unwrap();
        (told.allowed, told.rule.map(|rule| rule.line()))
    };
    let pump = authority.named("pump", &[], no_link).unwrap();
    assert_eq!((line(&pump, "a"), line(&pump, "b")), ((true, Some(3)), (false, None)));
    let note = pump.note.as_deref().unwrap();
    assert_eq!(note, "\"pump\" is not a user of the file; asked as an identity of a certificate or an OSCORE context");
    let plant = authority.named("user:pump", &["plant".to_owned()], no_link).unwrap();
    assert_eq!(line(&plant, "b"), (true, Some(6)));
    // The groups of a credential are added to those of the file.
    let alice = authority.named("alice", &["guests".to_owned()], no_link).unwrap();
    assert_eq!(
        (groups(&alice), line(&alice, "a"), &alice.note),
        (vec!["guests", "operators"], (false, Some(12)), &None)
    );
    let alice = authority.named("alice", &[], no_link).unwrap();
    assert_eq!((groups(&alice), &alice.note), (vec!["operators"], &None));
    for (who, reason) in [
        ("eve", NotNamed::Disabled),
        ("user:eve", NotNamed::Disabled),
        ("user:link:north", NotNamed::Name),
        ("user:anonymous", NotNamed::Name),
        ("a\nb", NotNamed::Name),
    ] {
        assert_eq!(authority.named(who, &[], no_link), Err(reason), "{who:?}");
    }
    let mine = |who: &str| authority.named(who, &["plant".to_owned()], no_link);
    assert_eq!((mine("anonymous"), mine("link:north")), (Err(NotNamed::Groups), Err(NotNamed::Groups)));
    // A link has its own rights, or those of a user.
    for (configured, name, noted) in [
        (Some("link:north"), Some("link:north"), false),
        (None, Some("link:north"), true),
        (Some("bob"), Some("bob"), true),
        (Some("eve"), None, false),
    ] {
        let named = authority.named("link:north", &[], |_| configured.map(Arc::from));
        assert_eq!(named.as_ref().ok().map(|named| &*named.principal.name), name, "{configured:?}");
        assert_eq!(named.is_ok_and(|named| named.note.is_some()), noted, "{configured:?}");
    }
    assert_eq!(line(&authority.named("link:north", &[], no_link).unwrap(), "c"), (true, Some(9)));
}

#[test]
fn the_groups_of_certificates_are_those_of_their_file() {
    let text = "[[certificate]]\ncommon_name = \"old-*\"\nrefuse = true\n\
                [[certificate]]\ncommon_name = \"*-pump\"\ngroups = [\"pumps\"]\n\
                [[certificate]]\ncommon_name = \"*\"\ngroups = [\"devices\"]\n\
                [[certificate]]\ndns = \"*.plant\"\ngroups = [\"plant\"]\n\
                [[certificate]]\nemail = \"x@*\"\nuser = \"alice\"\ngroups = [\"mail\"]\n";
    let certificates = CertificateRules::parse(Path::new("certificates.toml"), text).unwrap();
    let authority = Authority::new(rules(None).with_certificates(certificates));
    let named = |who: &str| authority.named(who, &[], no_link).unwrap();
    for (who, wanted) in [
        ("a-pump", vec!["pumps"]),
        ("lamp", vec!["devices"]),
        ("old-pump", vec![]),
        ("x.plant", vec!["devices"]),
        // The file says what a user is in; a certificate may add to it.
        ("alice", vec!["operators"]),
    ] {
        assert_eq!(groups(&named(who)), wanted, "{who}");
    }
    assert!(named("a-pump").note.unwrap().ends_with(", in pumps as certificates.toml has it"));
    assert!(named("x.plant").note.unwrap().ends_with(", in devices as certificates.toml has it; others are in plant"));
    assert_eq!(named("alice").note.unwrap(), "with a certificate the user is also in devices or in mail");
}

mod parsers {
    use fogmux_auth::{CertificateRules, Psks, TokenSettings, Tokens};
    use proptest::prelude::*;

    use super::*;

    /// Text that is near enough to our files to get past TOML.
    const NEARLY: &str = "(\\[\\[(allow|deny|psk|certificate)\\]\\]\n|(user|group|read|write|both|door|identity|key|sha256|dns|refuse) = \
                          (\"[a-z%{}u+#/*]{0,6}\"|\\[\"[a-f0-9%]{0,4}\"\\]|true|1)\n|\\PC{0,3}){0,8}";

    proptest! {
        #[test]
        fn any_file_is_answered(text in NEARLY, bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let path = Path::new("f");
            let _ = (Acl::parse(path, &text), Users::parse(path, &text));
            let _ = (Psks::parse(path, &text), CertificateRules::parse(path, &text));
            prop_assert!(Tokens::with_key_set(TokenSettings::default(), &bytes).is_err());
        }
    }
}

#[test]
fn without_an_access_file_everything_goes_but_writing_our_own_topics() {
    let authority = authority(None);
    let anyone = authority.access(&Principal::anonymous(), "", Door::Coap);
    assert!(anyone.may_read("a/b") && anyone.may_write("a/b") && anyone.may_read("$SYS/uptime"));
    assert!(!anyone.may_write("$SYS/uptime") && !anyone.may_write("$other/x") && !anyone.may_write("$SYS"));
    assert!(anyone.is_everything_allowed(Action::Write));
    assert_eq!(anyone.may_subscribe("#"), Reach::Everything);
    assert_eq!(anyone.may_subscribe("$SYS/#"), Reach::Everything);
}

#[test]
fn a_bridge_announces_its_own_state() {
    let (own, other) = ("$SYS/broker/connection/fog/state", "$SYS/broker/connection/other/state");
    let visitor = |rules: Option<&str>, client: &str, door| {
        let authority = authority(rules);
        authority.access(&Principal::anonymous(), client, door)
    };
    let unruled = visitor(None, "fog", Door::Mqtt);
    assert!(unruled.may_write(own) && !unruled.may_write(other));
    assert!(unruled.decide(Action::Write, own).to_string().contains("its own state"));
    assert!(!unruled.decide(Action::Write, other).allowed);
    assert!(!visitor(None, "fog", Door::Http).may_write(own), "other doors have no bridges");
    for (client, topic) in [("", "$SYS/broker/connection//state"), ("a/b", "$SYS/broker/connection/a/b/state")] {
        assert!(!visitor(None, client, Door::Mqtt).may_write(topic), "{topic}");
    }
    let own_by_rule = "[[allow]]\nanonymous = true\nwrite = \"$SYS/broker/connection/%c/state\"\n";
    let ruled = visitor(Some(own_by_rule), "fog", Door::Mqtt);
    assert!(ruled.may_write(own) && !ruled.may_write(other));
    let everything = visitor(Some("[[allow]]\nanonymous = true\nwrite = [\"#\", \"$SYS/#\"]\n"), "x", Door::Mqtt);
    assert!(everything.may_write(own) && !everything.may_write("$SYS/broker/uptime") && !everything.may_write("$SYS"));
    let ordinary = visitor(Some("[[allow]]\nanonymous = true\nwrite = \"#\"\n"), "fog", Door::Mqtt);
    assert!(!ordinary.may_write(own), "a rule has to name it");
}

#[test]
fn an_explanation_is_what_the_door_decides() {
    let authority = authority(Some("[[allow]]\nauthenticated = true\nboth = [\"own/%c/#\"]\n"));
    let alice = authority.principal("alice").unwrap();
    for door in [Door::Mqtt, Door::Http, Door::Coap, Door::Xmpp] {
        let told = authority.explain(&alice, "c9", Action::Read, door, "own/c9/x").unwrap();
        assert_eq!(told.allowed, authority.access(&alice, "c9", door).may_read("own/c9/x"), "{door:?}");
        assert_eq!(told.allowed, door == Door::Mqtt, "{door:?}");
    }
}

#[test]
fn an_explanation_of_a_shared_subscription_is_that_of_its_filter() {
    let authority = authority(Some("[[allow]]\nauthenticated = true\nread = [\"open/#\"]\n"));
    let alice = authority.principal("alice").unwrap();
    let explain = |topic: &str| authority.explain(&alice, "c", Action::Read, Door::Mqtt, topic).unwrap();
    for filter in ["open/#", "open/x", "closed/#", "closed/x"] {
        assert_eq!(explain(&format!("$share/group/{filter}")).allowed, filter.starts_with("open"), "{filter}");
    }
    assert!(!explain("$share/group").allowed, "it has no filter");
}

#[test]
fn an_empty_access_file_refuses_everything() {
    let authority = authority(Some(""));
    let alice = access(&authority, "alice");
    assert!(!alice.may_read("a") && !alice.may_write("a"));
    assert!(!alice.may_subscribe("#").is_allowed());
    assert!(!alice.is_everything_allowed(Action::Read));
}

#[test]
fn rules_apply_by_user_group_client_and_door() {
    let authority = authority(Some(RULES));
    let (alice, bob) = (access(&authority, "alice"), access(&authority, "bob"));
    assert!(alice.may_write("home/alice/x") && !alice.may_write("home/bob/x") && alice.may_read("home/alice"));
    assert!(alice.may_write("clients/client-1") && !alice.may_write("clients/client-2"));
    assert!(alice.may_read("sensors/t") && !alice.may_write("sensors/t") && !bob.may_read("sensors/t"));
    assert!(alice.may_write("groups/operators/x") && !bob.may_write("groups/operators/x"));
    assert!(alice.may_read("$SYS/x") && !alice.may_write("$SYS/x"));
    let visitor = |door| authority.access(&Principal::anonymous(), "", door);
    assert!(visitor(Door::Http).may_read("public/x"));
    assert!(!visitor(Door::Mqtt).may_read("public/x") && !visitor(Door::Http).may_read("home/anonymous/x"));
}

#[test]
fn deny_comes_before_allow_and_decisions_name_their_rule() {
    let authority = authority(Some(RULES));
    let alice = access(&authority, "alice");
    let refused = alice.decide(Action::Read, "sensors/secret/x");
    assert!(!refused.allowed);
    assert_eq!(refused.to_string(), "refused by acl.toml:13: deny authenticated to read and write sensors/secret/#");
    let allowed = alice.decide(Action::Read, "sensors/x");
    assert_eq!(allowed.rule.as_ref().unwrap().line(), 8);
    assert_eq!(alice.decide(Action::Read, "x").to_string(), "refused: no rule allows it");
    assert!(alice.decide(Action::Write, "$SYS/x").to_string().contains("built-in"));
    let by_name = authority.may(alice.principal(), "client-1", Action::Read, Door::Mqtt, "sensors/x");
    assert_eq!(by_name, allowed);
}

#[test]
fn a_subscription_reaches_nothing_some_or_everything() {
    let authority = authority(Some(RULES));
    let alice = access(&authority, "alice");
    assert_eq!(alice.may_subscribe("sensors/#"), Reach::Some, "a part is denied");
    assert_eq!(alice.may_subscribe("sensors/+/t"), Reach::Some, "one of the rooms may be secret");
    assert_eq!(alice.may_subscribe("sensors/room/+"), Reach::Everything);
    assert_eq!(alice.may_subscribe("home/alice/#"), Reach::Everything);
    assert_eq!(alice.may_subscribe("home/alice/a/+/b"), Reach::Everything);
    assert_eq!(alice.may_subscribe("#"), Reach::Some);
    assert_eq!(alice.may_subscribe("+/+"), Reach::Some);
    assert!(!alice.may_subscribe("sensors/secret/+").is_allowed());
    assert!(!alice.may_subscribe("other/#").is_allowed());
    assert!(!alice.may_subscribe("home/bob/#").is_allowed());
    assert_eq!(alice.may_subscribe("$SYS/+"), Reach::Everything);
    assert!(!access(&authority, "bob").may_subscribe("$SYS/+").is_allowed());
}

#[test]
fn names_with_wildcards_or_dollars_gain_nothing() {
    let authority = authority(Some("[[allow]]\nauthenticated = true\nboth = [\"%u/#\", \"x/%u\"]\n"));
    for name in ["+", "$SYS"] {
        let access = access(&authority, name);
        assert!(!access.may_read("alice/x") && !access.may_read("$SYS/x") && !access.may_write("x/y"), "{name}");
        assert!(!access.may_subscribe("#").is_allowed());
    }
    let alice = authority.principal("alice").unwrap();
    let sly = authority.access(&alice, "#", Door::Mqtt);
    assert!(!sly.may_read("clients/x"));
}

#[test]
fn open_access_still_hides_what_begins_with_a_dollar() {
    let authority =
        authority(Some("[[allow]]\nuser = \"alice\"\nboth = \"#\"\n[[deny]]\nuser = \"alice\"\nread = \"$SYS/#\"\n"));
    let alice = access(&authority, "alice");
    assert!(alice.is_everything_allowed(Action::Read) && alice.is_everything_allowed(Action::Write));
    assert!(alice.may_read("a") && !alice.may_read("$SYS/a") && !alice.may_write("$x"));
    assert_eq!(alice.may_subscribe("#"), Reach::Everything);
    assert!(!alice.may_subscribe("$SYS/#").is_allowed());
}

#[test]
fn access_follows_a_reload_by_itself_and_ends_with_the_user() {
    let authority = authority(Some(RULES));
    let alice = access(&authority, "alice");
    let visitor = authority.access(&Principal::anonymous(), "", Door::Http);
    assert!(alice.may_read("sensors/t") && visitor.may_read("public/x"));
    let before = authority.generation();
    authority.replace(Rules::new(Users::default(), Some(acl(RULES)), AnonymousPolicy::Never));
    assert!(authority.generation() > before);
    assert!(!alice.may_read("sensors/t") && !alice.may_read("home/alice/x") && !visitor.may_read("public/x"));
    assert!(!authority.admits(alice.principal()) && !authority.admits(visitor.principal()));
    authority.replace(rules(Some("[[allow]]\ngroup = \"operators\"\nread = \"new\"\n")));
    assert!(alice.may_read("new") && !alice.may_read("sensors/t"));
}

#[test]
fn anonymous_is_let_in_by_policy() {
    let loopback = authority(None);
    assert!(loopback.anonymous(true).is_some() && loopback.anonymous(false).is_none());
    let never = Authority::new(Rules::new(Users::default(), None, AnonymousPolicy::Never));
    assert!(never.anonymous(true).is_none());
    assert!(loopback.principal("eve").is_none(), "disabled");
}

#[test]
fn loading_reports_every_file_and_never_opens_access() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| Some(directory.path().join(name));
    std::fs::write(path("users.toml").unwrap(), "x = 1\n").unwrap();
    let sources = Sources {
        users: path("users.toml"),
        acl: path("acl.toml"),
        anonymous: AnonymousPolicy::Everywhere,
        ..Sources::default()
    };
    let problems = Rules::load(&sources).err().unwrap().to_string();
    assert!(problems.contains("users.toml:1: unknown key") && problems.contains("does not exist"), "{problems}");
    let open = Sources { anonymous: AnonymousPolicy::Everywhere, ..Sources::default() };
    assert!(Rules::load(&open).is_err());
    assert!(Rules::load(&Sources { users: path("none.toml"), ..Sources::default() }).is_ok());
}

#[test]
fn the_files_of_sources_are_all_that_are_named() {
    let path = |name: &str| Some(Path::new(name).to_owned());
    assert_eq!(Sources::default().files().count(), 0);
    let named =
        Sources { users: path("u"), acl: path("a"), psk: path("p"), certificates: path("c"), ..Sources::default() };
    assert_eq!(named.files().collect::<Vec<_>>(), ["u", "a", "p", "c"].map(Path::new));
}

fn level() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["a", "b", "%u", "%c", "+", "$x"])
}

fn filter() -> impl Strategy<Value = String> {
    (prop::collection::vec(level(), 1..4), any::<bool>()).prop_map(|(levels, hash)| {
        let mut filter = levels.join("/");
        if hash {
            filter.push_str("/#");
        }
        filter
    })
}

fn topic() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(vec!["a", "b", "alice", "client-1", "$x"]), 1..5)
        .prop_map(|levels| levels.join("/"))
}

proptest! {
    /// The answer for a filter as a whole agrees with those for each topic.
    #[test]
    fn reach_agrees_with_decisions(
        allow in prop::collection::vec(filter(), 0..4),
        deny in prop::collection::vec(filter(), 0..3),
        wanted in filter(),
        topics in prop::collection::vec(topic(), 1..12),
    ) {
        let text = format!("[[allow]]\nuser = \"alice\"\nboth = {allow:?}\n[[deny]]\nuser = \"alice\"\nboth = {deny:?}\n");
        let authority = authority(Some(&text));
        let alice = access(&authority, "alice");
        let wanted = wanted.replace("%u", "alice").replace("%c", "client-1");
        let reach = alice.may_subscribe(&wanted);
        let only = acl(&format!("[[allow]]\nuser = \"alice\"\nread = [{wanted:?}]\n"));
        let asked = Arc::new(Authority::new(Rules::new(
            Users::parse(Path::new("u"), "[users.alice]\n").unwrap(), Some(only), AnonymousPolicy::Never,
        )));
        let asked = access(&asked, "alice");
        for topic in topics.iter().filter(|topic| asked.may_read(topic)) {
            let may = alice.may_read(topic);
            match &reach {
                Reach::Nothing(_) => prop_assert!(!may, "{} {}", wanted, topic),
                Reach::Everything => prop_assert!(may, "{} {}", wanted, topic),
                Reach::Some => {}
            }
        }
        for topic in &topics {
            for action in [Action::Read, Action::Write] {
                let fast = match action { Action::Read => alice.may_read(topic), Action::Write => alice.may_write(topic) };
                prop_assert_eq!(alice.decide(action, topic).allowed, fast);
                if alice.is_everything_allowed(action) && !topic.starts_with('$') {
                    prop_assert!(fast);
                }
            }
        }
    }
}
