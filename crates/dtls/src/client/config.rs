//! A client's configuration: what it offers, what it proves itself with, and whom it believes.

use std::sync::Arc;

use rustls::{KeyLog, client::danger::ServerCertVerifier, pki_types::ServerName, sign::CertifiedKey};
use zeroize::Zeroizing;

use crate::{Group, Suite, Suite13};

/// A client's configuration.
#[derive(Clone)]
pub struct ClientConfig {
    /// Suites of DTLS 1.2 to offer, best first; those for which there is nothing here are left out. Without any it is
    /// not offered.
    pub suites: Vec<Suite>,
    /// Suites of DTLS 1.3 to offer, best first. Without any it is not offered.
    pub suites_13: Vec<Suite13>,
    /// Groups to offer, best first; the share of DTLS 1.3 is of the first. Without any a pre-shared key is used without
    /// forward secrecy.
    pub groups: Vec<Group>,
    /// A pre-shared key.
    pub psk: Option<Psk>,
    /// A certificate of its own, for servers that ask.
    pub certified_key: Option<Arc<CertifiedKey>>,
    /// The verifier of the server's certificate, and the name that it is verified for.
    pub server: Option<(Arc<dyn ServerCertVerifier>, ServerName<'static>)>,
    /// Whether to ask for connection identifiers (RFC 9146, RFC 9147 §9), so that the session outlives an address.
    pub identifiers: bool,
    /// The log that gets the session's secret.
    pub key_log: Option<Arc<dyn KeyLog>>,
}

/// A pre-shared key and whose it is.
#[derive(Clone)]
pub struct Psk {
    /// The identity that is told to the server.
    pub identity: Box<[u8]>,
    /// The key.
    pub key: Zeroizing<Vec<u8>>,
}

impl ClientConfig {
    /// With a pre-shared key.
    #[must_use]
    pub fn psk(identity: &[u8], key: &[u8]) -> Self {
        let psk = Some(Psk { identity: identity.into(), key: Zeroizing::new(key.to_vec()) });
        Self { psk, ..Self::nothing() }
    }

    /// With certificates.
    #[must_use]
    pub fn certificates(verifier: Arc<dyn ServerCertVerifier>, name: ServerName<'static>) -> Self {
        let server = Some((verifier, name));
        Self { server, ..Self::nothing() }
    }

    /// Both versions, and nothing to prove.
    fn nothing() -> Self {
        Self {
            suites: Suite::ALL.to_vec(),
            suites_13: Suite13::ALL.to_vec(),
            groups: Group::ALL.to_vec(),
            psk: None,
            certified_key: None,
            server: None,
            identifiers: false,
            key_log: None,
        }
    }
}

impl std::fmt::Debug for Psk {
    /// Without the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Psk").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for ClientConfig {
    /// Without the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientConfig").field("suites", &self.suites).finish_non_exhaustive()
    }
}
