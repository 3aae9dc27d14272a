//! Handshakes beyond the profiles: each cipher suite with each group and each key of the gateway, and which of these no
//! gateway does, with the reason.

use fogmux_net::profile;

use crate::experiment::{Credential, Door, Experiment, Group, Operation, Proof, Security, ServerKey, Suite};

/// The proof of a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// A certificate with a key of this kind.
    Certificate(ServerKey),
    /// A pre-shared key, by which the client proves itself as well.
    Shared,
}

/// The axes of a grid. What is empty is everything that there is.
#[derive(Clone, Debug, Default)]
pub struct Axes {
    /// Doors; as a default one over TLS, one over DTLS and one over QUIC.
    pub doors: Vec<Door>,
    /// Cipher suites.
    pub suites: Vec<Suite>,
    /// Groups.
    pub groups: Vec<Group>,
    /// Keys.
    pub keys: Vec<Key>,
}

/// A cell of a grid that no gateway does.
#[derive(Clone, Debug, PartialEq)]
pub struct Impossible {
    /// The door, suite, group and key.
    pub what: String,
    /// Why not.
    pub why: &'static str,
}

/// The layer that a handshake belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Layer {
    Tls,
    Dtls,
    Quic,
}

impl Key {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Certificate(ServerKey::EcdsaP256),
        Self::Certificate(ServerKey::EcdsaP384),
        Self::Certificate(ServerKey::Rsa2048),
        Self::Certificate(ServerKey::Rsa3072),
        Self::Certificate(ServerKey::Rsa4096),
        Self::Shared,
    ];

    /// As the command line has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Certificate(ServerKey::OfProfile) => "of-profile",
            Self::Certificate(ServerKey::EcdsaP256) => "ecdsa-p256",
            Self::Certificate(ServerKey::EcdsaP384) => "ecdsa-p384",
            Self::Certificate(ServerKey::Rsa2048) => "rsa2048",
            Self::Certificate(ServerKey::Rsa3072) => "rsa3072",
            Self::Certificate(ServerKey::Rsa4096) => "rsa4096",
            Self::Shared => "psk",
        }
    }

    /// The key of that name.
    ///
    /// # Errors
    /// There is none; all names are said.
    pub fn named(name: &str) -> Result<Self, String> {
        let names = || Self::ALL.map(Self::name).join(", ");
        Self::ALL.into_iter().find(|key| key.name() == name).ok_or_else(|| format!("{name:?} is none of {}", names()))
    }

    /// Whether a suite is for it at all.
    fn goes_with(self, proof: Proof) -> bool {
        let is_rsa = matches!(self, Self::Certificate(key) if key.kind().is_some_and(|kind| kind.rsa_bits().is_some()));
        match proof {
            Proof::Any => true,
            Proof::Ecdsa => !is_rsa && self != Self::Shared,
            Proof::Rsa | Proof::RsaExchange => is_rsa,
            Proof::Psk | Proof::EcdhePsk => self == Self::Shared,
        }
    }
}

impl Axes {
    /// The cells: experiments that make connections one after the other, and what is impossible. A suite that names the
    /// key is in cells with that key only, and one without a group once.
    #[must_use]
    pub fn cells(&self, base: &Experiment) -> (Vec<Experiment>, Vec<Impossible>) {
        let (mut experiments, mut impossible) = (Vec::new(), Vec::new());
        let doors = chosen(&self.doors, &[Door::Mqtt, Door::Coap, Door::Http3]);
        let suites = chosen(&self.suites, &Suite::all().collect::<Vec<_>>());
        let keys = chosen(&self.keys, &Key::ALL);
        let all_groups: Vec<Option<Group>> =
            chosen(&self.groups, &Group::all().collect::<Vec<_>>()).into_iter().map(Some).collect();
        for door in doors {
            for suite in suites.iter().copied() {
                let groups = if has_group(suite) { all_groups.as_slice() } else { &[None] };
                for key in keys.iter().copied().filter(|key| key.goes_with(suite.proof())) {
                    for named_group in groups.iter().copied() {
                        match profile_of(door, suite, named_group, key) {
                            Ok(security) => {
                                let cell = Experiment { door, security, ..base.clone() };
                                experiments.push(handshake(cell, suite, named_group, key));
                            }
                            Err(why) => impossible.push(Impossible { what: said(door, suite, named_group, key), why }),
                        }
                    }
                }
            }
        }
        (experiments, impossible)
    }
}

fn chosen<T: Copy>(wanted: &[T], otherwise: &[T]) -> Vec<T> {
    if wanted.is_empty() { otherwise.to_vec() } else { wanted.to_vec() }
}

fn has_group(suite: Suite) -> bool {
    !matches!(suite.proof(), Proof::Psk | Proof::RsaExchange)
}

fn said(door: Door, suite: Suite, group: Option<Group>, key: Key) -> String {
    let group = group.map(|group| format!(", {group}")).unwrap_or_default();
    format!("{door} {suite}{group}, {}", key.name())
}

/// One client makes connections one after the other and closes them. It is nobody, unless it has a pre-shared key:
/// nothing but the handshake costs anything.
fn handshake(cell: Experiment, suite: Suite, named_group: Option<Group>, key: Key) -> Experiment {
    let (server_key, credential) = match key {
        Key::Certificate(kind) => (kind, Credential::Anonymous),
        Key::Shared => (ServerKey::OfProfile, Credential::OfProfile),
    };
    Experiment {
        operation: Operation::Connect,
        suite: Some(suite),
        named_group,
        server_key,
        credential,
        publishers: 1,
        subscribers: 0,
        messages: 0,
        ..cell
    }
}

const NO_QUIC: &str = "QUIC is TLS 1.3 with certificates, by rustls: AES-GCM and ChaCha20-Poly1305 (RFC 9001 §4.2)";
const NO_DTLS: &str = "DTLS of a gateway has the suites with AES-128, and RSA with AES-128-GCM only";
const NO_DTLS_GROUP: &str = "DTLS of a gateway has x25519 and secp256r1";
const NO_OPENSSL_GROUP: &str = "over TCP, CCM, pre-shared keys and RSA key exchange are OpenSSL's, which has x25519 and \
                                secp256r1 here";
const NO_CCM: &str = "over TCP, CCM of TLS 1.3 is OpenSSL's, under profile psk: with pre-shared keys";
const NO_CCM_KEY: &str = "profile pki, which has CCM of TLS 1.2 over TCP, wants a key on P-256 (RFC 7925 §4.4)";
const NO_CCM_GROUP: &str =
    "OpenSSL wants the curve of the certificate, P-256, among the groups of TLS 1.2 (RFC 8422 §5.1)";
const NO_PSK_SUITE: &str = "profile psk has no such suite over TCP";
const NO_ECDHE_PSK: &str = "pre-shared keys with an exchange of TLS 1.2 (RFC 8442) are DTLS' here";
const NO_PROFILE: &str = "the door has no listener with the profile that has the suite";

/// The profile under which a gateway does it.
fn profile_of(door: Door, suite: Suite, group: Option<Group>, key: Key) -> Result<Security, &'static str> {
    let profile = match layer(door) {
        Layer::Tls => tls(suite, group, key)?,
        Layer::Dtls => dtls(suite, group, key)?,
        Layer::Quic => quic(suite, key)?,
    };
    let security = Security { profile, oscore: false };
    if door.securities().contains(&security) { Ok(security) } else { Err(NO_PROFILE) }
}

fn layer(door: Door) -> Layer {
    match door {
        Door::Coap => Layer::Dtls,
        Door::Http3 => Layer::Quic,
        Door::Mqtt
        | Door::Mqtt5
        | Door::MqttWs
        | Door::CoapTcp
        | Door::Http1
        | Door::Http2
        | Door::Xmpp
        | Door::Xmpps => Layer::Tls,
    }
}

fn has_ccm(suite: Suite) -> bool {
    suite.name().contains("_CCM")
}

type Found = Result<&'static profile::Profile, &'static str>;

fn tls(suite: Suite, group: Option<Group>, key: Key) -> Found {
    let is_p384 = group == Some(Group(profile::Group::Secp384r1));
    let by_openssl = |profile: &'static profile::Profile| match (is_p384, profile.accept.suites.contains(&suite.name()))
    {
        (_, false) => Err(NO_PSK_SUITE),
        (true, true) => Err(NO_OPENSSL_GROUP),
        (false, true) => Ok(profile),
    };
    match (suite.proof(), key) {
        (Proof::EcdhePsk, _) => Err(NO_ECDHE_PSK),
        (Proof::RsaExchange, _) => by_openssl(&profile::LOW),
        (_, Key::Shared) => by_openssl(&profile::PSK),
        (Proof::Any, Key::Certificate(_)) if has_ccm(suite) => Err(NO_CCM),
        (_, Key::Certificate(kind)) if has_ccm(suite) => {
            if kind != ServerKey::EcdsaP256 {
                return Err(NO_CCM_KEY);
            }
            let profile = by_openssl(&profile::PKI)?;
            if group == Some(Group(profile::Group::X25519)) { Err(NO_CCM_GROUP) } else { Ok(profile) }
        }
        (_, Key::Certificate(_)) => Ok(&profile::MODERN),
    }
}

fn dtls(suite: Suite, group: Option<Group>, key: Key) -> Found {
    let older = fogmux_dtls::Suite::ALL.map(fogmux_dtls::Suite::name);
    let newer = fogmux_dtls::Suite13::ALL.map(fogmux_dtls::Suite13::name);
    let has = if suite.is_newest() { newer.contains(&suite.name()) } else { older.contains(&suite.name()) };
    if !has {
        return Err(NO_DTLS);
    }
    if group == Some(Group(profile::Group::Secp384r1)) {
        return Err(NO_DTLS_GROUP);
    }
    let is_of_profile = profile::PSK.accept.suites.contains(&suite.name());
    Ok(if key == Key::Shared && is_of_profile { &profile::PSK } else { &profile::MODERN })
}

fn quic(suite: Suite, key: Key) -> Found {
    if suite.is_newest() && !has_ccm(suite) && key != Key::Shared { Ok(&profile::MODERN) } else { Err(NO_QUIC) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(door: Door) -> (Vec<Experiment>, Vec<Impossible>) {
        Axes { doors: vec![door], ..Axes::default() }.cells(&Experiment::default())
    }

    #[test]
    fn cells_are_experiments_that_can_be_done() {
        for door in Door::ALL {
            let (experiments, impossible) = cells(door);
            assert!(!experiments.is_empty() && !impossible.is_empty(), "{door}");
            for experiment in experiments {
                experiment.check().unwrap_or_else(|error| panic!("{}: {error}", experiment.title()));
            }
        }
    }

    #[test]
    fn each_cell_is_possible_or_has_a_reason() {
        let of = |door| {
            let (experiments, impossible) = cells(door);
            (experiments.len(), impossible.len())
        };
        // TLS: 45 of 1.3 with certificates and 6 with keys; of 1.2, 18 of ECDSA and 27 of RSA by rustls, CCM on P-256
        // 2, RSA exchange 3, keys 3.
        assert_eq!(of(Door::Mqtt), (45 + 6 + 18 + 27 + 2 + 3 + 3, 58));
        // DTLS: 30 of 1.3 with certificates and 6 with keys; of 1.2, 12 of ECDSA, 6 of RSA, keys 3 and 6.
        assert_eq!(of(Door::Coap), (30 + 6 + 12 + 6 + 3 + 6, 99));
        assert_eq!(of(Door::Http3).0, 45);
        let (all, _) = cells(Door::Mqtt);
        assert!(all.iter().all(|of| of.operation == Operation::Connect && of.suite.is_some()));
    }

    #[test]
    fn what_a_gateway_cannot_do_says_why() {
        let why = |door, suite: &str, group: &str, key| {
            let (suite, group) = (suite.parse().unwrap(), Some(group.parse().unwrap()));
            profile_of(door, suite, group, Key::named(key).unwrap()).map(|security| security.profile.name)
        };
        let ccm = "TLS_ECDHE_ECDSA_WITH_AES_128_CCM_8";
        assert_eq!(why(Door::Mqtt, ccm, "secp256r1", "ecdsa-p256"), Ok("pki"));
        assert_eq!(why(Door::Mqtt, ccm, "secp384r1", "ecdsa-p256"), Err(NO_OPENSSL_GROUP));
        assert_eq!(why(Door::Mqtt, ccm, "secp256r1", "ecdsa-p384"), Err(NO_CCM_KEY));
        assert_eq!(why(Door::Http1, ccm, "secp256r1", "ecdsa-p256"), Err(NO_PROFILE));
        assert_eq!(why(Door::Coap, ccm, "x25519", "ecdsa-p384"), Ok("modern"));
        assert_eq!(why(Door::Mqtt, "TLS_AES_128_CCM_SHA256", "x25519", "rsa2048"), Err(NO_CCM));
        assert_eq!(why(Door::Mqtt, "TLS_AES_256_GCM_SHA384", "x25519", "psk"), Err(NO_PSK_SUITE));
        assert_eq!(why(Door::Coap, "TLS_AES_256_GCM_SHA384", "x25519", "rsa2048"), Err(NO_DTLS));
        assert_eq!(why(Door::Coap, "TLS_AES_128_GCM_SHA256", "secp384r1", "rsa2048"), Err(NO_DTLS_GROUP));
        assert_eq!(why(Door::Coap, "TLS_AES_128_GCM_SHA256", "x25519", "psk"), Ok("psk"));
        assert_eq!(why(Door::Http3, "TLS_AES_128_GCM_SHA256", "x25519", "psk"), Err(NO_QUIC));
        assert!(Key::named("dsa").unwrap_err().contains("rsa3072"));
    }
}
