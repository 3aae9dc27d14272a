//! The proxies in front of the gateway.

use std::time::Duration;

use fogmux_net::proxy::Proxies;

/// The proxies of a gateway.
#[derive(Clone, Debug, Default)]
pub struct ProxyConfig {
    /// Those that are believed.
    pub named: Proxies,
    /// How they say whose connection or request it is.
    pub rules: ProxyRules,
}

/// How the named proxies say whose connection or request they pass on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProxyRules {
    /// The header field of requests.
    pub header: ForwardHeader,
    /// How long the header of the PROXY protocol may take.
    pub timeout: Duration,
}

impl Default for ProxyRules {
    fn default() -> Self {
        Self { header: ForwardHeader::XForwardedFor, timeout: Duration::from_secs(5) }
    }
}

/// The header field by which the named proxies say whose request it is. Only one is believed: a proxy that sets one of
/// them passes the other on as its client sent it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForwardHeader {
    /// `X-Forwarded-For`.
    XForwardedFor,
    /// `Forwarded` (RFC 7239).
    Forwarded,
}
