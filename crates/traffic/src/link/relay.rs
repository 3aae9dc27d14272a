//! Carries frames between two devices and does to them what the conditions say: our own `netem`.
//!
//! A [`Lane`] is one direction and pure: it says of each frame whether it is lost and when it has arrived at the other
//! end. The [`Medium`] of a Wi-Fi comes before it, and is shared by both. The thread around them only holds frames.

use std::collections::VecDeque;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::AsFd;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::thread::set_current_timer_slack;

use super::LinkError;
use super::air::{Arrived, Medium, Way};
use super::background::{Background, Watch};
use super::conditions::Conditions;
use super::lane::{Lane, Passage};
use super::packet_socket::{FRAME_BYTES_MAX, PacketSocket};

/// The most frames in transit.
const ON_THE_WAY_MAX: usize = 100_000;
/// The number of frames read from one side before the other.
const TURN_FRAMES: usize = 64;
/// The greatest plausible age of a frame; an older timestamp is from before the clock was set.
const AGE_MAX: Duration = Duration::from_millis(100);

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
        let air = conditions.air.is_there().then(|| Medium::new(conditions.air, seed, now));
        Background::start("link-relay", move |watch| run(watch, sockets, lanes, air))
            .map(Self)
            .map_err(LinkError::kernel("the relay's thread"))
    }
}

fn run(mut watch: Watch, sockets: [PacketSocket; 2], lanes: [Lane; 2], mut air: Option<Medium>) {
    // Timers are otherwise late by 50 µs to save power.
    let _ = set_current_timer_slack(NonZeroU64::new(1));
    let [client, gateway] = &sockets;
    let [up, down] = lanes;
    let (mut up, mut down) = (Carrier::new(up, client, gateway), Carrier::new(down, gateway, client));
    let mut buffer = vec![0; FRAME_BYTES_MAX];
    loop {
        let now = Instant::now();
        let due = [up.next_due(), down.next_due(), air.as_ref().and_then(Medium::next_due)];
        let timeout = due.into_iter().flatten().min().map(|due| due.saturating_duration_since(now));
        if !watch.wait([client.as_fd(), gateway.as_fd()], timeout) {
            return;
        }
        for (way, carrier) in [(Way::Up, &mut up), (Way::Down, &mut down)] {
            // A device that is gone is a namespace that is being removed.
            if carrier.turn(way, &mut buffer, air.as_mut()).is_err() {
                return;
            }
        }
        while let Some(Arrived { way, at, frame }) = air.as_mut().and_then(|air| air.advance(Instant::now())) {
            match way {
                Way::Up => up.carry(at, &frame),
                Way::Down => down.carry(at, &frame),
            }
        }
        up.deliver();
        down.deliver();
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

    /// Takes frames that have come, onto the air if there is one.
    fn turn(&mut self, way: Way, buffer: &mut [u8], mut air: Option<&mut Medium>) -> io::Result<()> {
        self.deliver();
        for _ in 0..TURN_FRAMES {
            let Some((length, stamp)) = self.from.receive(buffer)? else { break };
            let now = Instant::now();
            // It counts from when the frame came, not from when this thread woke up.
            let age = SystemTime::now().duration_since(UNIX_EPOCH + stamp).unwrap_or_default();
            let came = now.checked_sub(age.min(AGE_MAX)).unwrap_or(now);
            let frame = buffer.get(..length).unwrap_or_default();
            match &mut air {
                Some(air) => air.offer(way, came, frame.to_vec()),
                None => self.carry(came, frame),
            }
        }
        Ok(())
    }

    /// Sends a frame down the lane.
    fn carry(&mut self, came: Instant, frame: &[u8]) {
        let Some(Passage { due, is_double, flipped }) = self.lane.pass(came, frame.len()) else { return };
        if due <= Instant::now() && self.on_the_way.is_empty() && !is_double && flipped.is_none() {
            self.to.send(frame);
            return;
        }
        for _ in 0..if is_double { 2 } else { 1 } {
            if self.on_the_way.len() >= ON_THE_WAY_MAX {
                return;
            }
            let mut held = self.spare.pop().unwrap_or_default();
            held.extend_from_slice(frame);
            if let Some(bit) = flipped
                && let Some(byte) = held.get_mut(bit / 8)
            {
                *byte ^= 1 << (bit % 8);
            }
            let place = self.on_the_way.partition_point(|(other, _)| *other <= due);
            self.on_the_way.insert(place, (due, held));
        }
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
