//! Users' names in addresses (XEP-0106).

use fogmux_xmpp::Jid;

/// Escapes the characters that a localpart cannot contain. Upper case is escaped too, since addresses are case-folded
/// and user names are not: `Ada` and `ada` remain two users.
pub(super) fn escape_local(name: &str) -> String {
    let mut local = String::with_capacity(name.len());
    for c in name.chars() {
        if is_escaped(c) {
            local.push_str(&format!("\\{:02x}", u32::from(c)));
        } else {
            local.push(c);
        }
    }
    local
}

const fn is_escaped(c: char) -> bool {
    matches!(c, ' ' | '"' | '&' | '\'' | '/' | ':' | '<' | '>' | '@' | '\\' | 'A'..='Z')
}

/// The name that a local part stands for; codes that [`escape_local`] does not write stand for themselves.
fn unescape_local(local: &str) -> String {
    let mut name = String::with_capacity(local.len());
    let mut rest = local;
    while let Some((plain, tail)) = rest.split_once('\\') {
        name.push_str(plain);
        let code = tail.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok()).map(char::from);
        match (code.filter(|c| is_escaped(*c)), tail.get(2..)) {
            (Some(c), Some(behind)) => {
                name.push(c);
                rest = behind;
            }
            (Some(_) | None, _) => {
                name.push('\\');
                rest = tail;
            }
        }
    }
    name.push_str(rest);
    name
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
        for name in ["ada", "Ada", "a b", "d'artagnan@musketeers.lit", "c:\\net", "\\41", "ü", "a\\zz"] {
            let local = escape_local(name);
            let jid = Jid::from_parts(Some(&local), "localhost", None).expect("an address");
            assert_eq!(user_of(jid.as_str(), &domain).as_deref(), Some(name), "{jid}");
            assert!(is_identity_of(jid.as_str(), name, &domain) && is_identity_of(name, name, &domain));
        }
        assert_eq!(escape_local("Ada"), "\\41da");
        assert!(is_identity_of("Ada@localhost", "Ada", &domain));
        for other in ["ada@elsewhere", "ada@localhost/r", "localhost", "@", "ada@localhost@localhost"] {
            assert!(!is_identity_of(other, "ada", &domain), "{other}");
        }
    }
}
