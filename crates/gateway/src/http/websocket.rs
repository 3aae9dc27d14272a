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
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    time::{Instant, timeout},
};

use super::{
    follow::{Follow, Format},
    identity::Identity,
    payload::Payload,
    respond,
    service::Conn,
};

/// The subprotocols of MQTT over WebSocket ([MQTT-6.0.0-4]; the second is MQTT 3.1's).
const MQTT: [&str; 2] = ["mqtt", "mqttv3.1"];
/// The subprotocol of CoAP over WebSocket (RFC 8323 §8.1).
const COAP: [&str; 1] = ["coap"];
/// Longest message that a reader of events may send; nobody looks at them.
const IGNORED_BYTES_MAX: u64 = 64 << 10;
/// Keep-alives without a sign of life after which a reader is gone.
const SILENT_KEEP_ALIVES: u32 = 3;

/// What a connection becomes.
pub(super) enum Upgrade {
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
    Ok(accepted.respond(conn, parts, Upgrade::Events(follow), None))
}

/// Whether a request for `/` opens MQTT: some clients, HiveMQ's among them, take no path and say what they want by the
/// subprotocol alone.
pub(super) fn is_mqtt_at_root(route: &Route<'_>, parts: &Parts) -> bool {
    *route == Route::Index
        && (parts.method == Method::CONNECT || handshake::is_upgrade(&parts.headers))
        && handshake::subprotocol(&parts.headers, &MQTT).is_some()
}

/// The handshake of MQTT. A client that names subprotocols must name MQTT's ([MQTT-6.0.0-3]).
pub(super) fn mqtt(conn: &Rc<Conn>, parts: &Parts) -> Result<Response<Payload>, Problem<'static>> {
    let accepted = Accepted::of(parts)?;
    let protocol = handshake::subprotocol(&parts.headers, &MQTT);
    if protocol.is_none() && parts.headers.contains_key(SEC_WEBSOCKET_PROTOCOL) {
        return Err(Problem::new(Kind::BadRequest).detail("the subprotocol is mqtt or mqttv3.1"));
    }
    Ok(accepted.respond(conn, parts, Upgrade::Mqtt, protocol))
}

/// The handshake of CoAP, which has to name the subprotocol (RFC 8323 §4.1).
pub(super) fn coap(conn: &Rc<Conn>, parts: &Parts) -> Result<Response<Payload>, Problem<'static>> {
    let accepted = Accepted::of(parts)?;
    let protocol = handshake::subprotocol(&parts.headers, &COAP)
        .ok_or(Problem::new(Kind::BadRequest).detail("the subprotocol is coap"))?;
    Ok(accepted.respond(conn, parts, Upgrade::Coap, Some(protocol)))
}

/// A handshake that is in order.
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
        upgrade: Upgrade,
        protocol: Option<&'static str>,
    ) -> Response<Payload> {
        let mut response = match self {
            Self::Switch(proof) => {
                let mut response = respond::status(StatusCode::SWITCHING_PROTOCOLS);
                respond::set(&mut response, SEC_WEBSOCKET_ACCEPT, &proof);
                response.headers_mut().insert(UPGRADE, HeaderValue::from_static("websocket"));
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("Upgrade"));
                *conn.upgrade.borrow_mut() = Some(upgrade);
                response
            }
            Self::Tunnel => {
                let conn = Rc::clone(conn);
                let stream = parts.extensions.get::<hyper::upgrade::OnUpgrade>().cloned();
                tokio::task::spawn_local(async move {
                    let Some(stream) = stream else { return };
                    // An error: the stream is gone, and the upgrade with it.
                    if let Ok(io) = stream.await {
                        run(&conn, TokioIo::new(io), upgrade).await;
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
pub(super) async fn run<T>(conn: &Rc<Conn>, io: T, upgrade: Upgrade)
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    match upgrade {
        Upgrade::Mqtt => crate::mqtt::serve(Rc::clone(&conn.ctx), bytes::ByteStream::new(io), conn.peer.clone()).await,
        Upgrade::Coap => crate::coap::serve_websocket(Rc::clone(&conn.ctx), io, conn.peer.clone()).await,
        // An error is the peer's going.
        Upgrade::Events(follow) => drop(Events::new(conn, io, follow).run().await),
    }
}

struct Events<T> {
    conn: Rc<Conn>,
    io: T,
    follow: Follow,
    receiver: Receiver,
    input: BytesMut,
    heard: Instant,
}

/// What a turn of reading says.
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
            heard: Instant::now(),
        }
    }

    async fn run(mut self) -> io::Result<()> {
        let patience = self.conn.ctx.shared.http.config.event_keep_alive * SILENT_KEEP_ALIVES;
        loop {
            self.input.reserve(512);
            tokio::select! {
                read = self.io.read_buf(&mut self.input) => {
                    if read? == 0 {
                        return Ok(());
                    }
                    self.heard = Instant::now();
                    if matches!(self.hear().await?, Heard::Closed) {
                        return self.io.shutdown().await;
                    }
                }
                chunk = poll_fn(|cx| self.follow.poll_chunk(cx)) => {
                    let Some(chunk) = chunk else {
                        // RFC 6455 §7.4.1: 1008 when it is about the reader, 1001 when it is about us.
                        let over = !self.follow.may_go_on();
                        return self.close(if over { CloseCode::PolicyViolation } else { CloseCode::GoingAway }).await;
                    };
                    if self.heard.elapsed() > patience {
                        self.conn.ctx.shared.metrics.http.timed_out.increment();
                        return Ok(());
                    }
                    self.send(&chunk).await?;
                }
            }
        }
    }

    /// Takes in what has arrived: pings are answered, a close ends the stream, messages are nobody's.
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
                    // A reader who says 1000 or 1001 is done; any other end may be followed by a return.
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

    async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let limit = self.conn.ctx.shared.http.config.write_timeout;
        timeout(limit, async {
            self.io.write_all(bytes).await?;
            self.io.flush().await
        })
        .await?
    }
}
