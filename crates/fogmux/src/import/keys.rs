//! Mosquitto's `password_file` and `psk_file`: names with hashes, identities with keys.

use std::path::Path;

use fogmux_auth::{Psks, UserError, Users};

use super::report::Report;

/// Adds the users of a password file and returns their number. Existing ones stay unless `replace` is set.
pub(super) fn passwords(text: &str, users: &mut Users, replace: bool, report: &mut Report) -> usize {
    let mut taken = 0;
    for (number, name, hash) in entries(text, report) {
        if users.contains(name) && !replace {
            report.lost(number, format!("there is a user {name:?} already; --replace takes the password from here"));
            continue;
        }
        if !hash.starts_with('$') {
            report.lost(number, "the password is not hashed; run mosquitto_passwd -U on the file first");
            continue;
        }
        match users.set_hash(name, hash) {
            Ok(()) => taken += 1,
            Err(error) => report.lost(number, error.to_string()),
        }
    }
    if taken > 0 {
        let text =
            "SCRAM (XMPP, MQTT 5 AUTH) needs keys that these hashes do not contain; `fogmux passwd` creates them";
        report.differs(0, text);
    }
    taken
}

/// Whether no user of a password file is there, though it has lines: it is another kind of file, or damaged.
pub(super) fn is_unusable(text: &str, users: &Users) -> bool {
    let mut unread = Report::new(Path::new(""));
    let entries = entries(text, &mut unread);
    let is_empty = entries.is_empty() && unread.lost_lines().next().is_none();
    !is_empty && !entries.iter().any(|(_, name, _)| users.contains(name))
}

/// Adds the keys of a key file and returns their number.
pub(super) fn psks(text: &str, psks: &mut Psks, replace: bool, report: &mut Report) -> usize {
    let mut taken = 0;
    for (number, identity, key) in entries(text, report) {
        let known = psks.identities().any(|(known, _)| known == identity.as_bytes());
        if known && !replace {
            report.lost(number, format!("{identity:?} has a key already; --replace takes the one from here"));
            continue;
        }
        let Some(key) = crate::pki::bytes(key).filter(|key| !key.is_empty()) else {
            report.lost(number, "the key is not hexadecimal");
            continue;
        };
        match psks.set(identity.as_bytes(), &key, None) {
            Ok(()) => taken += 1,
            Err(error @ (UserError::Name | UserError::Link | UserError::Psk)) => report.lost(number, error.to_string()),
            Err(_) => report.lost(number, "it cannot be used"),
        }
        if key.len() < 16 {
            report.differs(number, "a key of less than 16 bytes can be guessed");
        }
    }
    taken
}

/// Splits `name:value` lines.
fn entries<'a>(text: &'a str, report: &mut Report) -> Vec<(usize, &'a str, &'a str)> {
    let mut entries = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match line.split_once(':') {
            Some((name, value)) => entries.push((index + 1, name, value.trim())),
            None => report.lost(index + 1, "the line has no colon"),
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Written by mosquitto_passwd, for the password "secret".
    const PASSWORDS: &str = "\
alice:$7$101$Crmx7QrRoGqjVE6Y$Q79G2lGg1cCy76WxrRmLiY4jZEkwRv+kWg0NYjEj87RXFkfGUe1WKprhiKK8eIYstNQr5NAGx0MfPRPzdT4IIQ==
bob:$6$ep2ynmhUMT//sR7p$3bmTwYdRx5CnO/cfpldDIMaofZaN0du8dXfjYSE88ulhlNxRGdaKLMLxtPOjaTs7Ojo3gXIws5dLllnZFwRpzw==
carol:secret
anonymous:$6$ep2ynmhUMT//sR7p$3bmTwYdRx5CnO/cfpldDIMaofZaN0du8dXfjYSE88ulhlNxRGdaKLMLxtPOjaTs7Ojo3gXIws5dLllnZFwRpzw==
dave
eve:$9$x
";

    #[test]
    fn users_come_with_their_hashes() {
        let mut users = Users::default();
        let mut report = Report::new(Path::new("passwords"));
        assert_eq!(passwords(PASSWORDS, &mut users, false, &mut report), 2);
        assert!(users.contains("alice") && users.contains("bob"));
        let mut lines: Vec<usize> = report.lost_lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, [3, 4, 5, 6], "{report}");
        assert!(!report.to_string().contains("secret"));
        let mut again = Report::new(Path::new("passwords"));
        assert_eq!(passwords(PASSWORDS, &mut users, false, &mut again), 0);
        assert_eq!(passwords(PASSWORDS, &mut users, true, &mut Report::new(Path::new("p"))), 2);
    }

    #[test]
    fn a_file_without_a_usable_user_is_told_from_one_whose_users_are_there() {
        let mut users = Users::default();
        for text in ["carol:secret\n", "dave\n", "# x\neve:$9$x\n"] {
            assert_eq!(passwords(text, &mut users, false, &mut Report::new(Path::new("p"))), 0);
            assert!(is_unusable(text, &users), "{text}");
        }
        for text in ["", "# nobody\n\n"] {
            assert!(!is_unusable(text, &users), "{text}");
        }
        passwords(PASSWORDS, &mut users, false, &mut Report::new(Path::new("p")));
        assert!(!is_unusable(PASSWORDS, &users));
    }

    #[test]
    fn keys_come_with_their_identities() {
        let mut found = Psks::default();
        let mut report = Report::new(Path::new("psk"));
        let text = "sensor:00112233445566778899aabbccddeeff\nshort:0011\nodd:123\nnone:\n";
        assert_eq!(psks(text, &mut found, false, &mut report), 2);
        assert_eq!(found.secret(b"short").unwrap().key.as_slice(), [0, 0x11]);
        assert_eq!(report.lost_lines().collect::<Vec<_>>(), [3, 4]);
        assert!(report.to_string().contains("psk:2: differs"), "{report}");
    }
}
