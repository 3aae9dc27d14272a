//! The ways to tell who somebody is: one file each, behind one small trait.
//!
//! A door hands a [`Credential`] to the [`Authority`](crate::Authority), which asks the sources that know its kind.
//! What a listener takes is a [`SourceSet`] of its own. The HTTP callback waits for a network and is therefore no
//! [`Source`]: see [`callback`].

pub(crate) mod callback;
pub(crate) mod certificate;
pub(crate) mod oscore;
pub(crate) mod password;
pub(crate) mod psk;
pub(crate) mod token;

use std::{collections::BTreeMap, fmt, sync::Arc};

use crate::{
    authority::Refused,
    principal::Principal,
    users::{Users, checked_name},
};
use certificate::CertificateIdentity;

/// The sources by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SourceKind {
    /// A name and a password, or a proof of one (SCRAM), against the users file.
    Password,
    /// An X.509 client certificate.
    Certificate,
    /// A pre-shared key of TLS or DTLS.
    Psk,
    /// An OSCORE security context (RFC 8613).
    Oscore,
    /// A signed token (RFC 7519).
    Token,
    /// A name and a password, asked about elsewhere over HTTP.
    Callback,
}

impl SourceKind {
    /// All of them, in the order in which they are named to people.
    pub const ALL: [Self; 6] =
        [Self::Password, Self::Certificate, Self::Psk, Self::Oscore, Self::Token, Self::Callback];

    /// The name the configuration uses.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Password => "password",
            Self::Certificate => "certificate",
            Self::Psk => "psk",
            Self::Oscore => "oscore",
            Self::Token => "token",
            Self::Callback => "callback",
        }
    }

    /// The source of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// Which sources a listener takes credentials of; all of them unless it says otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SourceSet(u8);

impl SourceSet {
    /// Every source.
    pub const ALL: Self = Self(0b11_1111);
    /// None: only those without credentials, where they are let in.
    pub const NONE: Self = Self(0);

    /// Whether credentials of this kind are taken.
    #[must_use]
    pub const fn contains(self, kind: SourceKind) -> bool {
        self.0 & kind.bit() != 0
    }

    /// This set and one more.
    #[must_use]
    pub const fn with(self, kind: SourceKind) -> Self {
        Self(self.0 | kind.bit())
    }

    /// This set without one.
    #[must_use]
    pub const fn without(self, kind: SourceKind) -> Self {
        Self(self.0 & !kind.bit())
    }

    /// The sources in it.
    pub fn iter(self) -> impl Iterator<Item = SourceKind> {
        SourceKind::ALL.into_iter().filter(move |kind| self.contains(*kind))
    }
}

impl Default for SourceSet {
    fn default() -> Self {
        Self::ALL
    }
}

impl FromIterator<SourceKind> for SourceSet {
    fn from_iter<T: IntoIterator<Item = SourceKind>>(kinds: T) -> Self {
        kinds.into_iter().fold(Self::NONE, Self::with)
    }
}

impl fmt::Debug for SourceSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(SourceKind::name)).finish()
    }
}

/// What somebody shows to be believed. Sources below the handshake – certificates, keys – were proven by it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Credential<'a> {
    Password {
        user: &'a str,
        password: &'a [u8],
    },
    Certificate(&'a CertificateIdentity<'a>),
    /// The identity a TLS or DTLS handshake was completed with.
    Psk(&'a [u8]),
    /// The user of an OSCORE context that a message was verified with.
    Oscore(&'a str),
    Token {
        token: &'a str,
        now_unix_s: u64,
    },
}

/// One way to tell who somebody is.
pub(crate) trait Source: Send + Sync {
    /// Which one.
    fn kind(&self) -> SourceKind;

    /// Judges a credential; nothing when it is not of this source's kind.
    fn judge(&self, credential: &Credential<'_>, users: &Users) -> Option<Result<Verified, Refused>>;

    /// Whether somebody whom this source let in earlier, under other files, would still be. That the user is not
    /// disabled was looked at already.
    fn admits(&self, principal: &Principal, users: &Users) -> bool;
}

/// Somebody who was believed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// Who it is.
    pub principal: Principal,
    /// When that ends by itself, in seconds since 1970: the door says goodbye then.
    pub expires_unix_s: Option<u64>,
}

impl From<Principal> for Verified {
    fn from(principal: Principal) -> Self {
        Self { principal, expires_unix_s: None }
    }
}

/// What a credential says of its holder beside the name, for `%{name}` in rules: values by claim.
pub type Variables = BTreeMap<Box<str>, Box<[Box<str>]>>;

/// What a credential grants beside the name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Grant {
    pub(crate) groups: Vec<Arc<str>>,
    pub(crate) variables: Option<Arc<Variables>>,
}

/// The principal behind a name that some other source than the users file vouches for. The users file adds groups, and
/// its word on disabled users holds for every credential.
///
/// A name that somebody else keeps has to be in its prepared form already: changed here, it would make two accounts
/// there one user here.
pub(crate) fn vouched(users: &Users, kind: SourceKind, name: &str, grant: Grant) -> Result<Principal, Refused> {
    let prepared = checked_name(name).map_err(|_| Refused::Credentials)?;
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
