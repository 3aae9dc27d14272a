//! HTTP/3: QUIC connections of one endpoint, their requests answered by the same service as every other version's.

mod body;
mod turns;

use std::{
    cell::Cell,
    pin::{Pin, pin},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use fogmux_auth::Door;
use fogmux_net::{
    HandshakeFailure, RefusedCertificate, TlsConfig,
    quic::{channel, shake_hands},
};
use h3::server::{RequestResolver, RequestStream};
use http::{
    HeaderValue, Response,
    header::{CONNECTION, CONTENT_LENGTH, DATE, UPGRADE},
};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use tokio::{
    sync::Notify,
    task::spawn_local,
    time::{sleep, sleep_until, timeout},
};

use self::{body::RequestBody, turns::Turns};
use super::{
    conn::Conn,
    context::HttpContext,
    io::Carrier,
    payload::{Incomplete, Open, Payload},
};
use crate::{Peer, audit::RefusedLogin, deadline::in_time, listener::Listen, listening::Place};

/// The configuration that the connections of an endpoint share.
type Way = (TlsConfig, Listen, Option<Place>);

/// RFC 9114 §8.1.
const H3_NO_ERROR: quinn::VarInt = quinn::VarInt::from_u32(0x100);
/// RFC 9114 §8.1: nothing was done.
const H3_REQUEST_REJECTED: quinn::VarInt = quinn::VarInt::from_u32(0x10b);
/// How long a client may take to fetch the last bytes of a connection that ends.
const LINGER: Duration = Duration::from_secs(1);
/// How long connections may take altogether to end.
const FAREWELL: Duration = Duration::from_secs(8);
/// Bytes that a stream gives to the connection in one turn; the write deadline is for each.
const PIECE_BYTES: usize = 64 << 10;

/// Connections of an endpoint that are open.
#[derive(Default)]
struct Guests {
    count: Cell<usize>,
    gone: Notify,
}

/// Serves HTTP/3 on a QUIC endpoint until drain.
pub async fn serve_quic(
    ctx: Rc<HttpContext>,
    endpoint: quinn::Endpoint,
    tls: TlsConfig,
    listen: Listen,
    place: Option<Place>,
) {
    let way = Rc::new((tls, listen, place));
    let guests = Rc::new(Guests::default());
    let mut drain = pin!(ctx.drain());
    loop {
        tokio::select! {
            biased;
            () = &mut drain => break,
            incoming = endpoint.accept() => match incoming {
                Some(incoming) => welcome(&ctx, &guests, incoming, &way),
                None => return,
            },
        }
    }
    endpoint.set_server_config(None);
    let everybody = async {
        while guests.count.get() > 0 {
            guests.gone.notified().await;
        }
    };
    // The close tells the connections that are left.
    let _ = timeout(FAREWELL, everybody).await;
    endpoint.close(H3_NO_ERROR, b"");
    let _ = timeout(LINGER, endpoint.wait_idle()).await;
}

fn welcome(ctx: &Rc<HttpContext>, guests: &Rc<Guests>, incoming: quinn::Incoming, way: &Rc<Way>) {
    let metrics = &ctx.shared.metrics.http;
    let most = ctx.door.config.quic_connections_max;
    let count = guests.count.get();
    if count >= most {
        metrics.rejected.increment();
        incoming.refuse();
        return;
    }
    // With many connections a new client proves its address first (RFC 9000 §8.1.2).
    if count >= most / 4 && !incoming.remote_address_validated() {
        // An error: it cannot be asked twice.
        let _ = incoming.retry();
        return;
    }
    let Some(admitted) = ctx.shared.admission.admit(incoming.remote_address().ip()) else {
        metrics.rejected.increment();
        incoming.refuse();
        return;
    };
    metrics.accepted.increment();
    metrics.connections.change(1);
    guests.count.set(count + 1);
    let (ctx, guests, way) = (Rc::clone(ctx), Rc::clone(guests), Rc::clone(way));
    spawn_local(async move {
        let _admitted = admitted;
        serve_connection(&ctx, incoming, &way).await;
        ctx.shared.metrics.http.connections.change(-1);
        guests.count.set(guests.count.get().saturating_sub(1));
        guests.gone.notify_one();
    });
}

async fn serve_connection(ctx: &Rc<HttpContext>, incoming: quinn::Incoming, (tls, listen, place): &Way) {
    let config = &ctx.door.config;
    let from = incoming.remote_address();
    let quic = match in_time(ctx, ctx.running() + config.header_timeout, shake_hands(incoming)).await {
        Ok(Ok(quic)) => quic,
        Ok(Err(failed)) => {
            ctx.shared.metrics.handshakes.note_quic(failed.reason());
            if let Some(refused) = &failed.certificate {
                RefusedLogin::of_certificate(from, Door::Http, refused).log(&ctx.shared);
            }
            return;
        }
        Err(_) => return ctx.shared.metrics.handshakes.note_quic(HandshakeFailure::Timeout),
    };
    let (channel, cut) = match channel(&quic, tls) {
        Ok(known) => known,
        Err(error) => {
            tracing::debug!(%error, "no QUIC");
            if let Some(refused) = RefusedCertificate::of_error(&error) {
                ctx.shared.metrics.handshakes.note_quic(HandshakeFailure::Certificate);
                RefusedLogin::of_certificate(from, Door::Http, &refused).log(&ctx.shared);
            }
            return quic.close(H3_REQUEST_REJECTED, b"");
        }
    };
    let peer = Peer::plain(quic.remote_address(), listen.anonymous);
    let peer = Peer { sources: listen.sources, listener: *place, ..peer };
    let conn = Conn::new(ctx, peer.over(Arc::new(channel)));
    conn.progress.carrier.set(Carrier::Three);
    conn.progress.active.set(ctx.running());
    match cut {
        None => converse(ctx, &conn, &quic).await,
        Some(cut) => {
            if cut.or_until(converse(ctx, &conn, &quic)).await.is_none() {
                quic.close(H3_NO_ERROR, b"");
            }
        }
    }
}

/// Answers what comes in on a connection until it ends. At the end of a shutdown, a client that does not read its
/// responses is not waited for: not even GOAWAY fits behind them.
async fn converse(ctx: &Rc<HttpContext>, conn: &Rc<Conn>, quic: &quinn::Connection) {
    let cut_off = async {
        ctx.closing().await;
        sleep(LINGER).await;
    };
    tokio::select! {
        biased;
        () = answer(ctx, conn, quic) => {}
        () = cut_off => {}
    }
    quic.close(H3_NO_ERROR, b"");
    let stats = quic.stats();
    ctx.shared.metrics.http.bytes_in.add(stats.udp_rx.bytes);
    ctx.shared.metrics.http.bytes_out.add(stats.udp_tx.bytes);
}

async fn answer(ctx: &Rc<HttpContext>, conn: &Rc<Conn>, quic: &quinn::Connection) {
    let config = &ctx.door.config;
    let field_bytes_max = config.header_bytes_max as u64;
    let crossing = usize::try_from(config.streams_per_connection_max).unwrap_or(usize::MAX);
    let mut builder = h3::server::builder();
    builder.max_field_section_size(field_bytes_max).send_grease(false);
    let built = builder.build::<_, Bytes>(h3_quinn::Connection::new(quic.clone()));
    let deadline = ctx.running() + config.header_timeout;
    let Ok(Ok(mut h3)) = in_time(ctx, deadline, built).await else { return };
    let turns = Rc::new(Turns::new(ctx));
    let answered = Rc::new(Notify::new());
    let mut drain = pin!(ctx.drain());
    let mut idle = pin!(until_idle(conn));
    let (mut warned, mut leaving) = (false, false);
    loop {
        tokio::select! {
            biased;
            () = &mut drain, if !leaving => {
                leaving = true;
                // GOAWAY (RFC 9114 §5.2); then what is under way is finished.
                if h3.shutdown(0).await.is_err() {
                    break;
                }
            }
            () = &mut idle, if !warned && !leaving => {
                warned = true;
                // A first GOAWAY takes the requests that cross it; the second tells which they were.
                if h3.shutdown(crossing).await.is_err() {
                    break;
                }
            }
            () = sleep(LINGER), if warned && !leaving => {
                leaving = true;
                if h3.shutdown(0).await.is_err() {
                    break;
                }
            }
            accepted = h3.accept() => match accepted {
                Ok(Some(resolver)) => {
                    // It is open before its header section is complete: a connection that ends waits for it.
                    let open = Open::new(&conn.progress);
                    let (conn, quic, turns) = (Rc::clone(conn), quic.clone(), Rc::clone(&turns));
                    let answered = Rc::clone(&answered);
                    drop(spawn_local(async move {
                        serve_request(&conn, &quic, &turns, resolver).await;
                        drop(open);
                        conn.progress.active.set(conn.ctx.running());
                        answered.notify_one();
                    }));
                }
                Ok(None) => break,
                Err(error) => {
                    note(conn, &error);
                    break;
                }
            },
            // h3 waits for the client's own GOAWAY, which few send.
            () = until_answered(conn, &answered), if leaving => break,
        }
    }
    if leaving {
        let _ = timeout(LINGER, quic.closed()).await;
    }
}

/// Waits until the connection has had no request for the idle timeout. Packets of QUIC, PING among them, are none; QUIC
/// has a timeout of its own for silence.
async fn until_idle(conn: &Conn) {
    let (ctx, progress) = (&conn.ctx, &conn.progress);
    loop {
        let since = if progress.open.get() > 0 { ctx.running() } else { progress.active.get() };
        let deadline = since + ctx.door.config.idle_timeout;
        if ctx.has_passed(deadline) {
            return;
        }
        sleep_until(ctx.timer(deadline)).await;
    }
}

/// Waits until no request is open.
async fn until_answered(conn: &Conn, answered: &Notify) {
    while conn.progress.open.get() > 0 {
        answered.notified().await;
    }
}

fn note(conn: &Conn, error: &h3::error::ConnectionError) {
    // A client that closes with H3_NO_ERROR has done nothing wrong, nor has one that is gone.
    if !error.is_h3_no_error() {
        conn.ctx.shared.metrics.http.misbehaved.increment();
        tracing::debug!(%error, "an HTTP/3 connection ended");
    }
}

type Resolver = RequestResolver<h3_quinn::Connection, Bytes>;
type SendHalf = RequestStream<h3_quinn::SendStream<Bytes>, Bytes>;

async fn serve_request(conn: &Rc<Conn>, quic: &quinn::Connection, turns: &Turns, resolver: Resolver) {
    let deadline = conn.ctx.running() + conn.ctx.door.config.header_timeout;
    // A malformed request is answered by h3 itself.
    let Ok(Ok((request, stream))) = in_time(&conn.ctx, deadline, resolver.resolve_request()).await else { return };
    let (mut send, recv) = stream.split();
    let body = RequestBody::new(recv);
    let answer = tokio::select! {
        biased;
        answer = conn.call(request.map(|()| body)) => answer,
        // A login that waits for its turn gives up its place.
        _ = quic.closed() => return,
    };
    let response = answer.unwrap_or_else(|never| match never {});
    let waiter = response.body().waiter().cloned();
    let gave_way = async {
        match &waiter {
            Some(waiter) => waiter.gave_way().await,
            None => std::future::pending().await,
        }
    };
    let done = tokio::select! {
        biased;
        done = respond(conn, quic, turns, &mut send, response) => done,
        () = gave_way => None,
    };
    if done.is_none() {
        send.stop_stream(h3::error::Code::H3_INTERNAL_ERROR);
    }
}

/// Sends the response; `None` when the client takes no more of it.
async fn respond(
    conn: &Conn,
    quic: &quinn::Connection,
    turns: &Turns,
    send: &mut SendHalf,
    response: Response<Payload>,
) -> Option<()> {
    let (mut parts, mut payload) = response.into_parts();
    let headers = &mut parts.headers;
    // RFC 9114 §4.2: nothing of the connection.
    headers.remove(CONNECTION);
    headers.remove(UPGRADE);
    let now = conn.ctx.unix_ms(conn.ctx.now());
    if let Ok(date) = HeaderValue::try_from(fogmux_http::time::http_date(now)) {
        headers.insert(DATE, date);
    }
    let bodiless = parts.status.is_informational() || matches!(parts.status.as_u16(), 204 | 304);
    if let Some(length) = payload.size_hint().exact().filter(|_| !bodiless) {
        headers.entry(CONTENT_LENGTH).or_insert_with(|| HeaderValue::from(length));
    }
    turns.take(send.send_response(Response::from_parts(parts, ()))).await?.ok()?;
    loop {
        // A stream that waits for its next event notices here that its reader has gone.
        let mut bytes = tokio::select! {
            biased;
            frame = next(&mut payload) => match frame {
                Some(Ok(bytes)) => bytes,
                Some(Err(Incomplete)) => return None,
                None => break,
            },
            _ = quic.closed() => return None,
        };
        while !bytes.is_empty() {
            let piece = bytes.split_to(bytes.len().min(PIECE_BYTES));
            turns.take(send.send_data(piece)).await?.ok()?;
        }
    }
    // It needs no room.
    send.finish().await.ok()
}

async fn next(payload: &mut Payload) -> Option<Result<Bytes, Incomplete>> {
    match Pin::new(payload).frame().await? {
        Ok(frame) => frame.into_data().ok().map(Ok),
        Err(error) => Some(Err(error)),
    }
}
