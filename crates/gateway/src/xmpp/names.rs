//! Users' names in addresses (XEP-0106).

use std::fmt::Write as _;

use fogmux_xmpp::Jid;

/// Escapes the characters that a localpart cannot contain. Upper case is escaped too, in whatever script, since
/// addresses are case-folded and user names are not: `Éva` and `éva` remain two users. Beyond ASCII each byte of UTF-8
/// has a code of its own.
pub(super) fn escape_local(name: &str) -> String {
    let mut local = String::with_capacity(name.len());
    for c in name.chars() {
        if is_escaped(c) {
            for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                // Writing to a String cannot fail.
                let _ = write!(local, "\\{byte:02x}");
            }
        } else {
            local.push(c);
        }
    }
    local
}

fn is_escaped(c: char) -> bool {
    match c {
        ' ' | '"' | '&' | '\'' | '/' | ':' | '<' | '>' | '@' | '\\' => true,
        c => !c.to_lowercase().eq([c]),
    }
}

/// The name that a local part stands for; codes that [`escape_local`] does not write stand for themselves.
fn unescape_local(local: &str) -> String {
    let mut name = String::with_capacity(local.len());
    let mut rest = local;
    while let Some((plain, tail)) = rest.split_once('\\') {
        name.push_str(plain);
        if let Some((c, behind)) = unescape(tail) {
            name.push(c);
            rest = behind;
        } else {
            name.push('\\');
            rest = tail;
        }
    }
    name.push_str(rest);
    name
}

/// The character whose codes begin here, the first without its backslash, and the text behind them.
fn unescape(codes: &str) -> Option<(char, &str)> {
    let (mut bytes, mut rest) = (Vec::with_capacity(4), codes);
    loop {
        bytes.push(u8::from_str_radix(rest.get(..2)?, 16).ok()?);
        rest = rest.get(2..)?;
        match std::str::from_utf8(&bytes) {
            Ok(text) => return text.chars().next().filter(|c| is_escaped(*c)).map(|c| (c, rest)),
            Err(error) if error.error_len().is_none() => rest = rest.strip_prefix('\\')?,
            Err(_) => return None,
        }
    }
}

/// The user whose bare address this is at `domain`.
pub(super) fn user_of(address: &str, domain: &Jid) -> Option<String> {
    let jid = Jid::parse(address).ok()?;
    let ours = jid.is_bare() && jid.domain() == domain.domain();
    jid.local().filter(|_| ours).map(unescape_local)
}

/// Whether an authorisation identity (RFC 6120 §6.3.8) is this user's: the bare address, or the plain name.
pub(super) fn is_identity_of(authzid: &str, user: &str, domain: &Jid) -> bool {
    let plain = authzid.rsplit_once('@').filter(|(_, at)| *at == domain.domain()).map_or(authzid, |(local, _)| local);
    plain == user || user_of(authzid, domain).is_some_and(|name| name == user)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_their_addresses() {
        let domain = Jid::parse("localhost").expect("a domain");
        for name in [
            "ada",
            "Ada",
            "a b",
            "d'artagnan@musketeers.lit",
            "c:\\net",
            "\\41",
            "ü",
            "a\\zz",
            "Éva",
            "ΣΑΣ",
            "İ",
            "\\c3\\89",
        ] {
            let local = escape_local(name);
            let jid = Jid::from_parts(Some(&local), "localhost", None).expect("an address");
            assert_eq!(user_of(jid.as_str(), &domain).as_deref(), Some(name), "{jid}");
            assert!(is_identity_of(jid.as_str(), name, &domain) && is_identity_of(name, name, &domain));
        }
        assert_eq!(escape_local("Ada"), "\\41da");
        assert_eq!(escape_local("Éva"), "\\c3\\89va");
        assert!(is_identity_of("Ada@localhost", "Ada", &domain));
        for other in ["ada@elsewhere", "ada@localhost/r", "localhost", "@", "ada@localhost@localhost"] {
            assert!(!is_identity_of(other, "ada", &domain), "{other}");
        }
    }

    proptest::proptest! {
        #[test]
        fn two_names_have_two_addresses(one in "\\PC{1,8}|[\\\\a-cA-C0-9éÉσςΣ]{1,6}", other in "\\PC{1,8}|[\\\\a-cA-C0-9éÉσςΣ]{1,6}") {
            let address = |name: &str| Jid::from_parts(Some(&escape_local(name)), "localhost", None).ok();
            let domain = Jid::parse("localhost").expect("a domain");
            if let Some(jid) = address(&one) {
                proptest::prop_assert_eq!(user_of(jid.as_str(), &domain), Some(one.clone()));
                proptest::prop_assert!(one == other || address(&other) != Some(jid));
            }
        }
    }
}
