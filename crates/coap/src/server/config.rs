//! Every bound of the server machine, with its reason.

use std::time::Duration;

use crate::block::BlockSize;
use crate::transmission::Transmission;

/// To whom a large answer goes only after an Echo (RFC 9175 §2.4, item 3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Amplification {
    /// To any address that is not verified by itself, which loopback and secured peers are.
    #[default]
    Unverified,
    /// To every address, loopback included.
    All,
    /// Nobody is asked; only for networks in which no address can be forged.
    Off,
}

/// The bounds of one server machine, that is of one socket.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Whether the transport is reliable and in order (RFC 8323): then there is no message layer, and peers are those
    /// that [`Server::connect`](crate::Server::connect) named.
    pub reliable: bool,
    /// Times and counts of RFC 7252 §4.8.
    pub transmission: Transmission,
    /// The largest block sent or asked for; 1024 fits an IPv6 MTU (RFC 7252 §4.6).
    pub block_size: BlockSize,
    /// Bytes of a request body, put together from blocks or not; beyond is 4.13.
    pub body_bytes_max: usize,
    /// Peers remembered; the one silent for longest is forgotten first, observers last.
    pub peers_max: usize,
    /// Exchanges remembered per peer to find duplicates.
    pub exchanges_per_peer_max: usize,
    /// Bytes of all remembered exchanges; without room, only the response code is remembered.
    pub exchange_bytes_max: usize,
    /// The longest answer to a safe request that is kept for duplicates; longer ones are made anew (RFC 7252 §4.5).
    pub cached_safe_bytes_max: usize,
    /// After this an answer that is still not there is announced by an empty acknowledgement; less than ACK_TIMEOUT.
    pub acknowledge_after: Duration,
    /// Unfinished uploads in all; beyond, the user that has most of them makes room. Each counts for no less than
    /// `upload_bytes_max` divided by this.
    pub uploads_max: usize,
    /// Unfinished uploads of one peer; one more is answered 4.29 unless another rests.
    pub uploads_per_peer_max: usize,
    /// Bytes of all unfinished uploads; beyond, one of the user that has most goes: one that rests, or its newest.
    pub upload_bytes_max: usize,
    /// How long an upload may rest.
    pub upload_lifetime: Duration,
    /// Representations kept so that the blocks of one download match.
    pub downloads_max: usize,
    /// Bytes of all kept representations.
    pub download_bytes_max: usize,
    /// How long a download may rest.
    pub download_lifetime: Duration,
    /// Observations in all.
    pub observers_max: usize,
    /// Observations from one address, whatever the ports.
    pub observers_per_host_max: usize,
    /// Observations of one endpoint.
    pub observers_per_peer_max: usize,
    /// After so many non-confirmable notifications comes a confirmable one (RFC 7641 §4.5).
    pub confirm_every: u16,
    /// After this long comes a confirmable one; RFC 7641 §4.5 demands one in 24 hours.
    pub confirm_interval: Duration,
    /// Which clients must prove their address before large responses.
    pub amplification: Amplification,
    /// How long an Echo value is good, and how long the address it came from stays verified.
    pub echo_lifetime: Duration,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            reliable: false,
            transmission: Transmission::default(),
            block_size: BlockSize::MAX,
            body_bytes_max: 1 << 20,
            peers_max: 16_384,
            exchanges_per_peer_max: 64,
            exchange_bytes_max: 16 << 20,
            cached_safe_bytes_max: 256,
            acknowledge_after: Duration::from_millis(500),
            uploads_max: 1024,
            uploads_per_peer_max: 128,
            upload_bytes_max: 16 << 20,
            upload_lifetime: Duration::from_secs(60),
            downloads_max: 1024,
            download_bytes_max: 16 << 20,
            download_lifetime: Duration::from_secs(60),
            observers_max: 16_384,
            observers_per_host_max: 4096,
            observers_per_peer_max: 1024,
            confirm_every: 100,
            confirm_interval: Duration::from_secs(600),
            amplification: Amplification::Unverified,
            echo_lifetime: Duration::from_secs(300),
        }
    }
}
