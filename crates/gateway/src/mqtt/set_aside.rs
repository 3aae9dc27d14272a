//! Input that is a lot of work (ADR 0020): the rest of a batch whose first messages had very many subscribers, or the
//! filters of a large SUBSCRIBE or UNSUBSCRIBE. Other connections have their turn before it is handled. Until then
//! nothing that came behind it is handled.

use std::sync::Arc;

use fogmux_bus::{Message, Publication, durable::Gather};
use tokio::io::{AsyncRead, AsyncWrite};

use super::{
    connection::{Connection, End},
    filters::Unhandled,
    promises::Promises,
    publish::{Verdict, Verdicts},
};

/// Work that was set aside.
#[derive(Debug)]
pub(super) enum SetAside {
    /// Messages to publish.
    Messages(Box<Messages>),
    /// Filters to subscribe to, or to unsubscribe from.
    Filters(Unhandled),
}

/// Messages of a batch that have still to be published, in their order. They were admitted with the batch.
#[derive(Debug)]
pub(super) struct Messages {
    messages: Vec<Arc<Message>>,
    /// Their acknowledgements, and those of messages between them that were refused.
    verdicts: Verdicts,
    retains: bool,
    promises: Promises,
}

/// Takes the acknowledgements of the messages behind those that were taken, and what is between these.
fn split_off(taken: usize, verdicts: &mut Verdicts) -> Verdicts {
    let is_left = |verdict: &Verdict| matches!(verdict, Verdict::Published(index) if *index >= taken);
    let first = verdicts.iter().position(|(_, _, verdict)| is_left(verdict)).unwrap_or(verdicts.len());
    let left = verdicts.drain(first..).map(|(id, qos, verdict)| match verdict {
        Verdict::Published(index) => (id, qos, Verdict::Published(index.saturating_sub(taken))),
        other @ (Verdict::Refused(_) | Verdict::Repeated) => (id, qos, other),
    });
    left.collect()
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Sets the messages behind those that were taken aside, with their part of the acknowledgements.
    pub(super) fn set_aside(&mut self, rest: &[Publication<'_>], taken: usize, verdicts: &mut Verdicts, retains: bool) {
        let messages = rest.iter().map(|one| Arc::clone(one.share())).collect();
        let verdicts = split_off(taken, verdicts);
        let promises = self.promise(&verdicts);
        let messages = SetAside::Messages(Box::new(Messages { messages, verdicts, retains, promises }));
        self.rare().set_aside = Some(Box::new(messages));
    }

    /// Whether messages or filters are set aside.
    pub(super) fn has_set_aside(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.set_aside.is_some())
    }

    /// The bytes that it holds, roughly.
    pub(super) fn set_aside_bytes(&self) -> usize {
        let of = |message: &Arc<Message>| message.size();
        match self.rare.as_ref().and_then(|rare| rare.set_aside.as_deref()) {
            Some(SetAside::Messages(rest)) => rest.messages.iter().map(of).sum(),
            Some(SetAside::Filters(rest)) => rest.bytes(),
            None => 0,
        }
    }

    /// Handles what is set aside, as much as others have to wait for.
    pub(super) fn handle_set_aside(&mut self) -> Result<(), End> {
        match self.rare.as_mut().and_then(|rare| rare.set_aside.take()).map(|set_aside| *set_aside) {
            Some(SetAside::Messages(rest)) => self.publish_set_aside(*rest),
            Some(SetAside::Filters(rest)) => self.go_on_with_filters(rest),
            None => Ok(()),
        }
    }

    fn publish_set_aside(&mut self, rest: Messages) -> Result<(), End> {
        let Messages { messages, mut verdicts, retains, mut promises } = rest;
        let mut batch: Vec<Publication<'_>> = messages.iter().map(Publication::set_aside).collect();
        let add = |taken: &[Publication<'_>], gather: &Gather| self.note_received(taken, &verdicts, gather);
        let published = self.ctx.worker.borrow_mut().publish_rest(&mut batch, &add);
        let taken = published.taken;
        let left = split_off(taken, &mut verdicts);
        promises.settle(&verdicts, &batch, &published.completions);
        if let Some(rest) = messages.get(taken..).filter(|rest| !rest.is_empty()) {
            let rest = Messages { messages: rest.to_vec(), verdicts: left, retains, promises };
            self.rare().set_aside = Some(Box::new(SetAside::Messages(Box::new(rest))));
        }
        self.note_published(&published, batch.get(..taken).unwrap_or(&batch), verdicts, retains)
    }

    /// Publishes the messages that are set aside, for a connection that has ended: they were received before. Filters
    /// are dropped: nobody was told that they are subscribed to.
    pub(super) async fn publish_all_set_aside(&mut self) {
        while let Some(rare) = self.rare.as_mut()
            && let Some(set_aside) = rare.set_aside.take()
        {
            let SetAside::Messages(rest) = *set_aside else { return };
            tokio::task::yield_now().await;
            // Nobody is left to be told of a refusal.
            let _ = self.publish_set_aside(*rest);
        }
    }
}
