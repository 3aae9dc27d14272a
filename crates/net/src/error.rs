//! Why TLS cannot be had.

use std::path::PathBuf;

use crate::profile::KeyKind;

/// Why TLS cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read or is not the PEM it should be.
    #[error("{}: {why}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// The reason.
        why: String,
    },
    /// No certificate has the key that the profile is about.
    #[error("the profile {profile:?} needs a certificate with a key of the kind {}", kind.name())]
    NoKey {
        /// The name of the profile.
        profile: &'static str,
        /// The required kind of key.
        kind: KeyKind,
    },
    /// Client certificates are required, and there is no authority for them.
    #[error("client certificates are required, but there is no authority for them (tls.client_ca_file)")]
    NoAuthority,
    /// There are no pre-shared keys.
    #[error("there is nobody to ask for pre-shared keys")]
    NoPsk,
    /// The profile is of another stack than this.
    #[error("the profile {0:?} needs what this build or this transport does not have")]
    Stack(&'static str),
    /// OpenSSL refuses what it was told.
    #[error("OpenSSL: {0}")]
    OpenSsl(String),
}
