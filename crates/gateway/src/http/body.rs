//! The body of a request, read whole within bounds of size, time and memory.

use std::{
    pin::{Pin, pin},
    rc::Rc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use fogmux_fair::Owner;
use fogmux_http::{Kind, Problem};
use http::{
    HeaderMap,
    header::{CONTENT_LENGTH, EXPECT},
};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;

use super::{config::HttpConfig, context::HttpContext};
use crate::{
    deadline::in_time,
    unfinished::{Place, finished},
};

/// The largest buffer that is allocated before a byte has come.
const RESERVE_BYTES_MAX: usize = 64 << 10;

/// A body that has arrived.
pub(super) enum Collected {
    /// Part of a read buffer: to be copied by whoever keeps it, lest it keep the buffer.
    Borrowed(Bytes),
    /// Of its own.
    Owned(Bytes),
}

impl Collected {
    pub(super) fn bytes(&self) -> &Bytes {
        match self {
            Self::Borrowed(bytes) | Self::Owned(bytes) => bytes,
        }
    }

    /// As the bus takes it.
    pub(super) fn payload(&self) -> fogmux_bus::Payload<'_> {
        match self {
            Self::Borrowed(bytes) => fogmux_bus::Payload::Slice(bytes),
            Self::Owned(bytes) => fogmux_bus::Payload::Shared(bytes),
        }
    }
}

/// How much, and how long.
#[derive(Clone, Copy)]
pub(super) struct Bounds {
    pub(super) bytes_max: usize,
    /// For the whole body, and a second more for each `bytes_per_second` that have come.
    pub(super) timeout: Duration,
    pub(super) bytes_per_second: usize,
}

impl Bounds {
    /// Up to so many bytes, in the time of the configuration.
    pub(super) fn of(config: &HttpConfig, bytes_max: usize) -> Self {
        Self { bytes_max, timeout: config.body_timeout, bytes_per_second: config.body_bytes_per_second }
    }

    /// The time that a body has of which so much has come: a slow link is no attack.
    fn time(self, bytes: usize) -> Duration {
        let millis = bytes.saturating_mul(1000) / self.bytes_per_second.max(1);
        self.timeout.saturating_add(Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX)))
    }
}

/// Refuses by `Content-Length` before a byte is read, so that `Expect: 100-continue` saves the client the upload; then
/// while reading.
pub(super) async fn collect<B>(
    ctx: &Rc<HttpContext>,
    headers: &HeaderMap,
    body: B,
    bounds: Bounds,
    owner: Owner,
) -> Result<Collected, Problem<'static>>
where
    B: Body<Data = Bytes> + Unpin,
{
    if ctx.bus().memory().stops(&owner) {
        return Err(Problem::new(Kind::Unavailable).detail("memory is short").retry_after(1));
    }
    let announced = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|length| length > bounds.bytes_max as u64) {
        return Err(too_large(bounds.bytes_max));
    }
    if body.is_end_stream() {
        return Ok(Collected::Owned(Bytes::new()));
    }
    let announced = announced.and_then(|length| usize::try_from(length).ok());
    read(ctx, body, announced, bounds, Place::new(&ctx.door.uploads, owner)).await
}

async fn read<B>(
    ctx: &Rc<HttpContext>,
    mut body: B,
    announced: Option<usize>,
    bounds: Bounds,
    mut place: Place,
) -> Result<Collected, Problem<'static>>
where
    B: Body<Data = Bytes> + Unpin,
{
    let mut first = Bytes::new();
    let mut whole = BytesMut::new();
    let began = ctx.running();
    loop {
        let deadline = began + bounds.time(first.len() + whole.len());
        let held = whole.capacity().max(first.len());
        let frame = match std::future::poll_fn(|cx| Poll::Ready(Pin::new(&mut body).poll_frame(cx))).await {
            Poll::Ready(frame) => frame,
            // It is waited for, so what there is of it counts.
            Poll::Pending if !place.set(ctx, held, first.len() + whole.len()) => return Err(gave_way()),
            Poll::Pending => tokio::select! {
                biased;
                () = place.waiter().gave_way() => return Err(gave_way()),
                frame = in_time(ctx, deadline, body.frame()) => frame.map_err(|_| late(ctx))?,
            },
        };
        let Some(frame) = frame else { break };
        let frame = frame.map_err(|_| Problem::new(Kind::BadRequest).detail("the body is cut short"))?;
        // Trailers are nobody's.
        let Ok(data) = frame.into_data() else { continue };
        if whole.len() + first.len() + data.len() > bounds.bytes_max {
            return Err(too_large(bounds.bytes_max));
        }
        if first.is_empty() && whole.is_empty() {
            first = data;
            continue;
        }
        if whole.is_empty() {
            whole.reserve(
                announced.unwrap_or(0).clamp(first.len() + data.len(), RESERVE_BYTES_MAX.max(first.len() + data.len())),
            );
            whole.extend_from_slice(&first);
            first = Bytes::new();
        }
        whole.extend_from_slice(&data);
    }
    Ok(if whole.is_empty() { Collected::Borrowed(first) } else { Collected::Owned(finished(whole)) })
}

fn late(ctx: &HttpContext) -> Problem<'static> {
    ctx.shared.metrics.http.timed_out.increment();
    Problem::new(Kind::RequestTimeout).detail("the body did not arrive in time")
}

fn gave_way() -> Problem<'static> {
    Problem::new(Kind::Unavailable).detail("too many uploads at once").retry_after(5)
}

fn too_large(limit: usize) -> Problem<'static> {
    Problem::new(Kind::ContentTooLarge).detail(format!("at most {limit} bytes"))
}

/// Bytes of an unwanted body that are still read and thrown away, and for how long: time is what it is about, the bytes
/// only keep somebody fast from having a core to himself.
pub(super) const UNWANTED_BYTES_MAX: usize = 8 << 20;
pub(super) const UNWANTED_TIME_MAX: Duration = Duration::from_secs(2);

/// A body that, dropped unread, is read and thrown away for a while: a client that is cut off in the middle of its
/// upload does not read the answer that says why.
pub(super) struct Polite<B: Body<Data = Bytes> + Unpin + 'static> {
    inner: Option<B>,
}

impl<B: Body<Data = Bytes> + Unpin + 'static> Polite<B> {
    pub(super) fn new(headers: &HeaderMap, body: B) -> Result<Self, B> {
        // A client that waits for 100 has sent nothing, and polling the body would send 100.
        if headers.contains_key(EXPECT) || body.is_end_stream() { Err(body) } else { Ok(Self { inner: Some(body) }) }
    }
}

impl<B: Body<Data = Bytes> + Unpin + 'static> Body for Polite<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let Some(inner) = &mut self.inner else { return Poll::Ready(None) };
        let polled = Pin::new(inner).poll_frame(cx);
        if let Poll::Ready(None | Some(Err(_))) = polled {
            self.inner = None;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(B::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.as_ref().map(B::size_hint).unwrap_or_default()
    }
}

impl<B: Body<Data = Bytes> + Unpin + 'static> Drop for Polite<B> {
    fn drop(&mut self) {
        if let Some(body) = self.inner.take().filter(|body| !body.is_end_stream()) {
            tokio::task::spawn_local(throw_away(body));
        }
    }
}

async fn throw_away<B: Body<Data = Bytes> + Unpin>(mut body: B) {
    let all = async {
        let mut left = UNWANTED_BYTES_MAX;
        while let Some(Ok(frame)) = body.frame().await {
            match left.checked_sub(frame.data_ref().map_or(0, Bytes::len)) {
                Some(rest) => left = rest,
                None => return,
            }
        }
    };
    let _ = tokio::time::timeout(UNWANTED_TIME_MAX, pin!(all)).await;
}
