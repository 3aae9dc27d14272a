//! Configuration of the CoAP door. Limits are per worker, because each has a socket of its own and the kernel spreads
//! the peers over them.

use std::time::Duration;

use fogmux_coap::{
    BlockSize, ServerConfig, group::GroupConfig, server::Amplification, stream::SessionConfig,
    transmission::Transmission,
};
use fogmux_dtls::EndpointConfig;

/// Configuration of the CoAP door. Every field has a default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoapConfig {
    /// Bytes of a payload, in one datagram or put together from blocks; more is answered 4.13.
    pub payload_bytes_max: usize,
    /// Bytes of a block: 16 to 1024, a power of two.
    pub block_bytes_max: usize,
    /// How long the first acknowledgement of a Confirmable is waited for (RFC 7252 §4.8, ACK_TIMEOUT).
    pub ack_timeout: Duration,
    /// How often a Confirmable is sent again (RFC 7252 §4.8, MAX_RETRANSMIT).
    pub max_retransmit: u8,
    /// Peers remembered per worker, to find repeated messages; at least twice `observers_max`, so that those that
    /// observe leave room for others.
    pub peers_max: usize,
    /// Exchanges remembered per peer.
    pub exchanges_per_peer_max: usize,
    /// Bytes of all remembered exchanges per worker.
    pub exchange_bytes_max: usize,
    /// Bytes of all unfinished Block1 uploads per worker.
    pub upload_bytes_max: usize,
    /// Unfinished Block1 uploads per worker.
    pub uploads_max: usize,
    /// Unfinished Block1 uploads of one endpoint.
    pub uploads_per_peer_max: usize,
    /// How long an unfinished upload may rest.
    pub upload_timeout: Duration,
    /// Bytes of all representations per worker that are being fetched by Block2.
    pub download_bytes_max: usize,
    /// Observations per worker; one more is answered without Observe.
    pub observers_max: usize,
    /// Observations per worker from one address, whatever its ports.
    pub observers_per_address_max: usize,
    /// Observations per worker of one endpoint, that is one port, session or connection.
    pub observers_per_peer_max: usize,
    /// Topics in the backlog of an observer of a filter. Beyond that, it goes through the retained messages again; if
    /// the topic is not retained, the observation ends with 5.03.
    pub observer_queue_max: usize,
    /// Bytes per worker of the backlogs of all observers, and again of the worker's mailbox. Beyond that, the
    /// observations with the most bytes end with 5.03.
    pub notification_bytes_max: usize,
    /// Notifications in the worker's mailbox. Beyond that, only the newest of each observer and topic stay; if that is
    /// not enough, the observations with most of them end with 5.03.
    pub notifications_max: usize,
    /// Non-confirmable notifications between two Confirmable ones.
    pub confirm_every: u16,
    /// Longest time without a Confirmable notification.
    pub confirm_interval: Duration,
    /// Bytes of a message over TCP, TLS and WebSockets (RFC 8323 §5.3.1); larger payloads come in blocks.
    pub message_bytes_max: usize,
    /// How long the first message on a connection may take (RFC 8323 §5.3).
    pub settings_timeout: Duration,
    /// How long a message on a connection may take from its first byte to its last.
    pub message_timeout: Duration,
    /// The silence after which a connection is asked by Ping (RFC 8323 §5.4).
    pub idle_timeout: Duration,
    /// How long the Pong may take.
    pub pong_timeout: Duration,
    /// How long a connection may read nothing of what is sent to it.
    pub write_timeout: Duration,
    /// How long a peer's host may acknowledge nothing on the level of TCP; see
    /// [`set_user_timeout`](fogmux_net::listener::set_user_timeout).
    pub unacknowledged_max: Duration,
    /// Publications per worker whose answer waits for the disk; one more is answered 4.29.
    pub pending_max: usize,
    /// Links in `/.well-known/core`.
    pub links_max: usize,
    /// Which clients have to prove their address by an Echo (RFC 9175) before responses of more than three times the
    /// request, and before observing: those that are not on loopback, all, or none.
    pub amplification: Amplification,
    /// Bounds of answers to requests to multicast groups; these are per listener and address.
    pub group: GroupConfig,
    /// Bounds of DTLS; its suites are the listener's.
    pub dtls: EndpointConfig,
}

impl Default for CoapConfig {
    fn default() -> Self {
        let machine = ServerConfig::default();
        Self {
            payload_bytes_max: machine.body_bytes_max,
            block_bytes_max: machine.block_size.bytes(),
            ack_timeout: machine.transmission.ack_timeout,
            max_retransmit: machine.transmission.max_retransmit,
            peers_max: machine.peers_max,
            exchanges_per_peer_max: machine.exchanges_per_peer_max,
            exchange_bytes_max: machine.exchange_bytes_max,
            upload_bytes_max: machine.upload_bytes_max,
            uploads_max: machine.uploads_max,
            uploads_per_peer_max: machine.uploads_per_peer_max,
            upload_timeout: machine.upload_lifetime,
            download_bytes_max: machine.download_bytes_max,
            observers_max: machine.observers_max,
            observers_per_address_max: machine.observers_per_host_max,
            observers_per_peer_max: machine.observers_per_peer_max,
            observer_queue_max: 1024,
            notification_bytes_max: 16 << 20,
            notifications_max: 65_536,
            confirm_every: machine.confirm_every,
            confirm_interval: machine.confirm_interval,
            message_bytes_max: 64 << 10,
            settings_timeout: Duration::from_secs(10),
            message_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(300),
            pong_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(60),
            unacknowledged_max: Duration::from_secs(60),
            pending_max: 4096,
            links_max: 1000,
            group: GroupConfig::default(),
            dtls: EndpointConfig::default(),
            amplification: machine.amplification,
        }
    }
}

impl CoapConfig {
    /// The bounds of one worker's streams: connections are counted and limited at the listeners.
    pub(super) fn stream_machine(&self) -> ServerConfig {
        ServerConfig { reliable: true, peers_max: usize::MAX, ..self.machine() }
    }

    /// The bounds of one connection.
    pub(super) const fn session(&self) -> SessionConfig {
        SessionConfig {
            message_bytes_max: self.message_bytes_max,
            settings_timeout: self.settings_timeout,
            message_timeout: self.message_timeout,
            idle_timeout: self.idle_timeout,
            pong_timeout: self.pong_timeout,
        }
    }

    /// The bounds of one socket's machine.
    pub(super) fn machine(&self) -> ServerConfig {
        ServerConfig {
            transmission: Transmission {
                ack_timeout: self.ack_timeout,
                max_retransmit: self.max_retransmit,
                ..Transmission::default()
            },
            block_size: BlockSize::at_most(self.block_bytes_max),
            body_bytes_max: self.payload_bytes_max,
            peers_max: self.peers_max.max(self.observers_max.saturating_mul(2)),
            exchanges_per_peer_max: self.exchanges_per_peer_max,
            exchange_bytes_max: self.exchange_bytes_max,
            upload_bytes_max: self.upload_bytes_max.max(self.payload_bytes_max),
            uploads_max: self.uploads_max,
            uploads_per_peer_max: self.uploads_per_peer_max,
            upload_lifetime: self.upload_timeout,
            download_bytes_max: self.download_bytes_max.max(self.payload_bytes_max),
            observers_max: self.observers_max,
            observers_per_host_max: self.observers_per_address_max,
            observers_per_peer_max: self.observers_per_peer_max,
            confirm_every: self.confirm_every,
            confirm_interval: self.confirm_interval,
            amplification: self.amplification,
            ..ServerConfig::default()
        }
    }
}
