//! Keys and certificates of everybody: the world's own, the enemy's, and those of strangers.

use std::{
    net::IpAddr,
    sync::{Arc, LazyLock},
};

use fogmux_dtls::{Credentials, Platform, Psk, client::ClientConfig};
use ring::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair},
};
use rustls::{
    RootCertStore,
    client::WebPkiServerVerifier,
    crypto::CryptoProvider,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
    sign::CertifiedKey,
    time_provider::DefaultTimeProvider,
};
use zeroize::Zeroizing;

/// The pre-shared key of everybody.
pub(crate) const KEY: &[u8] = b"sixteen bytes or";

/// Made once.
pub(crate) static PKI: LazyLock<Pki> = LazyLock::new(Pki::new);

pub(crate) struct Pki {
    roots: Arc<RootCertStore>,
    server: Arc<CertifiedKey>,
    client: Arc<CertifiedKey>,
    /// The enemy's: as good as the others.
    pub(crate) enemy: Proof,
    /// Of an authority that nobody knows.
    pub(crate) stranger: Proof,
}

/// A certificate and its key, as an enemy has them.
pub(crate) struct Proof {
    pub(crate) certificate: Vec<u8>,
    key: EcdsaKeyPair,
}

impl Proof {
    /// By ecdsa_secp256r1_sha256.
    pub(crate) fn sign(&self, message: &[u8]) -> Vec<u8> {
        self.key.sign(&SystemRandom::new(), message).unwrap().as_ref().to_vec()
    }
}

struct Authority(rcgen::Issuer<'static, rcgen::KeyPair>, Vec<u8>);

impl Authority {
    fn new(name: &str) -> Self {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let certificate = params.self_signed(&key).unwrap().der().to_vec();
        Self(rcgen::Issuer::new(params, key), certificate)
    }

    fn issue(&self, name: &str) -> (Vec<u8>, Vec<u8>) {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
        (params.signed_by(&key, &self.0).unwrap().der().to_vec(), key.serialize_der())
    }

    fn certified(&self, name: &str) -> Arc<CertifiedKey> {
        let (certificate, key) = self.issue(name);
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key));
        Arc::new(CertifiedKey::from_der(vec![certificate.into()], key, &provider()).unwrap())
    }

    fn proof(&self, name: &str) -> Proof {
        let (certificate, key) = self.issue(name);
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &key, &SystemRandom::new()).unwrap();
        Proof { certificate, key }
    }
}

impl Pki {
    fn new() -> Self {
        let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
        let mut roots = RootCertStore::empty();
        roots.add(ours.1.clone().into()).unwrap();
        Self {
            roots: Arc::new(roots),
            server: ours.certified("fog.example"),
            client: ours.certified("device"),
            enemy: ours.proof("fog.example"),
            stranger: theirs.proof("fog.example"),
        }
    }

    /// The configuration of our client that believes servers by their certificate and has one of its own.
    pub(crate) fn client(&self) -> ClientConfig {
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::clone(&self.roots), provider()).build();
        let config = ClientConfig::certificates(verifier.unwrap(), "fog.example".try_into().unwrap());
        ClientConfig { certified_key: Some(Arc::clone(&self.client)), ..config }
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

pub(crate) fn platform() -> Platform {
    Platform { crypto: provider(), wall_clock: Arc::new(DefaultTimeProvider) }
}

/// The credentials of our server: pre-shared keys, and certificates on both sides.
pub(crate) struct Keys {
    /// Whether clients must have a certificate.
    pub(crate) strict: bool,
}

impl Credentials for Keys {
    fn certified_key(&self) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&PKI.server))
    }

    fn client_verifier(&self) -> Option<Arc<dyn ClientCertVerifier>> {
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(&PKI.roots), provider());
        let verifier = if self.strict { verifier } else { verifier.allow_unauthenticated() };
        Some(verifier.build().unwrap())
    }

    fn has_psk(&self) -> bool {
        true
    }

    fn psk(&self, _: IpAddr, identity: &[u8]) -> Option<Psk> {
        [&b"enemy"[..], b"friend"].contains(&identity).then(|| Psk { key: Zeroizing::new(KEY.to_vec()), mark: 1 })
    }
}
