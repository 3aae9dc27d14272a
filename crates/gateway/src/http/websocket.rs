//! WebSockets over HTTP/1.1 (RFC 6455) and HTTP/2 (RFC 8441): event streams, MQTT as a stream of bytes, CoAP.

mod bytes;

use std::{future::poll_fn, io, rc::Rc};

use ::bytes::BytesMut;
use fogmux_http::{
    Kind, Problem, Route,
    websocket::{CloseCode, Incoming, Opcode, Receiver, Role, handshake, push_close, push_frame},
};
use http::{
    HeaderValue, Method, Response, StatusCode,
    header::{CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_PROTOCOL, UPGRADE},
    request::Parts,
};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::{
    conn::{Conn, Upgrade},
    context::HttpContext,
    follow::Follow,
    framing::Format,
    identity::Identity,
    payload::{Open, Payload},
    respond,
};
use crate::{
    Peer,
    deadline::{Late, in_time},
    metrics::{DoorMetrics, Metrics},
    transport::Transport,
};

/// A stream of HTTP/2 shares its connection with others: the HTTP door's bound holds for all of them.
impl Transport for TokioIo<Upgraded> {}

/// The subprotocols of MQTT over WebSocket ([MQTT-6.0.0-4]; the second is MQTT 3.1's).
const MQTT: [&str; 2] = ["mqtt", "mqttv3.1"];
/// The subprotocol of CoAP over WebSocket (RFC 8323 §8.1).
const COAP: [&str; 1] = ["coap"];
/// Longest message that a reader of events may send; messages are ignored.
const IGNORED_BYTES_MAX: u64 = 64 << 10;
/// The first byte of a ping: one frame, unmasked (RFC 6455 §5.2).
const PING: u8 = 0x80 | Opcode::Ping as u8;
/// Capacity to read the frames of a reader of events.
const READ_BYTES: usize = 512;
/// Bytes written at a time; the write deadline is for each.
const PIECE_BYTES: usize = 16 << 10;
/// Unanswered pings after which a reader is taken to be gone.
const SILENT_KEEP_ALIVES: u32 = 3;

/// The protocol inside a WebSocket.
pub(super) enum Carried {
    /// Events out, control frames in.
    Events(Follow),
    /// MQTT.
    Mqtt,
    /// CoAP.
    Coap,
}

/// The handshake of an event stream.
pub(super) fn events(
    conn: &Rc<Conn>,
    identity: &Rc<Identity>,
    parts: &Parts,
) -> Result<Response<Payload>, Problem<'static>> {
    let accepted = Accepted::of(parts)?;
    let follow = Follow::open(conn, identity, parts, Format::WebSocket)?;
    Ok(accepted.respond(conn, parts, Carried::Events(follow), None))
}

/// Whether a request for `/` opens MQTT: some clients, HiveMQ's among them, use no path and name the subprotocol only.
pub(super) fn is_mqtt_at_root(route: &Route<'_>, parts: &Parts) -> bool {
    *route == Route::Index
        && (parts.method == Method::CONNECT || handshake::is_upgrade(&parts.headers))
        && handshake::subprotocol(&parts.headers, &MQTT).is_some()
}

/// The handshake of MQTT. A client that names subprotocols must name MQTT's ([MQTT-6.0.0-3]).
pub(super) fn mqtt(conn: &Rc<Conn>, parts: &Parts) -> Result<Response<Payload>, Problem<'static>> {
    if conn.ctx.upgrades.mqtt.is_none() {
        return Err(Problem::new(Kind::NotFound));
    }
    let accepted = Accepted::of(parts)?;
    let protocol = handshake::subprotocol(&parts.headers, &MQTT);
    if protocol.is_none() && parts.headers.contains_key(SEC_WEBSOCKET_PROTOCOL) {
        return Err(Problem::new(Kind::BadRequest).detail("the subprotocol is mqtt or mqttv3.1"));
    }
    Ok(accepted.respond(conn, parts, Carried::Mqtt, protocol))
}

/// The handshake of CoAP, which has to name the subprotocol (RFC 8323 §4.1).
pub(super) fn coap(conn: &Rc<Conn>, parts: &Parts) -> Result<Response<Payload>, Problem<'static>> {
    if conn.ctx.upgrades.coap.is_none() {
        return Err(Problem::new(Kind::NotFound));
    }
    let accepted = Accepted::of(parts)?;
    let protocol = handshake::subprotocol(&parts.headers, &COAP)
        .ok_or(Problem::new(Kind::BadRequest).detail("the subprotocol is coap"))?;
    Ok(accepted.respond(conn, parts, Carried::Coap, Some(protocol)))
}

/// A valid handshake.
enum Accepted {
    /// RFC 6455: 101, with the value that proves it was understood.
    Switch(String),
    /// RFC 8441: 200.
    Tunnel,
}

impl Accepted {
    fn of(parts: &Parts) -> Result<Self, Problem<'static>> {
        if parts.method == Method::CONNECT {
            handshake::check_version(&parts.headers).map_err(|refused| refused.problem())?;
            return Ok(Self::Tunnel);
        }
        handshake::accept(&parts.headers).map(Self::Switch).map_err(|refused| refused.problem())
    }

    fn respond(
        self,
        conn: &Rc<Conn>,
        parts: &Parts,
        carried: Carried,
        protocol: Option<&'static str>,
    ) -> Response<Payload> {
        let mut response = match self {
            Self::Switch(proof) => {
                let mut response = respond::status(StatusCode::SWITCHING_PROTOCOLS);
                respond::set(&mut response, SEC_WEBSOCKET_ACCEPT, &proof);
                response.headers_mut().insert(UPGRADE, HeaderValue::from_static("websocket"));
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("Upgrade"));
                *conn.upgrade.borrow_mut() = Some(Upgrade::WebSocket(Box::new((carried, Peer::clone(&conn.peer)))));
                response
            }
            Self::Tunnel => {
                let conn = Rc::clone(conn);
                let stream = parts.extensions.get::<hyper::upgrade::OnUpgrade>().cloned();
                // The stream is open for as long as the WebSocket: the response counts until its head is out only.
                let open = Open::new(&conn.progress);
                tokio::task::spawn_local(async move {
                    let _open = open;
                    let Some(stream) = stream else { return };
                    // An error: the stream is gone, and the upgrade with it.
                    if let Ok(io) = stream.await {
                        run(&conn, TokioIo::new(io), carried).await;
                    }
                });
                respond::status(StatusCode::OK)
            }
        };
        if let Some(protocol) = protocol {
            response.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocol));
        }
        response
    }
}

/// Carries the WebSocket until it ends.
pub(super) async fn run<T>(conn: &Rc<Conn>, io: T, carried: Carried)
where
    T: Transport + 'static,
{
    let ctx = &conn.ctx;
    match carried {
        Carried::Mqtt => {
            let _counted = Counted::new(ctx, |metrics| &metrics.mqtt);
            let Some(serve) = &ctx.upgrades.mqtt else { return };
            serve(Box::new(bytes::ByteStream::new(io)), Peer::clone(&conn.peer)).await;
        }
        Carried::Coap => {
            let _counted = Counted::new(ctx, |metrics| &metrics.coap);
            let Some(serve) = &ctx.upgrades.coap else { return };
            serve(Box::new(io), Peer::clone(&conn.peer)).await;
        }
        // An error: the reader has gone.
        Carried::Events(follow) => drop(Events::new(conn, io, follow).run().await),
    }
}

/// Counts a connection of another door inside a WebSocket in that door's metrics.
struct Counted {
    ctx: Rc<HttpContext>,
    door: fn(&Metrics) -> &DoorMetrics,
}

impl Counted {
    fn new(ctx: &Rc<HttpContext>, door: fn(&Metrics) -> &DoorMetrics) -> Self {
        let metrics = door(&ctx.shared.metrics);
        metrics.accepted.increment();
        metrics.connections.change(1);
        Self { ctx: Rc::clone(ctx), door }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        (self.door)(&self.ctx.shared.metrics).connections.change(-1);
    }
}

struct Events<T> {
    conn: Rc<Conn>,
    io: T,
    follow: Follow,
    receiver: Receiver,
    input: BytesMut,
    /// Pings since the reader was last heard.
    unanswered: u32,
}

/// The result of reading.
enum Heard {
    More,
    Closed,
}

impl<T: AsyncRead + AsyncWrite + Unpin> Events<T> {
    fn new(conn: &Rc<Conn>, io: T, follow: Follow) -> Self {
        Self {
            conn: Rc::clone(conn),
            io,
            follow,
            receiver: Receiver::new(Role::Server, IGNORED_BYTES_MAX),
            input: BytesMut::new(),
            unanswered: 0,
        }
    }

    async fn run(mut self) -> io::Result<()> {
        loop {
            self.input.reserve(READ_BYTES);
            tokio::select! {
                read = self.io.read_buf(&mut self.input) => {
                    if read? == 0 {
                        return Ok(());
                    }
                    self.unanswered = 0;
                    if matches!(self.hear().await?, Heard::Closed) {
                        return self.io.shutdown().await;
                    }
                }
                chunk = poll_fn(|cx| self.follow.poll_chunk(cx)) => {
                    let Some(chunk) = chunk else {
                        // RFC 6455 §7.4.1: 1008 if the reader has lost its right, 1001 if the gateway shuts down.
                        let over = !self.follow.may_go_on();
                        return self.close(if over { CloseCode::PolicyViolation } else { CloseCode::GoingAway }).await;
                    };
                    // A busy stream sends no pings; its reader shows that it lives by taking the events.
                    if chunk.first() == Some(&PING) {
                        self.unanswered += 1;
                        if self.unanswered > SILENT_KEEP_ALIVES {
                            self.conn.ctx.shared.metrics.http.timed_out.increment();
                            return Ok(());
                        }
                    }
                    self.send(&chunk).await?;
                }
            }
        }
    }

    /// Handles input: answers pings, ends the stream at a close frame, ignores messages.
    async fn hear(&mut self) -> io::Result<Heard> {
        loop {
            match self.receiver.receive(&mut self.input) {
                Ok(None) => return Ok(Heard::More),
                Ok(Some(Incoming::Text { .. } | Incoming::Binary { .. } | Incoming::Pong(_))) => {}
                Ok(Some(Incoming::Ping(payload))) => {
                    let mut out = Vec::new();
                    push_frame(Opcode::Pong, &payload, None, &mut out);
                    self.send(&out).await?;
                }
                Ok(Some(Incoming::Close(frame))) => {
                    // A reader that closes with 1000 or 1001 is done; after any other end it may return.
                    if frame.is_none_or(|frame| frame.code == CloseCode::Normal.code()) {
                        self.follow.end();
                    }
                    self.close(CloseCode::Normal).await?;
                    return Ok(Heard::Closed);
                }
                Err(violation) => {
                    self.conn.ctx.shared.metrics.http.misbehaved.increment();
                    self.close(violation.close_code()).await?;
                    return Ok(Heard::Closed);
                }
            }
        }
    }

    async fn close(&mut self, code: CloseCode) -> io::Result<()> {
        let mut out = Vec::new();
        push_close(code, "", None, &mut out);
        self.send(&out).await?;
        self.io.shutdown().await
    }

    /// Writes all bytes, however long it takes, as long as the peer takes some within each write deadline.
    async fn send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        let ctx = &self.conn.ctx;
        let limit = ctx.door.config.write_timeout;
        let late = |late: Late| {
            ctx.shared.metrics.http.timed_out.increment();
            io::Error::from(late)
        };
        while !bytes.is_empty() {
            let piece = bytes.get(..PIECE_BYTES).unwrap_or(bytes);
            let count = in_time(ctx, ctx.running() + limit, self.io.write(piece)).await.map_err(late)??;
            if count == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            bytes = bytes.get(count..).unwrap_or_default();
        }
        in_time(ctx, ctx.running() + limit, self.io.flush()).await.map_err(late)?
    }
}
