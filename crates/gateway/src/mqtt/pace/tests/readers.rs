//! The promise to readers, over any size of messages and buffers: a client that reads all the time at a fair pace is
//! not disconnected, however it divides its time, nor for a time in which the gateway did not run.
//!
//! Between queue and client are the window of messages that are not acknowledged, and a socket. The socket takes as
//! much as it has room for, and then nothing until a third of it is free (as Linux has it).

use super::*;

/// Milliseconds of a step.
const TICK: u64 = 10;
/// By how much a queue may exceed its bound: an eighth of the bus's memory mark.
const EXCESS: usize = 16 << 20;
/// Bytes in flight above which nothing more is sent, and those that are encoded at once.
const WINDOW: usize = 1 << 20;
const OUT: usize = 256 << 10;

/// How a client divides its time.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Reads {
    /// A few bytes at a time.
    Steadily,
    /// A message at once, with which it is busy before it reads the next.
    Messages,
}

#[derive(Clone, Copy, Debug)]
struct Setting {
    queue: usize,
    message: usize,
    socket: usize,
    publishers: usize,
    per_second: usize,
    reads: Reads,
    /// Seconds for which the gateway is stopped in the middle.
    stopped: u64,
}

/// A client, its socket and its queue.
struct Reader {
    setting: Setting,
    stops: Arc<Stops>,
    pace: Option<Pace>,
    queued: usize,
    /// Bytes that are not acknowledged, those that are encoded and not written, and those in the socket.
    in_flight: usize,
    out: usize,
    socket: usize,
    is_full: bool,
    /// Bytes that the client may read by now, and those of its message that it has read.
    due: usize,
    part: usize,
}

impl Reader {
    fn distance(&self) -> Option<Distance> {
        let Setting { queue, .. } = self.setting;
        let nearly = queue - queue / 8;
        match self.queued {
            level if level <= queue / 16 => None,
            level if level > nearly => Some(Distance::Nearly(level - nearly)),
            level if level > queue / 2 => Some(Distance::Far),
            _ => Some(Distance::Behind),
        }
    }

    /// The client reads for a step, and acknowledges.
    fn read(&mut self, now: Timestamp) {
        let Setting { message, per_second, reads, .. } = self.setting;
        self.due += per_second / 100;
        let is_busy = reads == Reads::Messages && self.part == 0 && self.due < message;
        let mut bytes = if is_busy { 0 } else { self.socket };
        if reads == Reads::Steadily {
            bytes = bytes.min(self.due);
        } else {
            bytes = bytes.min((self.due / message).max(1) * message - self.part);
        }
        self.socket -= bytes;
        // Time in which there was nothing to read is lost.
        self.due = self.due.saturating_sub(bytes).min(message.max(per_second / 50));
        self.part += bytes;
        let acknowledged = self.part / message * message;
        self.part -= acknowledged;
        self.in_flight -= acknowledged;
        if let Some(pace) = self.pace.as_mut().filter(|_| acknowledged > 0) {
            pace.acknowledged(acknowledged, now);
        }
    }

    /// The connection has its turn.
    fn send(&mut self, now: Timestamp) {
        let Setting { message, socket, queue, .. } = self.setting;
        loop {
            let room = socket - self.socket;
            self.is_full &= room < socket / 3;
            let written = if self.is_full { 0 } else { room.min(self.out) };
            self.socket += written;
            self.out -= written;
            if let Some(pace) = self.pace.as_mut().filter(|_| written > 0 && message > 16 << 10) {
                pace.read(written, now);
            }
            if self.out > 0 {
                self.is_full = true;
                self.pace.iter_mut().for_each(Pace::blocked);
                return;
            }
            let mut taken = 0;
            while taken < self.queued && taken < OUT && self.in_flight < WINDOW {
                taken += message;
                self.in_flight += message;
            }
            self.queued -= taken;
            self.out = taken;
            match (&mut self.pace, self.queued) {
                (pace, level) if level <= queue / 16 => *pace = None,
                (Some(pace), level) => pace.took(taken, level > queue / 4, now),
                (None, _) => {}
            }
            if taken == 0 {
                return;
            }
        }
    }

    /// Messages are queued. False if the client is disconnected for it.
    fn came(&mut self, bytes: usize, now: Timestamp) -> bool {
        let Setting { queue, message, .. } = self.setting;
        for _ in 0..bytes / message {
            let (is_fair, reads) = self.pace.as_ref().map_or((true, true), |pace| (pace.is_fair(now), pace.reads(now)));
            let fits =
                self.queued == 0 || is_fair && self.queued < queue + EXCESS || reads && self.queued + message <= queue;
            if !fits {
                return false;
            }
            self.queued += message;
            if self.distance().is_some() {
                let fresh = || Pace::new(now, queue, Arc::clone(&self.stops));
                self.pace.get_or_insert_with(fresh).came(message, now);
            }
        }
        true
    }
}

/// A minute of publishers that publish as fast as they may; two minutes without a stop. Returns when the client was
/// disconnected.
fn cut(setting: Setting) -> Option<u64> {
    let Setting { message, publishers, stopped, .. } = setting;
    let stops = Arc::new(Stops::default());
    let mut reader = Reader {
        setting,
        stops: Arc::clone(&stops),
        pace: None,
        queued: 0,
        in_flight: 0,
        out: 0,
        socket: 0,
        is_full: false,
        due: 0,
        part: 0,
    };
    let mut all: Vec<(u64, Option<Plan>, Option<usize>)> = (0..publishers).map(|_| (0, None, None)).collect();
    let stop = 30_000..30_000 + stopped * 1000;
    let end = if stopped > 0 { 60_000 } else { 120_000 };
    for ms in (0..end).step_by(usize::try_from(TICK).unwrap()) {
        reader.read(at(ms));
        if stop.contains(&ms) {
            continue;
        }
        if ms == stop.end && stopped > 0 {
            stops.ended(at(ms), Duration::ZERO);
        } else {
            reader.send(at(ms));
        }
        for (looks_at, plan, turn) in all.iter_mut().filter(|(looks_at, ..)| *looks_at <= ms) {
            if let Some(plan) = plan
                && plan.goes_on(at(ms), stops.last())
            {
                *looks_at = ms + u64::try_from(plan.look().as_millis()).unwrap();
                continue;
            }
            let bytes = turn.unwrap_or(BUFFER).min(BUFFER).next_multiple_of(message);
            if !reader.came(bytes, at(ms)) {
                return Some(ms);
            }
            let distance = reader.distance();
            let asked = reader.pace.as_mut().zip(distance).and_then(|(pace, distance)| pace.slow_down(distance));
            let next = asked.map(Plan::new);
            *turn = next.as_ref().and_then(|plan| plan.next_turn(bytes, *turn));
            *looks_at = ms + next.as_ref().map_or(1, |plan| u64::try_from(plan.look().as_millis()).unwrap().max(1));
            *plan = next;
        }
    }
    None
}

fn grid(stopped: u64) {
    let mut seen = Vec::new();
    for queue in [4 << 20, 16 << 20] {
        for message in [1 << 10, 16 << 10, 100_000, 500_000, 1 << 20, 9 << 17] {
            for socket in [64 << 10, 512 << 10, 4 << 20] {
                for (publishers, least) in [(1, 4), (3, 8)] {
                    for quarters in [least, 2 * least, 64] {
                        for reads in [Reads::Steadily, Reads::Messages] {
                            // Of the least fair pace, and a message of each publisher within seven seconds: they
                            // stop for eight at most.
                            let per_second = (queue / FAIR / 2 / 4 * quarters).max(message * publishers.max(2) / 7);
                            let setting = Setting { queue, message, socket, publishers, per_second, reads, stopped };
                            seen.extend(cut(setting).map(|ms| format!("after {ms} ms: {setting:?}")));
                        }
                    }
                }
            }
        }
    }
    assert!(seen.is_empty(), "{}:\n{}", seen.len(), seen.join("\n"));
}

#[test]
fn a_client_that_reads_at_a_fair_pace_is_not_disconnected() {
    grid(0);
}

#[test]
fn a_client_that_reads_at_a_fair_pace_is_not_disconnected_after_the_gateway_was_stopped() {
    grid(3);
}

/// Otherwise it would stop its publishers.
#[test]
fn a_client_that_reads_nothing_or_hardly_anything_is_disconnected() {
    for message in [1 << 10, 1 << 20] {
        for per_second in [0, QUEUE / FAIR / 2 / 8] {
            for reads in [Reads::Steadily, Reads::Messages] {
                let setting =
                    Setting { queue: QUEUE, message, socket: 4 << 20, publishers: 3, per_second, reads, stopped: 0 };
                assert!(cut(setting).is_some_and(|ms| ms < 60_000), "{setting:?}: {:?}", cut(setting));
            }
        }
    }
}
