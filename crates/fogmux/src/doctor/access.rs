//! The users and the access rules: whether they let nobody or everybody in.

use fogmux_auth::{Acl, Action, AnonymousPolicy, Authority, Door, Principal, Reach, Rules};

use super::Subject;
use super::finding::Report;
use crate::home;

/// A topic that no rule names, unless it is one for every topic.
const ANY_TOPIC: &str = "fogmux-doctor/any/topic";

pub(super) fn examine(subject: &Subject<'_>, report: &mut Report) {
    let sources = match home::sources(subject.config, Some(&subject.directory)) {
        Ok(sources) => sources,
        Err(failure) => return report.unknown("access", failure.message().unwrap_or_default()),
    };
    let (acl, anonymous) = (sources.acl.clone(), sources.anonymous);
    let rules = match Rules::load(&sources) {
        Ok(rules) => rules,
        // Named already.
        Err(_) if report.has_problem("configuration") => return,
        Err(problems) => {
            let mend = format!("fogmux acl test{} anonymous read topic", subject.arguments());
            return report.problem("access", problems.to_string(), mend);
        }
    };
    let before = report.0.len();
    let authority = std::sync::Arc::new(Authority::new(rules));
    let may_write = |who: &Principal, door| authority.may(who, &who.name, Action::Write, door, ANY_TOPIC).allowed;
    let reads_all =
        |who: &Principal, door| matches!(authority.access(who, &*who.name, door).may_subscribe("#"), Reach::Everything);
    let doors = [Door::Mqtt, Door::Coap, Door::Http, Door::Xmpp];
    let nameless = Principal::anonymous();
    if anonymous == AnonymousPolicy::Everywhere && doors.iter().any(|door| may_write(&nameless, *door)) {
        let mend = format!("fogmux acl test{} anonymous write {ANY_TOPIC}", subject.arguments());
        report.warning("access", "others may write every topic without a credential", mend);
    }
    if anonymous == AnonymousPolicy::Everywhere && doors.iter().any(|door| reads_all(&nameless, *door)) {
        let mend = format!("fogmux acl test{} anonymous read '#'", subject.arguments());
        report.warning("access", "others may read every topic without a credential", mend);
    }
    if let Some(file) = acl
        && Acl::load(&file).is_ok_and(|acl| acl.allows_nothing())
    {
        let text = format!("{}: no rule allows anything, so nobody may read or write", file.display());
        report.problem("access", text, format!("add an [[allow]] section to {}", file.display()));
    }
    if report.0.len() == before {
        report.ok("access", "the rules let in neither nobody nor everybody");
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::super::made_up::MadeUp;
    use super::*;

    const OPEN: &str = "[listeners.mqtts]\naddress = \"0.0.0.0:8883\"\nallow_remote_anonymous = true\n";

    /// Which of the two warnings are there, about writing and about reading.
    fn warned(configuration: &str, rules: &str) -> [bool; 2] {
        let machine = MadeUp::new(configuration);
        machine.write("data/acl.toml", rules);
        let found = machine.found("access", examine);
        let has = |text: &str| found.iter().any(|one| one.0 == Level::Warning && one.1.contains(text));
        let warned = [has("may write every topic"), has("may read every topic")];
        let fine = found.iter().filter(|one| one.0 == Level::Ok).count();
        assert_eq!(found.len(), fine + usize::from(warned[0]) + usize::from(warned[1]), "{found:?}");
        assert_eq!(fine == 1, warned == [false, false], "{found:?}");
        warned
    }

    #[test]
    fn rules_that_let_everybody_in_are_a_warning_where_others_need_no_credential() {
        let rule = |right: &str| format!("[[allow]]\nanonymous = true\n{right}\n");
        let without = MadeUp::new(OPEN).found("access", examine);
        assert!(matches!(&*without, [(Level::Problem, text)] if text.contains("needs an access file")), "{without:?}");
        assert_eq!(warned(OPEN, &rule("both = \"#\"")), [true, true]);
        assert_eq!(warned(OPEN, &rule("read = \"#\"")), [false, true]);
        assert_eq!(warned(OPEN, &rule("write = \"#\"")), [true, false]);
        assert_eq!(warned(OPEN, &rule("both = \"open/#\"")), [false, false]);
        let of_a_user = "[[allow]]\nuser = \"ada\"\nboth = \"#\"\n";
        assert_eq!(warned(OPEN, of_a_user), [false, false]);
        // On this machine only, or at a listener that is not open.
        assert_eq!(warned("", &rule("both = \"#\"")), [false, false]);
        assert_eq!(warned(&format!("{OPEN}enabled = false\n"), &rule("both = \"#\"")), [false, false]);
    }
}
