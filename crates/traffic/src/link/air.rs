//! A model of Wi-Fi: stations that share the air of one channel with an access point (IEEE 802.11-2020).
//!
//! It is a model and no radio. What it has: one transmission at a time in either direction; random back-off, doubled
//! after each failure, and collisions when two back-offs end in one slot (§10.3, §10.23.2); aggregates that pay
//! preamble and block acknowledgement once (§10.12, §10.25); damaged frames that are sent again, while the receiver
//! holds those behind them to keep the order (§10.25.6); a rate for each station. Two stations reach each other by
//! the access point, so that each frame is sent twice. What it does not have: rate adaptation, hidden stations,
//! RTS/CTS, power saving, other networks, beacons.
//!
//! It is pure: time is an argument, and frames are bytes.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::conditions::Air;
use super::dice::Dice;

/// OFDM at 5 GHz, or HT at 2.4 GHz without old stations (Table 17-21).
const SLOT: Duration = Duration::from_micros(9);
const SIFS: Duration = Duration::from_micros(16);
/// The arbitration space of best effort: SIFS and three slots (Table 9-155, §10.23.2.4).
const AIFS: Duration = Duration::from_micros(16 + 3 * 9);
/// Contention windows of best effort, in slots (Table 9-155).
const WINDOW_MIN: u32 = 15;
const WINDOW_MAX: u32 = 1_023;
/// The preamble of a PPDU in mixed format with two streams: 8 + 8 + 4 + 8 + 4 + 2 × 4 µs (§19.3.2, Table 19-6).
const PREAMBLE: Duration = Duration::from_micros(40);
/// A block acknowledgement: 32 bytes at 24 Mbit/s behind a preamble of 20 µs (§9.3.1.8, §17.3.2).
const BLOCK_ACK: Duration = Duration::from_micros(32);
/// The longest PPDU (aPPDUMaxTime, Tables 19-25 and 21-28). The longest aggregate in bytes of VHT, 2²⁰ − 1, is never
/// reached by 64 frames; that of HT is, from about 100 Mbit/s on.
const PPDU_MAX: Duration = Duration::from_micros(5_484);
/// The bytes that an Ethernet frame gains in an aggregate: without its header of 14 bytes, with 26 of a QoS data frame,
/// 8 of LLC and SNAP, 16 of CCMP, 4 of the frame check and 4 of the delimiter (§9.3.2.1, §12.5.3, §9.7.1).
const ENCAPSULATION_BYTES: u64 = 26 + 8 + 16 + 4 + 4 - 14;
/// Frames that wait for the air in one flow; more are lost, as by a device with the usual queue (`txqueuelen`).
const QUEUE_FRAMES: usize = 1_000;

/// The direction of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// To the gateway.
    Up,
    /// To the client.
    Down,
}

/// A frame that has crossed the air.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Arrived {
    pub(super) way: Way,
    pub(super) at: Instant,
    pub(super) frame: Vec<u8>,
}

/// The channel and its stations.
#[derive(Debug)]
pub(super) struct Medium {
    air: Air,
    dice: Dice,
    stations: Vec<Station>,
    /// When the channel was last given free; nothing was sent since.
    idle_since: Instant,
    /// The transmission on the channel.
    sent: Option<Transmission>,
    /// The time of the last event: nothing happens before it.
    clock: Instant,
    arrived: VecDeque<Arrived>,
}

/// Something that contends for the channel.
#[derive(Debug)]
struct Station {
    flows: Vec<Flow>,
    /// The flow whose turn it is.
    turn: usize,
    /// Slots that are left of the back-off.
    backoff: u32,
    window: u32,
}

/// Frames from one station to one other.
#[derive(Debug)]
struct Flow {
    way: Way,
    rate: u64,
    /// Whether frames go on over the air from where they arrive.
    is_relayed: bool,
    queue: VecDeque<Queued>,
}

#[derive(Debug)]
struct Queued {
    frame: Vec<u8>,
    came: Instant,
    retries: u32,
    is_received: bool,
}

#[derive(Debug)]
struct Transmission {
    until: Instant,
    senders: Vec<Sender>,
}

/// A station, its flow, and how many frames of it are in the aggregate.
#[derive(Clone, Copy, Debug)]
struct Sender {
    station: usize,
    flow: usize,
    frames: usize,
}

impl Medium {
    pub(super) fn new(air: Air, seed: u64, now: Instant) -> Self {
        let flow = |way, rate: Option<u64>, is_relayed| {
            rate.map(|rate| Flow { way, rate, is_relayed, queue: VecDeque::new() })
        };
        let are_both = air.client.is_some() && air.gateway.is_some();
        let stations = [
            vec![flow(Way::Up, air.client, are_both)],
            // The access point.
            vec![flow(Way::Up, air.gateway, false), flow(Way::Down, air.client, false)],
            vec![flow(Way::Down, air.gateway, are_both)],
        ];
        let stations = stations.map(|flows| flows.into_iter().flatten().collect());
        let station = |flows| Station { flows, turn: 0, backoff: 0, window: WINDOW_MIN };
        let stations = stations.into_iter().map(station).collect();
        let dice = Dice::new(seed.rotate_left(32));
        Self { air, dice, stations, idle_since: now, sent: None, clock: now, arrived: VecDeque::new() }
    }

    /// Takes a frame that an end sends.
    pub(super) fn offer(&mut self, way: Way, at: Instant, frame: Vec<u8>) {
        let at = at.max(self.clock);
        let mut flows = self.stations.iter_mut().flat_map(|station| &mut station.flows);
        // Of two flows of a direction the relayed one comes first on the way.
        let is_first = |flow: &&mut Flow| flow.way == way && (flow.is_relayed || !self.air.is_relayed());
        if let Some(flow) = flows.find(is_first) {
            flow.enqueue(at, frame);
        }
    }

    /// When something happens next.
    pub(super) fn next_due(&self) -> Option<Instant> {
        if !self.arrived.is_empty() {
            return Some(self.clock);
        }
        match &self.sent {
            Some(sent) => Some(sent.until),
            None => self.starts().map(|(_, at)| at).min(),
        }
    }

    /// Lets time pass until a frame has arrived; nothing if none has by now.
    pub(super) fn advance(&mut self, now: Instant) -> Option<Arrived> {
        while self.arrived.is_empty() {
            let due = self.next_due().filter(|due| *due <= now)?;
            self.clock = due;
            match self.sent.take() {
                Some(sent) => self.finish(&sent),
                None => self.start(due),
            }
        }
        self.arrived.pop_front()
    }

    /// Of each station with something to send, when its back-off is over if nobody else begins.
    fn starts(&self) -> impl Iterator<Item = (usize, Instant)> {
        let idle = self.idle_since + AIFS;
        self.stations.iter().enumerate().filter_map(move |(at, station)| {
            let came = station.flows.iter().filter_map(|flow| Some(flow.queue.front()?.came)).min()?;
            Some((at, (idle + SLOT * station.backoff).max(came)))
        })
    }

    /// The first station begins to send, with others whose back-off ends within a slot.
    fn start(&mut self, first: Instant) {
        let starts: Vec<(usize, Instant)> = self.starts().collect();
        let waited = first.saturating_duration_since(self.idle_since + AIFS);
        let slots = u32::try_from(waited.as_nanos() / SLOT.as_nanos()).unwrap_or(u32::MAX);
        let mut senders = Vec::new();
        let mut longest = Duration::ZERO;
        for (at, station) in self.stations.iter_mut().enumerate() {
            // The others go on with the rest of theirs (§10.3.4.3).
            station.backoff = station.backoff.saturating_sub(slots);
            if starts.iter().any(|(other, start)| *other == at && *start < first + SLOT)
                && let Some((flow, frames, takes)) = station.aggregate(self.air.frames)
            {
                senders.push(Sender { station: at, flow, frames });
                longest = longest.max(takes);
            }
        }
        self.sent = Some(Transmission { until: first + longest, senders });
    }

    /// The channel is free again: frames have arrived, or are sent again.
    fn finish(&mut self, sent: &Transmission) {
        self.idle_since = sent.until;
        let is_collision = sent.senders.len() > 1;
        for sender in &sent.senders {
            let Self { air, dice, stations, .. } = self;
            let Some(station) = stations.get_mut(sender.station) else { continue };
            let Some(flow) = station.flows.get_mut(sender.flow) else { continue };
            let is_received = flow.receive(sender.frames, air.retries, || !is_collision && !dice.is(air.errors));
            station.window = if is_received { WINDOW_MIN } else { (2 * station.window + 1).min(WINDOW_MAX) };
            // After each transmission, whether or not there is another (§10.3.4.3).
            let window = usize::try_from(station.window).unwrap_or(0);
            station.backoff = dice.below(window + 1, 0).and_then(|slots| u32::try_from(slots).ok()).unwrap_or(0);
            let (way, is_relayed) = (flow.way, flow.is_relayed);
            let frames = flow.in_order();
            for frame in frames {
                self.hand_on(way, is_relayed, frame);
            }
        }
    }

    fn hand_on(&mut self, way: Way, is_relayed: bool, frame: Vec<u8>) {
        let at = self.clock;
        if !is_relayed {
            self.arrived.push_back(Arrived { way, at, frame });
            return;
        }
        let mut flows = self.stations.iter_mut().flat_map(|station| &mut station.flows);
        if let Some(flow) = flows.find(|flow| flow.way == way && !flow.is_relayed) {
            flow.enqueue(at, frame);
        }
    }
}

impl Air {
    /// Whether each frame crosses the air twice.
    fn is_relayed(self) -> bool {
        self.client.is_some() && self.gateway.is_some()
    }
}

impl Station {
    /// The next flow with frames, how many of them go in one aggregate, and how long it and its acknowledgement take.
    fn aggregate(&mut self, frames_max: u32) -> Option<(usize, usize, Duration)> {
        let count = self.flows.len();
        let mut turns = (0..count).map(|step| (self.turn + step) % count.max(1));
        let at = turns.find(|at| self.flows.get(*at).is_some_and(|flow| !flow.queue.is_empty()))?;
        self.turn = at + 1;
        let flow = self.flows.get(at)?;
        let frames_max = usize::try_from(frames_max).unwrap_or(usize::MAX);
        let (mut frames, mut bytes) = (0, 0);
        for queued in flow.queue.iter().take(frames_max).filter(|queued| !queued.is_received) {
            let longer = bytes + u64::try_from(queued.frame.len()).unwrap_or(u64::MAX) + ENCAPSULATION_BYTES;
            if frames > 0 && flow.takes(longer) > PPDU_MAX {
                break;
            }
            (frames, bytes) = (frames + 1, longer);
        }
        Some((at, frames, flow.takes(bytes) + SIFS + BLOCK_ACK))
    }
}

impl Flow {
    fn enqueue(&mut self, came: Instant, frame: Vec<u8>) {
        if self.queue.len() < QUEUE_FRAMES {
            self.queue.push_back(Queued { frame, came, retries: 0, is_received: false });
        }
    }

    fn takes(&self, bytes: u64) -> Duration {
        PREAMBLE + Duration::from_nanos(bytes.saturating_mul(8_000_000_000) / self.rate.max(1))
    }

    /// Marks the first frames as received, or as to be sent again; whether any was received. Frames that were sent too
    /// often are given up.
    fn receive(&mut self, frames: usize, retries_max: u32, mut arrives: impl FnMut() -> bool) -> bool {
        let mut is_any = false;
        for queued in self.queue.iter_mut().filter(|queued| !queued.is_received).take(frames) {
            queued.is_received = arrives();
            is_any |= queued.is_received;
            queued.retries += u32::from(!queued.is_received);
        }
        self.queue.retain(|queued| queued.is_received || queued.retries <= retries_max);
        is_any
    }

    /// Takes the frames that may be handed on: those before the first that is missing.
    fn in_order(&mut self) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        while let Some(queued) = self.queue.pop_front_if(|queued| queued.is_received) {
            frames.push(queued.frame);
        }
        frames
    }
}
