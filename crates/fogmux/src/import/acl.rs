//! Mosquitto's `acl_file` as access rules of fogmux.
//!
//! Its rules (mosquitto.conf(5), `acl_file`): `topic` lines before the first `user` line are for anonymous clients,
//! those after it for that user; `pattern` lines are for everybody. In both, access without a rule is refused.

use std::fmt::Write as _;

use fogmux_auth::prepared_name;

use super::report::Report;
use super::rules::{Translated, placeholders, quoted};

/// The clients that lines apply to.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Who {
    Anonymous,
    User(String),
    Everybody,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Read,
    Write,
    ReadWrite,
    Deny,
}

struct Line {
    number: usize,
    who: Who,
    access: Access,
    filter: String,
}

/// Translates the text of an access file; notes what cannot be translated or has another meaning.
pub(super) fn translate(text: &str, report: &mut Report) -> Translated {
    let mut translated = Translated::default();
    let mut who = Some(Who::Anonymous);
    let mut lines = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (keyword, rest) = line.split_once([' ', '\t']).map_or((line, ""), |(word, rest)| (word, rest.trim()));
        match keyword {
            "user" => {
                who = prepared_name(rest).map(Who::User);
                if who.is_none() {
                    report.lost(number, format!("{rest:?} cannot be a user's name here; its lines are left out"));
                }
            }
            "topic" | "pattern" => {
                let about = if keyword == "pattern" { Some(Who::Everybody) } else { who.clone() };
                let read = read_line(keyword, rest);
                translated.deny_lost |= matches!((&about, &read), (None, Ok((Access::Deny, _))));
                match (about, read) {
                    (Some(who), Ok((access, filter))) => lines.push(Line { number, who, access, filter }),
                    (None, Ok(_)) => report.lost(number, "left out with its user"),
                    (_, Err(reason)) => {
                        translated.deny_lost |= rest.starts_with("deny");
                        report.lost(number, reason);
                    }
                }
            }
            other => {
                translated.no_line.get_or_insert(number);
                report.lost(number, format!("there is no keyword {other:?} in an access file"));
            }
        }
    }
    say_what_differs(&lines, report);
    write(&lines, &mut translated);
    translated
}

/// Parses `[read|write|readwrite|deny] filter`.
fn read_line(keyword: &str, rest: &str) -> Result<(Access, String), String> {
    let (access, filter) = match rest.split_once([' ', '\t']) {
        None => (Access::ReadWrite, rest),
        Some(("read", filter)) => (Access::Read, filter.trim()),
        Some(("write", filter)) => (Access::Write, filter.trim()),
        Some(("readwrite", filter)) => (Access::ReadWrite, filter.trim()),
        Some(("deny", filter)) => (Access::Deny, filter.trim()),
        Some((other, _)) => return Err(format!("{other:?} is not one of read, write, readwrite and deny")),
    };
    let filter = if keyword == "pattern" { placeholders(filter) } else { filter.replace('%', "%%") };
    let sample = format!("[[allow]]\nanonymous = true\nread = {}\n", quoted(&filter));
    match fogmux_auth::Acl::parse(std::path::Path::new("line"), &sample) {
        Ok(_) => Ok((access, filter)),
        Err(_) => Err(format!("{filter:?} is not a topic filter")),
    }
}

fn say_what_differs(lines: &[Line], report: &mut Report) {
    let allows_topics = lines.iter().any(|line| line.who != Who::Everybody && line.access != Access::Deny);
    for line in lines {
        if line.who == Who::Everybody && line.access == Access::Deny && allows_topics {
            report.differs(line.number, "a deny wins over every allow here; there, topic lines win over it");
        }
        if line.filter.starts_with("$SYS") && matches!(line.access, Access::Write | Access::ReadWrite) {
            let what = "clients write below $SYS only $SYS/broker/connection/<name>/state here, whatever the rules say";
            report.differs(line.number, what);
        }
        if line.who == Who::Everybody && line.filter.contains("%c") {
            report.differs(
                line.number,
                match line.access {
                    Access::Deny => {
                        "%c is the client identifier on MQTT only; elsewhere this denies every identifier's"
                    }
                    Access::Read | Access::Write | Access::ReadWrite => {
                        "%c is the client identifier on MQTT only; elsewhere this allows nothing"
                    }
                },
            );
        }
    }
    if lines.iter().any(|line| line.access != Access::Deny) {
        report.differs(0, "a subscription without a right to read is refused; Mosquitto accepts it and sends nothing");
    }
}

/// Writes one table for each run of lines about the same party with the same effect.
fn write(lines: &[Line], translated: &mut Translated) {
    let mut text = String::from("# Made by `fogmux import mosquitto`.\n");
    let same = |a: &Line, b: &Line| a.who == b.who && (a.access == Access::Deny) == (b.access == Access::Deny);
    for run in lines.chunk_by(same) {
        let Some(first) = run.first() else { continue };
        let effect = if first.access == Access::Deny { "deny" } else { "allow" };
        let who = match &first.who {
            Who::Anonymous => "anonymous = true".to_owned(),
            Who::User(name) => format!("user = {}", quoted(name)),
            Who::Everybody => "authenticated = true\nanonymous = true".to_owned(),
        };
        // Writing to a String cannot fail.
        let _ = write!(text, "\n[[{effect}]] # from line {}\n{who}\n", first.number);
        for (key, accesses) in
            [("read", &[Access::Read][..]), ("write", &[Access::Write]), ("both", &[Access::ReadWrite, Access::Deny])]
        {
            let filters = run.iter().filter(|line| accesses.contains(&line.access));
            let filters: Vec<String> = filters.map(|line| quoted(&line.filter)).collect();
            translated.rules += filters.len();
            if !filters.is_empty() {
                let _ = writeln!(text, "{key} = [{}]", filters.join(", "));
            }
        }
    }
    translated.toml = text;
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use fogmux_auth::{Acl, Action, AnonymousPolicy, Authority, Door, Principal, Rules, Users};

    use super::*;

    const FILE: &str = "\
# comment
topic read public/#
topic deny public/hidden

user alice
topic readwrite a/#
topic b/c d
topic write %u/50%
topic read only read
topic deny a/secret/#
user bob
topic telemetry
pattern read users/%u/#
pattern write clients/%c/100%/x
user an\u{7}x
topic read all
user eve
topic read a/#/b
";

    fn authority(text: &str) -> (Arc<Authority>, Report, Translated) {
        let mut report = Report::new(Path::new("acl"));
        let translated = translate(text, &mut report);
        let acl = Acl::parse(Path::new("acl.toml"), &translated.toml).unwrap();
        (Arc::new(Authority::new(Rules::new(users(), Some(acl), AnonymousPolicy::Loopback))), report, translated)
    }

    fn users() -> Users {
        let text = "[users.alice]\n[users.bob]\n[users.eve]\n";
        Users::parse(Path::new("users.toml"), text).unwrap()
    }

    #[test]
    fn the_same_is_allowed_and_refused() {
        let (authority, report, translated) = authority(FILE);
        let may = |who: &str, action, topic: &str| {
            let who = if who.is_empty() { Principal::anonymous() } else { authority.principal(who).unwrap() };
            authority.may(&who, "c1", action, Door::Mqtt, topic).allowed
        };
        let (read, write) = (Action::Read, Action::Write);
        for (who, action, topic, allowed) in [
            ("", read, "public/x", true),
            ("", write, "public/x", false),
            ("", read, "public/hidden", false),
            ("alice", read, "public/x", false),
            ("alice", read, "a/x", true),
            ("alice", write, "a/x", true),
            ("alice", read, "a/secret/x", false),
            ("alice", write, "%u/50%", true),
            ("alice", write, "alice/50%", false),
            ("alice", read, "only read", true),
            ("alice", read, "users/alice/x", true),
            ("alice", read, "users/bob/x", false),
            ("bob", write, "telemetry", true),
            ("bob", read, "a/x", false),
            ("bob", write, "clients/c1/100%/x", true),
            ("eve", read, "all", false),
        ] {
            assert_eq!(may(who, action, topic), allowed, "{who} {action:?} {topic}");
        }
        assert!(!translated.deny_lost);
        assert_eq!(translated.rules, 9, "{}", translated.toml);
        let lines: Vec<usize> = report.lost_lines().collect();
        assert_eq!(lines, [7, 15, 16, 18], "{report:?}");
    }

    #[test]
    fn a_deny_of_client_identifiers_holds_at_doors_without_them() {
        let (authority, report, translated) = authority("pattern read #\npattern deny devices/%c/secret\n");
        assert!(!translated.deny_lost);
        let may = |client, door, topic| {
            let alice = authority.principal("alice").unwrap();
            authority.may(&alice, client, Action::Read, door, topic).allowed
        };
        assert!(!may("", Door::Http, "devices/d1/secret") && may("", Door::Http, "devices/d1/public"));
        assert!(!may("d1", Door::Mqtt, "devices/d1/secret") && may("d1", Door::Mqtt, "devices/d2/secret"));
        assert!(report.to_string().contains("elsewhere this denies"), "{report}");
    }

    #[test]
    fn a_deny_that_cannot_be_said_is_known() {
        for (text, lost) in [
            ("topic deny a/#/b", true),
            ("topic deny", false),
            ("user a\u{7}b\ntopic deny x", true),
            ("topic read a/#/b", false),
            ("pattern deny a/%u", false),
        ] {
            let translated = translate(text, &mut Report::new(Path::new("acl")));
            assert_eq!(translated.deny_lost, lost, "{text}");
        }
    }

    /// Mosquitto 2.0.11 refuses each of them ("Invalid line in acl_file").
    #[test]
    fn a_line_that_is_none_ends_the_import() {
        for (text, expected) in [
            ("user alice\ntopic read a/#\nUser bob\ntopic readwrite secret/#\n", Some(3)),
            ("\u{feff}user alice\ntopic read a/#\n", Some(1)),
            ("topic read a\ntopics deny a/secret/#\n", Some(2)),
            ("# a comment\n\n  user alice\n\ttopic read a\n", None),
        ] {
            let translated = translate(text, &mut Report::new(Path::new("acl")));
            assert_eq!(translated.no_line, expected, "{text:?}");
        }
    }

    #[test]
    fn what_means_something_else_here_is_noted() {
        let (_, report, _) = authority("topic read a\npattern deny b\ntopic write $SYS/x\npattern read %c/x\n");
        let said = report.to_string();
        for expected in
            ["acl:2: differs: a deny wins", "acl:3: differs: clients write below $SYS only", "acl:4: differs: %c"]
        {
            assert!(said.contains(expected), "{said}");
        }
    }
}
