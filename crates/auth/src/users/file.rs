//! The form of the users file:
//!
//! ```toml
//! decoy_secret = "…"            # made by fogmux; 32 bytes in base64
//! [users.alice]
//! disabled = false
//! groups = ["operators"]
//! password = "$argon2id$…"   # or mosquitto's "$6$…", "$7$…", as `fogmux import mosquitto` brings them
//! scram_sha_256 = "iterations:salt:StoredKey:ServerKey"
//! scram_sha_1 = "…"
//! ```

use std::{
    fmt::Write as _,
    ops::Range,
    path::Path,
    sync::{Arc, LazyLock},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use toml::{
    Spanned,
    de::{DeString, DeTable, DeValue},
};

use super::{User, Users, checked_name, checked_user, quoted};
use crate::{
    password::StoredPassword,
    principal::Principal,
    problem::{Problems, Review},
    random::random,
    scram::{ScramHash, ScramKeys},
};

pub(super) fn parse(path: &Path, text: &str) -> Result<Users, Problems> {
    let mut review = Review::new(path, text);
    let table = review.parse();
    let mut users = Users { decoy_secret: *OF_THIS_PROCESS, ..Users::default() };
    for (key, value) in &table {
        match (key.get_ref().as_ref(), value.get_ref()) {
            ("decoy_secret", DeValue::String(secret)) => match decoy_secret(secret) {
                Some(secret) => users.decoy_secret = secret,
                None => review.report(value.span(), "decoy_secret: expected 32 bytes in base64"),
            },
            ("users", DeValue::Table(entries)) => {
                for (name, entry) in entries {
                    read_user(&mut review, &mut users, name, entry);
                }
            }
            ("decoy_secret", _) => review.report(value.span(), "decoy_secret: expected a string"),
            ("users", _) => review.report(value.span(), "users: expected tables [users.NAME]"),
            (other, _) => review.report(key.span(), format!("unknown key {other:?}; known: decoy_secret, users")),
        }
    }
    review.problems.unless_any(users)
}

/// For files that have none: the same at every reload, or the salts of unknown users would change and tell them from
/// known ones.
static OF_THIS_PROCESS: LazyLock<[u8; 32]> = LazyLock::new(random);

fn decoy_secret(text: &str) -> Option<[u8; 32]> {
    STANDARD.decode(text).ok()?.try_into().ok()
}

fn read_user(review: &mut Review<'_>, users: &mut Users, name: &Spanned<DeString<'_>>, entry: &Spanned<DeValue<'_>>) {
    match checked_user(name.get_ref()) {
        Ok(prepared) if prepared == name.get_ref().as_ref() => {}
        Ok(prepared) => {
            return review.report(name.span(), format!("write this name in its prepared form {prepared:?} (RFC 4013)"));
        }
        Err(error) => return review.report(name.span(), error.to_string()),
    }
    let Some(table) = entry.get_ref().as_table() else {
        return review.report(entry.span(), "expected a table [users.NAME]");
    };
    let mut user = User {
        principal: Principal::user(name.get_ref(), []),
        password: None,
        scram_sha_256: None,
        scram_sha_1: None,
        disabled: false,
    };
    read_entry(review, &mut user, table);
    users.insert(user);
}

fn read_entry(review: &mut Review<'_>, user: &mut User, table: &DeTable<'_>) {
    for (key, value) in table {
        let span = value.span();
        match (key.get_ref().as_ref(), value.get_ref()) {
            ("groups", DeValue::Array(groups)) => {
                let groups: Vec<Arc<str>> = groups.iter().filter_map(|group| group_name(review, group)).collect();
                user.principal = Principal::user(&user.principal.name, groups);
            }
            ("password", DeValue::String(text)) => match StoredPassword::parse(text) {
                Ok(stored) => user.password = Some(stored),
                Err(error) => review.report(span, format!("password: {error}")),
            },
            ("scram_sha_256", DeValue::String(text)) => {
                user.scram_sha_256 = read_scram(review, ScramHash::Sha256, text, span);
            }
            ("scram_sha_1", DeValue::String(text)) => {
                user.scram_sha_1 = read_scram(review, ScramHash::Sha1, text, span);
            }
            ("disabled", DeValue::Boolean(disabled)) => user.disabled = *disabled,
            ("groups", _) => review.report(span, "groups: expected a list of strings"),
            ("password" | "scram_sha_256" | "scram_sha_1", _) => {
                review.report(span, format!("{}: expected a string made by `fogmux passwd`", key.get_ref()));
            }
            ("disabled", _) => review.report(span, "disabled: expected true or false"),
            (other, _) => review.report(
                key.span(),
                format!("unknown key {other:?}; known: groups, password, scram_sha_256, scram_sha_1, disabled"),
            ),
        }
    }
}

fn group_name(review: &mut Review<'_>, group: &Spanned<DeValue<'_>>) -> Option<Arc<str>> {
    match group.get_ref().as_str().and_then(|name| checked_name(name).ok()) {
        Some(name) => Some(name.into()),
        None => {
            review.report(group.span(), "groups: expected names of 1 to 255 bytes without control characters");
            None
        }
    }
}

fn read_scram(review: &mut Review<'_>, hash: ScramHash, text: &str, span: Range<usize>) -> Option<ScramKeys> {
    let keys = ScramKeys::parse(hash, text);
    if keys.is_none() {
        let expected = "expected iterations:salt:StoredKey:ServerKey as `fogmux passwd` writes it";
        review.report(span, format!("{}: {expected}", hash.mechanism()));
    }
    keys
}

pub(super) fn write(users: &Users) -> String {
    let mut text = String::from("# Written by `fogmux passwd`. Comments are not kept.\n");
    let mut line = |key: &str, value: &str| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{key}{value}");
    };
    line("decoy_secret = ", &quoted(&STANDARD.encode(users.decoy_secret)));
    for (name, user) in &users.by_name {
        line("", "");
        line("[users.", &format!("{}]", quoted(name)));
        // First: a copy of the file that is cut at a line has the user disabled or not at all.
        if user.disabled {
            line("disabled = ", "true");
        }
        if !user.principal.groups.is_empty() {
            let groups: Vec<String> = user.principal.groups.iter().map(|group| quoted(group)).collect();
            line("groups = ", &format!("[{}]", groups.join(", ")));
        }
        if let Some(password) = &user.password {
            line("password = ", &quoted(&password.to_text()));
        }
        if let Some(keys) = &user.scram_sha_256 {
            line("scram_sha_256 = ", &quoted(&keys.to_text()));
        }
        if let Some(keys) = &user.scram_sha_1 {
            line("scram_sha_1 = ", &quoted(&keys.to_text()));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_problems_are_reported_with_their_lines_and_without_secrets() {
        let text = "decoy_secret = 1\nport = 3\n\n[users.alice]\npassword = \"hunter2\"\ngroups = [\"a\", 3]\n\
                    [users.anonymous]\n[users.bob]\nscram_sha_1 = \"x\"\ncolour = \"red\"\ndisabled = 1\n";
        let problems = parse(Path::new("users.toml"), text).err().unwrap();
        let lines: Vec<usize> = problems.0.iter().map(|problem| problem.line).collect();
        let mut sorted = lines.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, [1, 2, 5, 6, 7, 9, 10, 11], "{problems}");
        assert!(!problems.to_string().contains("hunter2"));
        assert!(problems.to_string().contains("users.toml:5: password: not a password hash"));
    }

    #[test]
    fn unknown_users_look_the_same_after_a_reload_of_a_file_without_a_secret() {
        let parse = || parse(Path::new("users.toml"), "[users.alice]\n").unwrap().decoy_secret;
        assert_eq!(parse(), parse());
    }

    #[test]
    fn a_user_in_a_file_that_is_cut_at_a_line_is_as_disabled_as_before() {
        let mut users = Users::default();
        users.set_password("alice", b"secret").unwrap();
        users.set_groups("alice", &["operators"]).unwrap();
        users.set_disabled("alice", true).unwrap();
        let text = write(&users);
        let ends = text.match_indices('\n').map(|(at, _)| at + 1);
        let read = ends.filter_map(|end| parse(Path::new("users.toml"), text.get(..end)?).ok());
        let known: Vec<bool> = read.filter_map(|users| Some(users.get("alice")?.disabled)).collect();
        // Behind the line with the name there are five more.
        assert_eq!(known, [false, true, true, true, true, true]);
    }

    #[test]
    fn broken_toml_is_a_problem_and_not_an_empty_file() {
        assert!(parse(Path::new("users.toml"), "[users.alice\npassword=\n").is_err());
    }
}
