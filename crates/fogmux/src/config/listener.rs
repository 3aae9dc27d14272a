//! One listener: addresses, protection, and accepted credentials.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use fogmux_auth::{SourceKind, SourceSet};
use fogmux_gateway::Listener as Kind;
use fogmux_net::profile::{self, Version};
use fogmux_net::{ClientCertificates, Profile, Security};

use super::reader::{Reader, Section};

/// The protection of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Protection {
    /// None: loopback only, unless the operator permits it.
    Plain {
        /// Permits an address beyond loopback.
        allow_plaintext: bool,
    },
    /// TLS is negotiated inside the protocol, and required before credentials.
    StartTls(Tls),
    /// TLS or DTLS from the first byte.
    Tls(Tls),
}

/// The TLS of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tls {
    /// The security profile.
    pub(crate) profile: &'static Profile,
    /// Permits a weak profile.
    pub(crate) allow_weak: bool,
    /// Whether a client certificate is requested; `None`: as the profile says.
    pub(crate) client_certificates: Option<ClientCertificates>,
    /// The versions of DTLS; `None` for TLS.
    pub(crate) dtls_versions: Option<&'static [Version]>,
}

impl Default for Tls {
    fn default() -> Self {
        Self { profile: &profile::MODERN, allow_weak: false, client_certificates: None, dtls_versions: None }
    }
}

impl Tls {
    /// Returns the security profile's parameters, with the policy for client certificates.
    pub(crate) fn security(&self) -> Security {
        let by_profile = match self.profile.client_certificates {
            // Client certificates are optional; handshakes with a pre-shared key cannot have one.
            ClientCertificates::No if self.profile.is_encrypted() && !self.profile.psk => ClientCertificates::Optional,
            asked @ (ClientCertificates::No | ClientCertificates::Optional | ClientCertificates::Required) => asked,
        };
        let security = Security::of(self.profile);
        Security {
            client_certificates: self.client_certificates.unwrap_or(by_profile),
            dtls_versions: self.dtls_versions.unwrap_or(security.dtls_versions),
            ..security
        }
    }
}

impl Section for Tls {
    fn read(&mut self, reader: &mut Reader<'_>) {
        let profiles = profile::PROFILES.map(|profile| (profile.name, profile));
        reader.choice("profile", &mut self.profile, &profiles);
        reader.flag("allow_weak", &mut self.allow_weak);
        let whom = [
            ("profile", None),
            ("no", Some(ClientCertificates::No)),
            ("optional", Some(ClientCertificates::Optional)),
            ("required", Some(ClientCertificates::Required)),
        ];
        reader.choice("client_certificates", &mut self.client_certificates, &whom);
        if let Some(versions) = &mut self.dtls_versions {
            let named = |version| if version == Version::Tls12 { "1.2" } else { "1.3" };
            let mut words: Vec<_> = versions.iter().map(|version| named(*version).to_owned()).collect();
            reader.words("dtls_versions", &mut words, |word| matches!(word, "1.2" | "1.3"), "\"1.2\", \"1.3\"");
            let has = |word: &str| words.iter().any(|named| named == word);
            *versions = Version::list(has("1.2"), has("1.3"));
        }
    }
}

/// The kinds of listeners, each the name of one that is always there; HTTP/3 is a part of HTTPS.
pub(crate) const KINDS: [Kind; 10] = [
    Kind::Mqtt,
    Kind::Mqtts,
    Kind::Coap,
    Kind::Coaps,
    Kind::CoapTcp,
    Kind::CoapsTcp,
    Kind::Http,
    Kind::Https,
    Kind::Xmpp,
    Kind::Xmpps,
];

/// The values of `[listeners.defaults]`, for keys that a listener does not set itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Defaults {
    enabled: bool,
    dual_stack: bool,
    anonymous: bool,
    allow_remote_anonymous: bool,
    auth: SourceSet,
    proxy_protocol: bool,
    allow_plaintext: bool,
    tls: Tls,
}

impl Default for Defaults {
    fn default() -> Self {
        Self {
            enabled: true,
            dual_stack: false,
            anonymous: true,
            allow_remote_anonymous: false,
            auth: SourceSet::ALL,
            proxy_protocol: false,
            allow_plaintext: false,
            tls: Tls { dtls_versions: Some(Version::list(true, true)), ..Tls::default() },
        }
    }
}

impl Section for Defaults {
    fn read(&mut self, reader: &mut Reader<'_>) {
        reader.flag("enabled", &mut self.enabled);
        reader.flag("dual_stack", &mut self.dual_stack);
        reader.flag("anonymous", &mut self.anonymous);
        reader.flag("allow_remote_anonymous", &mut self.allow_remote_anonymous);
        read_auth(reader, &mut self.auth);
        reader.flag("proxy_protocol", &mut self.proxy_protocol);
        reader.flag("allow_plaintext", &mut self.allow_plaintext);
        self.tls.read(reader);
    }
}

/// One listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listener {
    /// Its name in the configuration.
    pub(crate) name: String,
    /// Its protocol.
    pub(crate) kind: Kind,
    /// Whether it is opened.
    pub(crate) enabled: bool,
    /// Port 0: chosen by the system.
    pub(crate) addresses: Vec<SocketAddr>,
    /// Whether `[::]` means every IPv4 address as well.
    pub(crate) dual_stack: bool,
    /// Whether clients without credentials are admitted; beyond loopback only with `allow_remote_anonymous`.
    pub(crate) anonymous: bool,
    /// Admits clients without credentials from anywhere.
    pub(crate) allow_remote_anonymous: bool,
    /// The accepted credentials.
    pub(crate) auth: SourceSet,
    /// Its protection.
    pub(crate) protection: Protection,
    /// Whether connections come from listed proxies and begin with a header of the PROXY protocol; `None` on UDP.
    pub(crate) proxy_protocol: Option<bool>,
    /// Whether requests to the groups of CoAP nodes are answered; `None` where there are no such requests.
    pub(crate) multicast: Option<bool>,
}

impl Listener {
    /// A listener with these defaults. One with the name of its kind has the kind's port on loopback, any other has no
    /// address yet.
    pub(crate) fn new(name: &str, kind: Kind, defaults: &Defaults) -> Self {
        let tls = || Tls { dtls_versions: None, ..defaults.tls.clone() };
        let protection = match kind {
            Kind::Mqtt | Kind::Coap | Kind::CoapTcp | Kind::Http => {
                Protection::Plain { allow_plaintext: defaults.allow_plaintext }
            }
            Kind::Coaps => Protection::Tls(defaults.tls.clone()),
            Kind::Xmpp => Protection::StartTls(tls()),
            Kind::Mqtts | Kind::CoapsTcp | Kind::Https | Kind::Http3 | Kind::Xmpps => Protection::Tls(tls()),
        };
        let port = Some(default_port(kind)).filter(|_| name == kind.name());
        Self {
            name: name.to_owned(),
            kind,
            enabled: defaults.enabled,
            addresses: port.map(|port| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)).into_iter().collect(),
            dual_stack: defaults.dual_stack,
            anonymous: defaults.anonymous,
            allow_remote_anonymous: defaults.allow_remote_anonymous,
            auth: defaults.auth,
            protection,
            proxy_protocol: (!is_on_udp(kind)).then_some(defaults.proxy_protocol),
            multicast: (kind == Kind::Coap).then_some(false),
        }
    }

    /// Returns the addresses to bind. `[::]` of a dual-stack listener is followed by `0.0.0.0`, which is marked: two
    /// sockets, so that IPv4 clients have IPv4 addresses, whatever the system's `bindv6only`.
    pub(crate) fn sockets(&self) -> impl Iterator<Item = (SocketAddr, bool)> {
        self.addresses.iter().flat_map(|address| {
            let both = self.dual_stack && address.is_ipv6() && address.ip().is_unspecified();
            let v4 = both.then(|| (SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), address.port()), true));
            [(*address, false)].into_iter().chain(v4)
        })
    }

    /// Returns whether all addresses are loopback.
    pub(crate) fn is_loopback(&self) -> bool {
        self.addresses.iter().all(|address| address.ip().is_loopback())
    }

    /// Returns the first address that other machines can reach.
    pub(crate) fn beyond_loopback(&self) -> Option<SocketAddr> {
        self.addresses.iter().find(|address| !address.ip().is_loopback()).copied()
    }

    /// Returns whether clients without credentials are admitted at one of its addresses.
    pub(crate) fn lets_anonymous_in(&self, address: SocketAddr) -> bool {
        self.anonymous && (address.ip().is_loopback() || self.allow_remote_anonymous)
    }

    /// Returns whether clients without credentials are admitted at every address.
    pub(crate) fn lets_anonymous_in_everywhere(&self) -> bool {
        !self.addresses.is_empty() && self.addresses.iter().all(|address| self.lets_anonymous_in(*address))
    }

    /// Returns whether OSCORE is the only protection and the only credential, so that other hosts may reach it without
    /// `allow_plaintext`: requests without OSCORE are refused there.
    pub(crate) fn is_oscore_only(&self) -> bool {
        let plain = self.protection == Protection::Plain { allow_plaintext: false };
        let of_coap = matches!(self.kind, Kind::Coap | Kind::CoapTcp);
        let by_oscore = self.auth == SourceSet::NONE.with(SourceKind::Oscore);
        plain && of_coap && by_oscore && !self.allow_remote_anonymous
    }

    /// Returns its TLS settings, if any.
    pub(crate) fn tls(&self) -> Option<&Tls> {
        match &self.protection {
            Protection::Plain { .. } => None,
            Protection::StartTls(tls) | Protection::Tls(tls) => Some(tls),
        }
    }

    /// Returns whether `other` is the same listener, open at every address that this one has.
    pub(crate) fn is_where(&self, other: &Self) -> bool {
        other.enabled
            && other.kind == self.kind
            && self.sockets().all(|(own, _)| other.sockets().any(|(address, _)| address == own))
    }
}

/// Returns whether a kind is on UDP. HTTPS has HTTP/3 there as well.
pub(crate) const fn is_on_udp(kind: Kind) -> bool {
    matches!(kind, Kind::Coap | Kind::Coaps)
}

/// The port of a kind.
const fn default_port(kind: Kind) -> u16 {
    match kind {
        Kind::Mqtt => 1883,
        Kind::Mqtts => 8883,
        Kind::Coap | Kind::CoapTcp => 5683,
        Kind::Coaps | Kind::CoapsTcp => 5684,
        Kind::Http => 8080,
        Kind::Https | Kind::Http3 => 8443,
        Kind::Xmpp => 5222,
        Kind::Xmpps => 5223,
    }
}

fn read_auth(reader: &mut Reader<'_>, auth: &mut SourceSet) {
    let mut kinds: Vec<_> = auth.iter().map(|kind| kind.name().to_owned()).collect();
    let names: Vec<_> = SourceKind::ALL.iter().map(|kind| format!("{:?}", kind.name())).collect();
    reader.words("auth", &mut kinds, |name| SourceKind::ALL.iter().any(|kind| kind.name() == name), &names.join(", "));
    *auth = kinds.iter().filter_map(|name| SourceKind::named(name)).collect();
}

impl Section for Listener {
    fn read(&mut self, reader: &mut Reader<'_>) {
        // A listener has the kind that it was first read with.
        let kind = self.kind;
        reader.choice("kind", &mut self.kind, &[(kind.name(), kind)]);
        reader.flag("enabled", &mut self.enabled);
        reader.addresses("address", &mut self.addresses);
        reader.flag("dual_stack", &mut self.dual_stack);
        reader.flag("anonymous", &mut self.anonymous);
        reader.flag("allow_remote_anonymous", &mut self.allow_remote_anonymous);
        read_auth(reader, &mut self.auth);
        if let Some(proxied) = &mut self.proxy_protocol {
            reader.flag("proxy_protocol", proxied);
        }
        if let Some(multicast) = &mut self.multicast {
            reader.flag("multicast", multicast);
        }
        match &mut self.protection {
            Protection::Plain { allow_plaintext } => reader.flag("allow_plaintext", allow_plaintext),
            Protection::StartTls(tls) | Protection::Tls(tls) => tls.read(reader),
        }
    }
}
