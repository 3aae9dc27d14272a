//! Simulated byte streams: bounded buffers, partial reads and writes, latency, resets, and transports that hold bytes
//! back until a flush, as TLS and WebSocket framing do.

use std::{
    collections::VecDeque,
    io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard},
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep_until},
};

use super::random::Random;

/// The properties of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    /// Bytes that fit on the way to the client.
    pub(super) capacity: usize,
    /// Between a write and when it can be read.
    pub(super) latency: Duration,
    /// Bytes that the transport takes over a full socket, as a TLS record layer does; zero for plain TCP.
    pub(super) held_max: usize,
    /// Bytes taken by one write at most.
    pub(super) write_max: usize,
}

impl Line {
    pub(super) fn random(random: &Random) -> Self {
        let capacity = *random.pick(&[300, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10]);
        // A buffer and a latency bound the rate; with a small buffer there are minutes in a hundred kilobytes.
        let latencies: &[u64] = if capacity < 16 << 10 { &[0, 0, 1] } else { &[0, 0, 1, 20, 200] };
        Self {
            capacity,
            latency: Duration::from_millis(*random.pick(latencies)),
            held_max: *random.pick(&[0, 0, 0, 1, 16 << 10, 64 << 10]),
            write_max: *random.pick(&[7, 1000, 16 << 10, usize::MAX, usize::MAX]),
        }
    }
}

#[derive(Debug, Default)]
struct Channel {
    bytes: VecDeque<u8>,
    readable_at: Option<Instant>,
    closed: bool,
    reset: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Channel {
    fn wake(&mut self) {
        self.reader.take().into_iter().chain(self.writer.take()).for_each(Waker::wake);
    }
}

/// One end of a connection.
#[derive(Debug)]
pub(super) struct End {
    inbound: Arc<Mutex<Channel>>,
    outbound: Arc<Mutex<Channel>>,
    line: Line,
    /// Taken from the application, not yet in the socket.
    held: VecDeque<u8>,
    arrival: Option<Pin<Box<Sleep>>>,
    random: Random,
}

/// The client's end and the gateway's.
pub(super) fn connection(line: Line, random: &Random) -> (End, End) {
    let [up, down] = [(); 2].map(|()| Arc::new(Mutex::new(Channel::default())));
    let plain = Line { capacity: 64 << 10, held_max: 0, write_max: usize::MAX, ..line };
    let end = |inbound: &Arc<_>, outbound: &Arc<_>, line| End {
        inbound: Arc::clone(inbound),
        outbound: Arc::clone(outbound),
        line,
        held: VecDeque::new(),
        arrival: None,
        random: random.fork(),
    };
    (end(&down, &up, plain), end(&up, &down, line))
}

fn lock(channel: &Mutex<Channel>) -> MutexGuard<'_, Channel> {
    channel.lock().unwrap()
}

impl End {
    /// Breaks the connection: bytes under way are lost, and the peer sees a reset.
    pub(super) fn reset(self) {
        for channel in [&self.inbound, &self.outbound] {
            let mut channel = lock(channel);
            channel.reset = true;
            channel.bytes.clear();
            channel.wake();
        }
    }

    fn push(&self, bytes: &[u8], max: usize, cx: &Context<'_>) -> Poll<io::Result<usize>> {
        let mut channel = lock(&self.outbound);
        if channel.reset || channel.closed {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let room = self.line.capacity.saturating_sub(channel.bytes.len());
        if room == 0 {
            channel.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        if channel.bytes.is_empty() {
            channel.readable_at = Some(Instant::now() + self.line.latency);
        }
        let written = bytes.len().min(room).min(max);
        channel.bytes.extend(&bytes[..written]);
        if let Some(reader) = channel.reader.take() {
            reader.wake();
        }
        Poll::Ready(Ok(written))
    }

    /// Moves what is held to the socket.
    fn let_go(&mut self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        while !self.held.is_empty() {
            let moved = ready!(self.push(self.held.as_slices().0, usize::MAX, cx))?;
            self.held.drain(..moved);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for End {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let mut channel = lock(&this.inbound);
        if channel.reset {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        if channel.bytes.is_empty() {
            if channel.closed {
                return Poll::Ready(Ok(()));
            }
            channel.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        if let Some(at) = channel.readable_at
            && at > Instant::now()
        {
            let arrival = this.arrival.insert(Box::pin(sleep_until(at)));
            channel.reader = Some(cx.waker().clone());
            ready!(arrival.as_mut().poll(cx));
        }
        let some = if this.random.percent(20) { 1 + this.random.below(64) } else { usize::MAX };
        let count = buffer.remaining().min(channel.bytes.len()).min(some);
        let (front, back) = channel.bytes.as_slices();
        let of_front = count.min(front.len());
        buffer.put_slice(&front[..of_front]);
        buffer.put_slice(&back[..count - of_front]);
        channel.bytes.drain(..count);
        if let Some(writer) = channel.writer.take() {
            writer.wake();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for End {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let max = this.line.write_max;
        if this.line.held_max == 0 {
            return this.push(bytes, max, cx);
        }
        // Like a record layer: it takes what fits in its own buffer whether or not the socket has room.
        if let Poll::Ready(Err(error)) = this.let_go(cx) {
            return Poll::Ready(Err(error));
        }
        let room = this.line.held_max.saturating_sub(this.held.len());
        if room == 0 {
            return Poll::Pending;
        }
        let taken = bytes.len().min(room).min(max);
        this.held.extend(&bytes[..taken]);
        Poll::Ready(Ok(taken))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().let_go(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.let_go(cx))?;
        let mut channel = lock(&this.outbound);
        channel.closed = true;
        channel.wake();
        Poll::Ready(Ok(()))
    }
}

impl Drop for End {
    fn drop(&mut self) {
        for channel in [&self.inbound, &self.outbound] {
            let mut channel = lock(channel);
            channel.closed = true;
            channel.wake();
        }
    }
}
