//! Configuration of the HTTP door: every bound on what a client can make the gateway hold.

use std::time::Duration;

use fogmux_http::idempotency;

/// Bytes of a response that wait in hyper, per HTTP/2 stream.
pub(super) const SEND_BUFFER_BYTES: usize = 64 << 10;

/// Configuration of the HTTP door. Every field has a default.
#[derive(Clone, Debug)]
pub struct HttpConfig {
    /// Most bytes of a message.
    pub payload_bytes_max: usize,
    /// Most bytes of a `POST /publish`.
    pub batch_bytes_max: usize,
    /// Most lines of a `POST /publish`.
    pub batch_lines_max: usize,
    /// Most bytes of a request's header section.
    pub header_bytes_max: usize,
    /// Bytes of all unfinished uploads together; at least eight batches of the largest kind fit whatever it says.
    /// Beyond, one of the principal that has most ends.
    pub uploads_bytes_max: usize,
    /// Bytes of all answers together that clients have yet to take; at least eight of the largest kind fit whatever it
    /// says. Beyond, one of the principal that has most ends.
    pub unread_bytes_max: usize,
    /// Whether passwords and tokens are taken over connections without TLS from other machines.
    pub password_without_tls: bool,
    /// Sessions of people at once; none: there are no sessions.
    pub sessions_max: usize,
    /// How long a session lasts at most.
    pub session_lifetime: Duration,
    /// From the first byte of a request to the end of its header section, but for HTTP/2; also from accept to the first
    /// byte.
    pub header_timeout: Duration,
    /// From the header section to the end of the body.
    pub body_timeout: Duration,
    /// Bytes of a body that prolong it by a second.
    pub body_bytes_per_second: usize,
    /// Between two requests, and without any stream. PINGs of HTTP/2 and HTTP/3 are no requests.
    pub idle_timeout: Duration,
    /// How long a peer may take nothing of what there is to send.
    pub write_timeout: Duration,
    /// How long a peer's host may acknowledge nothing on the level of TCP; see
    /// [`set_user_timeout`](fogmux_net::listener::set_user_timeout).
    pub unacknowledged_max: Duration,
    /// Requests at once on one HTTP/2 or HTTP/3 connection.
    pub streams_per_connection_max: u32,
    /// QUIC connections at once.
    pub quic_connections_max: usize,
    /// Event streams at once.
    pub event_streams_max: usize,
    /// Messages that wait for one event stream, or may be sent again on it.
    pub event_stream_messages: usize,
    /// Bytes of the messages that wait for one event stream, or may be sent again on it.
    pub event_stream_bytes: usize,
    /// Bytes that wait for all event streams together before each is held shorter.
    pub event_streams_bytes: usize,
    /// How long an event stream waits for its reader to come back.
    pub event_stream_grace: Duration,
    /// Event streams that wait so.
    pub event_streams_parked_max: usize,
    /// How often a quiet event stream shows that it lives.
    pub event_keep_alive: Duration,
    /// Longest long poll.
    pub wait_max: Duration,
    /// Answers to requests with an `Idempotency-Key`.
    pub idempotency: idempotency::Limits,
    /// Names besides addresses and `localhost` that anonymous requests over loopback may have in `Host`.
    pub hosts: Vec<String>,
    /// Origins besides the gateway's own whose pages may read, write and open WebSockets.
    pub origins: Vec<String>,
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self {
            payload_bytes_max: 1 << 20,
            batch_bytes_max: 4 << 20,
            batch_lines_max: 10_000,
            uploads_bytes_max: 32 << 20,
            unread_bytes_max: 32 << 20,
            password_without_tls: false,
            sessions_max: 1024,
            session_lifetime: Duration::from_secs(12 * 3600),
            header_bytes_max: 16 << 10,
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            body_bytes_per_second: 4 << 10,
            idle_timeout: Duration::from_secs(75),
            write_timeout: Duration::from_secs(30),
            unacknowledged_max: Duration::from_secs(60),
            streams_per_connection_max: 100,
            quic_connections_max: 4096,
            event_streams_max: 4096,
            event_stream_messages: 1000,
            event_stream_bytes: 512 << 10,
            event_streams_bytes: 32 << 20,
            event_stream_grace: Duration::from_secs(60),
            event_streams_parked_max: 256,
            event_keep_alive: Duration::from_secs(15),
            wait_max: Duration::from_secs(60),
            idempotency: idempotency::Limits::default(),
            hosts: Vec::new(),
            origins: Vec::new(),
        }
    }
}
