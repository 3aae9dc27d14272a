//! Mapping between MQTT's messages and the bus's. Bytes are never rewritten.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use fogmux_bus::{Meaning, Payload, Properties, Publication, Publisher, Qos, Timestamp, TopicRef};
use fogmux_mqtt::{Incoming, Outgoing, PublishProperties};

use super::kept::Kept;

/// MQTT's QoS as the bus names it.
pub(super) const fn to_bus(qos: fogmux_mqtt::Qos) -> Qos {
    match qos {
        fogmux_mqtt::Qos::AtMostOnce => Qos::AtMostOnce,
        fogmux_mqtt::Qos::AtLeastOnce => Qos::AtLeastOnce,
        fogmux_mqtt::Qos::ExactlyOnce => Qos::ExactlyOnce,
    }
}

/// The bus's QoS as MQTT names it.
pub(super) const fn to_mqtt(qos: Qos) -> fogmux_mqtt::Qos {
    match qos {
        Qos::AtMostOnce => fogmux_mqtt::Qos::AtMostOnce,
        Qos::AtLeastOnce => fogmux_mqtt::Qos::AtLeastOnce,
        Qos::ExactlyOnce => fogmux_mqtt::Qos::ExactlyOnce,
    }
}

/// When a message with this Message Expiry Interval expires (§3.3.2.3.3).
pub(super) fn expires_at(now: Timestamp, seconds: Option<u32>) -> Option<Timestamp> {
    seconds.map(|seconds| now + Duration::from_secs(u64::from(seconds)))
}

/// The rare fields of a message; `None` when it has none.
pub(super) fn rare(read: &PublishProperties<'_>, list: fogmux_mqtt::Properties<'_>) -> Option<Arc<Properties>> {
    if !read.utf8 && read.response_topic.is_none() && read.correlation.is_none() && read.user == 0 {
        return None;
    }
    Some(Arc::new(Properties {
        utf8: read.utf8,
        reply_to: read.response_topic.map(Box::from),
        correlation: read.correlation.map(Bytes::copy_from_slice),
        user: list.user().map(|(name, value)| (Box::from(name), Box::from(value))).collect(),
        item_id: None,
    }))
}

/// A message on its way in.
pub(super) fn publication<'a>(
    incoming: &Incoming<'a>,
    topic: TopicRef<'a>,
    payload: Payload<'a>,
    publisher: &'a Arc<Publisher>,
    now: Timestamp,
    now_unix_ms: u64,
) -> Publication<'a> {
    let mut publication = Publication::new(topic, payload, publisher, now, now_unix_ms);
    publication.qos = to_bus(incoming.qos);
    publication.meaning = Meaning::of_flag(incoming.retain, payload.as_slice());
    if !incoming.properties.is_empty() {
        let read = PublishProperties::from(incoming.properties);
        publication.content_type = read.content_type;
        publication.expires_at = expires_at(now, read.expiry);
        publication.properties = rare(&read, incoming.properties);
    }
    publication
}

/// A message on its way out, as it is being published.
#[inline]
pub(super) fn outgoing<'a>(publication: &'a Publication<'_>, qos: Qos, retain: bool, ids: &'a [u32]) -> Outgoing<'a> {
    let mut outgoing = Outgoing {
        topic: publication.topic.as_str(),
        qos: to_mqtt(qos),
        retain,
        expiry: publication.seconds_left(publication.ingest),
        content_type: publication.content_type,
        subscription_ids: ids,
        payload: publication.payload.as_slice(),
        ..Outgoing::default()
    };
    if let Some(properties) = &publication.properties {
        add(&mut outgoing, properties);
    }
    outgoing
}

/// A queued message on its way out, with the expiry interval left at `now` ([MQTT-3.3.2-6]). `None` while it is in the
/// store only.
pub(super) fn describe(kept: &Kept, now: Timestamp) -> Option<Outgoing<'_>> {
    let message = kept.message()?;
    let mut outgoing = Outgoing {
        topic: message.topic.as_str(),
        qos: to_mqtt(kept.qos),
        retain: kept.retain,
        expiry: message.seconds_left(now),
        content_type: message.content_type.as_deref(),
        subscription_ids: &kept.ids,
        payload: &message.payload,
        ..Outgoing::default()
    };
    if let Some(properties) = &message.properties {
        add(&mut outgoing, properties);
    }
    Some(outgoing)
}

fn add<'a>(outgoing: &mut Outgoing<'a>, properties: &'a Properties) {
    outgoing.utf8 = properties.utf8;
    // [MQTT-4.7.3-1]; an earlier release may have stored an empty one.
    outgoing.response_topic = properties.reply_to.as_deref().filter(|topic| !topic.is_empty());
    outgoing.correlation = properties.correlation.as_deref();
    outgoing.user = &properties.user;
}
