//! TLS for servers: one certificate that every listener uses and that can be replaced while they run.
//!
//! rustls with ring, TLS 1.2 and 1.3, its safe suites only; what it cannot do (PSK, CCM_8) is the business of other stacks.

use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use rustls::{
    ServerConfig, SupportedProtocolVersion,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    server::{Acceptor, ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
    version::{TLS12, TLS13},
};
use tokio::{net::TcpStream, sync::Semaphore};
use tokio_rustls::{LazyConfigAcceptor, server::TlsStream};

/// The longest a handshake may take from the connection on.
const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(10);
/// Handshakes past their ClientHello at once: each holds some 30 KiB.
const HANDSHAKES_MAX: usize = 1024;

/// A certificate, its key and the files they came from. Clones share them, and see when they are replaced.
#[derive(Clone)]
pub struct TlsConfig {
    certificate: Arc<Replaceable>,
    certificate_file: Arc<Path>,
    key_file: Arc<Path>,
}

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read or is not the PEM it should be.
    #[error("{}: {why}", file.display())]
    File {
        /// Which.
        file: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// Certificate and key do not belong together, or the key is of a kind we cannot use.
    #[error("{}: {source}", file.display())]
    Unusable {
        /// The file of the certificate.
        file: PathBuf,
        /// What rustls says.
        source: rustls::Error,
    },
}

impl TlsConfig {
    /// Reads a chain (leaf first) and its key (PKCS #8, SEC 1 or PKCS #1) from PEM files.
    ///
    /// # Errors
    /// [`TlsError`], with the file.
    pub fn load(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let certified = Arc::new(read(certificate, key)?);
        Ok(Self {
            certificate: Arc::new(Replaceable(RwLock::new(certified))),
            certificate_file: certificate.into(),
            key_file: key.into(),
        })
    }

    /// Reads the same files again; new handshakes use what they hold now.
    ///
    /// # Errors
    /// [`TlsError`]; the certificate stays as it was.
    pub fn reload(&self) -> Result<(), TlsError> {
        let certified = Arc::new(read(&self.certificate_file, &self.key_file)?);
        *self.certificate.0.write().unwrap_or_else(PoisonError::into_inner) = certified;
        Ok(())
    }

    /// A configuration for TCP listeners that speak one of `alpn`; a client that offers no protocol is served as well.
    #[must_use]
    pub fn server(&self, alpn: &[&[u8]]) -> Arc<ServerConfig> {
        Arc::new(self.config(alpn, &[&TLS13, &TLS12]))
    }

    /// A configuration for QUIC, which has TLS 1.3 only (RFC 9001 §4.2).
    pub(crate) fn quic_server(&self, alpn: &[&[u8]]) -> ServerConfig {
        self.config(alpn, &[&TLS13])
    }

    /// Does handshakes for a TCP listener.
    #[must_use]
    pub fn acceptor(&self, alpn: &[&[u8]]) -> TlsAcceptor {
        TlsAcceptor {
            config: self.server(alpn),
            slots: Arc::new(Semaphore::new(HANDSHAKES_MAX)),
            deadline: HANDSHAKE_DEADLINE,
        }
    }

    fn config(&self, alpn: &[&[u8]], versions: &[&'static SupportedProtocolVersion]) -> ServerConfig {
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(versions)
            .expect("ring has suites for TLS 1.2 and 1.3")
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&self.certificate) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
        // Stateless tickets: a reconnect storm resumes without signatures, and an idle session costs us nothing.
        if let Ok(ticketer) = ring::Ticketer::new() {
            config.ticketer = ticketer;
        }
        config.send_tls13_tickets = 1;
        // 0-RTT can be replayed (RFC 8446 §8): a publish would happen twice.
        config.max_early_data_size = 0;
        config
    }
}

impl fmt::Debug for TlsConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsConfig").field("certificate_file", &self.certificate_file).finish_non_exhaustive()
    }
}

pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// The certificate at this moment.
struct Replaceable(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for Replaceable {
    fn resolve(&self, _client_hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl fmt::Debug for Replaceable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Replaceable")
    }
}

/// The certificates of a PEM file, at least one.
pub(crate) fn read_certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let failed = |why: String| TlsError::File { file: file.into(), why };
    let chain = CertificateDer::pem_file_iter(file).map_err(|error| failed(error.to_string()))?;
    let chain: Vec<_> = chain.collect::<Result<_, _>>().map_err(|error| failed(error.to_string()))?;
    if chain.is_empty() { Err(failed("there is no certificate in it".into())) } else { Ok(chain) }
}

fn read(certificate: &Path, key: &Path) -> Result<CertifiedKey, TlsError> {
    let chain = read_certificates(certificate)?;
    let key = PrivateKeyDer::from_pem_file(key)
        .map_err(|error| TlsError::File { file: key.into(), why: error.to_string() })?;
    CertifiedKey::from_der(chain, key, &provider())
        .map_err(|source| TlsError::Unusable { file: certificate.into(), source })
}

/// Does handshakes. Each runs in its own task; none waits for another that only holds its connection open.
#[derive(Clone)]
pub struct TlsAcceptor {
    config: Arc<ServerConfig>,
    slots: Arc<Semaphore>,
    deadline: Duration,
}

/// Why a handshake failed: mostly the peer's doing, so of little note.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// Not finished in time.
    #[error("the TLS handshake took too long")]
    TooSlow,
    /// The peer does not speak TLS, or none that we do, or went away.
    #[error("the TLS handshake failed: {0}")]
    Failed(#[from] io::Error),
}

impl TlsAcceptor {
    /// With another deadline than 10 s.
    #[must_use]
    pub fn with_deadline(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    /// The configuration behind it.
    #[must_use]
    pub fn config(&self) -> &Arc<ServerConfig> {
        &self.config
    }

    /// Takes a connection through its handshake. Who sends nothing costs no TLS state; who sends a ClientHello waits for one
    /// of 1024 places.
    ///
    /// # Errors
    /// [`HandshakeError`]; the connection is closed then.
    pub async fn accept(&self, stream: TcpStream) -> Result<TlsStream<TcpStream>, HandshakeError> {
        tokio::time::timeout(self.deadline, self.handshake(stream)).await.map_err(|_| HandshakeError::TooSlow)?
    }

    async fn handshake(&self, stream: TcpStream) -> Result<TlsStream<TcpStream>, HandshakeError> {
        stream.readable().await?;
        let start = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
        // Never closed, so this cannot fail.
        let _slot = self.slots.acquire().await.ok();
        Ok(start.into_stream(Arc::clone(&self.config)).await?)
    }
}

impl fmt::Debug for TlsAcceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsAcceptor").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}
