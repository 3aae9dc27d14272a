//! Which sources there are, and sets of them.

use std::fmt;

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
    /// The configuration, for a link to another broker: no credential, and so none of a listener.
    Link,
}

impl SourceKind {
    /// All that a listener may take, in the order in which they are named to people.
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
            Self::Link => "link",
        }
    }

    /// The source of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().chain([Self::Link]).find(|kind| kind.name() == name)
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
