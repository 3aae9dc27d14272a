//! QoS 2 messages that come again: each is acknowledged as the first of them is, and when that is ([MQTT-4.3.3-10]).
//!
//! A connection may end before it is known whether the store has what its client sent. Then the session keeps the
//! acknowledgement that is owed, and the next connection waits for the same completion.

use fogmux_bus::{Completion, Completions, Publication};
use fogmux_mqtt::{PacketId, Qos};
use tokio::io::{AsyncRead, AsyncWrite};

use super::{
    connection::Connection,
    mailbox::MqttMailbox,
    owed::{Owed, Owing, Pending, Promise},
    publish::Verdict,
};

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// The acknowledgement of the message that this one repeats, if it was not sent: among those of the same batch, of
    /// this connection, or of an earlier one.
    #[cold]
    pub(super) fn repeated(&self, id: PacketId, now: &Completion, owing: &Owing) -> Option<(Completion, Owed)> {
        let is_first = |owed: &&Owed| owed.id == id && owed.qos == Qos::ExactlyOnce;
        if let Some(owed) = owing.iter().rfind(is_first) {
            return Some((now.clone(), owed.clone()));
        }
        let pending = self.rare.iter().flat_map(|rare| rare.pending.iter().rev());
        let mut own =
            pending.filter_map(|one| Some((one.completion.clone(), one.owing.iter().rfind(is_first)?.clone())));
        own.next().or_else(|| self.mailbox.with(|mailbox| mailbox.received.unsettled(id)).ok()?)
    }

    /// Leaves the acknowledgements of QoS 2 messages that were not sent to the session. The identifiers of messages
    /// that are refused are forgotten, so each is refused again, or taken.
    pub(super) fn leave_unsettled(&mut self) {
        let Some(rare) = self.rare.as_mut().filter(|rare| !rare.pending.is_empty()) else { return };
        let pending = std::mem::take(&mut rare.pending);
        self.with_received(|mailbox| {
            for Pending { completion, owing } in pending {
                for owed in owing.into_iter().filter(|owed| owed.qos == Qos::ExactlyOnce) {
                    if owed.reason.is_error() {
                        mailbox.forget_received(owed.id);
                    } else if owed.is_broken() {
                        mailbox.received.leave(&completion, owed);
                    }
                }
            }
        });
    }

    /// The same for a batch of which nothing is acknowledged from a message on that ends the connection.
    #[cold]
    pub(super) fn leave_rest(
        &self,
        rest: impl Iterator<Item = (PacketId, Qos, Verdict)>,
        batch: &[Publication<'_>],
        completions: &Completions,
    ) {
        self.with_received(|mailbox| {
            for (id, _, verdict) in rest.filter(|(_, qos, _)| *qos == Qos::ExactlyOnce) {
                let Verdict::Published(index) = verdict else { continue };
                let Some(publication) = batch.get(index) else { continue };
                let promise = Promise::of(publication);
                if publication.outcome().refused {
                    mailbox.forget_received(id);
                } else if promise == Promise::Kept {
                    mailbox.received.leave(completions.of(index), Owed::of_kept(id, Qos::ExactlyOnce, promise));
                }
            }
        });
    }

    /// Changes what the session knows of received messages. A displaced connection may do so as long as the next one
    /// waits for it; after that the identifiers are those of the next one.
    #[cold]
    pub(super) fn with_received(&self, change: impl FnOnce(&mut MqttMailbox)) {
        let is_displaced = self.mailbox.with(|_| ()).is_err();
        if !is_displaced || self.ctx.door.sessions.is_waited_for(&self.key(), &self.mailbox.slot, self.mailbox.claim) {
            self.mailbox.slot.with(change);
        }
    }
}
