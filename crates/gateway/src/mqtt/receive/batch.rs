//! Batches: the packets of a turn whose effects are applied together.

use fogmux_bus::Payload;
use fogmux_mqtt::{Ack, Incoming, PacketId, PacketType, ProtocolError, Qos, ReasonCode, Received};
use smallvec::SmallVec;
use tokio::io::{AsyncRead, AsyncWrite};

use super::super::{
    connection::{Connection, End},
    withheld::Otherwise,
};

/// Messages published at once; more come in the next batch of the same turn.
pub(super) const BATCH_MAX: usize = 256;

/// A message of a batch.
pub(in crate::mqtt) struct Item<'a> {
    pub(in crate::mqtt) incoming: Incoming<'a>,
    pub(in crate::mqtt) payload: Payload<'a>,
    /// A QoS 2 message that was handed on before ([MQTT-4.3.3-10]).
    pub(in crate::mqtt) duplicate: bool,
}

impl Item<'_> {
    /// The identifier of a QoS 2 message that was not handed on before.
    pub(in crate::mqtt) fn fresh(&self) -> Option<PacketId> {
        let is_fresh = self.incoming.qos == Qos::ExactlyOnce && !self.duplicate;
        self.incoming.packet_id.filter(|_| is_fresh)
    }
}

/// An effect of a batch on the mailbox, in the order of the packets.
pub(super) enum Step {
    Puback(PacketId),
    Pubrec(PacketId, ReasonCode),
    Pubrel(PacketId),
    Pubcomp(PacketId),
    /// The QoS 2 message with this index in the batch.
    Taken(usize, PacketId),
}

/// Packets of a turn whose effects are still to be applied.
#[derive(Default)]
pub(super) struct Batch<'a> {
    pub(super) items: Vec<Item<'a>>,
    steps: SmallVec<[Step; 16]>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Applies the effects of a batch: acknowledgements under one lock of the mailbox, messages in one publication.
    pub(super) fn flush(&mut self, batch: &mut Batch<'_>) -> Result<(), End> {
        if !batch.steps.is_empty()
            && let Err(end) = self.apply(batch)
        {
            // No identifier is noted, so the client may send those of QoS 2 again.
            batch.items.clear();
            return Err(end);
        }
        if !batch.items.is_empty() {
            // They are published once, also if they end the connection.
            let published = self.publish(&batch.items);
            batch.items.clear();
            published?;
        }
        Ok(())
    }

    fn apply(&mut self, batch: &mut Batch<'_>) -> Result<(), End> {
        let receive_maximum = self.inbound.receive_maximum();
        // Those of an earlier connection may come on top. Older versions have no such maximum, and PUBREL comes behind
        // the messages: a client that has sent many cannot be held back, so each identifier may be in use.
        let ids_max = if self.facts.version.is_v5() { usize::from(receive_maximum) * 2 } else { usize::from(u16::MAX) };
        let (version, inbound, items) = (self.facts.version, &mut self.inbound, &mut batch.items);
        // Answers of a session that outlives its connection wait for the store.
        let mut held = Vec::new();
        let out = if self.facts.durable { &mut held } else { self.output.buffer(&self.ctx) };
        let mut steps = batch.steps.drain(..);
        let (now, mut answered, mut taken, mut is_again) = (self.now, 0, 0, false);
        let applied = self.mailbox.with(|mailbox| {
            let in_flight = mailbox.in_flight();
            let applied = steps.try_for_each(|step| {
                match step {
                    Step::Puback(id) => mailbox.handle_puback(id)?,
                    Step::Pubrec(id, reason) => {
                        answered += 1;
                        mailbox.handle_pubrec(id, reason, out)?;
                    }
                    Step::Pubcomp(id) => mailbox.handle_pubcomp(id)?,
                    Step::Pubrel(id) => {
                        answered += 1;
                        let reason = if mailbox.forget_received(id) {
                            inbound.release();
                            ReasonCode::SUCCESS
                        } else {
                            is_again = true;
                            ReasonCode::PACKET_IDENTIFIER_NOT_FOUND
                        };
                        // Without properties it always fits.
                        let _ = Ack::with_reason(id, reason).encode(PacketType::Pubcomp, version, out);
                    }
                    Step::Taken(index, id) => match mailbox.received.insert(id, ids_max) {
                        Received::Fresh => taken = index + 1,
                        Received::Duplicate => {
                            inbound.release();
                            if let Some(item) = items.get_mut(index) {
                                item.duplicate = true;
                            }
                        }
                        Received::Full => return Err(ProtocolError::ReceiveMaximum { max: receive_maximum }),
                    },
                }
                Ok(())
            });
            if applied.is_ok() {
                mailbox.note_acknowledged(in_flight, now);
            } else {
                for id in items.get(..taken).into_iter().flatten().filter_map(Item::fresh) {
                    mailbox.received.remove(id);
                }
            }
            let completion = mailbox.append();
            // PUBCOMP for one that was released before waits as the first one did.
            let before = mailbox.durable.as_mut().filter(|_| is_again).map(|durable| durable.forgotten());
            (applied, before.map_or(completion.clone(), |before| completion.and(&before)))
        });
        if answered > 0 {
            self.ctx.shared.metrics.mqtt_only.control_out.add(answered);
        }
        let (applied, completion) = applied.map_err(|_| End::Displaced)?;
        if !held.is_empty() {
            self.withhold(completion, held, Otherwise::Again);
        }
        applied.map_err(|error| self.misbehaved(&error, error.reason()))
    }
}

impl<'a> Batch<'a> {
    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty() && self.steps.is_empty()
    }

    /// Makes room for as many messages as the input may hold, if the batch has none: growing would move them.
    #[inline]
    pub(super) fn expect(&mut self, messages: usize) {
        if self.items.is_empty() {
            self.items.reserve(messages.min(BATCH_MAX));
        }
    }

    #[inline]
    pub(super) fn push(&mut self, item: Item<'a>) {
        if item.incoming.qos == Qos::ExactlyOnce
            && let Some(id) = item.incoming.packet_id
        {
            self.steps.push(Step::Taken(self.items.len(), id));
        }
        self.items.push(item);
    }

    #[inline]
    #[expect(clippy::unnecessary_wraps, reason = "an arm of a match whose other arms can fail")]
    pub(super) fn step(&mut self, step: Step) -> Result<(), End> {
        self.steps.push(step);
        Ok(())
    }
}
