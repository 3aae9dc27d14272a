//! Reads the access file into rules, one for each filter, and reports everything that is wrong with it.

use std::{path::Path, sync::Arc};

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{Acl, Actions, Door, Doors, Effect, Rule, RuleRef, Who, pattern::Pattern};
use crate::{
    problem::{Problem, Problems, Review},
    users::checked_name,
};

const KEYS: &str = "user, group, authenticated, anonymous, door, read, write, both";

pub(super) fn parse(path: &Path, text: &str) -> Result<Acl, Problems> {
    let file: Arc<Path> = path.into();
    let mut review = Review::new(path, text);
    let table = review.parse();
    let mut rules = Vec::new();
    let mut notes = Vec::new();
    for (key, value) in &table {
        let effect = match key.get_ref().as_ref() {
            "allow" => Effect::Allow,
            "deny" => Effect::Deny,
            other => {
                review.report(key.span(), format!("unknown table {other:?}; known: [[allow]], [[deny]]"));
                continue;
            }
        };
        let Some(entries) = value.get_ref().as_array() else {
            review.report(value.span(), format!("write [[{0}]], with two brackets", key.get_ref()));
            continue;
        };
        for entry in entries.iter() {
            match entry.get_ref().as_table() {
                Some(entry_table) => {
                    read_entry(&mut review, &mut notes, &mut rules, (&file, effect), entry, entry_table);
                }
                None => review.report(entry.span(), "expected a table"),
            }
        }
    }
    review.problems.unless_any(Acl { notes, ..Acl::new(rules) })
}

fn read_entry(
    review: &mut Review<'_>,
    notes: &mut Vec<Problem>,
    rules: &mut Vec<Rule>,
    (file, effect): (&Arc<Path>, Effect),
    entry: &Spanned<DeValue<'_>>,
    table: &DeTable<'_>,
) {
    let mut who = Who::default();
    let mut doors = Doors::default();
    let mut filters = Vec::new();
    for (key, value) in table {
        match key.get_ref().as_ref() {
            "user" => who.users = names(review, notes, "user", value),
            "group" => who.groups = names(review, notes, "group", value),
            "authenticated" => who.authenticated = flag(review, "authenticated", value),
            "anonymous" => who.anonymous = flag(review, "anonymous", value),
            "door" => doors = read_doors(review, value),
            "read" => filters.extend(read_filters(review, Actions::Read, value)),
            "write" => filters.extend(read_filters(review, Actions::Write, value)),
            "both" => filters.extend(read_filters(review, Actions::Both, value)),
            other => review.report(key.span(), format!("unknown key {other:?}; known: {KEYS}")),
        }
    }
    if who == Who::default() {
        let expected = "say for whom: user = \"…\", group = \"…\", authenticated = true or anonymous = true";
        review.report(entry.span(), expected);
    }
    if !["read", "write", "both"].iter().any(|key| table.contains_key(*key)) {
        review.report(entry.span(), "say what: read, write or both = [\"topic/filter\", …]");
    }
    let who = Arc::new(who);
    for (actions, line, pattern) in filters {
        let reference = RuleRef::new(file, line, describe(effect, &who, &doors, actions, &pattern));
        let (who, doors) = (Arc::clone(&who), doors.clone());
        rules.push(Rule { effect, who, doors, actions, pattern, reference });
    }
}

/// The strings of `"x"` or `["x", "y"]` with their values' places.
fn strings<'v, 'i>(
    review: &mut Review<'_>,
    key: &str,
    value: &'v Spanned<DeValue<'i>>,
) -> Vec<(&'v str, &'v Spanned<DeValue<'i>>)> {
    let mut found = Vec::new();
    let single = std::slice::from_ref(value);
    let entries: Box<dyn Iterator<Item = &'v Spanned<DeValue<'i>>>> = match value.get_ref().as_array() {
        Some(list) => Box::new(list.iter()),
        None => Box::new(single.iter()),
    };
    for entry in entries {
        match entry.get_ref().as_str() {
            Some(text) => found.push((text, entry)),
            None => review.report(entry.span(), format!("{key}: expected a string or a list of strings")),
        }
    }
    found
}

/// Names in the form in which those of users are compared (RFC 8265 §3.4), with a note about each that was written in
/// another form. A name that can be nobody's is reported: a deny would never match.
fn names(review: &mut Review<'_>, notes: &mut Vec<Problem>, key: &str, value: &Spanned<DeValue<'_>>) -> Vec<String> {
    let found = strings(review, key, value);
    if found.is_empty() {
        review.report(value.span(), format!("{key}: expected at least one name"));
    }
    let mut names = Vec::new();
    for (name, at) in found {
        let Ok(prepared) = checked_name(name) else {
            let expected = "expected a name of 1 to 255 bytes without control characters, and not \"anonymous\"";
            review.report(at.span(), format!("{key} {name:?} can be nobody's name: {expected}"));
            continue;
        };
        if prepared != name {
            let message = format!("{key} {} is compared as {}", name.escape_default(), prepared.escape_default());
            let line = review.line(at.span().start);
            notes.push(Problem { file: review.file().into(), line, message });
        }
        names.push(prepared);
    }
    names
}

fn flag(review: &mut Review<'_>, key: &str, value: &Spanned<DeValue<'_>>) -> bool {
    value.get_ref().as_bool().unwrap_or_else(|| {
        review.report(value.span(), format!("{key}: expected true or false"));
        false
    })
}

/// An unknown or empty list of doors must not come to mean every door: it is reported, and then nothing is loaded.
fn read_doors(review: &mut Review<'_>, value: &Spanned<DeValue<'_>>) -> Doors {
    let mut doors = Vec::new();
    let found = strings(review, "door", value);
    if found.is_empty() {
        review.report(value.span(), "door: expected at least one; leave the key out to mean every door");
    }
    for (name, at) in found {
        match Door::ALL.into_iter().find(|door| door.name() == name) {
            Some(door) => doors.push(door),
            None => review.report(at.span(), format!("unknown door {name:?}; known: mqtt, coap, http, xmpp")),
        }
    }
    Doors(doors)
}

fn read_filters(
    review: &mut Review<'_>,
    actions: Actions,
    value: &Spanned<DeValue<'_>>,
) -> Vec<(Actions, usize, Pattern)> {
    let mut filters = Vec::new();
    for (text, at) in strings(review, "filters", value) {
        match Pattern::parse(text) {
            Ok(pattern) => filters.push((actions, review.line(at.span().start), pattern)),
            Err(error) => review.report(at.span(), format!("{text:?}: {error}")),
        }
    }
    filters
}

fn describe(effect: Effect, who: &Who, doors: &Doors, actions: Actions, pattern: &Pattern) -> String {
    let mut subjects: Vec<String> = who.users.iter().map(|user| format!("user {user}")).collect();
    subjects.extend(who.groups.iter().map(|group| format!("group {group}")));
    subjects.extend(who.authenticated.then(|| "authenticated".to_owned()));
    subjects.extend(who.anonymous.then(|| "anonymous".to_owned()));
    let effect = match effect {
        Effect::Allow => "allow",
        Effect::Deny => "deny",
    };
    let actions = match actions {
        Actions::Read => "read",
        Actions::Write => "write",
        Actions::Both => "read and write",
    };
    let doors = match doors.0.as_slice() {
        [] => String::new(),
        some => format!(" by {}", some.iter().map(|door| door.name()).collect::<Vec<_>>().join(", ")),
    };
    format!("{effect} {} to {actions} {}{doors}", subjects.join(", "), pattern.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_problems_are_reported_with_their_lines() {
        let text = "[[allow]]\nread = [\"a/#\"]\n\n[[allow]]\nuser = \"x\"\n\n[[deny]]\nanonymous = 1\n\
                    both = [\"a/#/b\",\n  \"ok\",\n  \"b+\"]\ndoor = [\"amqp\"]\n[grant]\n[[allow]]\nuser = []\nwrite = \"%x\"\nrole = 1\ndoor = []\n";
        let problems = parse(Path::new("acl.toml"), text).err().unwrap();
        let mut lines: Vec<usize> = problems.0.iter().map(|problem| problem.line).collect();
        lines.sort_unstable();
        assert_eq!(lines, [1, 4, 7, 8, 9, 11, 12, 13, 14, 15, 16, 17, 18], "{problems}");
    }

    #[test]
    fn names_are_compared_in_the_form_of_users() {
        let text = "[[deny]]\nuser = \"jose\u{301}\"\ngroup = \"ok\"\nboth = \"#\"\n";
        let acl = parse(Path::new("acl.toml"), text).unwrap();
        assert_eq!(acl.rules[0].who.users, ["jos\u{e9}"]);
        let notes: Vec<_> = acl.notes().iter().map(ToString::to_string).collect();
        assert_eq!(notes, ["acl.toml:2: user jose\\u{301} is compared as jos\\u{e9}"]);
        for nobody in ["", "a\u{7}b", "anonymous"] {
            let text = format!("[[deny]]\nuser = {nobody:?}\nboth = \"#\"\n").replace("\\u{7}", "\\u0007");
            assert_eq!(parse(Path::new("acl.toml"), &text).unwrap_err().0[0].line, 2, "{nobody:?}");
        }
    }

    #[test]
    fn syntax_errors_are_reported_too() {
        assert!(parse(Path::new("acl.toml"), "[[allow]\nuser = \"a\"\nread = [\"#\"]").is_err());
    }
}
