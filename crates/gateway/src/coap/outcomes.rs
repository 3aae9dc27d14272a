//! The outcomes of deliveries to observers, each in exactly one counter (docs/metrics.md): a delivery counts as sent
//! when its observer is notified, not when it leaves the mailbox. Until then it waits.

use fogmux_bus::Counters;
use fogmux_coap::server::Notified;

/// The outcome of trying to notify an observer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// It was notified.
    Sent,
    /// It may not be notified yet.
    Later,
    /// The notification could not name its topic, whose levels are too long for options.
    TooLong,
    /// It may not read the topic any more.
    Forbidden,
    /// The observation has ended.
    Gone,
}

impl From<Notified> for Told {
    fn from(notified: Notified) -> Self {
        match notified {
            Notified::Sent => Self::Sent,
            Notified::Later => Self::Later,
            Notified::Gone => Self::Gone,
        }
    }
}

impl Told {
    /// Whether the observer may be notified of more.
    pub(super) const fn goes_on(self) -> bool {
        match self {
            Self::Sent | Self::TooLong | Self::Forbidden => true,
            Self::Later | Self::Gone => false,
        }
    }
}

/// Deliveries that have had an outcome since they were last added to the counters of the bus.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Outcomes {
    pub(super) sent: u64,
    pub(super) expired: u64,
    pub(super) too_large: u64,
    /// Dropped because their observer was too slow, so that its observation ended with 5.03.
    pub(super) full: u64,
    /// Dropped because their observation has ended.
    pub(super) gone: u64,
    /// Replaced by a newer value, which is sent or waits.
    pub(super) overtaken: u64,
}

impl Outcomes {
    /// Notes an outcome, if it is one.
    pub(super) const fn note(&mut self, told: Told) {
        match told {
            Told::Sent => self.sent += 1,
            Told::Later => {}
            Told::TooLong => self.too_large += 1,
            Told::Forbidden | Told::Gone => self.gone += 1,
        }
    }

    /// Adds them to the counters of the bus.
    pub(super) fn count(&mut self, counters: &Counters) {
        let Self { sent, expired, too_large, full, gone, overtaken } = std::mem::take(self);
        counters.drained(sent, expired, too_large);
        counters.full(full);
        counters.gone(gone);
        counters.overtaken(overtaken);
    }
}
