//! The keys of each door. What they mean and what they are by default stands where the door is.

use std::time::Duration;

use fogmux_gateway::{coap::CoapConfig, http::HttpConfig, mqtt::MqttConfig, xmpp::XmppConfig};
use fogmux_net::quic::QuicLimits;

use super::reader::{Reader, Section};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);
/// No protocol carries more in one message than MQTT, 256 MiB.
const MESSAGE_BYTES: u64 = 256 << 20;

/// The HTTP door and the transport that only it has.
#[derive(Clone, Debug)]
pub(crate) struct Http {
    /// Serves HTTP/3 on the UDP port of the `https` listener.
    pub(crate) http3: bool,
    pub(crate) quic: QuicLimits,
    pub(crate) door: HttpConfig,
}

impl Default for Http {
    fn default() -> Self {
        Self { http3: true, quic: QuicLimits::default(), door: HttpConfig::default() }
    }
}

impl Section for Http {
    fn read(&mut self, reader: &mut Reader<'_>) {
        reader.flag("http3", &mut self.http3);
        reader.section("quic", &mut self.quic);
        let door = &mut self.door;
        reader.size("payload_bytes_max", &mut door.payload_bytes_max, 1..=MESSAGE_BYTES);
        reader.size("batch_bytes_max", &mut door.batch_bytes_max, 1..=MESSAGE_BYTES);
        reader.count("batch_lines_max", &mut door.batch_lines_max, 1..=1_000_000);
        reader.size("header_bytes_max", &mut door.header_bytes_max, 8 << 10..=1 << 20);
        reader.duration("header_timeout", &mut door.header_timeout, SECOND..=HOUR);
        reader.duration("body_timeout", &mut door.body_timeout, SECOND..=HOUR);
        reader.duration("idle_timeout", &mut door.idle_timeout, SECOND..=HOUR);
        reader.duration("write_timeout", &mut door.write_timeout, SECOND..=HOUR);
        reader.count("streams_per_connection_max", &mut door.streams_per_connection_max, 1..=10_000);
        reader.count("quic_connections_max", &mut door.quic_connections_max, 1..=1_000_000);
        reader.count("event_streams_max", &mut door.event_streams_max, 0..=1_000_000);
        reader.count("event_stream_messages", &mut door.event_stream_messages, 1..=1_000_000);
        reader.size("event_stream_bytes", &mut door.event_stream_bytes, 1 << 10..=1 << 30);
        reader.size("event_streams_bytes", &mut door.event_streams_bytes, 1 << 20..=16 << 30);
        reader.duration("event_stream_grace", &mut door.event_stream_grace, Duration::ZERO..=HOUR);
        reader.count("event_streams_parked_max", &mut door.event_streams_parked_max, 0..=1_000_000);
        reader.duration("event_keep_alive", &mut door.event_keep_alive, SECOND..=HOUR);
        reader.duration("wait_max", &mut door.wait_max, SECOND..=HOUR);
        reader.words("hosts", &mut door.hosts, is_host, "host names such as \"fog.example\"");
        reader.words("origins", &mut door.origins, is_origin, "origins such as \"https://panel.example\"");
    }
}

impl Section for QuicLimits {
    fn read(&mut self, reader: &mut Reader<'_>) {
        reader.count("bidirectional_streams_max", &mut self.bidirectional_streams_max, 1..=10_000);
        // RFC 9114 §6.2: fewer than three cannot carry HTTP/3.
        reader.count("unidirectional_streams_max", &mut self.unidirectional_streams_max, 3..=1_000);
        reader.size("stream_window_bytes", &mut self.stream_window_bytes, 4 << 10..=256 << 20);
        reader.size("connection_window_bytes", &mut self.connection_window_bytes, 4 << 10..=1 << 30);
        reader.size("send_window_bytes", &mut self.send_window_bytes, 4 << 10..=1 << 30);
        reader.duration("idle_timeout", &mut self.idle_timeout, SECOND..=HOUR);
        reader.count("retry_from_connections", &mut self.retry_from_connections, 0..=1_000_000);
    }
}

impl Section for MqttConfig {
    fn read(&mut self, _reader: &mut Reader<'_>) {}
}

impl Section for CoapConfig {
    fn read(&mut self, _reader: &mut Reader<'_>) {}
}

/// The XMPP door.
#[derive(Clone, Debug)]
pub(crate) struct Xmpp {
    /// The domain clients log in to; topics are nodes of `pubsub.<domain>`.
    pub(crate) domain: String,
    pub(crate) door: XmppConfig,
}

impl Default for Xmpp {
    fn default() -> Self {
        Self { domain: "localhost".to_owned(), door: XmppConfig::default() }
    }
}

impl Section for Xmpp {
    fn read(&mut self, reader: &mut Reader<'_>) {
        reader.text("domain", &mut self.domain, is_domain, "a domain name such as \"fog.example\"");
    }
}

/// RFC 3986 §3.2.2, without a port.
fn is_host(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte))
}

/// RFC 6454 §6.2: scheme, host and port, no path.
fn is_origin(text: &str) -> bool {
    let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    host.is_some_and(is_host)
}

/// RFC 7622 §3.2 narrowed to what a certificate can carry: lower-case labels of letters, digits and hyphens.
fn is_domain(text: &str) -> bool {
    let label = |label: &str| {
        let plain = label.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
        plain && (1..=63).contains(&label.len()) && !label.starts_with('-') && !label.ends_with('-')
    };
    text.len() <= 253 && text.split('.').all(label)
}
