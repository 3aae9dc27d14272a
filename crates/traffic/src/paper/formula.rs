//! The analytical part of "Performance evaluation of CoAP and MQTT with security support for IoT environments"
//! (Seoane et al., 2021, §5): tables 5 to 13 and equation (3), from the sizes of headers.
//!
//! A formula has a name in the paper's file and takes its `input`. What the document prints and what comes out here is
//! compared in the tests below, where each difference is explained.

mod frame;
mod mqtt;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::value::Table as Keys;

use self::frame::Frame;
use self::mqtt::{MqttMessage, MqttPackets};
use super::frames::{self, COOKED_HEADER, ETHERNET_DATA_MIN, Part};

/// Of a frame, which table 12 counts instead of the header of a cooked capture.
const ETHERNET_HEADER: u64 = 14;
/// RFC 791 §3.1, without options.
const IPV4_HEADER: u64 = 20;
/// RFC 768.
const UDP_HEADER: u64 = 8;
/// RFC 9293 §3.1 with the timestamp option and its padding (RFC 7323 §3.2).
const TCP_HEADER: u64 = 32;
/// RFC 7252 §3.
const COAP_HEADER: u64 = 4;
/// RFC 6347 §4.1.
const DTLS_RECORD: u64 = 13;
/// RFC 6347 §4.2.2.
const DTLS_HANDSHAKE: u64 = 12;
/// RFC 6655 §3: explicit nonce and tag of AES-128-CCM-8.
const CCM8: u64 = 8 + 8;
/// RFC 5246 §7.4.9.
const VERIFY_DATA: u64 = 12;

/// The number of a formula.
///
/// # Errors
/// There is no such formula, or its input is not what it takes.
pub fn compute(name: &str, input: &Keys) -> Result<f64, FormulaError> {
    Ok(match name {
        "coap_message" => whole(take::<CoapMessage>(name, input)?.bytes()),
        "coap_exchange" => whole(take::<CoapExchange>(name, input)?.compute()),
        "frame" => whole(take::<Frame>(name, input)?.bytes()),
        "dtls_handshake" => whole(take::<DtlsHandshake>(name, input)?.bytes()),
        "dtls_close" => whole(dtls(2)),
        "coap_timeout" => take::<CoapTimeout>(name, input)?.seconds(),
        "coap_delay" => take::<CoapDelay>(name, input)?.ms(),
        "mqtt_message" => whole(take::<MqttMessage>(name, input)?.bytes()),
        "mqtt_packets" => whole(parts_total(&take::<MqttPackets>(name, input)?.parts())),
        unknown => return Err(FormulaError::Unknown(unknown.to_owned())),
    })
}

/// Which packets a formula counts, if it counts any.
#[must_use]
pub fn parts(name: &str, input: &Keys) -> Option<Vec<(Part, u32)>> {
    match name {
        "mqtt_packets" => Some(take::<MqttPackets>(name, input).ok()?.parts()),
        "coap_exchange" => Some(take::<CoapExchange>(name, input).ok()?.parts()),
        _ => None,
    }
}

/// Bytes of the messages themselves, without any header below them.
#[must_use]
pub(super) fn application_bytes(name: &str, input: &Keys) -> Option<f64> {
    let exchange = (name == "coap_exchange").then(|| take::<CoapExchange>(name, input).ok())??;
    Some(whole(exchange.messages().iter().map(|kind| exchange.sizes.application(*kind)).sum()))
}

/// Bytes of the DTLS handshake in an exchange.
#[must_use]
pub(super) fn handshake_bytes(name: &str, input: &Keys) -> Option<f64> {
    let exchange = (name == "coap_exchange").then(|| take::<CoapExchange>(name, input).ok())??;
    let flights = exchange.handshake.filter(|_| exchange.security != Secured::None)?;
    Some(whole(flights.total(exchange.security)))
}

fn take<T: DeserializeOwned>(name: &str, input: &Keys) -> Result<T, FormulaError> {
    let wrong = |error: toml::de::Error| FormulaError::Input(name.to_owned(), error.message().to_owned());
    toml::Value::Table(input.clone()).try_into().map_err(wrong)
}

#[expect(clippy::cast_precision_loss, reason = "some thousand bytes")]
fn whole(number: u64) -> f64 {
    number as f64
}

fn parts_total(parts: &[(Part, u32)]) -> u64 {
    parts.iter().map(|(_, count)| u64::from(*count)).sum()
}

/// Why there is no number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormulaError {
    /// There is none of that name.
    #[error("there is no formula {0:?}")]
    Unknown(String),
    /// Its input makes no sense.
    #[error("formula {0}: {1}")]
    Input(String, String),
}

/// A datagram of this many bytes, in a cooked capture (§5.1.1).
fn cooked(udp_payload: u64) -> u64 {
    COOKED_HEADER + (IPV4_HEADER + UDP_HEADER + udp_payload).max(ETHERNET_DATA_MIN)
}

/// The same with a record of DTLS around the message (table 8).
fn dtls(message: u64) -> u64 {
    cooked(DTLS_RECORD + CCM8 + message)
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    Request,
    Ack,
    Answer,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Layer {
    Application,
    Wire,
    Dtls,
}

/// Tables 5 and 8.
#[derive(Debug, Deserialize)]
struct CoapMessage {
    kind: Kind,
    layer: Layer,
    #[serde(flatten)]
    sizes: Sizes,
}

/// The sizes of messages in §5.1.1, in bytes.
#[derive(Clone, Copy, Debug, Deserialize)]
struct Sizes {
    token: u64,
    /// Uri-Path of the request.
    uri: u64,
    /// ETag, Content-Format and Max-Age of the answer; the marker before the payload must be in the 9 bytes, too.
    options: u64,
    payload: u64,
}

impl Sizes {
    const fn application(self, kind: Kind) -> u64 {
        match kind {
            Kind::Request => COAP_HEADER + self.token + self.uri,
            Kind::Ack => COAP_HEADER,
            Kind::Answer => COAP_HEADER + self.token + self.options + self.payload,
        }
    }
}

impl CoapMessage {
    fn bytes(&self) -> u64 {
        let application = self.sizes.application(self.kind);
        match self.layer {
            Layer::Application => application,
            Layer::Wire => cooked(application),
            Layer::Dtls => dtls(application),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
enum Scenario {
    A,
    B,
    C,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Secured {
    None,
    Psk,
    Pki,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Counted {
    Packets,
    Bytes,
}

/// Tables 6 and 10: figure 3's exchanges, with table 7 before and table 9 behind when they are encrypted.
#[derive(Debug, Deserialize)]
struct CoapExchange {
    scenario: Scenario,
    security: Secured,
    count: Counted,
    #[serde(flatten)]
    sizes: Sizes,
    #[serde(default, flatten)]
    handshake: Option<Flights>,
}

impl CoapExchange {
    const fn messages(&self) -> &'static [Kind] {
        match self.scenario {
            Scenario::A | Scenario::C => &[Kind::Request, Kind::Answer],
            Scenario::B => &[Kind::Request, Kind::Ack, Kind::Answer, Kind::Ack],
        }
    }

    fn compute(&self) -> u64 {
        let messages = self.messages().iter().map(|kind| self.sizes.application(*kind));
        match (self.count, self.security) {
            (Counted::Packets, _) => parts_total(&self.parts()),
            (Counted::Bytes, Secured::None) => messages.map(cooked).sum(),
            (Counted::Bytes, Secured::Psk | Secured::Pki) => {
                let handshake = self.handshake.map_or(0, |flights| flights.total(self.security));
                handshake + messages.map(dtls).sum::<u64>() + 2 * dtls(2)
            }
        }
    }

    fn parts(&self) -> Vec<(Part, u32)> {
        if self.security != Secured::None {
            let messages = if self.scenario == Scenario::B { 4 } else { 2 };
            return vec![(frames::HANDSHAKE, 6), (frames::DATA, messages), (frames::ALERT, 2)];
        }
        match self.scenario {
            Scenario::A => vec![(frames::COAP_CON, 1), (frames::COAP_ACK_ANSWER, 1)],
            Scenario::B => vec![(frames::COAP_CON, 2), (frames::COAP_ACK, 2)],
            Scenario::C => vec![(frames::COAP_NON, 2)],
        }
    }
}

/// Table 7.
#[derive(Debug, Deserialize)]
struct DtlsHandshake {
    message: FlightName,
    security: Secured,
    #[serde(flatten)]
    flights: Flights,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum FlightName {
    ClientHello,
    HelloVerifyRequest,
    ClientHelloWithCookie,
    ServerHello,
    KeyExchange,
    Finished,
    Total,
}

/// The sizes of handshake flights that do not follow from headers, in bytes.
#[derive(Clone, Copy, Debug, Deserialize)]
struct Flights {
    /// Cipher suites and extensions of a ClientHello.
    hello_lists: u64,
    /// Records of the flight that ServerHello begins.
    server_records: u64,
    /// A PSK identity, or a public key of ECDHE.
    exchange: u64,
    /// Of NewSessionTicket.
    ticket: u64,
    cookie: u64,
}

impl DtlsHandshake {
    fn bytes(&self) -> u64 {
        self.flights.bytes(self.message, self.security)
    }
}

impl Flights {
    fn total(self, security: Secured) -> u64 {
        self.bytes(FlightName::Total, security)
    }

    fn bytes(self, message: FlightName, security: Secured) -> u64 {
        let record = |body: u64| DTLS_RECORD + DTLS_HANDSHAKE + body;
        // RFC 6347 §4.2.1: version, random, session, cookie, suites, compression, extensions, each with its length.
        let hello = |cookie: u64| record(2 + 32 + 1 + 1 + cookie + 2 + 2 + 2 + self.hello_lists);
        // RFC 5246 §7.1 and §7.4.9.
        let last = DTLS_RECORD + 1 + DTLS_RECORD + CCM8 + DTLS_HANDSHAKE + VERIFY_DATA;
        cooked(match message {
            FlightName::ClientHello => hello(0),
            FlightName::HelloVerifyRequest => record(2 + 1 + self.cookie),
            FlightName::ClientHelloWithCookie => hello(self.cookie),
            FlightName::ServerHello => self.server_records,
            // RFC 4279 §2: a length of two bytes; RFC 8422 §5.7: of one.
            FlightName::KeyExchange => record(if security == Secured::Psk { 2 } else { 1 } + self.exchange) + last,
            // RFC 5077 §3.3: lifetime and length.
            FlightName::Finished => record(4 + 2 + self.ticket) + last,
            FlightName::Total => {
                return [
                    FlightName::ClientHello,
                    FlightName::HelloVerifyRequest,
                    FlightName::ClientHelloWithCookie,
                    FlightName::ServerHello,
                    FlightName::KeyExchange,
                    FlightName::Finished,
                ]
                .into_iter()
                .map(|flight| self.bytes(flight, security))
                .sum();
            }
        })
    }
}

/// Equation (3), table 11.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CoapDelay {
    /// Probability that a packet is lost.
    loss: f64,
    sensing_ms: f64,
    ack_timeout_ms: f64,
}

impl CoapDelay {
    /// `T_sensing + ACK_TIMEOUT × (1 − q²) / q²`: each repeat after the same time, without RFC 7252 §4.2's doubling.
    fn ms(&self) -> f64 {
        let both_arrive = (1.0 - self.loss).powi(2);
        self.sensing_ms + self.ack_timeout_ms * (1.0 - both_arrive) / both_arrive
    }
}

/// Figure 24: the time before a repeat of a Confirmable, which doubles (RFC 7252 §4.2).
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CoapTimeout {
    /// The number of the repeat, from 1.
    repeat: u8,
    ack_timeout_s: f64,
    random_factor: f64,
}

impl CoapTimeout {
    fn seconds(&self) -> f64 {
        self.ack_timeout_s * self.random_factor * 2f64.powi(i32::from(self.repeat) - 1)
    }
}

#[cfg(test)]
mod tests;
