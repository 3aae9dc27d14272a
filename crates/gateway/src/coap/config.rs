//! What can be set about the CoAP door. Limits are per worker, for each has a socket of its own and the kernel spreads
//! the peers over them.

use std::time::Duration;

use fogmux_coap::{BlockSize, ServerConfig, server::Amplification, transmission::Transmission};

/// How the CoAP door behaves; every field has a default.
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
    /// Peers remembered per worker, to find repeated messages.
    pub peers_max: usize,
    /// Exchanges remembered per peer.
    pub exchanges_per_peer_max: usize,
    /// Bytes of all remembered exchanges per worker.
    pub exchange_bytes_max: usize,
    /// Bytes of all unfinished Block1 uploads per worker.
    pub upload_bytes_max: usize,
    /// How long an unfinished upload may rest.
    pub upload_timeout: Duration,
    /// Bytes of all representations per worker that are being fetched by Block2.
    pub download_bytes_max: usize,
    /// Observations per worker; one more is answered without Observe.
    pub observers_max: usize,
    /// Observations per worker from one address, whatever its ports.
    pub observers_per_address_max: usize,
    /// Messages of different topics that wait for one slow observer of a filter.
    pub observer_queue_max: usize,
    /// Bytes per worker of all notifications that wait: for acknowledgements, and in the worker's mailbox.
    pub notification_bytes_max: usize,
    /// Non-confirmable notifications between two Confirmable ones.
    pub confirm_every: u16,
    /// Longest time without a Confirmable notification.
    pub confirm_interval: Duration,
    /// Publications per worker whose answer waits for the disk; one more is answered 4.29.
    pub pending_max: usize,
    /// Links in `/.well-known/core`.
    pub links_max: usize,
    /// Who has to prove an address by an Echo (RFC 9175) before answers that are larger than three times the request,
    /// and before observing: addresses that are not loopback, all, or nobody.
    pub amplification: Amplification,
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
            upload_timeout: machine.upload_lifetime,
            download_bytes_max: machine.download_bytes_max,
            observers_max: machine.observers_max,
            observers_per_address_max: machine.observers_per_host_max,
            observer_queue_max: machine.held_per_observer_max,
            notification_bytes_max: machine.held_bytes_max,
            confirm_every: machine.confirm_every,
            confirm_interval: machine.confirm_interval,
            pending_max: 4096,
            links_max: 1000,
            amplification: machine.amplification,
        }
    }
}

impl CoapConfig {
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
            peers_max: self.peers_max,
            exchanges_per_peer_max: self.exchanges_per_peer_max,
            exchange_bytes_max: self.exchange_bytes_max,
            upload_bytes_max: self.upload_bytes_max.max(self.payload_bytes_max),
            upload_lifetime: self.upload_timeout,
            download_bytes_max: self.download_bytes_max,
            observers_max: self.observers_max,
            observers_per_host_max: self.observers_per_address_max,
            held_per_observer_max: self.observer_queue_max,
            held_bytes_max: self.notification_bytes_max,
            confirm_every: self.confirm_every,
            confirm_interval: self.confirm_interval,
            amplification: self.amplification,
            ..ServerConfig::default()
        }
    }
}
