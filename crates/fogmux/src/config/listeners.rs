//! Where the doors listen and whom they let in without a name.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::reader::{Reader, Section};

/// How a listener protects what passes through it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Security {
    /// Not at all: loopback only unless the operator says otherwise.
    Plain {
        /// Listens beyond loopback all the same.
        allow_plaintext: bool,
    },
    /// TLS is negotiated inside the protocol, and required before credentials.
    StartTls,
    /// TLS from the first byte.
    Tls,
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
    /// How it is protected.
    pub(crate) security: Security,
}

impl Listener {
    fn on_loopback(port: u16, security: Security) -> Self {
        Self {
            enabled: true,
            address: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port),
            anonymous: true,
            allow_remote_anonymous: false,
            security,
        }
    }

    /// Whether only this machine reaches it.
    pub(crate) fn is_loopback(&self) -> bool {
        self.address.ip().is_loopback()
    }

    /// Whether clients without credentials are let in here.
    pub(crate) fn lets_anonymous_in(&self) -> bool {
        self.anonymous && (self.is_loopback() || self.allow_remote_anonymous)
    }
}

impl Section for Listener {
    fn read(&mut self, reader: &mut Reader<'_>) {
        reader.flag("enabled", &mut self.enabled);
        reader.address("address", &mut self.address);
        reader.flag("anonymous", &mut self.anonymous);
        reader.flag("allow_remote_anonymous", &mut self.allow_remote_anonymous);
        if let Security::Plain { allow_plaintext } = &mut self.security {
            reader.flag("allow_plaintext", allow_plaintext);
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
        let plain = || Security::Plain { allow_plaintext: false };
        Self {
            mqtt: Listener::on_loopback(1883, plain()),
            mqtts: Listener::on_loopback(8883, Security::Tls),
            coap: Listener::on_loopback(5683, plain()),
            http: Listener::on_loopback(8080, plain()),
            https: Listener::on_loopback(8443, Security::Tls),
            xmpp: Listener::on_loopback(5222, Security::StartTls),
            xmpps: Listener::on_loopback(5223, Security::Tls),
        }
    }
}

impl Listeners {
    /// Lets the system choose every port.
    pub(crate) fn free_ports(&mut self) {
        let all = [
            &mut self.mqtt,
            &mut self.mqtts,
            &mut self.coap,
            &mut self.http,
            &mut self.https,
            &mut self.xmpp,
            &mut self.xmpps,
        ];
        for listener in all {
            listener.address.set_port(0);
        }
    }

    /// Each with its key.
    pub(crate) fn each(&self) -> [(&'static str, &Listener); 7] {
        [
            ("mqtt", &self.mqtt),
            ("mqtts", &self.mqtts),
            ("coap", &self.coap),
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
        reader.section("http", &mut self.http);
        reader.section("https", &mut self.https);
        reader.section("xmpp", &mut self.xmpp);
        reader.section("xmpps", &mut self.xmpps);
    }
}
