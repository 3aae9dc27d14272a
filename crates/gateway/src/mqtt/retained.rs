//! Retained messages for a new subscription, pulled in chunks when the client has room for them: a filter that matches
//! everything must not put everything into memory.

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
        let mut queued = 0;
        let chunk = self.ctx.bus().retained(&pull.filter, pull.after.as_ref(), CHUNK, self.now);
        let gate = &self.gate;
        let readable = chunk.messages.into_iter().filter(|message| gate.may_read(&message.topic));
        let kept = readable.map(|message| Kept {
            qos: pull.qos.min(message.qos),
            // [MQTT-3.3.1-8]
            retain: true,
            ids: pull.id.into_iter().collect::<SmallVec<_>>(),
            message,
        });
        let queue = |mailbox: &mut super::mailbox::MqttMailbox| {
            for kept in kept {
                mailbox.enqueue_retained(kept);
                queued += 1;
            }
        };
        self.slot.with_claim(self.claim, queue).map_err(|_| End::Displaced)?;
        if chunk.next.is_some() {
            pull.after = chunk.next;
            self.rare().pulls.push_front(pull);
        }
        Ok(queued)
    }
}
