//! The doors of the demonstration and their addresses.

use fogmux_client::{HttpVersion, MqttVersion, Options, Scheme, Trust, Url};
use fogmux_gateway::{Listener, RunningGateway};

use crate::client::trust_here;
use crate::home::Home;

/// A door in one version.
pub(crate) struct DemoDoor {
    pub(crate) name: &'static str,
    scheme: Scheme,
    secure: bool,
    port: u16,
    pub(crate) options: Options,
    /// Whether messages at this door have a content type.
    pub(crate) carries_type: bool,
}

impl DemoDoor {
    /// Returns every door in every version.
    pub(crate) fn all(gateway: &RunningGateway, home: &Home) -> Vec<Self> {
        let trust = home.authority.clone().map_or_else(trust_here, Trust::File);
        let options = Options { trust, qos: 1, mqtt: MqttVersion::V5, ..Options::default() };
        let with_http = |http| Options { http, ..options.clone() };
        let with_mqtt = |mqtt| Options { mqtt, ..options.clone() };
        let five = || with_mqtt(MqttVersion::V5);
        let all = [
            ("MQTT 3.1.1", Scheme::Mqtt, false, Listener::Mqtt, with_mqtt(MqttVersion::V311)),
            ("MQTT 5", Scheme::Mqtt, false, Listener::Mqtt, five()),
            ("MQTT TLS", Scheme::Mqtt, true, Listener::Mqtts, five()),
            ("MQTT WS", Scheme::WebSocket, false, Listener::Http, five()),
            ("CoAP", Scheme::Coap, false, Listener::Coap, five()),
            ("HTTP/1.1", Scheme::Http, false, Listener::Http, with_http(HttpVersion::One)),
            ("HTTP/2", Scheme::Http, true, Listener::Https, with_http(HttpVersion::Two)),
            ("HTTP/3", Scheme::Http, true, Listener::Http3, with_http(HttpVersion::Three)),
            ("XMPP", Scheme::Xmpp, false, Listener::Xmpp, five()),
        ];
        let port = |wanted| gateway.address(wanted).map(|at| at.port());
        let door = |(name, scheme, secure, listener, options): (_, _, _, _, Options)| {
            let carries_type = !(scheme == Scheme::Mqtt && options.mqtt == MqttVersion::V311);
            Some(Self { name, scheme, secure, port: port(listener)?, options, carries_type })
        };
        all.into_iter().filter_map(door).collect()
    }

    /// Returns the URL of a topic or filter.
    pub(crate) fn url(&self, topic: &str) -> Url {
        Url {
            scheme: self.scheme,
            secure: self.secure,
            host: "127.0.0.1".to_owned(),
            port: self.port,
            topic: topic.to_owned(),
            user: None,
            password: None,
        }
    }
}
