//! The HTTP door: HTTP/1.1, HTTP/2 and HTTP/3 over one service, with event streams, WebSocket and MQTT behind it.
//!
//! `connection` and `quic` own sockets, deadlines and hyper or h3. `service` screens and identifies a request;
//! `topics`, `batch`, `follow` and others respond. The wire format is data in [`fogmux_http`]. The path of a retained
//! message – route, permission, lookup, response – runs without a task, a box or an await.

mod answer;
mod batch;
mod body;
mod conn;
mod connection;
mod context;
mod cors;
mod exec;
mod follow;
mod forwarded;
mod framing;
mod idempotent;
mod identity;
mod io;
mod longpoll;
mod metrics;
mod payload;
mod quic;
mod respond;
mod service;
mod session;
mod state;
mod stream;
mod streams;
#[cfg(test)]
mod tests;
mod topics;
mod translate;
mod unread;
mod websocket;

use std::{
    rc::Rc,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use fogmux_http::{idempotency, session::Table};
use fogmux_net::listener::set_user_timeout;
use http::HeaderValue;
use tokio::{sync::watch, task::spawn_local};

pub use connection::serve;
pub use context::{HttpContext, Serve, Upgrades};
pub use quic::serve_quic;

use crate::{
    door::{Connection, DoorService},
    handshake::boxed_handshake,
    metrics::{Counted, Counts},
    shares,
    tasks::Tasks,
    unfinished::{REST, Unfinished},
};

/// Configuration of the HTTP door. Every field has a default.
#[derive(Clone, Debug)]
pub struct HttpConfig {
    /// Where HTTP/3 is, for `Alt-Svc`.
    pub http3_port: Option<u16>,
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
    /// From the first byte of a request to the end of its header section; also from accept to the first byte.
    pub header_timeout: Duration,
    /// From the header section to the end of the body.
    pub body_timeout: Duration,
    /// Bytes of a body that prolong it by a second.
    pub body_bytes_per_second: usize,
    /// Between two requests, and without any stream.
    pub idle_timeout: Duration,
    /// How long a peer may take nothing of what there is to send.
    pub write_timeout: Duration,
    /// How long a peer's host may acknowledge nothing on the level of TCP; see
    /// [`set_user_timeout`].
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
            http3_port: None,
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

/// The state that the workers of the HTTP door share: configuration and registries. Connections find it in
/// [`HttpContext`].
#[derive(Debug)]
pub struct HttpDoor {
    /// The configuration.
    pub config: HttpConfig,
    streams: streams::Registry,
    /// Unfinished uploads.
    uploads: Arc<Unfinished>,
    /// Answers that clients have yet to take.
    unread: Arc<Unfinished>,
    /// Bytes that several of them share.
    unread_values: unread::Values,
    idempotency: Mutex<idempotency::Store<idempotent::Kept>>,
    /// People who are logged in.
    sessions: Mutex<Table<session::Session>>,
    /// Notifies streams and WebSockets that they have to check their permissions again.
    second_look: watch::Sender<()>,
    alt_svc: Option<HeaderValue>,
    /// Made when it is first asked for.
    openapi: std::sync::OnceLock<bytes::Bytes>,
}

impl HttpDoor {
    /// Creates the door.
    #[must_use]
    pub fn new(config: HttpConfig) -> Self {
        let alt_svc = config.http3_port.and_then(|port| HeaderValue::from_str(&fogmux_http::alt_svc::http3(port)).ok());
        Self {
            streams: streams::Registry::new(&config),
            uploads: Unfinished::new(
                shares::Table::HttpUploads,
                config.uploads_bytes_max.max(config.batch_bytes_max.saturating_mul(8)),
                REST,
            ),
            unread: Unfinished::new(
                shares::Table::HttpAnswers,
                config.unread_bytes_max.max(config.batch_bytes_max.max(config.payload_bytes_max).saturating_mul(8)),
                REST,
            ),
            unread_values: unread::Values::default(),
            idempotency: Mutex::new(idempotency::Store::new(config.idempotency)),
            sessions: Mutex::new(Table::new(config.sessions_max)),
            second_look: watch::Sender::new(()),
            alt_svc,
            openapi: std::sync::OnceLock::new(),
            config,
        }
    }

    /// The OpenAPI document of the door.
    fn openapi(&self) -> bytes::Bytes {
        self.openapi.get_or_init(|| fogmux_http::openapi::document(env!("CARGO_PKG_VERSION")).into()).clone()
    }

    /// Completes when the rules have changed or a session has ended.
    fn second_look(&self) -> impl Future<Output = ()> + use<> {
        let mut asked = self.second_look.subscribe();
        async move {
            // An error means that the gateway is gone altogether.
            let _ = asked.changed().await;
        }
    }

    fn idempotency(&self) -> std::sync::MutexGuard<'_, idempotency::Store<idempotent::Kept>> {
        self.idempotency.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counted for HttpDoor {
    fn counts(&self) -> Counts {
        let (streams, parked) = self.streams.count();
        let (uploads, unread) = (self.uploads.bytes(), self.unread.bytes());
        let (keys, keys_bytes) = {
            let store = self.idempotency();
            (store.len(), store.bytes())
        };
        Counts {
            unfinished_bytes: uploads + unread,
            gauges: vec![
                ("http_uploads_bytes", "Bytes of unfinished HTTP uploads", uploads),
                ("http_unread_bytes", "Bytes of HTTP answers that clients have yet to take", unread),
                ("http_event_streams", "Event streams", streams),
                ("http_event_streams_parked", "Event streams that wait for their reader", parked),
                ("http_idempotency_keys", "Idempotency keys that are known", keys),
                ("http_idempotency_bytes", "Bytes that they and their answers count for", keys_bytes),
            ],
            ..Counts::default()
        }
    }
}

impl DoorService for Rc<HttpContext> {
    fn serve(&self, connection: Connection, tasks: &Tasks) {
        let Connection { listener, stream, peer, tls, seat } = connection;
        let ctx = Self::clone(self);
        set_user_timeout(&stream, ctx.door.config.unacknowledged_max);
        let Some(tls) = tls else {
            return tasks.spawn(async move {
                let _seat = seat;
                serve(ctx, stream, peer, None).await;
            });
        };
        tasks.spawn(async move {
            let _seat = seat;
            let handshake = Box::pin(boxed_handshake(&ctx, listener, stream, &tls, peer));
            let Some((stream, peer)) = handshake.await else { return };
            let alpn = stream.alpn().map(<[u8]>::to_vec);
            serve(ctx, stream, peer, alpn).await;
        });
    }

    fn keep_house(&self) {
        spawn_local(housekeeping(Self::clone(self)));
    }

    fn rest(&self) {
        self.events.borrow_mut().rest();
    }
}

/// How often [`housekeeping`] looks for event streams that nobody came back for.
const LOOK: Duration = Duration::from_secs(1);

/// Ends event streams that nobody came back for, and has the others check their permissions when the rules have
/// changed; one worker runs it until drain.
pub async fn housekeeping(ctx: Rc<HttpContext>) {
    let door = &ctx.door;
    let mut drain = std::pin::pin!(ctx.drain());
    let mut rules = ctx.authority().changes();
    let mut ticks = tokio::time::interval(LOOK);
    loop {
        tokio::select! {
            () = &mut drain => return,
            Ok(()) = rules.changed() => door.second_look.send_replace(()),
            _ = ticks.tick() => door.streams.expire(&ctx),
        }
    }
}
