//! The conditions of a link.
//!
//! The module `text` has their text form (`loopback`, `lossless`, `loss=5%,delay=20ms,rate=250kbit`), `preset` named
//! ones.

mod preset;
mod text;

use std::time::Duration;

pub use preset::{PRESETS, Preset};

/// The conditions of both directions of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Conditions {
    /// Towards the gateway.
    pub up: Direction,
    /// Towards the clients.
    pub down: Direction,
    /// Whether there is a link at all.
    pub medium: Medium,
    /// The Wi-Fi that both directions share, if any.
    pub air: Air,
    /// Whether each TCP segment is acknowledged at once (`acks=each`: `quickack 1` on both routes) or, as kernels do on
    /// their own, with the next answer or up to 40 ms later.
    pub acks_each: bool,
    /// Whether the frames that are lost have to be drawn from the seed (`seeded`), whatever that costs.
    pub seeded: bool,
}

/// The medium of the frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Medium {
    /// An emulated link.
    #[default]
    Link,
    /// The loopback device of the machine, without impairment.
    Loopback,
}

/// The conditions of one direction. Shares are from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Direction {
    /// The share of frames that are lost, each independently of the others.
    pub loss: f64,
    /// Frames lost in bursts, besides those of `loss`.
    pub bursts: Option<Bursts>,
    /// The share of frames of which one bit is inverted, in or behind the IP header.
    pub corrupt: f64,
    /// The share of frames that arrive twice.
    pub duplicate: f64,
    /// The share of frames that skip the delay, and so overtake those under way.
    pub reorder: f64,
    /// From the last bit sent to the last bit received.
    pub delay: Duration,
    /// The delay of each frame is drawn evenly from `delay - jitter` to `delay + jitter`; frames stay in order.
    pub jitter: Duration,
    /// Bits of frames in a second, Ethernet headers counted; nothing: as fast as the machine.
    pub rate: Option<u64>,
}

/// Loss by two states (Gilbert 1960, Elliott 1963): the state changes before each frame with these probabilities.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bursts {
    /// From good to bad.
    pub to_bad: f64,
    /// From bad to good; its inverse is the mean length of a bad period in frames.
    pub to_good: f64,
    /// The share of frames lost in the bad state.
    pub loss_bad: f64,
    /// The share of frames lost in the good state.
    pub loss_good: f64,
}

/// A Wi-Fi of one access point; the module `air` beside this one is the model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Air {
    /// Bits a second in the air between the client and the access point; nothing: the client is wired to it.
    pub client: Option<u64>,
    /// The same of the gateway.
    pub gateway: Option<u64>,
    /// The share of frames in the air that arrive damaged and are sent again.
    pub errors: f64,
    /// The most frames sent in one access to the medium.
    pub frames: u32,
    /// How often a frame is sent again before it is given up.
    pub retries: u32,
}

impl Default for Air {
    fn default() -> Self {
        // IEEE 802.11-2020: 64 frames are a whole block acknowledgement (§9.3.1.8.2), dot11ShortRetryLimit is 7.
        Self { client: None, gateway: None, errors: 0.0, frames: 64, retries: 7 }
    }
}

impl Air {
    /// Whether either end is on it.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.client.is_some() || self.gateway.is_some()
    }
}

impl Direction {
    fn is_lossy(&self) -> bool {
        self.loss > 0.0 || self.corrupt > 0.0 || self.bursts.is_some()
    }

    /// Whether nftables and `netem` do not do it, or not as said here.
    fn needs_relay(&self) -> bool {
        let rare = self.corrupt > 0.0 || self.duplicate > 0.0 || self.reorder > 0.0 || self.bursts.is_some();
        // netem lets frames overtake each other when they are late by different times; links do not.
        rare || self.jitter > Duration::ZERO
    }
}

impl Conditions {
    /// Whether nothing has to be laid.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        self.medium == Medium::Loopback
    }

    /// Whether frames may be lost.
    #[must_use]
    pub fn is_lossy(&self) -> bool {
        self.up.is_lossy() || self.down.is_lossy()
    }

    /// Whether frames only have to be lost, each independently of the others.
    #[must_use]
    pub fn is_loss_only(&self) -> bool {
        let untimed = |direction: Direction| Direction { loss: 0.0, ..direction } == Direction::default();
        untimed(self.up) && untimed(self.down) && !self.air.is_there()
    }

    /// Whether nothing happens to frames.
    #[must_use]
    pub fn is_lossless(&self) -> bool {
        self.up == Direction::default() && self.down == Direction::default() && !self.air.is_there()
    }

    /// Whether only the relay does all of it.
    #[must_use]
    pub fn needs_relay(&self) -> bool {
        self.up.needs_relay() || self.down.needs_relay() || self.air.is_there()
    }

    /// Whether anything that happens to frames is drawn.
    #[must_use]
    pub fn is_drawn(&self) -> bool {
        self.is_lossy() || self.needs_relay()
    }
}
