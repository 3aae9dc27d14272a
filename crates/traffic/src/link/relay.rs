//! Carries frames between two devices and does to them what the conditions say: our own `netem`.
//!
//! A [`Lane`] is one direction and pure: it says of each frame whether it is lost and when it has arrived at the other
//! end. The thread around it only holds frames until then. A frame waits until those before it are on the line, takes
//! its length over the rate to be sent, and then travels for its delay. Frames stay in order.

use std::collections::VecDeque;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::AsFd;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::thread::set_current_timer_slack;

use super::LinkError;
use super::background::{Background, Watch};
use super::conditions::{Conditions, Direction};
use super::packet_socket::{FRAME_BYTES_MAX, PacketSocket};

/// The queue of the line in bytes: this, or the bytes that the rate carries in [`QUEUE_TIME`] if that is more. Frames
/// beyond it are lost, as in any router. It holds the largest segmented TCP write.
const QUEUE_BYTES: u64 = 65_536;
const QUEUE_TIME: Duration = Duration::from_millis(200);
/// The most frames in transit.
const ON_THE_WAY_MAX: usize = 100_000;
/// The number of frames read from one side before the other.
const TURN_FRAMES: usize = 64;
/// The greatest plausible age of a frame; an older timestamp is from before the clock was set.
const AGE_MAX: Duration = Duration::from_millis(100);
/// Frames of Ethernet, for bounds that are counted in frames.
const FULL_FRAME_BYTES: u64 = 1_514;

/// The thread, until this is dropped.
#[derive(Debug)]
pub(super) struct Relay(#[expect(dead_code, reason = "held, so that it runs")] Background<()>);

impl Relay {
    /// Between two devices of the calling thread's namespace.
    pub(super) fn start(
        conditions: &Conditions,
        seed: u64,
        to_client: &str,
        to_gateway: &str,
    ) -> Result<Self, LinkError> {
        let open =
            |device| PacketSocket::open(device).map_err(LinkError::kernel(format!("a packet socket on {device}")));
        let sockets = [open(to_client)?, open(to_gateway)?];
        let now = Instant::now();
        let lanes = [Lane::new(conditions.up, seed, now), Lane::new(conditions.down, !seed, now)];
        Background::start("link-relay", move |watch| run(watch, sockets, lanes))
            .map(Self)
            .map_err(LinkError::kernel("the relay's thread"))
    }
}

/// How many frames may wait for a line of this rate and be on their way over it.
pub(super) fn frames_max(rate: u64, delay: Duration) -> u64 {
    let bytes = queue_bytes(rate) + carried(rate, delay);
    bytes.div_ceil(FULL_FRAME_BYTES)
}

fn run(mut watch: Watch, sockets: [PacketSocket; 2], lanes: [Lane; 2]) {
    // Timers are otherwise late by 50 µs to save power.
    let _ = set_current_timer_slack(NonZeroU64::new(1));
    let [client, gateway] = &sockets;
    let [up, down] = lanes;
    let mut lanes = [Carrier::new(up, client, gateway), Carrier::new(down, gateway, client)];
    let mut frame = vec![0; FRAME_BYTES_MAX];
    loop {
        let now = Instant::now();
        let next = lanes.iter().filter_map(Carrier::next_due).min();
        let timeout = next.map(|due| due.saturating_duration_since(now));
        if !watch.wait([client.as_fd(), gateway.as_fd()], timeout) {
            return;
        }
        for lane in &mut lanes {
            // A device that is gone is a namespace that is being removed.
            if lane.turn(&mut frame).is_err() {
                return;
            }
        }
    }
}

/// A lane and the frames on it.
struct Carrier<'a> {
    lane: Lane,
    from: &'a PacketSocket,
    to: &'a PacketSocket,
    on_the_way: VecDeque<(Instant, Vec<u8>)>,
    spare: Vec<Vec<u8>>,
}

impl<'a> Carrier<'a> {
    fn new(lane: Lane, from: &'a PacketSocket, to: &'a PacketSocket) -> Self {
        Self { lane, from, to, on_the_way: VecDeque::new(), spare: Vec::new() }
    }

    fn next_due(&self) -> Option<Instant> {
        self.on_the_way.front().map(|(due, _)| *due)
    }

    fn turn(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        self.deliver();
        for _ in 0..TURN_FRAMES {
            let Some((length, stamp)) = self.from.receive(buffer)? else { break };
            let now = Instant::now();
            // It counts from when the frame came, not from when this thread woke up.
            let age = SystemTime::now().duration_since(UNIX_EPOCH + stamp).unwrap_or_default();
            let came = now.checked_sub(age.min(AGE_MAX)).unwrap_or(now);
            let frame = buffer.get(..length).unwrap_or_default();
            let Some(due) = self.lane.arrival(came, frame.len()) else { continue };
            if due <= now && self.on_the_way.is_empty() {
                self.to.send(frame);
            } else if self.on_the_way.len() < ON_THE_WAY_MAX {
                let mut held = self.spare.pop().unwrap_or_default();
                held.extend_from_slice(frame);
                self.on_the_way.push_back((due, held));
            }
        }
        self.deliver();
        Ok(())
    }

    fn deliver(&mut self) {
        let now = Instant::now();
        while let Some((_, mut frame)) = self.on_the_way.pop_front_if(|(due, _)| *due <= now) {
            self.to.send(&frame);
            frame.clear();
            self.spare.push(frame);
        }
    }
}

/// One direction of a link.
#[derive(Debug)]
struct Lane {
    direction: Direction,
    random: u64,
    /// When the last bit of the frame before is sent.
    line_free: Instant,
    last_due: Instant,
}

impl Lane {
    fn new(direction: Direction, seed: u64, now: Instant) -> Self {
        // xorshift never leaves zero; the multiplication keeps small seeds apart.
        let random = seed.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut lane = Self { direction, random, line_free: now, last_due: now };
        // The first values of similar seeds are similar.
        for _ in 0..8 {
            lane.draw();
        }
        lane
    }

    /// When a frame that is sent now is at the other end; nothing if it is lost.
    fn arrival(&mut self, now: Instant, bytes: usize) -> Option<Instant> {
        let (loss, jitter) = (self.draw(), self.draw());
        if loss < self.direction.loss {
            return None;
        }
        let sent = self.sent(now, u64::try_from(bytes).unwrap_or(u64::MAX))?;
        let latest = self.direction.delay + self.direction.jitter;
        let due = sent + latest - self.direction.jitter.mul_f64(2.0 * jitter);
        self.last_due = due.max(self.last_due);
        Some(self.last_due)
    }

    /// When its last bit is sent; nothing if too much waits.
    fn sent(&mut self, now: Instant, bytes: u64) -> Option<Instant> {
        let Some(rate) = self.direction.rate else { return Some(now) };
        let waiting = self.line_free.saturating_duration_since(now);
        if carried(rate, waiting) + bytes > queue_bytes(rate) + FULL_FRAME_BYTES {
            return None;
        }
        let takes = Duration::from_nanos(bytes.saturating_mul(8).saturating_mul(1_000_000_000) / rate.max(1));
        self.line_free = self.line_free.max(now) + takes;
        Some(self.line_free)
    }

    /// From 0 up to 1: xorshift64* (Vigna 2016).
    fn draw(&mut self) -> f64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        let bits = u32::try_from(self.random.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32).unwrap_or(0);
        f64::from(bits) / (f64::from(u32::MAX) + 1.0)
    }
}

fn queue_bytes(rate: u64) -> u64 {
    carried(rate, QUEUE_TIME).max(QUEUE_BYTES)
}

/// Bytes that a rate carries in a time.
fn carried(rate: u64, time: Duration) -> u64 {
    u64::try_from(u128::from(rate) * time.as_nanos() / 8_000_000_000).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(conditions: &str, seed: u64, now: Instant) -> Lane {
        Lane::new(conditions.parse::<Conditions>().unwrap().up, seed, now)
    }

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn as_many_frames_are_lost_as_asked_for_and_the_same_ones_again() {
        let now = Instant::now();
        let lost = |seed| {
            let mut lane = lane("loss=15%", seed, now);
            (0..20_000).filter(|_| lane.arrival(now, 100).is_none()).collect::<Vec<u32>>()
        };
        let (first, again, other) = (lost(1), lost(1), lost(2));
        assert_eq!(first, again);
        assert_ne!(first, other);
        // Binomial: 3000 ± 50.5; five of them.
        assert!((2_750..3_250).contains(&first.len()) && (2_750..3_250).contains(&other.len()), "{}", first.len());
        // Independent: pairs of neighbours are lost at 15 % of 15 %.
        let pairs = first.windows(2).filter(|pair| pair[0] + 1 == pair[1]).count();
        assert!((350..550).contains(&pairs), "{pairs}");
    }

    #[test]
    fn a_frame_takes_its_length_over_the_rate_and_then_its_delay() {
        let now = Instant::now();
        let mut lane = lane("rate=1mbit,delay=20ms", 1, now);
        // 125 bytes are 1 ms of a megabit.
        assert_eq!(lane.arrival(now, 125), Some(now + 21 * MS));
        assert_eq!(lane.arrival(now, 250), Some(now + 23 * MS), "it waits for the one before");
        assert_eq!(lane.arrival(now + 10 * MS, 125), Some(now + 31 * MS), "the line was free again");
    }

    #[test]
    fn jitter_keeps_its_bounds_and_the_order() {
        let mut now = Instant::now();
        let mut lane = lane("delay=10ms,jitter=4ms", 1, now);
        let (mut earliest, mut latest, mut before) = (u128::MAX, 0, now);
        for _ in 0..10_000 {
            now += 10 * MS;
            let due = lane.arrival(now, 100).unwrap();
            let took = (due - now).as_micros();
            (earliest, latest) = (earliest.min(took), latest.max(took));
            assert!(due >= before);
            before = due;
        }
        assert!((6_000..6_010).contains(&earliest) && (13_990..=14_000).contains(&latest), "{earliest} {latest}");
        let burst: Vec<Instant> = (0..100).filter_map(|_| lane.arrival(now, 100)).collect();
        assert!(burst.is_sorted());
    }

    #[test]
    fn what_waits_for_the_line_has_a_bound() {
        let now = Instant::now();
        let mut lane = lane("rate=250kbit", 1, now);
        let taken = (0..1_000).filter(|_| lane.arrival(now, 1_514).is_some()).count();
        assert_eq!(taken, 44, "64 KiB and the frame on the line");
        assert!(lane.arrival(now + 100 * MS, 1_514).is_some(), "there is room again");
    }

    #[test]
    fn bounds_count_the_way_too() {
        assert_eq!(frames_max(250_000, Duration::ZERO), 44);
        assert_eq!(frames_max(10_000_000, 279 * MS), (250_000u64 + 348_750).div_ceil(1_514));
    }
}
