//! Listeners: their protocols, addresses and policies.

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicU32, Ordering},
};

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

/// A listener's address and policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listen {
    /// The protocol.
    pub listener: Listener,
    /// Address; port 0 takes a free one. [`Listener::Http3`] with port 0 takes the port of [`Listener::Https`].
    pub address: SocketAddr,
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
}

impl Listen {
    /// A listener that takes every credential and admits no anonymous clients.
    #[must_use]
    pub fn new(listener: Listener, address: SocketAddr) -> Self {
        Self {
            listener,
            address,
            anonymous: false,
            sources: SourceSet::ALL,
            security: Security::default(),
            remote_anonymous: false,
            proxy_protocol: false,
        }
    }
}

/// The listeners that admit anonymous clients: those on this machine in the lower half, those beyond it in the upper.
#[derive(Debug, Default)]
pub struct OpenListeners(AtomicU32);

impl OpenListeners {
    /// Replaces them. Each comes with whether it admits anonymous clients from beyond this machine.
    pub fn set(&self, listeners: impl IntoIterator<Item = (Listener, bool)>) {
        let of = |(listener, remote)| bit(listener) | if remote { bit(listener) << REMOTE } else { 0 };
        let bits = listeners.into_iter().fold(0, |bits, open| bits | of(open));
        self.0.store(bits, Ordering::Release);
    }

    pub(crate) fn contains(&self, listener: Listener) -> bool {
        self.0.load(Ordering::Acquire) & bit(listener) != 0
    }

    pub(crate) fn contains_remote(&self, listener: Listener) -> bool {
        self.0.load(Ordering::Acquire) & (bit(listener) << REMOTE) != 0
    }
}

const REMOTE: u32 = 16;

const fn bit(listener: Listener) -> u32 {
    1 << listener as u32
}
