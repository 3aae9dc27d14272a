//! Promised outcomes of QoS 2 messages that are set aside (ADR 0020).
//!
//! The next connection of a client does not wait for ever for the one before it, so a message may come again before it
//! is published. Its repeat must not be acknowledged for what may still be refused ([MQTT-4.3.3-10]): it waits for the
//! outcome that was promised to the session.

use std::{collections::BTreeMap, sync::Arc};

use fogmux_bus::{Completer, Completion, Completions, Publication, StoreFailed};
use fogmux_mqtt::{PacketId, Qos};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    task::spawn_local,
};

use super::{
    connection::Connection,
    owed::{self, Owed},
    publish::{Verdict, Verdicts},
};

/// The promises for messages that are set aside.
#[derive(Debug, Default)]
pub(super) struct Promises(BTreeMap<PacketId, Promise>);

/// A promise. One that is dropped is broken: the message is refused.
#[derive(Debug, Default)]
struct Promise(Option<Arc<Completer>>);

impl Promise {
    fn keep(mut self, completion: &Completion, is_kept: bool) {
        let Some(completer) = self.0.take() else { return };
        if completion.is_ready() {
            return completer.complete(Ok(()));
        }
        let completion = completion.clone();
        spawn_local(async move {
            let kept = completion.await;
            // A message of which nothing is kept waits for those before it, and was delivered whatever becomes of them.
            completer.complete(if is_kept { kept } else { Ok(()) });
        });
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        if let Some(completer) = self.0.take() {
            completer.complete(Err(StoreFailed));
        }
    }
}

impl Promises {
    /// Settles the promises for messages that were published, or refused.
    pub(super) fn settle(&mut self, verdicts: &Verdicts, batch: &[Publication<'_>], completions: &Completions) {
        if self.0.is_empty() {
            return;
        }
        for (id, _, verdict) in verdicts {
            let Verdict::Published(index) = verdict else { continue };
            if let Some(promise) = self.0.remove(id)
                && let Some(publication) = batch.get(*index).filter(|publication| !publication.outcome().refused)
            {
                promise.keep(completions.of(*index), owed::Promise::of(publication) == owed::Promise::Kept);
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Promises the session the outcomes of the QoS 2 messages among those that are set aside.
    pub(super) fn promise(&self, verdicts: &Verdicts) -> Promises {
        let mut promises = Promises::default();
        let is_promised =
            |qos: Qos, verdict: &Verdict| qos == Qos::ExactlyOnce && matches!(verdict, Verdict::Published(_));
        if !verdicts.iter().any(|(_, qos, verdict)| is_promised(*qos, verdict)) {
            return promises;
        }
        self.with_received(|mailbox| {
            for (id, _, _) in verdicts.iter().filter(|(_, qos, verdict)| is_promised(*qos, verdict)) {
                let completer = Arc::<Completer>::default();
                let completion = Completion::Waiting(Arc::clone(&completer));
                mailbox.received.leave(&completion, Owed::of_kept(*id, Qos::ExactlyOnce, owed::Promise::Kept));
                promises.0.insert(*id, Promise(Some(completer)));
            }
        });
        promises
    }
}
