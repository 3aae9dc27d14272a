//! Credentials and trust of the tests.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use rustls::{
    RootCertStore,
    client::WebPkiServerVerifier,
    crypto::CryptoProvider,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer},
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
    sign::CertifiedKey,
    time_provider::DefaultTimeProvider,
};
use zeroize::Zeroizing;

use crate::{Channel, Credentials, Platform, Psk, client::ClientConfig};

pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

pub(crate) fn platform() -> Platform {
    Platform { crypto: provider(), wall_clock: Arc::new(DefaultTimeProvider) }
}

pub(crate) struct Keys {
    pub(super) psk: bool,
    pub(super) certified: Option<Arc<CertifiedKey>>,
    pub(super) verifier: Option<Arc<dyn ClientCertVerifier>>,
    /// Whether everybody has to wait.
    pub(crate) wait: AtomicBool,
    /// Whether nobody gets in without a credential.
    pub(crate) named: AtomicBool,
    /// The principal that all credentials are of.
    pub(crate) principal: Option<Arc<str>>,
}

impl Credentials for Keys {
    fn certified_key(&self) -> Option<Arc<CertifiedKey>> {
        self.certified.clone()
    }

    fn client_verifier(&self) -> Option<Arc<dyn ClientCertVerifier>> {
        self.verifier.clone()
    }

    fn admits_anonymous(&self) -> bool {
        !self.named.load(Ordering::Relaxed)
    }

    fn has_psk(&self) -> bool {
        self.psk
    }

    fn must_wait(&self, _from: IpAddr, _identity: &[u8]) -> bool {
        self.wait.load(Ordering::Relaxed)
    }

    fn principal(&self, _channel: &Channel) -> Option<Arc<str>> {
        self.principal.clone()
    }

    fn psk(&self, _from: IpAddr, identity: &[u8]) -> Option<Psk> {
        identity.starts_with(b"device").then(|| Psk { key: Zeroizing::new(b"secret".to_vec()), mark: 1 })
    }
}

pub(crate) fn psk_keys() -> Arc<Keys> {
    let (wait, named, principal) = Default::default();
    Arc::new(Keys { psk: true, certified: None, verifier: None, wait, named, principal })
}

pub(crate) fn certificate_keys(key: Arc<CertifiedKey>, verifier: Arc<dyn ClientCertVerifier>) -> Arc<Keys> {
    let (wait, named, principal) = Default::default();
    Arc::new(Keys { psk: false, certified: Some(key), verifier: Some(verifier), wait, named, principal })
}

/// An authority, a server's certificate and one of a client.
pub(crate) struct Authority {
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
    roots: Arc<RootCertStore>,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let certificate = params.self_signed(&key).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(certificate.der().clone()).unwrap();
        Self { issuer: rcgen::Issuer::new(params, key), roots: Arc::new(roots) }
    }

    pub(crate) fn certified(&self, name: &str) -> Arc<CertifiedKey> {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let chain: Vec<CertificateDer<'static>> = vec![certificate.der().clone()];
        Arc::new(CertifiedKey::from_der(chain, key, &provider()).unwrap())
    }

    pub(crate) fn server(&self) -> Arc<Keys> {
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(&self.roots), provider());
        certificate_keys(self.certified("fog.example"), verifier.allow_unauthenticated().build().unwrap())
    }

    /// A server that also takes pre-shared keys.
    pub(crate) fn server_with_psk(&self) -> Arc<Keys> {
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(&self.roots), provider());
        let verifier: Arc<dyn ClientCertVerifier> = verifier.allow_unauthenticated().build().unwrap();
        let (wait, named, principal) = Default::default();
        let certified = Some(self.certified("fog.example"));
        Arc::new(Keys { psk: true, certified, verifier: Some(verifier), wait, named, principal })
    }

    /// A server that lets nobody in without a certificate.
    pub(crate) fn strict_server(&self) -> Arc<Keys> {
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(&self.roots), provider());
        certificate_keys(self.certified("fog.example"), verifier.build().unwrap())
    }

    /// A stolen certificate with a key that is not its own.
    pub(crate) fn stolen(&self, name: &str) -> Arc<CertifiedKey> {
        let (theirs, own) = (self.certified(name), self.certified("thief"));
        Arc::new(CertifiedKey::new(theirs.cert.clone(), Arc::clone(&own.key)))
    }

    /// A server that has the certificate and not its key.
    pub(crate) fn stolen_server(&self) -> Arc<Keys> {
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(&self.roots), provider());
        certificate_keys(self.stolen("fog.example"), verifier.allow_unauthenticated().build().unwrap())
    }

    pub(crate) fn client(&self) -> ClientConfig {
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::clone(&self.roots), provider()).build();
        ClientConfig::certificates(verifier.unwrap(), "fog.example".try_into().unwrap())
    }
}
