//! The agent's own authority, and the file that lets a generator in.
//!
//! ```text
//! DIR/ca.pem  DIR/ca.key   the authority, which signs nothing else
//! DIR/agent.pem            for the driving host: its certificate, the authority's, its key; 0600
//! ```
//!
//! Any holder of `agent.pem` may start gateways. To revoke it, remove the directory: the next start creates another
//! authority.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fogmux_net::pki::{Authority, Purpose, Wanted};
use fogmux_net::profile::KeyKind;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use zeroize::Zeroizing;

use super::AgentError;

/// The agent's name in its certificate, wherever it is: its authority signs for nobody else.
const NAME: &str = "fogmux-agent";
const ALPN: &[u8] = b"fogmux-agent/1";
/// The validity of certificates. They are revoked by removing the authority.
const GOOD_FOR: Duration = Duration::from_secs(3_000 * 86_400);

/// The TLS configuration of an agent: its certificate and the authority of its clients.
pub struct Keys {
    pub(super) server: Arc<ServerConfig>,
    bundle: PathBuf,
}

impl Keys {
    /// Those of a directory; what is not there is made.
    ///
    /// # Errors
    /// The directory cannot be written, or what is in it is broken.
    pub fn open_or_make(directory: &Path) -> Result<Self, AgentError> {
        let failed = |error| AgentError::keys(directory.display().to_string(), error);
        let now = SystemTime::now();
        let authority = Authority::open_or_make(directory, now).map_err(failed)?;
        let since_1970 = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let issue = |purpose, names| {
            let wanted = Wanted { names, validity: GOOD_FOR, ..Wanted::new(purpose, NAME) };
            authority.issue(&wanted, KeyKind::EcdsaP256, since_1970).map_err(failed)
        };
        let trusted = fs::read_to_string(authority.certificate());
        let trusted = trusted.map_err(AgentError::io(authority.certificate().display().to_string()))?;
        let bundle = directory.join("agent.pem");
        if !bundle.exists() {
            let client = issue(Purpose::Client, Vec::new())?;
            let text = Zeroizing::new(format!("{}{trusted}{}", client.certificate, client.key.as_str()));
            let create = || {
                let mut file = File::options().write(true).create_new(true).mode(0o600).open(&bundle)?;
                file.write_all(text.as_bytes())
            };
            create().map_err(AgentError::io(bundle.display().to_string()))?;
        }
        // A new one at each start: nobody keeps it.
        let own = issue(Purpose::Server, vec![server_name()?])?;
        let text = Zeroizing::new(format!("{}{trusted}{}", own.certificate, own.key.as_str()));
        let server = Parts::of(text.as_bytes()).and_then(Parts::server);
        let server = server.map_err(|why| AgentError::keys(directory.display().to_string(), why))?;
        Ok(Self { server: Arc::new(server), bundle })
    }

    /// The file to be copied to the driving host.
    #[must_use]
    pub fn bundle(&self) -> &Path {
        &self.bundle
    }
}

/// Returns the server name that the generator expects.
pub(super) fn server_name() -> Result<ServerName<'static>, AgentError> {
    ServerName::try_from(NAME).map_err(|error| AgentError::keys(NAME, error))
}

/// The generator's end, of the file that the agent has made.
pub(super) fn client(bundle: &Path) -> Result<Arc<ClientConfig>, AgentError> {
    let text = fs::read(bundle).map(Zeroizing::new).map_err(AgentError::io(bundle.display().to_string()))?;
    let config = Parts::of(&text).and_then(Parts::client);
    config.map(Arc::new).map_err(|why| AgentError::keys(bundle.display().to_string(), why))
}

/// One certificate, its authority and its key.
struct Parts {
    certificate: CertificateDer<'static>,
    roots: RootCertStore,
    key: PrivateKeyDer<'static>,
}

impl Parts {
    fn of(pem: &[u8]) -> Result<Self, String> {
        let wrong = || "this is no file of `fogmux bench agent`: a certificate, its authority and a key".to_owned();
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
        let certificates = certificates.ok().and_then(|all| <[_; 2]>::try_from(all).ok());
        let [certificate, authority] = certificates.ok_or_else(wrong)?;
        let mut roots = RootCertStore::empty();
        roots.add(authority).map_err(|error| error.to_string())?;
        Ok(Self { certificate, roots, key: PrivateKeyDer::from_pem_slice(pem).map_err(|_| wrong())? })
    }

    fn server(self) -> Result<ServerConfig, String> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(self.roots), Arc::clone(&provider));
        let verifier = verifier.build().map_err(|error| error.to_string())?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .and_then(|builder| {
                builder.with_client_cert_verifier(verifier).with_single_cert(vec![self.certificate], self.key)
            })
            .map_err(|error| error.to_string())?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        Ok(config)
    }

    fn client(self) -> Result<ClientConfig, String> {
        let mut config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_protocol_versions(&[&TLS13])
            .and_then(|builder| {
                builder.with_root_certificates(self.roots).with_client_auth_cert(vec![self.certificate], self.key)
            })
            .map_err(|error| error.to_string())?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_file_for_the_other_host_is_made_once_and_for_its_owner_alone() {
        let directory = tempfile::tempdir().unwrap();
        let keys = Keys::open_or_make(directory.path()).unwrap();
        let made = fs::read(keys.bundle()).unwrap();
        assert_eq!(fs::metadata(keys.bundle()).unwrap().permissions().mode() & 0o777, 0o600);
        let keys = Keys::open_or_make(directory.path()).unwrap();
        assert_eq!(fs::read(keys.bundle()).unwrap(), made);
        assert!(client(keys.bundle()).is_ok());
        assert!(client(&directory.path().join("ca.pem")).is_err());
    }
}
