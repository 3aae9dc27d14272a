//! Trust of clients: the authorities of a file; else the system's and, on this machine, the gateway's own.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fogmux_net::TlsError;
use fogmux_net::pem;
use fogmux_net::profile::{self, Offer, Version};
use fogmux_net::provider::{provider_of, supported};
use quinn::crypto::rustls::QuicClientConfig;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme, Tls13CipherSuite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::Options;
use crate::error::ClientError;

/// How the server proves who it is.
#[derive(Clone, Debug)]
pub enum Trust {
    /// By the system's authorities, or that in a PEM file, if it is there: a gateway's on this machine.
    System(Option<PathBuf>),
    /// By the authorities in a PEM file and by no other.
    File(PathBuf),
    /// Not at all.
    Insecure,
}

impl Default for Trust {
    fn default() -> Self {
        Self::System(None)
    }
}

impl Trust {
    /// The authorities' file, for a stack that knows no others; none for who believes everybody.
    pub fn authority(&self) -> Result<Option<&Path>, ClientError> {
        match self {
            Self::Insecure => Ok(None),
            Self::File(file) | Self::System(Some(file)) => Ok(Some(file)),
            Self::System(None) => Err(ClientError::Usage("this kind of TLS needs the file of an authority".to_owned())),
        }
    }
}

/// A certificate of one's own, with its key.
#[derive(Clone, Debug)]
pub struct Own {
    /// As PEM, leaf first.
    pub certificate: PathBuf,
    /// As PEM.
    pub key: PathBuf,
}

/// Returns a verifier of server certificates, for stacks other than rustls.
pub fn verifier(trust: &Trust) -> Result<Arc<dyn ServerCertVerifier>, ClientError> {
    let provider = Arc::new(ring::default_provider());
    let roots = match trust {
        Trust::Insecure => return Ok(Arc::new(TrustEverybody(provider))),
        Trust::File(file) => {
            let mut roots = RootCertStore::empty();
            add(&mut roots, file).map_err(ClientError::Io)?;
            roots
        }
        Trust::System(gateway) => system_roots(gateway.as_deref()),
    };
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
    Ok(verifier.build().map_err(ClientError::unavailable)?)
}

/// A configuration of rustls that offers `alpn`, and of versions and suites what the profile does; shows a certificate
/// of one's own when it is asked to.
pub fn config(options: &Options, alpn: &[&[u8]]) -> Result<ClientConfig, ClientError> {
    config_of(options, options.offer().unwrap_or(&profile::MODERN.offer), alpn)
}

/// The same for QUIC, which has TLS 1.3 only (RFC 9001 §4.2): of a profile count the suites that it has for that, if
/// any.
pub fn quic(options: &Options, alpn: &[&[u8]]) -> Result<QuicClientConfig, ClientError> {
    let wanted = options.offer().copied().unwrap_or(profile::MODERN.offer);
    let newest = wanted.versions.contains(&Version::Tls13);
    let suites = if newest { wanted.suites } else { &[] };
    let config = config_of(options, &Offer { versions: &[Version::Tls13], suites }, alpn)?;
    // RFC 9001 §5.2: the first packets are protected by AES-128 whatever the connection will use.
    let initial = ring::cipher_suite::TLS13_AES_128_GCM_SHA256.tls13().and_then(Tls13CipherSuite::quic_suite);
    let initial = initial.ok_or_else(|| ClientError::unavailable("no AES-128"))?;
    QuicClientConfig::with_initial(Arc::new(config), initial).map_err(ClientError::unavailable)
}

fn config_of(options: &Options, offer: &Offer, alpn: &[&[u8]]) -> Result<ClientConfig, ClientError> {
    let builder = ClientConfig::builder_with_provider(provider_of(offer, options.only.group))
        .with_protocol_versions(&supported(offer.versions))
        .map_err(ClientError::unavailable)?
        .dangerous()
        .with_custom_certificate_verifier(verifier(&options.trust)?);
    let mut config = match &options.own {
        Some(own) => {
            let (chain, key) = own.read()?;
            builder
                .with_client_auth_cert(chain, key)
                .map_err(|error| ClientError::Io(format!("{}: {error}", own.certificate.display())))?
        }
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    if options.profile.is_some() {
        // With an explicit profile, each connection does a full handshake, so that the profile shows.
        config.resumption = Resumption::disabled();
    }
    if let Some(log) = options.key_log.clone() {
        config.key_log = log;
    }
    Ok(config)
}

impl Own {
    fn read(&self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), ClientError> {
        let failed = |error: TlsError| ClientError::Io(error.to_string());
        Ok((pem::certificates(&self.certificate).map_err(failed)?, pem::key(&self.key).map_err(failed)?))
    }
}

/// A TLS stream over a TCP stream, to a server that need not know us.
pub async fn connect(
    stream: TcpStream,
    host: &str,
    trust: &Trust,
    alpn: &[&[u8]],
) -> Result<TlsStream<TcpStream>, ClientError> {
    let options = Options { trust: trust.clone(), ..Options::default() };
    let connector = TlsConnector::from(Arc::new(config(&options, alpn)?));
    connector.connect(server_name(host)?, stream).await.map_err(tls_failed)
}

/// The name that the certificate must carry.
pub fn server_name(host: &str) -> Result<ServerName<'static>, ClientError> {
    ServerName::try_from(host.to_owned()).map_err(|_| ClientError::Usage(format!("{host:?} is no host name")))
}

/// A failed handshake, with the way out when the authority is not known.
pub fn tls_failed(error: std::io::Error) -> ClientError {
    let unknown_issuer = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()).is_some_and(|inner| {
        matches!(inner, rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer))
    });
    let hint = if unknown_issuer { " (name the authority with --ca FILE)" } else { "" };
    ClientError::Unavailable(format!("TLS: {error}{hint}"))
}

fn system_roots(gateway: Option<&Path>) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(authority) = gateway {
        // It is no error that no gateway has made one yet.
        let _ = add(&mut roots, authority);
    }
    roots
}

/// An error names the file.
fn add(roots: &mut RootCertStore, file: &Path) -> Result<(), String> {
    for certificate in pem::certificates(file).map_err(|error| error.to_string())? {
        roots.add(certificate).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    Ok(())
}

/// `--insecure`: the handshake must be sound, who the server is does not matter.
#[derive(Debug)]
struct TrustEverybody(Arc<CryptoProvider>);

impl ServerCertVerifier for TrustEverybody {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
