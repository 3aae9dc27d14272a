//! TCP and TLS connections: HTTP/1.1 or HTTP/2, driven by hyper, with the deadlines that hyper does not keep.

use std::{future::poll_fn, pin::pin, rc::Rc, task::Poll, time::Duration};

use bytes::Bytes;
use fogmux_http::{Kind, Problem};
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    time::{Instant, sleep_until, timeout},
};

use super::{
    body::{UNWANTED_BYTES_MAX, UNWANTED_TIME_MAX},
    config::SEND_BUFFER_BYTES,
    conn::{Conn, Upgrade},
    context::HttpContext,
    exec::LocalExec,
    io::{Carrier, Io},
    stream::EventStream,
    websocket,
};
use crate::{Peer, deadline::in_time, tasks::Stage, transport::Transport};

/// RFC 9113 §3.4.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// How long the last answers of a connection that is to end may take.
const LINGER: Duration = Duration::from_secs(5);
/// How long streams may still take to end when everything else of a shutdown is done.
const GOODBYE: Duration = Duration::from_secs(3);
/// The flow-control windows of one HTTP/2 stream and of the connection.
const STREAM_WINDOW_BYTES: u32 = 256 << 10;
const CONNECTION_WINDOW_BYTES: u32 = 1 << 20;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Protocol {
    One,
    Two,
}

/// Serves one TCP or TLS connection (HTTP/1.1 or HTTP/2 by ALPN, else by the preface) until it ends.
pub async fn serve<S>(ctx: Rc<HttpContext>, stream: S, peer: Peer, alpn: Option<Vec<u8>>)
where
    S: Transport + 'static,
{
    begin(ctx, stream, peer, alpn).await;
}

/// As [`serve`], as the first stage of a task: it determines the protocol.
pub(super) fn begin<S>(ctx: Rc<HttpContext>, mut stream: S, peer: Peer, alpn: Option<Vec<u8>>) -> Stage
where
    S: Transport + 'static,
{
    Stage::new(async move {
        let (protocol, prefix) = match alpn.as_deref() {
            Some(b"h2") => (Protocol::Two, Bytes::new()),
            Some(_) | None => first_bytes(&ctx, &mut stream).await?,
        };
        let conn = Conn::new(&ctx, peer);
        let io = Io::new(&ctx, stream, prefix, &conn.progress);
        conn.progress.active.set(ctx.running());
        Some(match protocol {
            Protocol::One => requests_one(conn, io),
            Protocol::Two => Stage::new(async move {
                serve_two(&conn, io).await;
                conn.progress.flush(&conn.ctx);
                None
            }),
        })
    })
}

/// The requests of an HTTP/1.1 connection, and what it becomes after them. Hyper and its buffers are freed before that.
fn requests_one<S>(conn: Rc<Conn>, io: Io<S>) -> Stage
where
    S: Transport + 'static,
{
    Stage::new(async move {
        let upgraded = serve_one(&conn, io).await;
        conn.progress.flush(&conn.ctx);
        Some(match upgraded? {
            (io, Upgrade::WebSocket(websocket)) => Stage::new(async move {
                let (carried, peer) = *websocket;
                websocket::run(&conn.seen_by(peer), io, carried).await;
                conn.progress.flush(&conn.ctx);
                None
            }),
            (io, Upgrade::Stream(stream)) => stream_events(conn, io, stream),
        })
    })
}

/// Waits for the first bytes and determines the protocol; `None` when they do not arrive in time.
async fn first_bytes<S: AsyncRead + Unpin>(ctx: &HttpContext, stream: &mut S) -> Option<(Protocol, Bytes)> {
    tokio::select! {
        sniffed = in_time(ctx, ctx.running() + ctx.door.config.header_timeout, sniff(stream)) => match sniffed {
            Ok(sniffed) => sniffed,
            Err(_) => {
                ctx.shared.metrics.http.timed_out.increment();
                None
            }
        },
        () = ctx.drain() => None,
    }
}

/// Reads until the bytes are, or can no longer be, the preface of HTTP/2.
async fn sniff<S: AsyncRead + Unpin>(stream: &mut S) -> Option<(Protocol, Bytes)> {
    let mut bytes = [0; PREFACE.len()];
    let mut length = 0;
    while length < bytes.len() {
        let room = bytes.get_mut(length..)?;
        let count = stream.read(room).await.ok().filter(|count| *count > 0)?;
        length += count;
        let read = bytes.get(..length)?;
        if !PREFACE.starts_with(read) {
            return Some((Protocol::One, Bytes::copy_from_slice(read)));
        }
    }
    Some((Protocol::Two, Bytes::copy_from_slice(&bytes)))
}

/// Writes events until the stream or the connection ends.
fn stream_events<S>(conn: Rc<Conn>, mut io: Io<S>, stream: EventStream) -> Stage
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    Stage::new(async move {
        if stream.run(&conn, &mut io).await.is_ok() {
            Box::pin(linger(&mut io)).await;
        }
        conn.progress.flush(&conn.ctx);
        None
    })
}

/// Serves requests until the connection ends or becomes something else.
async fn serve_one<S>(conn: &Rc<Conn>, io: Io<S>) -> Option<(Io<S>, Upgrade)>
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let config = &conn.ctx.door.config;
    let service = {
        let conn = Rc::clone(conn);
        hyper::service::service_fn(move |request| conn.call(request))
    };
    let mut http = http1::Builder::new()
        // Deadlines are kept here: hyper's would cost an allocation a request and answer nothing.
        .header_read_timeout(None)
        .max_header_size(config.header_bytes_max)
        .max_buf_size(config.header_bytes_max.max(SEND_BUFFER_BYTES))
        // No `pipeline_flush`: it would hold an answer back while half of the next request is in the buffer.
        .serve_connection(TokioIo::new(io), service);
    let mut drain = pin!(conn.ctx.drain());
    let mut deadline = pin!(sleep_until(next_look(conn)));
    let mut leaving = false;
    let result = loop {
        tokio::select! {
            biased;
            result = poll_fn(|cx| {
                let polled = http.poll_without_shutdown(cx);
                conn.progress.note_open(&conn.ctx);
                match polled {
                    // The head of a stream's response is written: hyper is done.
                    Poll::Pending if conn.progress.is_handed_over() => Poll::Ready(Some(Ok(()))),
                    Poll::Pending if conn.progress.has_given_way(cx) => Poll::Ready(None),
                    polled @ (Poll::Ready(_) | Poll::Pending) => polled.map(Some),
                }
            }) => match result {
                Some(result) => break Some(result),
                // The client takes nothing, so it is told nothing.
                None => return None,
            },
            () = &mut drain, if !leaving => {
                leaving = true;
                std::pin::Pin::new(&mut http).graceful_shutdown();
            }
            () = &mut deadline => {
                if is_late(conn) {
                    break None;
                }
                deadline.as_mut().reset(next_look(conn));
            }
        }
    };
    let upgrade = conn.upgrade.borrow_mut().take();
    let mut io = http.into_parts();
    match (result, upgrade) {
        (Some(Ok(())), Some(upgrade)) => {
            let mut stream = io.io.into_inner();
            stream.put_back(&io.read_buf);
            return Some((stream, upgrade));
        }
        (Some(Ok(())), None) => linger(io.io.inner_mut()).await,
        (Some(Err(error)), _) => {
            note(conn, &error);
            linger(io.io.inner_mut()).await;
        }
        (None, _) => cut(conn, io.io.inner_mut()).await,
    }
    None
}

/// Serves the streams of a connection until it ends. Without a stream it is idle, and gets GOAWAY (RFC 9113 §9.1)
/// after the idle timeout, whatever PINGs come: they are no requests, so they neither prolong nor shorten that.
async fn serve_two<S>(conn: &Rc<Conn>, io: Io<S>)
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    conn.progress.carrier.set(Carrier::Two);
    let service = {
        let conn = Rc::clone(conn);
        hyper::service::service_fn(move |request| conn.call(request))
    };
    let mut http = pin!(builder_two(conn).serve_connection(TokioIo::new(io), service));
    let mut drain = pin!(conn.ctx.drain());
    let mut over = pin!(async {
        conn.ctx.closing().await;
        tokio::time::sleep(GOODBYE).await;
    });
    let mut deadline = pin!(sleep_until(next_look(conn)));
    let mut leaving = false;
    let result = loop {
        tokio::select! {
            biased;
            result = poll_fn(|cx| {
                let polled = http.as_mut().poll(cx);
                conn.progress.note_open(&conn.ctx);
                match polled {
                    // Bytes of a stream in the buffers go with the connection only.
                    Poll::Pending if conn.progress.gave_way.take() && conn.progress.blocked.get() => Poll::Ready(None),
                    polled @ (Poll::Ready(_) | Poll::Pending) => polled.map(Some),
                }
            }) => match result {
                Some(result) => break result,
                None => return,
            },
            // A client that opens no flow-control window keeps its streams open.
            () = &mut over => return,
            () = &mut drain, if !leaving => {
                leaving = true;
                http.as_mut().graceful_shutdown();
            }
            () = &mut deadline => {
                if is_late(conn) {
                    if leaving {
                        return;
                    }
                    // GOAWAY first. Requests that cross it are answered; a silent client is cut at the next look.
                    leaving = true;
                    http.as_mut().graceful_shutdown();
                    deadline.as_mut().reset(Instant::now() + LINGER);
                    continue;
                }
                deadline.as_mut().reset(next_look(conn));
            }
        }
    };
    if let Err(error) = result {
        note(conn, &error);
    }
}

fn builder_two(conn: &Rc<Conn>) -> http2::Builder<LocalExec> {
    let config = &conn.ctx.door.config;
    let mut builder = http2::Builder::new(LocalExec(Rc::clone(conn)));
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(config.streams_per_connection_max)
        .max_header_list_size(u32::try_from(config.header_bytes_max).unwrap_or(u32::MAX))
        .max_send_buf_size(SEND_BUFFER_BYTES)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        // Rapid reset (CVE-2023-44487), and resets that we are made to send (CVE-2025-8671).
        .max_pending_accept_reset_streams(20)
        .max_local_error_reset_streams(100)
        // Finds peers that are gone, also without a stream.
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(20))
        .enable_connect_protocol();
    builder
}

/// When a deadline may have passed at the earliest.
fn next_look(conn: &Conn) -> Instant {
    let config = &conn.ctx.door.config;
    let (progress, now) = (&conn.progress, conn.ctx.running());
    let at = match progress.head_since.get() {
        Some(since) => since + config.header_timeout,
        // A header section that begins right after this look must not wait for the next by much.
        None if progress.open.get() > 0 => now + config.header_timeout,
        None => (progress.active.get() + config.idle_timeout).min(now + config.header_timeout),
    };
    conn.ctx.timer(at).max(Instant::now() + Duration::from_millis(10))
}

/// Whether a header section takes too long, or nothing has been asked for too long.
fn is_late(conn: &Conn) -> bool {
    conn.progress.flush(&conn.ctx);
    let config = &conn.ctx.door.config;
    let progress = &conn.progress;
    let now = conn.ctx.running();
    if progress.open.get() > 0 {
        progress.active.set(now);
        return false;
    }
    if progress.blocked.get() {
        // The answer is still being written, which has a deadline of its own.
        progress.active.set(now);
        progress.head_since.set(progress.head_since.get().map(|_| now));
        return false;
    }
    progress.head_since.get().is_some_and(|since| conn.ctx.has_passed(since + config.header_timeout))
        || conn.ctx.has_passed(progress.active.get() + config.idle_timeout)
}

/// Sends 408 to a client that began a request and did not finish it (RFC 9110 §15.5.9), nothing to an idle one.
async fn cut<S: AsyncRead + AsyncWrite + Unpin>(conn: &Conn, io: &mut Io<S>) {
    conn.ctx.shared.metrics.http.timed_out.increment();
    if conn.progress.head_since.get().is_some() {
        let body = Problem::new(Kind::RequestTimeout).detail("the header section did not arrive in time").to_json();
        let mut head = format!(
            "HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-type: {}\r\ncontent-length: {}\r\n\r\n",
            fogmux_http::problem::CONTENT_TYPE,
            body.len()
        )
        .into_bytes();
        head.extend_from_slice(&body);
        // It may be gone already.
        let _ = io.write_all(&head).await;
    }
    let _ = io.shutdown().await;
}

/// Closes our half, then reads what is still under way (RFC 9112 §9.6), because a reset could destroy the last
/// response.
async fn linger<S: AsyncRead + AsyncWrite + Unpin>(io: &mut Io<S>) {
    if io.shutdown().await.is_err() {
        return;
    }
    let mut rest = io.take(UNWANTED_BYTES_MAX as u64);
    let _ = timeout(UNWANTED_TIME_MAX, tokio::io::copy(&mut rest, &mut tokio::io::sink())).await;
}

/// Counts a peer that broke the protocol; one that went away is no error.
fn note(conn: &Conn, error: &hyper::Error) {
    let went_away = error.is_incomplete_message()
        || error.is_canceled()
        || error.is_closed()
        || std::error::Error::source(error).is_some_and(|source| source.is::<std::io::Error>());
    if !went_away {
        conn.ctx.shared.metrics.http.misbehaved.increment();
        tracing::debug!(%error, "an HTTP peer broke the protocol");
    }
}
