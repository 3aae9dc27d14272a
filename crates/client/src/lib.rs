//! Every door from outside: what `fogmux pub`, `sub` and `get` share with the traffic generator.
//!
//! [`Publisher`], [`Subscription`] and [`get`] are one client for every door and wait for each answer; below them are
//! the parts that the generator builds its own, faster drivers of: addresses, TLS, DTLS, streams, WebSocket, OSCORE.
//! Nothing here prints, but for hints on standard error, or knows the gateway's configuration.

pub mod coap;
pub mod coap_stream;
pub mod connector;
pub mod counted;
pub mod dtls;
pub mod error;
pub mod http;
pub mod http3;
pub mod message;
pub mod mqtt;
pub mod oscore;
pub mod stream;
pub mod tls;
pub mod url;
pub mod websocket;
pub mod xmpp;

use std::path::PathBuf;
use std::sync::Arc;

use fogmux_net::channel::Zeroizing;
use fogmux_net::profile::{Offer, Only};
use fogmux_net::{KeyLogFile, Profile};

pub use connector::{Connector, Dialer};
pub use counted::{Counted, Counter};
pub use error::ClientError;
pub use message::{Arrived, Outgoing, printable};
pub use stream::Stream;
pub use tls::{Own, Trust};
pub use url::{Scheme, Url};

/// How a door is to be used, whatever it is.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// User and password.
    pub credentials: Option<(String, String)>,
    /// A token (JWT), instead of them.
    pub token: Option<String>,
    /// How the server proves who it is.
    pub trust: Trust,
    /// Of `http` and `https`.
    pub http: HttpVersion,
    /// Of everything that carries MQTT.
    pub mqtt: MqttVersion,
    /// Of MQTT; none: the server chooses.
    pub client_id: Option<String>,
    /// Of XMPP; none: the host.
    pub domain: Option<String>,
    /// The QoS of subscriptions.
    pub qos: u8,
    /// The client's certificate.
    pub own: Option<Own>,
    /// A pre-shared key.
    pub psk: Option<Psk>,
    /// The OSCORE context, for CoAP.
    pub oscore: Option<PathBuf>,
    /// The security profile for TLS and DTLS; `None` offers all safe versions and suites.
    pub profile: Option<&'static Profile>,
    /// The part of the profile's offer that is offered.
    pub only: Only,
    /// The key log file for secrets of TLS and DTLS.
    pub key_log: Option<Arc<KeyLogFile>>,
}

impl Options {
    /// The versions and suites that are offered, where it is not everything that is safe.
    pub(crate) fn offer(&self) -> Option<&'static Offer> {
        self.only.offer.or_else(|| self.profile.map(|profile| &profile.offer))
    }
}

/// The versions of HTTP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HttpVersion {
    /// HTTP/1.1.
    #[default]
    One,
    /// HTTP/2, without TLS with prior knowledge.
    Two,
    /// HTTP/3.
    Three,
}

/// The versions of MQTT.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MqttVersion {
    /// MQTT 3.1.1.
    V311,
    /// MQTT 5.
    #[default]
    V5,
}

/// A pre-shared key.
#[derive(Clone)]
pub struct Psk {
    /// The identity that the key belongs to.
    pub identity: String,
    /// The key.
    pub key: Zeroizing<Vec<u8>>,
}

impl std::fmt::Debug for Psk {
    /// Without the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Psk").field("identity", &self.identity).finish_non_exhaustive()
    }
}

/// A connection to any door, to publish by.
pub enum Publisher {
    /// HTTP.
    Http(Box<http::Publisher>),
    /// MQTT.
    Mqtt(Box<mqtt::Publisher>),
    /// CoAP.
    Coap(Box<coap::Publisher>),
    /// XMPP.
    Xmpp(Box<xmpp::Publisher>),
}

impl Publisher {
    /// Connects and logs in.
    pub async fn open(url: &Url, options: &Options) -> Result<Self, ClientError> {
        Ok(match url.scheme {
            Scheme::Http => Self::Http(Box::new(http::Publisher::open(url, options).await?)),
            Scheme::Mqtt | Scheme::WebSocket => Self::Mqtt(Box::new(mqtt::Publisher::open(url, options).await?)),
            Scheme::Coap | Scheme::CoapTcp | Scheme::CoapWebSocket => {
                Self::Coap(Box::new(coap::Publisher::open(url, options).await?))
            }
            Scheme::Xmpp => Self::Xmpp(Box::new(xmpp::Publisher::open(url, options).await?)),
        })
    }

    /// Publishes one message; returns when the door has acknowledged it.
    pub async fn publish(&mut self, message: &Outgoing) -> Result<(), ClientError> {
        match self {
            Self::Http(publisher) => publisher.publish(message).await,
            Self::Mqtt(publisher) => publisher.publish(message).await,
            Self::Coap(publisher) => publisher.publish(message).await,
            Self::Xmpp(publisher) => publisher.publish(message).await,
        }
    }

    /// Ends the connection as its protocol says, so that the gateway does not wait for a peer that has gone.
    pub async fn close(self) -> Result<(), ClientError> {
        match self {
            Self::Http(publisher) => publisher.close().await,
            Self::Mqtt(mut publisher) => publisher.close().await?,
            Self::Coap(publisher) => publisher.close().await?,
            Self::Xmpp(mut publisher) => publisher.close().await,
        }
        Ok(())
    }
}

/// The message that a topic keeps.
pub async fn get(url: &Url, options: &Options) -> Result<Option<Arrived>, ClientError> {
    // [MQTT-3.3.2-2]: no topic has them, at any door. MQTT would return the first of many.
    if url.topic.contains(['+', '#']) {
        return Err(ClientError::NotAccepted(format!("{:?} has a wildcard: `sub` takes a filter", url.topic)));
    }
    match url.scheme {
        Scheme::Http => http::get(url, options).await,
        Scheme::Mqtt | Scheme::WebSocket => mqtt::get(url, options).await,
        Scheme::Coap | Scheme::CoapTcp | Scheme::CoapWebSocket => coap::get(url, options).await,
        Scheme::Xmpp => xmpp::get(url, options).await,
    }
}

/// Follows a filter; returns when the door has confirmed it, so that nothing published from then on is missed.
pub async fn subscribe(url: &Url, options: &Options) -> Result<Subscription, ClientError> {
    Ok(match url.scheme {
        Scheme::Http => Subscription::Http(Box::new(http::subscribe(url, options).await?)),
        Scheme::Mqtt | Scheme::WebSocket => Subscription::Mqtt(Box::new(mqtt::subscribe(url, options).await?)),
        Scheme::Coap | Scheme::CoapTcp | Scheme::CoapWebSocket => {
            Subscription::Coap(Box::new(coap::subscribe(url, options).await?))
        }
        Scheme::Xmpp => Subscription::Xmpp(Box::new(xmpp::subscribe(url, options).await?)),
    })
}

/// A subscription at any door.
pub enum Subscription {
    /// HTTP.
    Http(Box<http::Subscription>),
    /// MQTT.
    Mqtt(Box<mqtt::Subscription>),
    /// CoAP.
    Coap(Box<coap::Subscription>),
    /// XMPP.
    Xmpp(Box<xmpp::Subscription>),
}

impl Subscription {
    /// The next message.
    pub async fn next(&mut self) -> Result<Arrived, ClientError> {
        match self {
            Self::Http(subscription) => subscription.next().await,
            Self::Mqtt(subscription) => subscription.next().await,
            Self::Coap(subscription) => subscription.next().await,
            Self::Xmpp(subscription) => subscription.next().await,
        }
    }

    /// Ends the subscription and its connection as the protocol says: an observation is deregistered (RFC 7641 §3.6),
    /// DISCONNECT, the end of a stream or `CONNECTION_CLOSE` is sent.
    pub async fn close(self) -> Result<(), ClientError> {
        match self {
            Self::Http(subscription) => subscription.close().await,
            Self::Mqtt(subscription) => subscription.close().await?,
            Self::Coap(subscription) => subscription.close().await?,
            Self::Xmpp(subscription) => subscription.close().await,
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_filter_has_no_value_at_any_door() {
        for scheme in ["mqtt", "ws", "coap", "coap+tcp", "coap+ws", "http", "xmpp"] {
            for filter in ["t/#", "+/t"] {
                // Nothing listens there: a client that asked would be told so.
                let url: Url = format!("{scheme}://127.0.0.1:1/{filter}").parse().unwrap();
                let refused = get(&url, &Options::default()).await;
                assert!(matches!(refused, Err(ClientError::NotAccepted(_))), "{url:?}: {refused:?}");
            }
        }
    }
}
