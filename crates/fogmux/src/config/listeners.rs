//! Where the doors listen, how what passes through them is protected, and whom they let in by which credential.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use fogmux_auth::{SourceKind, SourceSet};
use fogmux_net::profile::{self, Version};
use fogmux_net::{ClientCertificates, Profile, Security};

use super::reader::{Reader, Section};

/// When a listener protects what passes through it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Protection {
    /// Never: loopback only unless the operator says otherwise.
    Plain {
        /// Listens beyond loopback all the same.
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
    /// Which one.
    pub(crate) profile: &'static Profile,
    /// Lets a profile that is weak be used.
    pub(crate) allow_weak: bool,
    /// Whether clients are asked for a certificate; none: as the profile says.
    pub(crate) client_certificates: Option<ClientCertificates>,
    /// The versions of DTLS; none where TLS is spoken.
    pub(crate) dtls_versions: Option<&'static [Version]>,
}

impl Default for Tls {
    fn default() -> Self {
        Self { profile: &profile::MODERN, allow_weak: false, client_certificates: None, dtls_versions: None }
    }
}

impl Tls {
    /// The certificates that clients are asked for.
    pub(crate) fn security(&self) -> Security {
        let by_profile = match self.profile.client_certificates {
            // Clients may show a certificate of ours; handshakes with a pre-shared key have no room for one.
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

/// One listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listener {
    /// Whether it is opened at all.
    pub(crate) enabled: bool,
    /// Port 0 lets the system choose.
    pub(crate) address: SocketAddr,
    /// Whether clients without credentials are let in; beyond loopback only with `allow_remote_anonymous`.
    pub(crate) anonymous: bool,
    /// Lets clients without credentials in from anywhere.
    pub(crate) allow_remote_anonymous: bool,
    /// The credentials it takes.
    pub(crate) auth: SourceSet,
    /// How it is protected.
    pub(crate) protection: Protection,
    /// Whether connections come from named proxies and begin with a header of the PROXY protocol; `None` on UDP.
    pub(crate) proxy_protocol: Option<bool>,
}

impl Listener {
    fn on_loopback(port: u16, protection: Protection) -> Self {
        Self {
            enabled: true,
            address: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port),
            anonymous: true,
            allow_remote_anonymous: false,
            auth: SourceSet::ALL,
            protection,
            proxy_protocol: Some(false),
        }
    }

    /// One on UDP, which the PROXY protocol has no place in.
    fn on_loopback_udp(port: u16, protection: Protection) -> Self {
        Self { proxy_protocol: None, ..Self::on_loopback(port, protection) }
    }

    /// Whether only this machine reaches it.
    pub(crate) fn is_loopback(&self) -> bool {
        self.address.ip().is_loopback()
    }

    /// Whether clients without credentials are let in here.
    pub(crate) fn lets_anonymous_in(&self) -> bool {
        self.anonymous && (self.is_loopback() || self.allow_remote_anonymous)
    }

    /// Its TLS, if it has any.
    pub(crate) fn tls(&self) -> Option<&Tls> {
        match &self.protection {
            Protection::Plain { .. } => None,
            Protection::StartTls(tls) | Protection::Tls(tls) => Some(tls),
        }
    }
}

impl Section for Listener {
    fn read(&mut self, reader: &mut Reader<'_>) {
        reader.flag("enabled", &mut self.enabled);
        reader.address("address", &mut self.address);
        reader.flag("anonymous", &mut self.anonymous);
        reader.flag("allow_remote_anonymous", &mut self.allow_remote_anonymous);
        let mut kinds: Vec<_> = self.auth.iter().map(|kind| kind.name().to_owned()).collect();
        let names: Vec<_> = SourceKind::ALL.iter().map(|kind| format!("{:?}", kind.name())).collect();
        reader.words("auth", &mut kinds, |name| SourceKind::named(name).is_some(), &names.join(", "));
        self.auth = kinds.iter().filter_map(|name| SourceKind::named(name)).collect();
        if let Some(proxied) = &mut self.proxy_protocol {
            reader.flag("proxy_protocol", proxied);
        }
        match &mut self.protection {
            Protection::Plain { allow_plaintext } => reader.flag("allow_plaintext", allow_plaintext),
            Protection::StartTls(tls) | Protection::Tls(tls) => tls.read(reader),
        }
    }
}

/// Every listener there is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listeners {
    /// MQTT over TCP.
    pub(crate) mqtt: Listener,
    /// MQTT over TLS.
    pub(crate) mqtts: Listener,
    /// CoAP over UDP.
    pub(crate) coap: Listener,
    /// CoAP over DTLS.
    pub(crate) coaps: Listener,
    /// CoAP over TCP.
    pub(crate) coap_tcp: Listener,
    /// CoAP over TLS.
    pub(crate) coaps_tcp: Listener,
    /// HTTP/1.1 and h2c, with MQTT over WebSocket at `/mqtt`.
    pub(crate) http: Listener,
    /// The same over TLS, and HTTP/3 on the UDP port of the same number.
    pub(crate) https: Listener,
    /// XMPP with STARTTLS.
    pub(crate) xmpp: Listener,
    /// XMPP over TLS from the first byte.
    pub(crate) xmpps: Listener,
}

impl Default for Listeners {
    fn default() -> Self {
        let plain = || Protection::Plain { allow_plaintext: false };
        let tls = || Protection::Tls(Tls::default());
        let dtls = Protection::Tls(Tls { dtls_versions: Some(Version::list(true, true)), ..Tls::default() });
        Self {
            mqtt: Listener::on_loopback(1883, plain()),
            mqtts: Listener::on_loopback(8883, tls()),
            coap: Listener::on_loopback_udp(5683, plain()),
            coaps: Listener::on_loopback_udp(5684, dtls),
            coap_tcp: Listener::on_loopback(5683, plain()),
            coaps_tcp: Listener::on_loopback(5684, tls()),
            http: Listener::on_loopback(8080, plain()),
            https: Listener::on_loopback(8443, tls()),
            xmpp: Listener::on_loopback(5222, Protection::StartTls(Tls::default())),
            xmpps: Listener::on_loopback(5223, tls()),
        }
    }
}

impl Listeners {
    /// Lets the system choose every port.
    pub(crate) fn free_ports(&mut self) {
        for listener in self.each_mut() {
            listener.address.set_port(0);
        }
    }

    fn each_mut(&mut self) -> [&mut Listener; 10] {
        [
            &mut self.mqtt,
            &mut self.mqtts,
            &mut self.coap,
            &mut self.coaps,
            &mut self.coap_tcp,
            &mut self.coaps_tcp,
            &mut self.http,
            &mut self.https,
            &mut self.xmpp,
            &mut self.xmpps,
        ]
    }

    /// Takes over from `other` whether anonymous clients are admitted. If `other` has the listener at another address,
    /// which takes effect after a restart, it closes the listener to them but does not open it.
    pub(crate) fn take_over(&mut self, other: &Self) {
        let others = other.each().map(|(_, listener)| listener.clone());
        for (own, other) in self.each_mut().into_iter().zip(others) {
            let (before, address) = (own.anonymous, own.address);
            (own.anonymous, own.allow_remote_anonymous) = match other.address == address && other.enabled {
                true => (other.anonymous, other.allow_remote_anonymous),
                false => (before && other.lets_anonymous_in(), own.allow_remote_anonymous),
            };
        }
    }

    /// Each with its key.
    pub(crate) fn each(&self) -> [(&'static str, &Listener); 10] {
        [
            ("mqtt", &self.mqtt),
            ("mqtts", &self.mqtts),
            ("coap", &self.coap),
            ("coaps", &self.coaps),
            ("coap_tcp", &self.coap_tcp),
            ("coaps_tcp", &self.coaps_tcp),
            ("http", &self.http),
            ("https", &self.https),
            ("xmpp", &self.xmpp),
            ("xmpps", &self.xmpps),
        ]
    }
}

impl Section for Listeners {
    fn read(&mut self, reader: &mut Reader<'_>) {
        reader.section("mqtt", &mut self.mqtt);
        reader.section("mqtts", &mut self.mqtts);
        reader.section("coap", &mut self.coap);
        reader.section("coaps", &mut self.coaps);
        reader.section("coap_tcp", &mut self.coap_tcp);
        reader.section("coaps_tcp", &mut self.coaps_tcp);
        reader.section("http", &mut self.http);
        reader.section("https", &mut self.https);
        reader.section("xmpp", &mut self.xmpp);
        reader.section("xmpps", &mut self.xmpps);
    }
}
