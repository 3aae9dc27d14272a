//! The result of a handshake: what was agreed, and who the other end has proved to be.

use rustls::pki_types::CertificateDer;

use super::{Suite, Suite13};

/// An association's protection and peer. Only what was verified is in here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Channel {
    /// The cipher suite, which names the version too.
    pub suite: ChannelSuite,
    /// The certificate of the other end, whose chain and signature hold.
    pub certificate: Option<CertificateDer<'static>>,
    /// The pre-shared key that a client has proved to know.
    pub psk: Option<ProvenPsk>,
}

/// A pre-shared key that a client has proved to know: that of its identity when the handshake looked it up, which may
/// have another by now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProvenPsk {
    /// Its identity.
    pub identity: Box<[u8]>,
    /// The mark of the key ([`Psk::mark`](crate::Psk::mark)).
    pub mark: u64,
}

/// The cipher suite of an association, by its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelSuite {
    /// DTLS 1.2.
    V12(Suite),
    /// DTLS 1.3.
    V13(Suite13),
}

impl ChannelSuite {
    /// `DTLSv1.2` or `DTLSv1.3`.
    #[must_use]
    pub const fn protocol(self) -> &'static str {
        match self {
            Self::V12(_) => "DTLSv1.2",
            Self::V13(_) => "DTLSv1.3",
        }
    }

    /// The suite's name in the IANA registry.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::V12(suite) => suite.name(),
            Self::V13(suite) => suite.name(),
        }
    }
}
