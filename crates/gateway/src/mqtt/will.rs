//! Wills: messages that the gateway publishes when a client's connection ends without a normal DISCONNECT (§3.1.2.5).

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use fogmux_auth::Action;
use fogmux_bus::{
    Completion, Door, Meaning, NoRoom, Payload, Properties, Publication, Publisher, Qos, Room, Shares, Slot, Topic,
    durable::{Gather, RecordId, StoredMessage},
};
use fogmux_mqtt::ReasonCode;
use tokio::task::spawn_local;

use super::{access::Gate, context::MqttContext, mailbox::MqttMailbox, session::MqttDoor, translate};
use crate::{audit, shown::shown_client, worker::Shared};

/// A Will Message, kept besides the connection.
#[derive(Debug)]
pub(super) struct Will {
    topic: Topic,
    payload: Bytes,
    qos: Qos,
    retain: bool,
    content_type: Option<Arc<str>>,
    expiry: Option<u32>,
    properties: Option<Arc<Properties>>,
    publisher: Arc<Publisher>,
    /// Of the session that the client is given.
    pub(super) gate: Arc<Gate>,
    /// Given back with the will. One that the store has given back may have none.
    _room: Option<WillRoom>,
    /// Its record, if it has one, and the session that it belongs to, if that is there. The record stays until the will
    /// is published or cancelled, whatever becomes of the session.
    pub(super) record: Option<(Option<Arc<Slot<MqttMailbox>>>, RecordId)>,
    /// Seconds between the end of the connection and the message.
    pub(super) delay: u32,
}

/// Wills of this size are taken even when there is no room for larger ones.
const SMALL_WILL_BYTES: usize = 1024;

/// The least work that a will makes, in deliveries: some two microseconds.
const WILL_WORK: u64 = 32;

/// The longest time that a will waits for memory. Less than a client waits that takes its session over.
pub(super) const WILL_WAIT: Duration = Duration::from_secs(2);

/// The bytes of all wills, and each principal's share of them.
#[derive(Debug, Default)]
pub(super) struct WillRooms(Mutex<(usize, Shares)>);

impl WillRooms {
    fn lock(&self) -> MutexGuard<'_, (usize, Shares)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn bytes(&self) -> usize {
        self.lock().0
    }
}

/// The room that a will takes up among those of all clients.
#[derive(Debug)]
pub(super) struct WillRoom {
    all: Arc<WillRooms>,
    principal: Arc<str>,
    bytes: usize,
}

impl WillRoom {
    pub(super) fn take(all: &Arc<WillRooms>, room: Room, principal: &Arc<str>, bytes: usize) -> Result<Self, NoRoom> {
        let mut rooms = all.lock();
        let (used, shares) = &mut *rooms;
        if bytes > SMALL_WILL_BYTES {
            room.admit(*used, shares.of(principal).bytes, bytes)?;
        }
        *used += bytes;
        shares.add(principal, bytes);
        Ok(Self { all: Arc::clone(all), principal: Arc::clone(principal), bytes })
    }
}

impl Drop for WillRoom {
    fn drop(&mut self) {
        let mut rooms = self.all.lock();
        rooms.0 -= self.bytes;
        rooms.1.remove(&self.principal, self.bytes);
    }
}

impl Will {
    /// Takes the will of a CONNECT, if the client may write its topic.
    pub(super) fn new(
        ctx: &MqttContext,
        will: &fogmux_mqtt::Will<'_>,
        gate: &Arc<Gate>,
        publisher: &Arc<Publisher>,
    ) -> Result<Self, ReasonCode> {
        let topic = Topic::new(will.topic).map_err(|_| ReasonCode::TOPIC_NAME_INVALID)?;
        if !is_allowed(ctx, gate, &topic) {
            return Err(ReasonCode::NOT_AUTHORIZED);
        }
        let read = will.read_properties();
        if read.message.utf8 && std::str::from_utf8(will.payload).is_err() {
            return Err(ReasonCode::PAYLOAD_FORMAT_INVALID);
        }
        // Each property has an allocation of its own: four times its bytes cover that.
        let bytes = size_of::<Self>() + topic.len() + will.payload.len() + 4 * will.properties.as_bytes().len();
        let room = ctx.door.admit_will(ctx, &publisher.principal, bytes).ok_or(ReasonCode::QUOTA_EXCEEDED)?;
        Ok(Self {
            topic,
            payload: Bytes::copy_from_slice(will.payload),
            qos: translate::to_bus(will.qos),
            retain: will.retain,
            content_type: read.message.content_type.map(Arc::from),
            expiry: read.message.expiry,
            properties: translate::rare(&read.message, will.properties),
            publisher: Arc::clone(publisher),
            gate: Arc::clone(gate),
            _room: Some(room),
            record: None,
            delay: read.delay,
        })
    }

    /// The will as it is stored. Its expiry interval begins when it is published.
    pub(super) fn stored(&self, now_unix_ms: u64) -> StoredMessage {
        StoredMessage {
            topic: self.topic.clone(),
            payload: self.payload.clone(),
            qos: self.qos,
            meaning: Meaning::of_flag(self.retain, &self.payload),
            content_type: self.content_type.clone(),
            expires_unix_ms: self.expiry.map(|seconds| now_unix_ms.saturating_add(u64::from(seconds) * 1000)),
            properties: self.properties.clone(),
            ingest_unix_ms: now_unix_ms,
            principal: Arc::clone(&self.publisher.principal),
            client: Arc::clone(&self.publisher.client),
            door: Some(Door::Mqtt),
        }
    }

    /// A will that the store has given back, with its session and its record there.
    pub(super) fn restored(
        door: &MqttDoor,
        shared: &Shared,
        stored: StoredMessage,
        gate: &Arc<Gate>,
        record: (Option<Arc<Slot<MqttMailbox>>>, RecordId),
    ) -> Self {
        let of_type = stored.content_type.as_ref().map_or(0, |name| name.len());
        let of_properties = stored.properties.as_ref().map_or(0, |properties| properties.size());
        let bytes = size_of::<Self>() + stored.topic.len() + stored.payload.len() + of_type + of_properties;
        let StoredMessage { topic, payload, qos, meaning, content_type, properties, principal, client, .. } = stored;
        let interval = stored.expires_unix_ms.map(|expires| expires.saturating_sub(stored.ingest_unix_ms) / 1000);
        Self {
            topic,
            payload,
            qos,
            retain: meaning.is_state(),
            content_type,
            expiry: interval.map(|seconds| u32::try_from(seconds).unwrap_or(u32::MAX)),
            properties,
            // It was admitted before.
            _room: door.will_room(shared, &principal, bytes).ok(),
            publisher: Arc::new(Publisher {
                principal,
                client,
                door: Some(Door::Mqtt),
                slot: record.0.as_ref().map(|slot| slot.id()),
            }),
            gate: Arc::clone(gate),
            record: Some(record),
            delay: 0,
        }
    }

    /// Publishes the will; its expiry interval begins now. The rules may have changed since CONNECT. Nobody can be told
    /// of a refusal, so subscribers get a will that cannot be retained as well ([MQTT-3.1.2-8]). Returns the work
    /// that it made, in deliveries.
    pub(super) fn publish(&self, ctx: &MqttContext) -> u64 {
        if !ctx.authority().admits_returned(self.gate.access().principal()) {
            self.cancel(ctx);
            log_withheld(ctx, &self.publisher);
            return WILL_WORK;
        }
        if !is_allowed(ctx, &self.gate, &self.topic) {
            self.cancel(ctx);
            return WILL_WORK;
        }
        let now = ctx.now();
        let payload = Payload::Shared(&self.payload);
        let mut publication = Publication::new(self.topic.as_ref(), payload, &self.publisher, now, ctx.unix_ms(now));
        publication.qos = self.qos;
        publication.meaning = Meaning::of_flag(self.retain, &self.payload);
        publication.content_type = self.content_type.as_deref();
        publication.expires_at = translate::expires_at(now, self.expiry);
        publication.properties = self.properties.clone();
        publication.unanswered = true;
        let mut batch = [publication];
        let add = |_: &[Publication<'_>], gather: &Gather| {
            if let (Some((_, record)), Some(store)) = (&self.record, &ctx.door.config.store) {
                self.leave();
                let gathering = gather.begin(&**store);
                // The forget has to be on the disk, whoever has acknowledged the will.
                gathering.need();
                gathering.with(|batch| batch.forget(*record));
            }
            gather.append_at_once();
        };
        let published = ctx.worker.borrow_mut().publish_will(&mut batch, &add);
        self.forget_if_refused(ctx, published.completions.of(0).clone());
        super::unkept::log(ctx, &batch);
        published.deliveries.max(WILL_WORK)
    }
}

impl Will {
    /// Forgets its record if the store does not take the batch that was to forget it, with the deliveries of the will:
    /// those who are connected have got it, and it is published once.
    fn forget_if_refused(&self, ctx: &MqttContext, completion: Completion) {
        let (Some((_, record)), Some(store)) = (&self.record, &ctx.door.config.store) else { return };
        let (record, store) = (*record, Arc::clone(store));
        let forget = move || {
            let mut batch = store.batch();
            batch.forget(record);
            drop(batch.append());
        };
        match completion {
            Completion::Ready => {}
            Completion::Failed => forget(),
            Completion::Waiting(_) | Completion::Both(_) | Completion::Sooner(_) => drop(spawn_local(async move {
                if completion.await.is_err() {
                    forget();
                }
            })),
        }
    }

    /// It is not published: its connection has ended normally, or its client has returned in time.
    pub(super) fn cancel(&self, ctx: &MqttContext) {
        let (Some((_, record)), Some(store)) = (&self.record, &ctx.door.config.store) else { return };
        self.leave();
        let mut batch = store.batch();
        batch.forget(*record);
        drop(batch.append());
    }

    /// Its session does not have it any more.
    fn leave(&self) {
        let Some((Some(slot), record)) = &self.record else { return };
        slot.with(|mailbox| {
            if let Some(durable) = &mut mailbox.durable {
                durable.leave_will(*record);
            }
        });
    }
}

/// Says that a will is not published because its client's credential was taken back: whoever set it may be the reason.
pub(super) fn log_withheld(ctx: &MqttContext, publisher: &Publisher) {
    ctx.shared.metrics.mqtt.unauthorized.increment();
    let (client, principal) = (shown_client(&publisher.client), &*publisher.principal);
    tracing::info!(client, principal, "a will is not published: the credential of its client is not accepted any more");
}

fn is_allowed(ctx: &MqttContext, gate: &Gate, topic: &str) -> bool {
    let access = gate.access();
    let allowed = access.may_write(topic);
    if !allowed {
        ctx.shared.metrics.mqtt.unauthorized.increment();
        let decision = access.decide(Action::Write, topic);
        audit::refused_action(ctx, &access, None, Action::Write, topic, &decision);
    }
    allowed
}
