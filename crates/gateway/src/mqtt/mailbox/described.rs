//! The contents of a mailbox in numbers, for administrators and links.

use fogmux_bus::Subscription;

use super::MqttMailbox;

/// The way in which a session ended that its client did not end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::mqtt) enum Ousted {
    /// It gave way to one of another principal.
    GaveWay,
    /// An administrator removed it.
    #[cfg_attr(not(feature = "http"), expect(dead_code, reason = "administrators come over HTTP"))]
    Removed,
}

/// The numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::mqtt) struct Description {
    pub(in crate::mqtt) subscriptions: usize,
    pub(in crate::mqtt) queued: usize,
    pub(in crate::mqtt) queued_bytes: usize,
    pub(in crate::mqtt) inflight: usize,
    pub(in crate::mqtt) inflight_bytes: usize,
    /// Whether the session has records in a store.
    pub(in crate::mqtt) durable: bool,
}

impl MqttMailbox {
    /// Counts what it holds, in a time that grows with what is in flight only.
    pub(in crate::mqtt) fn describe(&self) -> Description {
        Description {
            subscriptions: self.subscriptions.as_ref().map_or(0, |subscriptions| subscriptions.len()),
            queued: self.queue.len(),
            queued_bytes: self.queue.bytes(),
            inflight: self.outbound.unfinished(),
            inflight_bytes: self.inflight_bytes,
            durable: self.durable.is_some(),
        }
    }

    /// Its subscriptions, in no order.
    pub(in crate::mqtt) fn subscribed(&self) -> Vec<Subscription> {
        self.subscriptions.iter().flat_map(|subscriptions| subscriptions.each().cloned()).collect()
    }
}
