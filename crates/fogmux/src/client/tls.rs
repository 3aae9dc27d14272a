//! Whom the client commands trust: the authorities of `--ca`; else the system's and, on this machine, the gateway's own.

use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::error::ClientError;

/// How the server proves who it is.
#[derive(Clone, Debug, Default)]
pub(crate) enum Trust {
    /// By the system's authorities, or that of the gateway on this machine.
    #[default]
    System,
    /// By the authorities in a PEM file and by no other.
    File(std::path::PathBuf),
    /// Not at all.
    Insecure,
}

/// A TLS configuration that offers `alpn`.
pub(crate) fn config(trust: &Trust, alpn: &[&[u8]]) -> Result<ClientConfig, ClientError> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(ClientError::unavailable)?;
    let mut config = match trust {
        Trust::Insecure => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(TrustEverybody(provider)))
            .with_no_client_auth(),
        Trust::File(file) => {
            let mut roots = RootCertStore::empty();
            add(&mut roots, file).map_err(|error| ClientError::Io(format!("{}: {error}", file.display())))?;
            builder.with_root_certificates(roots).with_no_client_auth()
        }
        Trust::System => builder.with_root_certificates(system_roots()).with_no_client_auth(),
    };
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    Ok(config)
}

/// A TLS stream over a TCP stream.
pub(crate) async fn connect(
    stream: TcpStream,
    host: &str,
    trust: &Trust,
    alpn: &[&[u8]],
) -> Result<TlsStream<TcpStream>, ClientError> {
    let connector = TlsConnector::from(Arc::new(config(trust, alpn)?));
    connector.connect(server_name(host)?, stream).await.map_err(tls_failed)
}

/// The name that the certificate must carry.
pub(crate) fn server_name(host: &str) -> Result<ServerName<'static>, ClientError> {
    ServerName::try_from(host.to_owned()).map_err(|_| ClientError::Usage(format!("{host:?} is no host name")))
}

/// A failed handshake, with the way out when the authority is not known.
pub(crate) fn tls_failed(error: std::io::Error) -> ClientError {
    let unknown_issuer = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()).is_some_and(|inner| {
        matches!(inner, rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer))
    });
    let hint = if unknown_issuer { " (name the authority with --ca FILE)" } else { "" };
    ClientError::Unavailable(format!("TLS: {error}{hint}"))
}

fn system_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Ok(data) = crate::data::default_directory() {
        // Who can write there is who started the gateway. It is no error that nobody has yet.
        let _ = add(&mut roots, &data.join(crate::data::AUTHORITY));
    }
    roots
}

fn add(roots: &mut RootCertStore, file: &Path) -> Result<(), String> {
    let mut found = false;
    for certificate in CertificateDer::pem_file_iter(file).map_err(|error| error.to_string())? {
        let certificate = certificate.map_err(|error| error.to_string())?;
        roots.add(certificate).map_err(|error| error.to_string())?;
        found = true;
    }
    if found { Ok(()) } else { Err("there is no certificate in it".to_owned()) }
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
