//! The keys of each door. Their meaning and defaults are defined by the door.

use std::path::PathBuf;
use std::time::Duration;

use fogmux_coap::server::Amplification;
#[cfg(feature = "coap")]
use fogmux_gateway::coap::{BlockSize, CoapConfig, EndpointConfig, GroupConfig};
#[cfg(feature = "http")]
use fogmux_gateway::http::HttpConfig;
#[cfg(feature = "mqtt")]
use fogmux_gateway::mqtt::{ClientIdentifiers, MqttConfig, SlowSubscriber};
#[cfg(feature = "xmpp")]
use fogmux_gateway::xmpp::XmppConfig;
use fogmux_http::origin;
use fogmux_net::quic::QuicLimits;

use super::model::shown;
use super::reader::{Reader, Section};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);
/// No protocol carries more in one message than MQTT, 256 MiB.
const MESSAGE_BYTES: u64 = 256 << 20;

/// The HTTP door and its QUIC transport.
#[derive(Clone, Debug)]
pub(crate) struct Http {
    /// Serves HTTP/3 on the UDP port of the `https` listener.
    pub(crate) http3: bool,
    pub(crate) quic: QuicLimits,
    #[cfg(feature = "http")]
    pub(crate) door: HttpConfig,
}

impl Default for Http {
    fn default() -> Self {
        Self {
            http3: true,
            quic: QuicLimits::default(),
            #[cfg(feature = "http")]
            door: HttpConfig::default(),
        }
    }
}

impl Section for Http {
    fn read(&mut self, reader: &mut Reader<'_>) {
        reader.flag("http3", &mut self.http3);
        reader.section("quic", &mut self.quic);
        #[cfg(feature = "http")]
        self.door.read(reader);
    }
}

#[cfg(feature = "http")]
impl Section for HttpConfig {
    fn read(&mut self, reader: &mut Reader<'_>) {
        let door = self;
        reader.size("payload_bytes_max", &mut door.payload_bytes_max, 1..=MESSAGE_BYTES);
        reader.size("batch_bytes_max", &mut door.batch_bytes_max, 1..=MESSAGE_BYTES);
        reader.count("batch_lines_max", &mut door.batch_lines_max, 1..=1_000_000);
        reader.size("uploads_bytes_max", &mut door.uploads_bytes_max, 1 << 20..=16 << 30);
        reader.size("unread_bytes_max", &mut door.unread_bytes_max, 1 << 20..=16 << 30);
        reader.flag("allow_password_without_tls", &mut door.password_without_tls);
        reader.count("sessions_max", &mut door.sessions_max, 0..=1_000_000);
        reader.duration("session_lifetime", &mut door.session_lifetime, Duration::from_secs(60)..=30 * DAY);
        reader.size("header_bytes_max", &mut door.header_bytes_max, 8 << 10..=1 << 20);
        reader.duration("header_timeout", &mut door.header_timeout, SECOND..=HOUR);
        reader.duration("body_timeout", &mut door.body_timeout, SECOND..=HOUR);
        reader.size("body_bytes_per_second", &mut door.body_bytes_per_second, 1..=1 << 30);
        reader.duration("idle_timeout", &mut door.idle_timeout, SECOND..=HOUR);
        reader.duration("write_timeout", &mut door.write_timeout, SECOND..=HOUR);
        reader.duration("unacknowledged_max", &mut door.unacknowledged_max, SECOND..=HOUR);
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
        let answers = &mut door.idempotency;
        reader.count("idempotency_keys_max", &mut answers.entries, 1..=10_000_000);
        reader.size("idempotency_bytes_max", &mut answers.bytes, 64 << 10..=1 << 30);
        reader.duration("idempotency_lifetime", &mut answers.lifetime, SECOND..=DAY);
        // Browsers write them in one form, and they are compared byte for byte.
        let hosts = "host names such as \"fog.example\", without a port";
        reader.words_as("hosts", &mut door.hosts, origin::canonical_host, hosts);
        reader.words_as("origins", &mut door.origins, origin::canonical, "origins such as \"https://panel.example\"");
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

/// The MQTT door.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mqtt {
    #[cfg(feature = "mqtt")]
    pub(crate) door: MqttConfig,
}

impl Section for Mqtt {
    fn read(&mut self, reader: &mut Reader<'_>) {
        #[cfg(feature = "mqtt")]
        self.door.read(reader);
    }
}

#[cfg(feature = "mqtt")]
impl Section for MqttConfig {
    fn read(&mut self, reader: &mut Reader<'_>) {
        reader.duration("login_deadline", &mut self.login_deadline, SECOND..=HOUR);
        reader.size("connect_bytes_max", &mut self.connect_bytes_max, 64..=MESSAGE_BYTES);
        reader.size("logins_bytes_max", &mut self.logins_bytes_max, 64 << 10..=4 << 30);
        // [MQTT-3.1.3-5]: 23 bytes have to be accepted.
        reader.count("client_id_bytes_max", &mut self.client_id_bytes_max, 23..=65_535);
        reader.flag("allow_password_without_tls", &mut self.password_without_tls);
        reader.flag("allow_user_without_password", &mut self.user_without_password);
        reader.size("packet_bytes_max", &mut self.packet_bytes_max, 64..=MESSAGE_BYTES);
        reader.size("unfinished_bytes_max", &mut self.unfinished_bytes_max, 64 << 10..=4 << 30);
        reader.count("receive_maximum", &mut self.receive_maximum, 1..=65_535);
        reader.count("topic_alias_maximum", &mut self.topic_alias_maximum, 0..=65_535);
        reader.size("alias_bytes_max", &mut self.alias_bytes_max, 0..=1 << 30);
        reader.seconds("keep_alive_max", &mut self.keep_alive_max, 0..=65_535);
        reader.count("max_inflight", &mut self.max_inflight, 1..=65_535);
        reader.size("inflight_bytes_max", &mut self.inflight_bytes_max, 1 << 10..=4 << 30);
        reader.count("outgoing_alias_maximum", &mut self.outgoing_alias_maximum, 0..=65_535);
        reader.size("out_bytes_max", &mut self.out_bytes_max, 1 << 10..=1 << 30);
        reader.count("queue_messages_max", &mut self.queue_messages_max, 1..=100_000_000);
        reader.size("queue_bytes_max", &mut self.queue_bytes_max, 1 << 10..=4 << 30);
        reader.size("queue_memory_bytes_max", &mut self.queue_memory_bytes_max, 0..=4 << 30);
        reader.size("tight_bytes", &mut self.tight_bytes, 0..=64 << 30);
        reader.seconds("session_expiry_max", &mut self.session_expiry_max, 0..=u64::from(u32::MAX));
        reader.count("sessions_max", &mut self.sessions_max, 1..=10_000_000);
        reader.count("subscriptions_max", &mut self.subscriptions_max, 1..=10_000_000);
        reader.size("subscriptions_bytes_max", &mut self.subscriptions_bytes_max, 64 << 10..=4 << 30);
        reader.size("wills_bytes_max", &mut self.wills_bytes_max, 0..=4 << 30);
        let whose = [("per_principal", ClientIdentifiers::PerPrincipal), ("shared", ClientIdentifiers::Shared)];
        reader.choice("client_identifiers", &mut self.client_identifiers, &whose);
        let what = [("disconnect", SlowSubscriber::Disconnect), ("drop_oldest", SlowSubscriber::DropOldest)];
        reader.choice("slow_subscriber", &mut self.slow_subscriber, &what);
        reader.duration("stall_max", &mut self.stall_max, SECOND..=HOUR);
        reader.duration("unacknowledged_max", &mut self.unacknowledged_max, SECOND..=HOUR);
        reader.duration("sys_interval", &mut self.sys_interval, Duration::ZERO..=HOUR);
    }
}

/// The CoAP door and the settings that are reread while it is open.
#[derive(Clone, Debug, Default)]
pub(crate) struct Coap {
    #[cfg(feature = "coap")]
    pub(crate) door: CoapConfig,
    pub(crate) oscore: Oscore,
}

impl Coap {
    /// Whether `other` differs by more than a reload takes over.
    pub(super) fn needs_a_restart(&self, other: &Self) -> bool {
        shown(&Self { oscore: Oscore::default(), ..self.clone() })
            != shown(&Self { oscore: Oscore::default(), ..other.clone() })
    }
}

/// OSCORE (RFC 8613).
#[derive(Clone, Debug, Default)]
pub(crate) struct Oscore {
    /// `oscore` in the data directory when absent.
    pub(crate) directory: Option<PathBuf>,
}

impl Section for Coap {
    fn read(&mut self, reader: &mut Reader<'_>) {
        #[cfg(feature = "coap")]
        self.door.read(reader);
        reader.section("oscore", &mut self.oscore);
    }
}

impl Section for Oscore {
    fn read(&mut self, reader: &mut Reader<'_>) {
        reader.path("directory", &mut self.directory);
    }
}

#[cfg(feature = "coap")]
impl Section for CoapConfig {
    fn read(&mut self, reader: &mut Reader<'_>) {
        reader.size("payload_bytes_max", &mut self.payload_bytes_max, 64..=MESSAGE_BYTES);
        // RFC 7959 §2.2: SZX 0 to 6.
        let sizes = [16, 32, 64, 128, 256, 512, 1024];
        reader.size_of("block_bytes_max", &mut self.block_bytes_max, &sizes);
        reader.duration("ack_timeout", &mut self.ack_timeout, Duration::from_millis(100)..=HOUR);
        reader.count("max_retransmit", &mut self.max_retransmit, 0..=20);
        reader.count("peers_max", &mut self.peers_max, 1..=10_000_000);
        reader.count("exchanges_per_peer_max", &mut self.exchanges_per_peer_max, 1..=65_536);
        reader.size("exchange_bytes_max", &mut self.exchange_bytes_max, 64 << 10..=4 << 30);
        reader.size("upload_bytes_max", &mut self.upload_bytes_max, 1 << 10..=4 << 30);
        reader.count("uploads_max", &mut self.uploads_max, 1..=1_000_000);
        reader.count("uploads_per_peer_max", &mut self.uploads_per_peer_max, 1..=1_000_000);
        reader.duration("upload_timeout", &mut self.upload_timeout, SECOND..=HOUR);
        reader.size("download_bytes_max", &mut self.download_bytes_max, 1 << 10..=4 << 30);
        reader.count("observers_max", &mut self.observers_max, 0..=10_000_000);
        reader.count("observers_per_address_max", &mut self.observers_per_address_max, 0..=10_000_000);
        reader.count("observers_per_peer_max", &mut self.observers_per_peer_max, 0..=10_000_000);
        reader.count("observer_queue_max", &mut self.observer_queue_max, 1..=100_000);
        reader.size("notification_bytes_max", &mut self.notification_bytes_max, 64 << 10..=4 << 30);
        reader.count("notifications_max", &mut self.notifications_max, 64..=10_000_000);
        reader.count("confirm_every", &mut self.confirm_every, 1..=65_535);
        // RFC 7641 §4.5: at least once in 24 hours.
        reader.duration("confirm_interval", &mut self.confirm_interval, SECOND..=DAY);
        // RFC 8323 §5.3.1: 1152 bytes have to be accepted.
        reader.size("message_bytes_max", &mut self.message_bytes_max, 1152..=MESSAGE_BYTES);
        reader.duration("settings_timeout", &mut self.settings_timeout, SECOND..=HOUR);
        reader.duration("message_timeout", &mut self.message_timeout, SECOND..=HOUR);
        reader.duration("idle_timeout", &mut self.idle_timeout, SECOND..=DAY);
        reader.duration("pong_timeout", &mut self.pong_timeout, SECOND..=HOUR);
        reader.duration("write_timeout", &mut self.write_timeout, SECOND..=HOUR);
        reader.duration("unacknowledged_max", &mut self.unacknowledged_max, SECOND..=HOUR);
        reader.count("pending_max", &mut self.pending_max, 1..=1_000_000);
        reader.count("links_max", &mut self.links_max, 0..=1_000_000);
        let whom =
            [("unverified", Amplification::Unverified), ("all", Amplification::All), ("nobody", Amplification::Off)];
        reader.choice("prove_address", &mut self.amplification, &whom);
        reader.section("multicast", &mut self.group);
        reader.section("dtls", &mut self.dtls);
    }
}

#[cfg(feature = "coap")]
impl Section for GroupConfig {
    fn read(&mut self, reader: &mut Reader<'_>) {
        reader.duration("leisure", &mut self.leisure, Duration::ZERO..=Duration::from_secs(60));
        reader.count("waiting_max", &mut self.waiting_max, 1..=10_000);
        reader.count("answers_per_minute", &mut self.answers_per_minute, 1..=100_000);
        let mut bytes = self.block_size.bytes();
        reader.size_of("block_bytes_max", &mut bytes, &[16, 32, 64, 128, 256, 512, 1024]);
        self.block_size = BlockSize::at_most(bytes);
    }
}

#[cfg(feature = "coap")]
impl Section for EndpointConfig {
    fn read(&mut self, reader: &mut Reader<'_>) {
        reader.count("sessions_max", &mut self.sessions_max, 1..=10_000_000);
        reader.count("sessions_per_address_max", &mut self.sessions_per_address_max, 1..=10_000_000);
        reader.count("anonymous_sessions_max", &mut self.anonymous_sessions_max, 1..=10_000_000);
        reader.count("handshakes_max", &mut self.handshakes_max, 1..=1_000_000);
        reader.count("handshakes_per_address_max", &mut self.handshakes_per_address_max, 1..=1_000_000);
        reader.duration("handshake_timeout", &mut self.handshake_timeout, SECOND..=HOUR);
        reader.duration("idle_timeout", &mut self.idle_timeout, SECOND..=30 * DAY);
        reader.duration("anonymous_idle_timeout", &mut self.anonymous_idle_timeout, SECOND..=30 * DAY);
    }
}

/// The XMPP door.
#[derive(Clone, Debug, Default)]
pub(crate) struct Xmpp {
    #[cfg(feature = "xmpp")]
    pub(crate) door: XmppConfig,
}

impl Section for Xmpp {
    fn read(&mut self, reader: &mut Reader<'_>) {
        #[cfg(feature = "xmpp")]
        self.door.read(reader);
    }
}

#[cfg(feature = "xmpp")]
impl Section for XmppConfig {
    fn read(&mut self, reader: &mut Reader<'_>) {
        reader.text("domain", &mut self.domain, is_domain, "a domain name such as \"fog.example\"");
        // RFC 6120 §13.12: 10 000 bytes have to be accepted.
        reader.size("stanza_bytes_max", &mut self.stanza_bytes_max, 10_000..=MESSAGE_BYTES);
        reader.size("open_stanzas_bytes_max", &mut self.open_stanzas_bytes_max, 64 << 10..=4 << 30);
        reader.duration("login_timeout", &mut self.login_timeout, SECOND..=HOUR);
        reader.duration("stanza_timeout", &mut self.stanza_timeout, SECOND..=HOUR);
        reader.duration("write_timeout", &mut self.write_timeout, SECOND..=HOUR);
        reader.duration("unacknowledged_max", &mut self.unacknowledged_max, SECOND..=HOUR);
        reader.count("mailbox_messages_max", &mut self.mailbox_messages_max, 1..=100_000_000);
        reader.size("mailbox_bytes_max", &mut self.mailbox_bytes_max, 1 << 10..=4 << 30);
        reader.count("nodes_max", &mut self.nodes_max, 0..=10_000_000);
        reader.size("nodes_bytes_max", &mut self.nodes_bytes_max, 64 << 10..=4 << 30);
        reader.size("subscriptions_bytes_max", &mut self.subscriptions_bytes_max, 64 << 10..=4 << 30);
        reader.count("subscriptions_per_account_max", &mut self.subscriptions_per_account_max, 1..=10_000_000);
    }
}

/// RFC 7622 §3.2 narrowed to what a certificate can carry: lower-case labels of letters, digits and hyphens.
fn is_domain(text: &str) -> bool {
    let label = |label: &str| {
        let plain = label.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
        plain && (1..=63).contains(&label.len()) && !label.starts_with('-') && !label.ends_with('-')
    };
    text.len() <= 253 && text.split('.').all(label)
}
