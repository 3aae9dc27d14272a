//! Retained messages for a new subscription, pulled in chunks as the client has room: a filter that matches everything
//! must not load everything into memory.

use fogmux_bus::{Filter, Qos, ReadGate, Topic};
use smallvec::SmallVec;
use tokio::io::{AsyncRead, AsyncWrite};

use super::{
    connection::{Connection, End},
    kept::Kept,
};

/// Messages pulled at once.
pub(super) const CHUNK: usize = 32;

/// A subscription whose retained messages have not all been sent.
#[derive(Debug)]
pub(super) struct Pull {
    filter: Filter,
    qos: Qos,
    id: Option<u32>,
    after: Option<Topic>,
}

impl Pull {
    pub(super) const fn new(filter: Filter, qos: Qos, id: Option<u32>) -> Self {
        Self { filter, qos, id, after: None }
    }

    pub(super) fn is_for(&self, filter: &Filter) -> bool {
        self.filter == *filter
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Queues the next chunk; returns how many messages were in it.
    pub(super) fn pull(&mut self) -> Result<usize, End> {
        let Some(mut pull) = self.rare().pulls.pop_front() else { return Ok(0) };
        let (bus, gate) = (self.ctx.bus(), &self.gate);
        let queue = |mailbox: &mut super::mailbox::MqttMailbox| {
            // Looked up while the mailbox is locked, so that a newer value is delivered behind this one.
            let chunk = bus.retained(&pull.filter, pull.after.as_ref(), CHUNK, self.now);
            let mut pulled = 0_usize;
            for message in chunk.messages.into_iter().filter(|message| gate.may_read(&message.topic)) {
                pulled += 1;
                mailbox.enqueue_retained(Kept {
                    qos: pull.qos.min(message.qos),
                    // [MQTT-3.3.1-8]
                    retain: true,
                    ids: pull.id.into_iter().collect::<SmallVec<_>>(),
                    share: 0,
                    message,
                });
            }
            (chunk.next, pulled)
        };
        let (next, pulled) = self.slot.with_claim(self.claim, queue).map_err(|_| End::Displaced)?;
        bus.counters().pulled(pulled as u64);
        if next.is_some() {
            pull.after = next;
            self.rare().pulls.push_front(pull);
        }
        Ok(pulled)
    }
}
