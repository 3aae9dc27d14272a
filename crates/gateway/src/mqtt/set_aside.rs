//! The rest of a batch whose first messages had very many subscribers (ADR 0020): other connections have their turn
//! before it is published. Until then nothing that came behind it is handled.

use std::sync::Arc;

use fogmux_bus::{Message, Publication, durable::Gather};
use tokio::io::{AsyncRead, AsyncWrite};

use super::{
    connection::{Connection, End},
    publish::{Verdict, Verdicts},
};

/// Messages of a batch that have still to be published, in their order. They were admitted with the batch.
#[derive(Debug)]
pub(super) struct SetAside {
    messages: Vec<Arc<Message>>,
    /// Their acknowledgements, and those of messages between them that were refused.
    verdicts: Verdicts,
    retains: bool,
}

impl SetAside {
    /// The messages behind those that were taken, with their part of the acknowledgements.
    pub(super) fn new(messages: Vec<Arc<Message>>, taken: usize, verdicts: &mut Verdicts, retains: bool) -> Box<Self> {
        let is_left = |verdict: &Verdict| matches!(verdict, Verdict::Published(index) if *index >= taken);
        let first = verdicts.iter().position(|(_, _, verdict)| is_left(verdict)).unwrap_or(verdicts.len());
        let verdicts = verdicts.drain(first..).map(|(id, qos, verdict)| match verdict {
            Verdict::Published(index) => (id, qos, Verdict::Published(index.saturating_sub(taken))),
            other @ (Verdict::Refused(_) | Verdict::Repeated) => (id, qos, other),
        });
        Box::new(Self { messages, verdicts: verdicts.collect(), retains })
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Whether messages are set aside.
    pub(super) fn has_set_aside(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.set_aside.is_some())
    }

    /// The bytes that set-aside messages hold, roughly.
    pub(super) fn set_aside_bytes(&self) -> usize {
        let set_aside = self.rare.as_ref().and_then(|rare| rare.set_aside.as_ref());
        let of = |message: &Arc<Message>| size_of::<Message>() + message.topic.len() + message.payload.len();
        set_aside.map_or(0, |set_aside| set_aside.messages.iter().map(of).sum())
    }

    /// Publishes messages that are set aside, as many as others have to wait for.
    pub(super) fn publish_set_aside(&mut self) -> Result<(), End> {
        let Some(set_aside) = self.rare.as_mut().and_then(|rare| rare.set_aside.take()) else { return Ok(()) };
        let SetAside { messages, mut verdicts, retains } = *set_aside;
        let mut batch: Vec<Publication<'_>> = messages.iter().map(Publication::set_aside).collect();
        let add = |taken: &[Publication<'_>], gather: &Gather| self.note_received(taken, &verdicts, gather);
        let published = self.ctx.worker.borrow_mut().publish_rest(&mut batch, &add);
        let taken = published.taken;
        if let Some(rest) = messages.get(taken..).filter(|rest| !rest.is_empty()) {
            self.rare().set_aside = Some(SetAside::new(rest.to_vec(), taken, &mut verdicts, retains));
        }
        self.note_published(&published, batch.get(..taken).unwrap_or(&batch), verdicts, retains)
    }

    /// Publishes everything that is set aside, for a connection that has ended: it was received before.
    pub(super) async fn publish_all_set_aside(&mut self) {
        while self.has_set_aside() {
            tokio::task::yield_now().await;
            // Nobody is left to be told of a refusal.
            let _ = self.publish_set_aside();
        }
    }
}
