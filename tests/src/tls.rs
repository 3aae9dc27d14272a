//! TLS towards the gateway, trusting its own authority.

use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::tcp;

/// A TLS connection over TCP.
pub type Stream = StreamOwned<ClientConnection, TcpStream>;

/// The configuration that clients of one gateway share.
///
/// # Errors
/// When the authority's certificate cannot be read.
pub fn config(ca: &Path) -> Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(ca).with_context(|| ca.display().to_string())? {
        roots.add(certificate?)?;
    }
    Ok(Arc::new(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth()))
}

/// Connects; the handshake happens with the first bytes.
///
/// # Errors
/// When nobody accepts.
pub fn connect(config: &Arc<ClientConfig>, address: SocketAddr) -> Result<Stream> {
    over(config, tcp::connect(address)?)
}

/// TLS over a connection; the handshake happens with the first bytes.
///
/// # Errors
/// When the configuration cannot be used.
pub fn over(config: &Arc<ClientConfig>, stream: TcpStream) -> Result<Stream> {
    let session = ClientConnection::new(Arc::clone(config), ServerName::try_from("localhost")?)?;
    Ok(StreamOwned::new(session, stream))
}
