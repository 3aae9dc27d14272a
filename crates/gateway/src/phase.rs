//! The phases of a shutdown.

use tokio::sync::watch;

/// The phase of a shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// The gateway runs.
    Open,
    /// No new connections. Wills are published, and MQTT clients are read for acknowledgements only.
    Quiescing,
    /// Nothing is published any more. MQTT connections end when everything is delivered and acknowledged.
    Emptying,
    /// All remaining connections are closed.
    Closing,
}

/// Tells a task whether to ask for the phase: the first time, and always once a shutdown has begun. A task may be woken
/// between a change of the phase and its notification, so asking after changes only would miss it.
#[derive(Debug)]
pub(crate) struct Phases {
    draining: watch::Receiver<Phase>,
    asked: bool,
}

impl Phases {
    pub(crate) fn new(draining: &watch::Receiver<Phase>) -> Self {
        Self { draining: draining.clone(), asked: false }
    }

    /// Whether to ask for the phase.
    pub(crate) fn is_news(&mut self) -> bool {
        // An error means that the gateway is gone altogether.
        !std::mem::replace(&mut self.asked, true) || self.draining.has_changed().unwrap_or(true)
    }
}
