//! Listeners: their protocols, addresses and policies.

use std::{net::SocketAddr, sync::Arc};

use fogmux_auth::{Door, SourceSet};
use fogmux_net::Security;

/// The protocol of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Listener {
    /// MQTT over TCP.
    Mqtt,
    /// MQTT over TLS.
    Mqtts,
    /// CoAP over UDP.
    Coap,
    /// CoAP over DTLS.
    Coaps,
    /// CoAP over TCP (RFC 8323).
    CoapTcp,
    /// CoAP over TLS (RFC 8323).
    CoapsTcp,
    /// HTTP/1.1 and HTTP/2 with prior knowledge.
    Http,
    /// HTTP/1.1 and HTTP/2 over TLS.
    Https,
    /// HTTP/3 over QUIC.
    Http3,
    /// XMPP with STARTTLS.
    Xmpp,
    /// XMPP over TLS.
    Xmpps,
}

impl Listener {
    /// Its name in configuration and in the banner.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mqtt => "mqtt",
            Self::Mqtts => "mqtts",
            Self::Coap => "coap",
            Self::Coaps => "coaps",
            Self::CoapTcp => "coap_tcp",
            Self::CoapsTcp => "coaps_tcp",
            Self::Http => "http",
            Self::Https => "https",
            Self::Http3 => "http3",
            Self::Xmpp => "xmpp",
            Self::Xmpps => "xmpps",
        }
    }

    /// Its door in the access rules.
    #[must_use]
    pub const fn door(self) -> Door {
        match self {
            Self::Mqtt | Self::Mqtts => Door::Mqtt,
            Self::Coap | Self::Coaps | Self::CoapTcp | Self::CoapsTcp => Door::Coap,
            Self::Http | Self::Https | Self::Http3 => Door::Http,
            Self::Xmpp | Self::Xmpps => Door::Xmpp,
        }
    }

    /// Whether this program has that door.
    #[must_use]
    pub const fn has_door(self) -> bool {
        match self.door() {
            Door::Mqtt => cfg!(feature = "mqtt"),
            Door::Coap => cfg!(feature = "coap"),
            Door::Http => cfg!(feature = "http"),
            Door::Xmpp => cfg!(feature = "xmpp"),
        }
    }

    /// Whether clients see a certificate, unless its profile is without one.
    pub(crate) const fn has_certificate(self) -> bool {
        match self {
            // XMPP has STARTTLS.
            Self::Mqtts | Self::Coaps | Self::CoapsTcp | Self::Https | Self::Http3 | Self::Xmpp | Self::Xmpps => true,
            Self::Mqtt | Self::Coap | Self::CoapTcp | Self::Http => false,
        }
    }

    /// Whether TLS comes first on its streams.
    #[must_use]
    pub const fn begins_with_tls(self) -> bool {
        match self {
            Self::Mqtts | Self::CoapsTcp | Self::Https | Self::Xmpps => true,
            Self::Mqtt | Self::Coap | Self::Coaps | Self::CoapTcp | Self::Http | Self::Http3 | Self::Xmpp => false,
        }
    }
}

/// A listener at one of its addresses, with its policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    /// The protocol.
    pub listener: Listener,
    /// The name in the configuration. Listeners of one name and protocol at several addresses are one to operators.
    pub name: Arc<str>,
    /// Address; port 0 takes a free one. [`Listener::Http3`] with port 0 takes the port of [`Listener::Https`].
    pub address: SocketAddr,
    /// Whether port 0 is the port that the address before this one was given: the IPv4 half of a dual-stack address.
    pub shares_port: bool,
    /// Whether anonymous clients are admitted.
    pub anonymous: bool,
    /// The credentials it takes.
    pub sources: SourceSet,
    /// The TLS or DTLS profile, if it has one.
    pub security: Security,
    /// Whether anonymous clients are admitted from beyond this machine.
    pub remote_anonymous: bool,
    /// Whether connections come from proxies only and begin with a header of the PROXY protocol.
    pub proxy_protocol: bool,
    /// Whether every CoAP request without OSCORE is refused, discovery included.
    pub oscore_only: bool,
    /// Whether requests to the groups of CoAP nodes are answered (RFC 7252 §8).
    pub multicast: bool,
}

impl Listen {
    /// A listener under the name of its protocol that takes every credential and admits no anonymous clients.
    #[must_use]
    pub fn new(listener: Listener, address: SocketAddr) -> Self {
        Self {
            listener,
            name: listener.name().into(),
            address,
            shares_port: false,
            anonymous: false,
            sources: SourceSet::ALL,
            security: Security::default(),
            remote_anonymous: false,
            proxy_protocol: false,
            oscore_only: false,
            multicast: false,
        }
    }
}
