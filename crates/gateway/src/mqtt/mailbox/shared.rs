//! Shared subscriptions (§4.8.2): which member is to be preferred, and what one that leaves has not taken.

use std::sync::Arc;

use fogmux_bus::{Message, Qos, Readiness};

use super::MqttMailbox;

/// Messages that are not acknowledged yet, and bytes that are not written yet, above which a member of a shared
/// subscription counts as busy: others get the next ones first.
const BUSY_IN_FLIGHT: usize = 16;
const BUSY_BYTES: usize = 16 << 10;

/// What becomes of the messages in flight when a client leaves a shared subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::mqtt) enum InFlight {
    /// They are completed: the session goes on.
    Completed,
    /// Nobody will acknowledge them: the session is over.
    Lost,
}

/// The messages of a shared subscription that a client has not taken.
#[derive(Debug, Default)]
pub(in crate::mqtt) struct Left {
    pub(in crate::mqtt) messages: Vec<Arc<Message>>,
    /// Those among them that were not sent.
    pub(in crate::mqtt) waited: u64,
}

impl MqttMailbox {
    /// Takes out the messages of a shared subscription that go to another member: those of QoS 1 and 2 that wait, and
    /// those of QoS 1 that nobody will acknowledge. One of QoS 2 in flight goes to nobody else ([MQTT-4.8.2-5]).
    pub(in crate::mqtt) fn take_shared(&mut self, share: u32, in_flight: InFlight) -> Left {
        let mut left = Left::default();
        if in_flight == InFlight::Lost {
            let unacknowledged = self.outbound.messages().filter(|kept| kept.share == share);
            let again = unacknowledged.filter(|kept| kept.qos == Qos::AtLeastOnce);
            left.messages.extend(again.map(|kept| Arc::clone(&kept.message)));
        }
        let queue_bytes = &mut self.queue_bytes;
        self.queue.retain(|kept| {
            if kept.share != share || kept.qos == Qos::AtMostOnce {
                return true;
            }
            *queue_bytes = queue_bytes.saturating_sub(kept.cost());
            left.waited += 1;
            left.messages.push(Arc::clone(&kept.message));
            false
        });
        left
    }

    /// How well the client keeps up: members that take messages get them first.
    pub(super) fn shared_readiness(&self) -> Readiness {
        if !self.may_encode(Qos::AtLeastOnce) {
            Readiness::Congested
        } else if self.outbound.in_flight() > BUSY_IN_FLIGHT || self.out.len() + self.unwritten > BUSY_BYTES {
            Readiness::Busy
        } else {
            Readiness::Ready
        }
    }
}
