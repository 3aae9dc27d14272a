//! Wills: messages that the gateway publishes when a client's connection ends without a normal DISCONNECT (§3.1.2.5).

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use fogmux_auth::Action;
use fogmux_bus::{Meaning, NoRoom, Payload, Properties, Publication, Publisher, Qos, Room, Shares, Topic};
use fogmux_mqtt::ReasonCode;

use super::{access::Gate, context::MqttContext, translate};
use crate::audit;

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
    /// Given back with the will.
    _room: WillRoom,
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
            _room: room,
            delay: read.delay,
        })
    }

    /// Publishes the will; its expiry interval begins now. The rules may have changed since CONNECT. Nobody can be told
    /// of a refusal, so subscribers get a will that cannot be retained as well ([MQTT-3.1.2-8]). Returns the work
    /// that it made, in deliveries.
    pub(super) fn publish(&self, ctx: &MqttContext) -> u64 {
        if !is_allowed(ctx, &self.gate, &self.topic) {
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
        let published = ctx.worker.borrow_mut().publish_will(&mut batch);
        super::unkept::log(ctx, &batch);
        published.deliveries.max(WILL_WORK)
    }
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
