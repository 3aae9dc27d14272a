//! Tables 12 and 13: messages and packets of MQTT.

use serde::Deserialize;

use super::{ETHERNET_HEADER, IPV4_HEADER, Layer, Part, TCP_HEADER, frames};

/// Table 12, without what is variable (client identifier, topic, data).
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MqttMessage {
    kind: MqttKind,
    layer: Layer,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum MqttKind {
    Connect,
    Publish,
    /// CONNACK, PUBACK, PUBREC, PUBREL and PUBCOMP.
    Answer,
}

impl MqttMessage {
    /// Bytes of the message and what is around it.
    pub(super) const fn bytes(&self) -> u64 {
        let application = match self.kind {
            // MQTT 3.1.1 §3.1: fixed header, name and level of the protocol, flags, keep-alive, length of the
            // identifier.
            MqttKind::Connect => 2 + 6 + 1 + 1 + 2 + 2,
            // §3.3: fixed header and length of the topic; the packet identifier of QoS 1 and 2 is not in the document.
            MqttKind::Publish | MqttKind::Answer => 2 + 2,
        };
        match self.layer {
            Layer::Application => application,
            Layer::Wire | Layer::Dtls => ETHERNET_HEADER + IPV4_HEADER + TCP_HEADER + application,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Acks {
    /// Every segment with data, or FIN, is acknowledged by a segment of its own.
    Each,
    /// An acknowledgement goes with what is sent back, if anything is, or waits for the next one.
    Delayed,
}

/// Table 13: the publisher's connection, made and closed, and what the broker sends on to one subscriber.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MqttPackets {
    qos: u8,
    acks: Acks,
}

impl MqttPackets {
    /// The packets, by name.
    pub(super) fn parts(&self) -> Vec<(Part, u32)> {
        let mut parts = vec![
            (frames::SYN, 2),
            (frames::MQTT_CONNECT, 1),
            (frames::MQTT_CONNACK, 1),
            (frames::MQTT_PUBLISH, 2),
            (frames::MQTT_DISCONNECT, 1),
            (frames::FIN, 2),
        ];
        // Of both legs: publisher to broker, broker to subscriber.
        let answers: &[Part] = match self.qos {
            0 => &[],
            1 => &[frames::MQTT_PUBACK],
            _ => &[frames::MQTT_PUBREC, frames::MQTT_PUBREL, frames::MQTT_PUBCOMP],
        };
        parts.extend(answers.iter().map(|answer| (*answer, 2)));
        let answers = u32::try_from(answers.len()).unwrap_or_default();
        // The handshake's third segment; CONNECT, CONNACK, DISCONNECT and both FIN; PUBLISH and its answers, twice.
        let each = 1 + 5 + 2 * (1 + answers);
        let acks = match self.acks {
            Acks::Each => each,
            // With CONNACK goes that of CONNECT, with PUBLISH that of CONNACK, with DISCONNECT's (QoS 0), or with an
            // answer or DISCONNECT, what is left but the last of the subscriber's leg.
            Acks::Delayed => each - 2 - (answers + 1) - answers,
        };
        parts.push((frames::PURE_ACK, acks));
        parts
    }
}
