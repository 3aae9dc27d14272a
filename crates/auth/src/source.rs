//! Sources of authentication: one file each, behind one small trait.
//!
//! A door hands a [`Credential`] to the [`Authority`](crate::Authority), which asks the sources that know its kind. A
//! listener takes the credentials of its [`SourceSet`]. The HTTP callback waits for the network and is therefore no
//! [`Source`]: see [`callback`]. A password is no [`Credential`], because it takes memory and time to verify.

pub(crate) mod callback;
pub(crate) mod certificate;
pub(crate) mod grant;
pub(crate) mod kind;
pub(crate) mod oscore;
pub(crate) mod password;
pub(crate) mod psk;
pub(crate) mod token;

use crate::{
    principal::Principal,
    refused::Refused,
    users::{Users, checked_user},
};
use certificate::CertificateIdentity;
pub(crate) use grant::Grant;
pub use grant::Variables;
pub use kind::{SourceKind, SourceSet};

/// A credential of a client. Certificates and keys were proven by the handshake.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Credential<'a> {
    Certificate(&'a CertificateIdentity<'a>),
    /// The identity that a TLS or DTLS handshake was completed with, and the mark of its key; without a mark it is
    /// whichever key the identity has.
    Psk {
        identity: &'a [u8],
        mark: Option<u64>,
    },
    /// The user of an OSCORE context that a message was verified with.
    Oscore(&'a str),
    Token {
        token: &'a str,
        now_unix_s: u64,
    },
}

/// One way to authenticate a client.
pub(crate) trait Source: Send + Sync {
    /// Its kind.
    fn kind(&self) -> SourceKind;

    /// Judges a credential; `None` if it is not of this source's kind.
    fn judge(&self, credential: &Credential<'_>, users: &Users) -> Option<Result<Verified, Refused>>;

    /// Whether a principal that this source admitted earlier, under other files, would still be. The caller has checked
    /// that the user is not disabled.
    fn admits(&self, principal: &Principal, users: &Users) -> bool;
}

/// An authenticated principal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// The principal.
    pub principal: Principal,
    /// When the credential expires, in seconds since 1970; the door ends the connection then.
    pub expires_unix_s: Option<u64>,
}

impl From<Principal> for Verified {
    fn from(principal: Principal) -> Self {
        Self { principal, expires_unix_s: None }
    }
}

/// The principal of a name that another source than the users file vouches for. The users file adds groups, and its
/// disabled users are refused whatever the credential.
///
/// The name has to be in its prepared form already: preparing it here could turn two accounts of the other source into
/// one user.
pub(crate) fn vouched(users: &Users, kind: SourceKind, name: &str, grant: Grant) -> Result<Principal, Refused> {
    let prepared = checked_user(name).map_err(|_| Refused::Credentials)?;
    if prepared != name && matches!(kind, SourceKind::Certificate | SourceKind::Token | SourceKind::Callback) {
        return Err(Refused::Credentials);
    }
    let name = prepared;
    let known = users.get(&name);
    if known.is_some_and(|user| user.disabled) {
        return Err(Refused::Credentials);
    }
    let of_users = known.map(|user| &user.principal);
    Ok(Principal::vouched(&name, kind, grant, of_users))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_credential_makes_anybody_a_link() {
        let users = Users::default();
        for kind in SourceKind::ALL {
            assert_eq!(vouched(&users, kind, "link:north", Grant::default()), Err(Refused::Credentials), "{kind:?}");
            assert!(vouched(&users, kind, "link", Grant::default()).is_ok(), "{kind:?}");
        }
    }

    #[test]
    fn a_set_holds_what_was_put_in_by_name() {
        let set: SourceSet = ["psk", "token"].into_iter().filter_map(SourceKind::named).collect();
        assert!(set.contains(SourceKind::Psk) && set.contains(SourceKind::Token));
        assert!(!set.contains(SourceKind::Password));
        assert_eq!(format!("{set:?}"), r#"{"psk", "token"}"#);
        assert_eq!(SourceKind::ALL.into_iter().collect::<SourceSet>(), SourceSet::default());
        assert_eq!(SourceSet::NONE.with(SourceKind::Oscore).without(SourceKind::Oscore), SourceSet::NONE);
        assert_eq!(SourceKind::named("kerberos"), None);
    }
}
