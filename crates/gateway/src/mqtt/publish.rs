//! Publishing a batch, and the acknowledgements that follow from what became of it.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use fogmux_bus::{Completion, Publication, TopicRef};
use fogmux_mqtt::{Ack, PacketId, PacketType, Qos, ReasonCode};
use smallvec::SmallVec;

use super::{
    connection::{Connection, End},
    receive::Item,
    translate,
};

/// An acknowledgement to be sent.
#[derive(Clone, Copy, Debug)]
struct Owed {
    id: PacketId,
    qos: Qos,
    reason: ReasonCode,
}

type Owing = SmallVec<[Owed; 8]>;

/// Acknowledgements that wait until the store has what it promised to keep.
#[derive(Debug)]
pub(super) struct Pending {
    completion: Completion,
    owing: Owing,
}

/// What is to be said about an item.
enum Verdict {
    /// What became of the publication with this index.
    Published(usize),
    /// Known already.
    Reason(ReasonCode),
}

impl<S> Connection<S> {
    /// Publishes a batch. Acknowledgements go out when it is complete, in the order of the messages ([MQTT-4.6.0-2]).
    pub(super) fn publish(&mut self, items: &[Item<'_>]) -> Result<(), End> {
        let (now, generation) = (self.now, self.ctx.authority().generation());
        let now_unix_ms = self.ctx.unix_ms(now);
        let publisher = std::sync::Arc::clone(&self.publisher);
        let mut batch = Vec::with_capacity(items.len());
        let mut verdicts: SmallVec<[(PacketId, Qos, Verdict); 8]> = SmallVec::new();
        for item in items {
            let verdict = match self.admit(item, generation)? {
                Ok(topic) => {
                    let payload = item.payload;
                    batch.push(translate::publication(&item.incoming, topic, payload, &publisher, now, now_unix_ms));
                    Verdict::Published(batch.len() - 1)
                }
                Err(reason) => Verdict::Reason(reason),
            };
            if let Some(id) = item.incoming.packet_id {
                verdicts.push((id, item.incoming.qos, verdict));
            }
        }
        let published = self.ctx.worker.borrow_mut().publish(&mut batch);
        if verdicts.is_empty() {
            return Ok(());
        }
        let mut owing = Owing::with_capacity(verdicts.len());
        for (id, qos, verdict) in verdicts {
            let reason = match verdict {
                Verdict::Reason(reason) => reason,
                Verdict::Published(index) => self.reason_of(batch.get(index))?,
            };
            owing.push(Owed { id, qos, reason });
        }
        if published.completion.is_ready() && self.pending.is_empty() {
            self.acknowledge(&owing);
        } else {
            self.pending.push_back(Pending { completion: published.completion, owing });
        }
        Ok(())
    }

    /// Whether an item may be published: its topic, or the reason to acknowledge it with. A client that cannot be told
    /// is disconnected, but for a refusal by the rules, which 3.1.1 lets a server acknowledge ([MQTT-3.3.5-2]).
    #[inline]
    fn admit<'i>(&mut self, item: &'i Item<'_>, generation: u64) -> Result<Result<TopicRef<'i>, ReasonCode>, End> {
        if item.duplicate {
            return Ok(Err(ReasonCode::SUCCESS));
        }
        let can_be_told = self.version.is_v5() && item.incoming.qos != Qos::AtMostOnce;
        let refuse = |reason| if can_be_told { Ok(Err(reason)) } else { Err(End::Misbehaved(reason)) };
        let Ok(topic) = TopicRef::new(item.incoming.topic.as_str()) else {
            return refuse(ReasonCode::TOPIC_NAME_INVALID);
        };
        if !item.incoming.is_payload_valid() {
            return refuse(ReasonCode::PAYLOAD_FORMAT_INVALID);
        }
        if !self.writable.may_write(&self.gate, generation, topic.as_str()) {
            self.ctx.shared.metrics.mqtt.unauthorized.increment();
            let told = if self.version.is_v5() { ReasonCode::NOT_AUTHORIZED } else { ReasonCode::SUCCESS };
            return Ok(Err(told));
        }
        Ok(Ok(topic))
    }

    /// What a publisher is told of what became of its message.
    fn reason_of(&self, publication: Option<&Publication<'_>>) -> Result<ReasonCode, End> {
        let outcome = publication.map(Publication::outcome).unwrap_or_default();
        match (outcome.refused, self.version.is_v5()) {
            (true, true) => Ok(ReasonCode::QUOTA_EXCEEDED),
            (true, false) => Err(End::Refused),
            (false, _) if outcome.matched == 0 => Ok(ReasonCode::NO_MATCHING_SUBSCRIBERS),
            (false, _) => Ok(ReasonCode::SUCCESS),
        }
    }

    fn acknowledge(&mut self, owing: &[Owed]) {
        let out = self.output.buffer(&self.ctx);
        let mut forgotten: SmallVec<[PacketId; 8]> = SmallVec::new();
        for Owed { id, qos, reason } in owing {
            let kind = if *qos == Qos::ExactlyOnce { PacketType::Pubrec } else { PacketType::Puback };
            // Without properties it always fits.
            let _ = Ack::with_reason(*id, *reason).encode(kind, self.version, out);
            if *qos == Qos::AtLeastOnce || reason.is_error() {
                self.inbound.release();
            }
            if *qos == Qos::ExactlyOnce && reason.is_error() {
                forgotten.push(*id);
            }
        }
        if !forgotten.is_empty() {
            // A displaced connection's identifiers are the next one's affair.
            let _ = self.slot.with_claim(self.claim, |mailbox| {
                for id in forgotten {
                    mailbox.received.remove(id);
                }
            });
        }
    }

    /// Sends the acknowledgements whose time has come; says whether there were any.
    pub(super) fn poll_pending(&mut self, cx: &mut Context<'_>) -> Result<bool, End> {
        let mut progress = false;
        while let Some(first) = self.pending.front_mut() {
            let kept = match Pin::new(&mut first.completion).poll(cx) {
                Poll::Pending => break,
                Poll::Ready(kept) => kept,
            };
            let Some(mut first) = self.pending.pop_front() else { break };
            if kept.is_err() {
                if !self.version.is_v5() {
                    return Err(End::Refused);
                }
                for owed in first.owing.iter_mut().filter(|owed| !owed.reason.is_error()) {
                    owed.reason = ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR;
                }
            }
            self.acknowledge(&first.owing);
            progress = true;
        }
        Ok(progress)
    }
}
