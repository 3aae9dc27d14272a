//! Flows as fast as acknowledgements allow, from publishers with a window to sessions that outlive their connections.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fogmux_tests::mqtt::{Connection, V5, packet, publish};

const EXPIRY: u32 = 3_600;
/// How long the last deliveries may take.
const PATIENCE: Duration = Duration::from_secs(10);
const BUFFER: usize = 64 << 10;

/// A flow of QoS 1. Publisher and subscriber i use topic i.
#[derive(Clone, Copy)]
pub(crate) struct Flow {
    pub(crate) name: &'static str,
    pub(crate) pairs: usize,
    /// Bytes of a payload.
    pub(crate) size: usize,
    /// Messages of a publisher that may wait for their acknowledgements.
    pub(crate) window: usize,
    /// Whether the subscribers have gone before the publishers come.
    pub(crate) absent: bool,
    /// Messages of each publisher, at most: the queue of an absent session is bounded.
    pub(crate) count_max: u64,
}

/// Messages that went through, and how long that took.
pub(crate) struct Passed {
    pub(crate) messages: u64,
    pub(crate) elapsed: Duration,
}

impl Flow {
    /// Publishes for so long, and waits until everything is acknowledged and delivered.
    pub(crate) fn run(&self, address: SocketAddr, length: Duration) -> Result<Passed> {
        let mut subscribers = Vec::new();
        for pair in 0..self.pairs {
            let (mut connection, _) = Connection::resume(address, &format!("subscriber{pair}"), EXPIRY, true)?;
            let granted = connection.subscribe(1, &[&topic(pair)], 1)?;
            ensure!(granted == [1], "SUBACK {granted:?}");
            if self.absent {
                connection.stream.write_all(&packet(0xe0, &[]))?;
            } else {
                connection.stream.set_read_timeout(None)?;
                subscribers.push(connection.stream);
            }
        }
        let open = |pair| Connection::open(address, V5, &format!("publisher{pair}")).map(|opened| opened.stream);
        let publishers = (0..self.pairs).map(open).collect::<Result<Vec<_>>>()?;
        let received = AtomicU64::new(0);
        let began = Instant::now();
        thread::scope(|scope| {
            for stream in &subscribers {
                scope.spawn(|| subscribe(stream, &received));
            }
            let publish = |(pair, stream)| scope.spawn(move || self.publish(stream, pair, began + length));
            let threads: Vec<_> = publishers.iter().enumerate().map(publish).collect();
            let sent = threads.into_iter().map(|thread| thread.join().ok().context("a thread has panicked")?);
            let sent = sent.sum::<Result<u64>>();
            let deadline = Instant::now() + PATIENCE;
            let all = |sent: &u64| self.absent || received.load(Relaxed) >= *sent || Instant::now() > deadline;
            while !sent.as_ref().map_or(true, all) {
                thread::sleep(Duration::from_millis(1));
            }
            let elapsed = began.elapsed();
            for stream in &subscribers {
                stream.shutdown(Shutdown::Both)?;
            }
            let messages = sent?;
            let received = received.load(Relaxed);
            ensure!(self.absent || received == messages, "{received} of {messages} arrived");
            Ok(Passed { messages, elapsed })
        })
    }

    fn publish(&self, mut stream: &TcpStream, pair: usize, until: Instant) -> Result<u64> {
        let (topic, payload) = (topic(pair), vec![b'x'; self.size]);
        let mut input = Input::default();
        let mut ids: Vec<u16> = (1..=u16::try_from(self.window)?).collect();
        let (mut sent, mut acknowledged) = (0, 0);
        let mut out = Vec::new();
        loop {
            let goes_on = Instant::now() < until && sent < self.count_max;
            if !goes_on && acknowledged == sent {
                return Ok(sent);
            }
            if goes_on {
                sent += ids.len() as u64;
                ids.drain(..).for_each(|id| out.extend(publish(V5, topic.as_bytes(), &payload, 1, false, id)));
                stream.write_all(&out)?;
                out.clear();
            }
            input.fill(stream)?;
            while let Some((first, body)) = input.packet() {
                let id = body.get(..2).and_then(|id| id.try_into().ok()).map(u16::from_be_bytes);
                ensure!(first == 0x40, "{first:#x} instead of PUBACK");
                ensure!(body.get(2).is_none_or(|reason| *reason < 0x80), "PUBACK {body:?}");
                ids.push(id.context("no identifier")?);
                acknowledged += 1;
            }
        }
    }
}

fn topic(pair: usize) -> String {
    format!("wear/{pair}")
}

/// Acknowledges what comes, until the connection ends.
fn subscribe(mut stream: &TcpStream, received: &AtomicU64) {
    let mut input = Input::default();
    let mut out = Vec::new();
    while input.fill(stream).is_ok() {
        let mut count = 0;
        while let Some((first, body)) = input.packet() {
            if first >> 4 != 3 {
                continue;
            }
            count += 1;
            let topic = body.get(..2).and_then(|length| length.try_into().ok()).map_or(0, u16::from_be_bytes);
            let at = 2 + usize::from(topic);
            out.extend(packet(0x40, body.get(at..at + 2).unwrap_or_default()));
        }
        received.fetch_add(count, Relaxed);
        if stream.write_all(&out).is_err() {
            return;
        }
        out.clear();
    }
}

/// Bytes that were read, and how many of them have been taken.
#[derive(Default)]
struct Input {
    bytes: Vec<u8>,
    taken: usize,
}

impl Input {
    /// Reads more; an end is an error.
    fn fill(&mut self, mut stream: &TcpStream) -> Result<()> {
        self.bytes.drain(..self.taken);
        self.taken = 0;
        let have = self.bytes.len();
        self.bytes.resize(have + BUFFER, 0);
        let read = stream.read(self.bytes.get_mut(have..).unwrap_or_default());
        self.bytes.truncate(have + *read.as_ref().unwrap_or(&0));
        ensure!(read? > 0, "the connection has ended");
        Ok(())
    }

    /// The next packet, if it is there whole: its first byte and what follows its length.
    fn packet(&mut self) -> Option<(u8, &[u8])> {
        let bytes = self.bytes.get(self.taken..)?;
        let mut length = 0;
        for (digit, shift) in (1..5).zip([0, 7, 14, 21]) {
            let byte = *bytes.get(digit)?;
            length |= usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                let body = bytes.get(digit + 1..digit + 1 + length)?;
                self.taken += digit + 1 + length;
                return Some((*bytes.first()?, body));
            }
        }
        None
    }
}
