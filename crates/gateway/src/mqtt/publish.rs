//! Publishing a batch, and its acknowledgements.

use std::{
    fmt::Display,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use fogmux_auth::Action;
use fogmux_bus::{Completion, Completions, Publication, Published, SlowDown, TopicRef, durable::Gather};
use fogmux_mqtt::{Ack, PacketId, PacketType, PropertyBuffer, Qos, ReasonCode};
use smallvec::SmallVec;
use tokio::io::{AsyncRead, AsyncWrite};

use super::{
    connection::{Connection, End},
    owed::{Owed, Owing, Pending, Promise, UNKEPT},
    receive::Item,
    translate, unkept,
};
use crate::{audit, fan_out::FanOut, pause::Pause};

/// The acknowledgement of an item.
#[derive(Debug)]
pub(super) enum Verdict {
    /// By the outcome of the publication with this index.
    Published(usize),
    /// With this reason code.
    Refused(Refusal),
    /// As the message that it repeats.
    Repeated,
}

/// The acknowledgements of a batch, in order.
pub(super) type Verdicts = SmallVec<[(PacketId, Qos, Verdict); 8]>;

/// Why a message is not published.
#[derive(Debug)]
pub(super) struct Refusal {
    reason: ReasonCode,
    text: Option<Box<str>>,
}

impl Refusal {
    const fn of(reason: ReasonCode) -> Self {
        Self { reason, text: None }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Publishes a batch. Each acknowledgement is sent when its message's completion resolves, in the order of the
    /// messages ([MQTT-4.6.0-2]). Messages before one that ends the connection still count.
    pub(super) fn publish(&mut self, items: &[Item<'_>]) -> Result<(), End> {
        let (now, generation) = (self.now, self.ctx.authority().generation());
        let now_unix_ms = self.ctx.unix_ms(now);
        let publisher = Arc::clone(&self.client.publisher);
        let mut batch = Vec::with_capacity(items.len());
        let mut verdicts = Verdicts::new();
        let (mut end, mut retains) = (None, false);
        // Most clients publish to one topic; the rules of one batch are of one generation.
        let mut last: Option<TopicRef<'_>> = None;
        for (index, item) in items.iter().enumerate() {
            let admitted = match self.admit(item, last, generation) {
                Ok(admitted) => admitted,
                Err(over) => {
                    end = Some(over);
                    self.forget_items(items.get(index..).unwrap_or_default());
                    break;
                }
            };
            let verdict = match admitted {
                Ok(topic) => {
                    last = Some(topic);
                    retains |= item.incoming.retain;
                    let payload = item.payload;
                    batch.push(translate::publication(&item.incoming, topic, payload, &publisher, now, now_unix_ms));
                    Verdict::Published(batch.len() - 1)
                }
                Err(_) if item.duplicate => Verdict::Repeated,
                Err(refusal) => Verdict::Refused(refusal),
            };
            if let Some(id) = item.incoming.packet_id {
                if verdicts.is_empty() {
                    verdicts.reserve(items.len() - index);
                }
                verdicts.push((id, item.incoming.qos, verdict));
            }
        }
        let add = |taken: &[Publication<'_>], gather: &Gather| self.note_received(taken, &verdicts, gather);
        let published = self.ctx.worker.borrow_mut().publish_some_with(&mut batch, &add);
        let (batch, rest) = batch.split_at(published.taken.min(batch.len()));
        if !rest.is_empty() {
            self.set_aside(rest, batch.len(), &mut verdicts, retains);
        }
        self.note_published(&published, batch, verdicts, retains)?;
        end.map_or(Ok(()), Err)
    }

    /// Notes what was published of a batch.
    pub(super) fn note_published(
        &mut self,
        published: &Published,
        batch: &[Publication<'_>],
        verdicts: Verdicts,
        retains: bool,
    ) -> Result<(), End> {
        self.work.deliveries.add(published.deliveries);
        if retains {
            unkept::log(&self.ctx, batch);
        }
        if let Some(fan_out) = FanOut::of(published) {
            self.rare().fan_out = Some(fan_out);
        }
        self.keep_pace(published.slow_down.clone(), batch);
        if verdicts.is_empty() { Ok(()) } else { self.owe_all(verdicts, batch, &published.completions) }
    }

    /// Pauses, and reads less in the next turn, if a subscriber of the batch is behind.
    fn keep_pace(&mut self, asked: Option<SlowDown>, batch: &[Publication<'_>]) {
        let Some(pause) = Pause::of(asked) else {
            if let Some(rare) = &mut self.rare {
                rare.turn_bytes = None;
            }
            return;
        };
        let bytes = batch.iter().map(|one| one.payload.as_slice().len() + one.topic.len()).sum();
        let rare = self.rare();
        rare.turn_bytes = pause.next_turn(bytes, rare.turn_bytes);
        self.pause(pause);
    }

    /// Acknowledges the items of a batch, each when its own completion resolves: those of the commit that succeeds must
    /// not be refused with those of the next one.
    fn owe_all(&mut self, verdicts: Verdicts, batch: &[Publication<'_>], completions: &Completions) -> Result<(), End> {
        let mut completion = Completion::Ready;
        let mut owing = Owing::with_capacity(verdicts.len());
        let mut verdicts = verdicts.into_iter();
        while let Some((id, qos, verdict)) = verdicts.next() {
            let index = match verdict {
                Verdict::Published(index) => index,
                Verdict::Refused(Refusal { reason, text }) => {
                    owing.push(Owed { id, qos, reason, text, promise: Promise::Nothing });
                    continue;
                }
                Verdict::Repeated => {
                    let first = self.repeated(id, &completion, &owing);
                    if let Some((own, _)) = first.as_ref().filter(|(own, _)| !own.is_same(&completion)) {
                        self.owe(&completion, std::mem::take(&mut owing));
                        completion = own.clone();
                    }
                    let done = || Owed::of_kept(id, qos, Promise::Nothing);
                    owing.push(first.map_or_else(done, |(_, owed)| owed));
                    continue;
                }
            };
            let own = completions.of(index);
            if !own.is_same(&completion) {
                self.owe(&completion, std::mem::take(&mut owing));
                completion = own.clone();
            }
            let publication = batch.get(index);
            match self.reason_of(publication) {
                Ok(reason) => {
                    let promise = publication.map_or(Promise::Nothing, Promise::of);
                    owing.push(Owed { id, qos, reason, text: None, promise });
                }
                Err(refused) => {
                    self.owe(&completion, owing);
                    self.leave_rest(std::iter::once((id, qos, verdict)).chain(verdicts), batch, completions);
                    return Err(refused);
                }
            }
        }
        self.owe(&completion, owing);
        Ok(())
    }

    /// Forgets the identifiers of items that are not published.
    #[cold]
    fn forget_items(&self, items: &[Item<'_>]) {
        self.forget_received(items.iter().filter_map(Item::fresh));
    }

    /// Forgets identifiers of QoS 2 messages that are not published. A client that sends them again, because it was not
    /// answered, would otherwise be told that they are ([MQTT-4.3.3-10]).
    #[cold]
    fn forget_received(&self, ids: impl Iterator<Item = PacketId>) {
        self.with_received(|mailbox| {
            for id in ids {
                mailbox.forget_received(id);
            }
            drop(mailbox.append());
        });
    }

    /// Notes the messages of QoS 2 among those that were published, in one batch with their deliveries, if the session
    /// has records. PUBREC of a message that no session has a record of does not wait for that: those who were to have
    /// it have it, and a restart ends their sessions. So a full disk does not refuse what was delivered.
    pub(super) fn note_received(&self, taken: &[Publication<'_>], verdicts: &Verdicts, gather: &Gather) {
        if !self.facts.durable || !verdicts.iter().any(|(_, qos, _)| *qos == Qos::ExactlyOnce) {
            return;
        }
        let published = verdicts.iter().filter(|(_, qos, _)| *qos == Qos::ExactlyOnce);
        let published = published.filter_map(|(id, _, verdict)| match verdict {
            Verdict::Published(index) => Some((*id, taken.get(*index)?)),
            Verdict::Refused(_) | Verdict::Repeated => None,
        });
        let kept: SmallVec<[_; 8]> = published.filter(|(_, one)| !one.outcome().refused).map(|(id, _)| id).collect();
        self.with_received(|mailbox| mailbox.note_received(kept.iter().copied(), gather));
    }

    /// Sends acknowledgements, or lets them wait for their completion and for those before them.
    fn owe(&mut self, completion: &Completion, owing: Owing) {
        if owing.is_empty() {
            return;
        }
        if completion.is_ready() && self.pending() == 0 {
            self.acknowledge(&owing);
        } else {
            self.rare().pending.push_back(Pending { completion: completion.clone(), owing });
        }
    }

    /// Whether subscribers of the client's last publication have still to be woken. The client is not read until then.
    pub(super) fn is_fanning_out(&mut self, cx: &Context<'_>) -> bool {
        let Some(rare) = &mut self.rare else { return false };
        let goes_on = rare.fan_out.as_mut().is_some_and(|fan_out| fan_out.goes_on(&self.ctx, cx));
        if !goes_on {
            rare.fan_out = None;
        }
        goes_on
    }

    /// Checks whether an item may be published: returns its topic, or the reason code for its acknowledgement. A client
    /// that cannot be told is disconnected: 3.1.1 would permit a positive acknowledgement ([MQTT-3.3.5-2]), which would
    /// be false. `last` is a topic that was admitted with the same rules, of which nothing is checked again.
    #[inline]
    fn admit<'i>(
        &mut self,
        item: &'i Item<'_>,
        last: Option<TopicRef<'i>>,
        generation: u64,
    ) -> Result<Result<TopicRef<'i>, Refusal>, End> {
        if item.duplicate {
            return Ok(Err(Refusal::of(ReasonCode::SUCCESS)));
        }
        let name = item.incoming.topic.as_str();
        let admitted = last.filter(|last| last.as_str() == name);
        let topic = match admitted.map_or_else(|| TopicRef::new(name), Ok) {
            Ok(topic) => topic,
            Err(error) => return self.refuse(item, &error, ReasonCode::TOPIC_NAME_INVALID),
        };
        if !item.incoming.is_payload_valid() {
            return self.refuse(item, &"the payload is not UTF-8", ReasonCode::PAYLOAD_FORMAT_INVALID);
        }
        if admitted.is_some() {
            return Ok(Ok(topic));
        }
        let writable = self.writable.get_or_insert_default();
        if !writable.may_write(&self.client.gate, generation, topic.as_str()) {
            return self.forbid(item, &topic).map(Err);
        }
        Ok(Ok(topic))
    }

    #[cold]
    fn refuse<T>(&mut self, item: &Item<'_>, why: &dyn Display, reason: ReasonCode) -> Result<Result<T, Refusal>, End> {
        if self.facts.version.is_v5() && item.incoming.qos != Qos::AtMostOnce {
            Ok(Err(Refusal { reason, text: Some(why.to_string().into()) }))
        } else {
            Err(self.misbehaved(why, reason))
        }
    }

    /// A QoS 0 message that is refused is dropped, because nobody waits for an acknowledgement (ADR 0012).
    #[cold]
    fn forbid(&self, item: &Item<'_>, topic: &str) -> Result<Refusal, End> {
        self.ctx.shared.metrics.mqtt.unauthorized.increment();
        let access = self.client.gate.access();
        let decision = access.decide(Action::Write, topic);
        audit::refused_action(&self.ctx, &access, None, Action::Write, topic, &decision);
        if item.incoming.qos == Qos::AtMostOnce {
            return Ok(Refusal::of(ReasonCode::NOT_AUTHORIZED));
        }
        if !self.facts.version.is_v5() {
            return Err(End::Forbidden);
        }
        Ok(Refusal { reason: ReasonCode::NOT_AUTHORIZED, text: Some(decision.to_string().into()) })
    }

    /// The reason code for the outcome of a publication.
    fn reason_of(&self, publication: Option<&Publication<'_>>) -> Result<ReasonCode, End> {
        let outcome = publication.map(Publication::outcome).unwrap_or_default();
        match (outcome.refused, self.facts.version.is_v5()) {
            // The store, a limit or a share has no room for it.
            (true, true) => Ok(ReasonCode::QUOTA_EXCEEDED),
            (true, false) => Err(End::Refused),
            (false, _) if outcome.matched == 0 => Ok(ReasonCode::NO_MATCHING_SUBSCRIBERS),
            (false, _) => Ok(ReasonCode::SUCCESS),
        }
    }

    fn acknowledge(&mut self, owing: &[Owed]) {
        self.ctx.shared.metrics.mqtt_only.control_out.add(u64::try_from(owing.len()).unwrap_or(0));
        let mut refused: SmallVec<[PacketId; 8]> = SmallVec::new();
        for Owed { id, qos, reason, text, promise: _ } in owing {
            let kind = if *qos == Qos::ExactlyOnce { PacketType::Pubrec } else { PacketType::Puback };
            let mut list = PropertyBuffer::new();
            let properties = self.explanation(text.as_deref(), &mut list);
            let ack = Ack { packet_id: *id, reason: *reason, properties };
            // The list took only properties that fit.
            let _ = ack.encode(kind, self.facts.version, self.output.buffer(&self.ctx));
            if *qos == Qos::AtLeastOnce || reason.is_error() {
                self.inbound.release();
            }
            if *qos == Qos::ExactlyOnce && reason.is_error() {
                refused.push(*id);
            }
        }
        if !refused.is_empty() {
            self.forget_received(refused.into_iter());
        }
    }

    /// Sends the acknowledgements whose completions have resolved. Returns whether there were any.
    pub(super) fn poll_pending(&mut self, cx: &mut Context<'_>) -> Result<bool, End> {
        let mut progress = false;
        while let Some(first) = self.rare().pending.front_mut() {
            let kept = match Pin::new(&mut first.completion).poll(cx) {
                Poll::Pending => break,
                Poll::Ready(kept) => kept,
            };
            let Some(mut first) = self.rare().pending.pop_front() else { break };
            if kept.is_err() {
                if let Some(at) = first.owing.iter().position(Owed::is_broken)
                    && !self.facts.version.is_v5()
                {
                    let rest: Owing = first.owing.drain(at..).collect();
                    self.acknowledge(&first.owing);
                    let broken = rest.iter().filter(|owed| owed.is_broken() && owed.qos == Qos::ExactlyOnce);
                    self.forget_received(broken.map(|owed| owed.id));
                    return Err(End::Refused);
                }
                for owed in first.owing.iter_mut().filter(|owed| owed.is_broken()) {
                    owed.reason = UNKEPT;
                }
            }
            self.acknowledge(&first.owing);
            progress = true;
        }
        Ok(progress)
    }
}
