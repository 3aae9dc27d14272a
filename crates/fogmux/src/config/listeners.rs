//! The listeners: addresses, protection, and accepted credentials.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use fogmux_auth::{SourceKind, SourceSet};
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

/// One listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listener {
    /// Whether it is opened.
    pub(crate) enabled: bool,
    /// Port 0: chosen by the system.
    pub(crate) address: SocketAddr,
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

    /// A listener on UDP, without the PROXY protocol.
    fn on_loopback_udp(port: u16, protection: Protection) -> Self {
        Self { proxy_protocol: None, ..Self::on_loopback(port, protection) }
    }

    /// Returns whether the address is loopback.
    pub(crate) fn is_loopback(&self) -> bool {
        self.address.ip().is_loopback()
    }

    /// Returns whether clients without credentials are admitted.
    pub(crate) fn lets_anonymous_in(&self) -> bool {
        self.anonymous && (self.is_loopback() || self.allow_remote_anonymous)
    }

    /// Returns its TLS settings, if any.
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

/// All listeners.
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
    /// XMPP over direct TLS.
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
    /// Sets every port to 0, so that the system chooses it.
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

    /// Copies from `other` whether anonymous clients are admitted. If `other` has the listener at another address,
    /// which takes effect after a restart, this can close the listener to them but not open it.
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

    /// Returns each listener with its key.
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
