//! Challenges under way: what this server answers to an ACME server that validates one of its names (RFC 8555 §8,
//! RFC 8737). Each is answered for its domain only, from its beginning until its guard is dropped.

use std::{
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

use rcgen::{CertificateParams, CustomExtension, DistinguishedName, KeyPair, PKCS_ECDSA_P256_SHA256};
use rustls::{
    ServerConfig,
    pki_types::PrivatePkcs8KeyDer,
    server::{ClientHello, NoServerSessionStorage},
    sign::{CertifiedKey, SingleCertAndKey},
};

use crate::provider::provider;

/// RFC 8737 §6.2.
const ACME_TLS_1: &[u8] = b"acme-tls/1";

/// All challenges under way. Clones are the same.
#[derive(Clone, Default)]
pub struct Challenges(Arc<RwLock<Vec<Arc<Challenge>>>>);

struct Challenge {
    domain: Box<str>,
    answer: Answer,
}

enum Answer {
    Http { token: Box<str>, key_authorization: Arc<str> },
    TlsAlpn(Arc<ServerConfig>),
}

/// A challenge under way, which ends when this is dropped.
#[must_use = "the challenge ends when this is dropped"]
pub struct UnderWay {
    all: Challenges,
    own: Arc<Challenge>,
}

/// The certificate of a challenge cannot be made.
#[derive(Debug, thiserror::Error)]
#[error("the certificate of the challenge for {domain:?} cannot be made: {why}")]
pub struct ChallengeError {
    domain: String,
    why: String,
}

impl Challenges {
    /// Begins to answer `token` with `key_authorization` over HTTP (RFC 8555 §8.3).
    pub fn begin_http(&self, domain: &str, token: &str, key_authorization: &str) -> UnderWay {
        self.begin(domain, Answer::Http { token: token.into(), key_authorization: key_authorization.into() })
    }

    /// Begins to answer handshakes for `domain` that offer `acme-tls/1` with a certificate that has the SHA-256 of the
    /// key authorization (RFC 8737 §3).
    ///
    /// # Errors
    /// The domain cannot be a name in a certificate.
    pub fn begin_tls_alpn(&self, domain: &str, digest: &[u8]) -> Result<UnderWay, ChallengeError> {
        let failed = |why: String| ChallengeError { domain: domain.to_owned(), why };
        let config = validation_config(domain, digest).map_err(failed)?;
        Ok(self.begin(domain, Answer::TlsAlpn(Arc::new(config))))
    }

    /// The key authorization of a token that is under way for a host.
    #[must_use]
    pub fn key_authorization(&self, host: &str, asked: &str) -> Option<Arc<str>> {
        self.find(host, |answer| match answer {
            Answer::Http { token, key_authorization } => (**token == *asked).then(|| Arc::clone(key_authorization)),
            Answer::TlsAlpn(_) => None,
        })
    }

    /// The configuration for a handshake that validates a domain: it names the domain, and offers the protocol of the
    /// validation and no other (RFC 8737 §3).
    pub(crate) fn config_for(&self, hello: &ClientHello<'_>) -> Option<Arc<ServerConfig>> {
        if !hello.alpn()?.eq([ACME_TLS_1]) {
            return None;
        }
        self.find(hello.server_name()?, |answer| match answer {
            Answer::TlsAlpn(config) => Some(Arc::clone(config)),
            Answer::Http { .. } => None,
        })
    }

    fn begin(&self, domain: &str, answer: Answer) -> UnderWay {
        let own = Arc::new(Challenge { domain: domain.into(), answer });
        self.0.write().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&own));
        UnderWay { all: self.clone(), own }
    }

    fn find<T>(&self, domain: &str, answered: impl Fn(&Answer) -> Option<T>) -> Option<T> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let of_domain = all.iter().filter(|challenge| challenge.domain.eq_ignore_ascii_case(domain));
        of_domain.filter_map(|challenge| answered(&challenge.answer)).next()
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut all = self.all.0.write().unwrap_or_else(PoisonError::into_inner);
        all.retain(|one| !Arc::ptr_eq(one, &self.own));
    }
}

/// RFC 8737 §3: a self-signed certificate with the domain as its only name, and the digest in a critical extension.
fn validation_config(domain: &str, digest: &[u8]) -> Result<ServerConfig, String> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(|error| error.to_string())?;
    let mut params = CertificateParams::new([domain.to_owned()]).map_err(|error| error.to_string())?;
    params.distinguished_name = DistinguishedName::new();
    // rcgen accepts no other length than that of SHA-256.
    let digest: [u8; 32] = digest.try_into().map_err(|_| "its digest is no SHA-256".to_owned())?;
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(&digest)];
    let certificate = params.self_signed(&key).map_err(|error| error.to_string())?;
    let signs = provider().key_provider.load_private_key(PrivatePkcs8KeyDer::from(key.serialize_der()).into());
    let signs = signs.map_err(|error| error.to_string())?;
    // Without looking at the certificate: webpki refuses the critical extension, which it does not know.
    let shown = CertifiedKey::new(vec![certificate.der().clone()], signs);
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(shown)));
    config.alpn_protocols = vec![ACME_TLS_1.to_vec()];
    // Nothing follows this handshake that could be resumed.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

impl fmt::Debug for Challenges {
    /// Without key authorizations.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        f.debug_list().entries(all.iter().map(|challenge| &challenge.domain)).finish()
    }
}

impl fmt::Debug for UnderWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("UnderWay").field(&self.own.domain).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_answered_for_its_domain_until_its_challenge_ends() {
        let challenges = Challenges::default();
        let first = challenges.begin_http("fog.example", "a", "a.thumb");
        let second = challenges.begin_http("fog.example", "b", "b.thumb");
        let asked = |host: &str, token: &str| challenges.key_authorization(host, token).map(|text| text.to_string());
        assert_eq!(asked("fog.example", "a").as_deref(), Some("a.thumb"));
        assert_eq!(asked("FOG.example", "b").as_deref(), Some("b.thumb"));
        assert_eq!(asked("fog.example", ""), None);
        assert_eq!(asked("fog.example", "a.thumb"), None);
        assert_eq!(asked("other.example", "a"), None, "a token is not that of another domain");
        drop(first);
        assert_eq!(asked("fog.example", "a"), None);
        assert!(asked("fog.example", "b").is_some(), "each ends by itself");
        drop(second);
        assert_eq!(asked("fog.example", "b"), None);
        assert!(challenges.begin_tls_alpn("fog.example", &[0; 31]).is_err());
        assert_eq!(format!("{challenges:?}"), "[]");
    }
}
