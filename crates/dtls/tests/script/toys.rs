//! Cryptography for scripts: the same numbers each time, key exchanges that anybody can compute, and one certificate.
//! The course of a script depends on its bytes alone, and costs next to nothing but the protocol.

use std::{
    cell::Cell,
    fmt,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, NamedGroup, PeerMisbehaved, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{ActiveKeyExchange, CryptoProvider, GetRandomFailed, SecureRandom, SharedSecret, SupportedKxGroup, ring},
    pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime},
    server::danger::{ClientCertVerified, ClientCertVerifier},
    sign::CertifiedKey,
    time_provider::TimeProvider,
};
use zeroize::Zeroizing;

// The crate under test, by its own name for fuzz targets and by that of a dependency for tests.
use super::{ClientConfig, CookieKey, Credentials, Endpoint, EndpointConfig, Platform, Psk};

/// Handshakes under way at once, so few that scripts meet the limit.
pub(crate) const HANDSHAKES_MAX: usize = 3;
/// Sessions at once, likewise.
pub(crate) const SESSIONS_MAX: usize = 4;

/// Bytes of every toy public key and of what is agreed on.
const POINT: usize = 32;

thread_local! {
    /// The state of the random numbers.
    static SEED: Cell<u64> = const { Cell::new(1) };
}

/// Begins the random numbers anew.
pub(crate) fn reseed(seed: u64) {
    SEED.set(seed | 1);
}

/// Numbers that only look random.
#[derive(Debug)]
struct Repeatable;

impl SecureRandom for Repeatable {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), GetRandomFailed> {
        for byte in bytes {
            let mut state = SEED.get();
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            SEED.set(state);
            *byte = state.to_le_bytes()[4];
        }
        Ok(())
    }
}

/// The secret is the exclusive or of the two public keys.
struct Toy {
    group: NamedGroup,
    public: [u8; POINT],
}

#[derive(Debug)]
struct ToyGroup(NamedGroup);

impl SupportedKxGroup for ToyGroup {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        let mut public = [0; POINT];
        Repeatable.fill(&mut public)?;
        Ok(Box::new(Toy { group: self.0, public }))
    }

    fn name(&self) -> NamedGroup {
        self.0
    }
}

impl ActiveKeyExchange for Toy {
    fn complete(self: Box<Self>, point: &[u8]) -> Result<SharedSecret, Error> {
        let secret = agreed(&self.public, point).ok_or(Error::PeerMisbehaved(PeerMisbehaved::InvalidKeyShare))?;
        Ok(SharedSecret::from(&secret[..]))
    }

    fn pub_key(&self) -> &[u8] {
        &self.public
    }

    fn group(&self) -> NamedGroup {
        self.group
    }
}

/// The secret of two public keys.
pub(crate) fn agreed(ours: &[u8], theirs: &[u8]) -> Option<[u8; POINT]> {
    let mut secret: [u8; POINT] = ours.try_into().ok()?;
    let theirs: [u8; POINT] = theirs.try_into().ok()?;
    secret.iter_mut().zip(theirs).for_each(|(byte, other)| *byte ^= other);
    Some(secret)
}

/// It is always the same time.
#[derive(Debug)]
struct Noon;

impl TimeProvider for Noon {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_secs(1_800_000_000)))
    }
}

pub(crate) fn platform() -> Platform {
    Platform { crypto: provider(), wall_clock: Arc::new(Noon) }
}

fn provider() -> Arc<CryptoProvider> {
    let kx_groups = vec![&ToyGroup(NamedGroup::X25519) as _, &ToyGroup(NamedGroup::secp256r1) as _];
    Arc::new(CryptoProvider { secure_random: &Repeatable, kx_groups, ..ring::default_provider() })
}

/// The only certificate that is believed: self-signed, Ed25519 (whose signatures are the same each time), of a key
/// whose 32 bytes are all 7.
pub(crate) fn certificate() -> CertificateDer<'static> {
    CertificateDer::from(&include_bytes!("certificate.der")[..])
}

/// With its key, or with another if it is `stolen`.
pub(crate) fn certified(stolen: bool) -> Arc<CertifiedKey> {
    // RFC 8410 §7: the algorithm, and the key.
    let mut key = b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20".to_vec();
    key.extend([if stolen { 8 } else { 7 }; 32]);
    let key = ring::sign::any_eddsa_type(&PrivatePkcs8KeyDer::from(key));
    Arc::new(CertifiedKey::new(vec![certificate()], key.unwrap_or_else(|error| panic!("the key: {error}"))))
}

/// The server's certificate, and the key of each identity.
pub(crate) struct Keys(pub(crate) fn(&[u8]) -> Option<&'static [u8]>);

impl Credentials for Keys {
    fn certified_key(&self) -> Option<Arc<CertifiedKey>> {
        Some(certified(false))
    }

    fn client_verifier(&self) -> Option<Arc<dyn ClientCertVerifier>> {
        Some(Arc::new(Known))
    }

    fn has_psk(&self) -> bool {
        true
    }

    fn psk(&self, _: IpAddr, identity: &[u8]) -> Option<Psk> {
        self.0(identity).map(|key| Psk { key: Zeroizing::new(key.to_vec()), mark: 1 })
    }
}

/// An endpoint with little room.
pub(crate) fn endpoint(keys: Keys) -> Endpoint<SocketAddr> {
    let config = EndpointConfig {
        sessions_max: SESSIONS_MAX,
        handshakes_max: HANDSHAKES_MAX,
        handshakes_per_address_max: HANDSHAKES_MAX,
        ..EndpointConfig::default()
    };
    Endpoint::new(config, Arc::new(keys), platform(), Arc::new(CookieKey::new(&[7; 32]))).identified_by(1)
}

/// A client that shows [`certified`] and believes [`Known`].
pub(crate) fn by_certificate(stolen: bool) -> ClientConfig {
    let name = "fog.example".try_into().unwrap_or_else(|error| panic!("{error}"));
    ClientConfig { certified_key: Some(certified(stolen)), ..ClientConfig::certificates(Arc::new(Known), name) }
}

/// Believes [`certificate`] and no other, of clients and of servers.
pub(crate) struct Known;

impl fmt::Debug for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Known")
    }
}

fn known(leaf: &CertificateDer<'_>) -> Result<(), Error> {
    let error = Error::InvalidCertificate(CertificateError::UnknownIssuer);
    (*leaf == certificate()).then_some(()).ok_or(error)
}

/// Signatures are verified by the crate, and never by these: the same methods of two traits.
macro_rules! signatures {
    ($($method:ident),+) => {
        $(fn $method(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Err(Error::General("not asked for".to_owned()))
        })+

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![SignatureScheme::ED25519]
        }
    };
}

impl ServerCertVerifier for Known {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        known(leaf).map(|()| ServerCertVerified::assertion())
    }

    signatures!(verify_tls12_signature, verify_tls13_signature);
}

impl ClientCertVerifier for Known {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        known(leaf).map(|()| ClientCertVerified::assertion())
    }

    signatures!(verify_tls12_signature, verify_tls13_signature);
}
