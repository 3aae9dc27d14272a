//! Mapping between HTTP and the bus: messages as events, requests as publications.

use std::{cell::RefCell, sync::Arc, time::Duration};

use bytes::Bytes;
use fogmux_bus::{Door, Meaning, Message, Properties, Publication, Publisher, Qos};
use fogmux_http::{
    Event, Query,
    event::{self, Origin},
};

use super::streams::Taken;
use crate::encodings::{Encodings, Key};

/// A publication without `qos` is acknowledged like any 2xx: at least once.
pub(super) const QOS_DEFAULT: Qos = Qos::AtLeastOnce;

/// A longer payload is encoded anew for each reader.
const KEPT_PAYLOAD_BYTES_MAX: usize = 64 << 10;

/// The name of an event, and what else differs between the streams that it is sent on.
#[derive(Clone, Copy)]
pub(super) struct Head<'a> {
    pub(super) id: &'a str,
    /// Whether the reader is told where the message came from.
    pub(super) names_origin: bool,
}

/// Appends a message as an event with this head. The rest is encoded once for the readers of a worker.
pub(super) fn push_json(encodings: &RefCell<Encodings>, taken: &Taken, head: Head<'_>, out: &mut Vec<u8>) {
    let Taken { message, qos, .. } = taken;
    event::push_name(head.id, out);
    if head.names_origin {
        let Publisher { principal, client, door, .. } = &*message.publisher;
        Origin { door: door.map(Door::name), publisher: principal, client }.push(out);
    }
    let event = unnamed(message, *qos);
    // One reader holds a message twice, in its stream and here; a value is also in the retained map.
    let alone = 2 + usize::from(message.meaning == Meaning::Value);
    if message.payload.len() > KEPT_PAYLOAD_BYTES_MAX || Arc::strong_count(message) <= alone {
        return event.encode_rest(out);
    }
    // A clock that is set changes the time of a retained message.
    let key = Key { message: message.id, form: (message.ingest_unix_ms << 2) | u64::from(event.qos) };
    encodings.borrow_mut().append(out, key, |out| event.encode_rest(out));
}

/// A message as an event without a name.
fn unnamed(message: &Message, qos: Qos) -> Event<'_> {
    let properties = message.properties.as_deref();
    Event {
        id: "",
        topic: &message.topic,
        payload: &message.payload,
        content_type: message.content_type.as_deref(),
        qos: qos as u8,
        retain: message.meaning.is_state(),
        time_unix_ms: message.ingest_unix_ms,
        properties: properties.map_or(&[], |properties| &properties.user),
        reply_to: properties.and_then(|properties| properties.reply_to.as_deref()),
        correlation: properties.and_then(|properties| properties.correlation.as_deref()),
    }
}

/// The rare fields of a publication; `None` when there are none.
pub(super) fn properties(
    user: Vec<(Box<str>, Box<str>)>,
    reply_to: Option<&str>,
    correlation: Option<Bytes>,
) -> Option<Arc<Properties>> {
    if user.is_empty() && reply_to.is_none() && correlation.is_none() {
        return None;
    }
    Some(Arc::new(Properties { utf8: false, reply_to: reply_to.map(Box::from), correlation, user, item_id: None }))
}

/// The rare fields of a query.
pub(super) fn query_properties(query: &Query<'_>) -> Option<Arc<Properties>> {
    let user = query.properties.iter().map(|(name, value)| (Box::from(&**name), Box::from(&**value))).collect();
    let correlation = query.correlation.as_deref().map(|text| Bytes::copy_from_slice(text.as_bytes()));
    properties(user, query.reply_to.as_deref(), correlation)
}

/// Sets what a parameter or member may say.
pub(super) fn apply(publication: &mut Publication<'_>, qos: Option<u8>, expiry_seconds: Option<u32>) {
    publication.qos = qos.and_then(Qos::from_u8).unwrap_or(QOS_DEFAULT);
    publication.expires_at = expiry_seconds.map(|seconds| publication.ingest + Duration::from_secs(u64::from(seconds)));
}

/// Refuses what MQTT could not carry, while the publisher can still be told: strings above 65535 bytes or with U+0000
/// ([MQTT-1.5.4-2]), and an invalid response topic ([MQTT-3.3.2-14]).
pub(super) fn check(
    content_type: Option<&str>,
    properties: Option<&Properties>,
) -> Result<(), fogmux_http::Problem<'static>> {
    let fits = |text: &str| text.len() <= 65_535 && !text.contains('\0');
    let refuse = |what: &'static str| {
        Err(fogmux_http::Problem::new(fogmux_http::Kind::InvalidParameter)
            .detail(format!("{what} is longer than 65535 bytes, contains U+0000, or is no topic")))
    };
    if content_type.is_some_and(|text| !fits(text)) {
        return refuse("the content type");
    }
    let Some(properties) = properties else { return Ok(()) };
    if properties.user.iter().any(|(name, value)| !fits(name) || !fits(value)) {
        return refuse("a property");
    }
    if properties.reply_to.as_deref().is_some_and(|topic| fogmux_bus::TopicRef::new(topic).is_err()) {
        return refuse("`reply_to`");
    }
    if properties.correlation.as_ref().is_some_and(|bytes| bytes.len() > 65_535) {
        return refuse("`correlation`");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use fogmux_bus::{MessageId, Payload, Publisher, Timestamp, TopicRef};

    use super::*;

    fn message(payload: &[u8], meaning: Meaning) -> Arc<Message> {
        let publisher = Publisher::internal();
        let topic = TopicRef::new("a/b").unwrap();
        let mut publication = Publication::new(topic, Payload::Slice(payload), &publisher, Timestamp::ZERO, 7);
        publication.meaning = meaning;
        let shared = Arc::clone(publication.share());
        drop(publication);
        Arc::new(Message { id: MessageId(1), ..Arc::into_inner(shared).unwrap() })
    }

    /// Sends a message to so many streams, each with a name of its own. Returns the bytes that were encoded for all.
    fn send(message: &Arc<Message>, readers: u64) -> usize {
        let encodings = RefCell::default();
        let streams: Vec<_> = (0..readers).map(|_| Arc::clone(message)).collect();
        for (sequence, message) in (1..).zip(streams.iter()) {
            let taken = Taken { sequence, message: Arc::clone(message), qos: Qos::AtLeastOnce, share: 0 };
            let (id, mut out, mut expected) = (format!("0.{sequence}"), Vec::new(), Vec::new());
            push_json(&encodings, &taken, Head { id: &id, names_origin: false }, &mut out);
            Event { id: &id, ..unnamed(message, Qos::AtLeastOnce) }.encode(&mut expected);
            assert_eq!(String::from_utf8(out).unwrap(), String::from_utf8(expected).unwrap());
        }
        encodings.into_inner().bytes()
    }

    #[test]
    fn json_is_encoded_once_for_all_streams_and_not_kept_for_one() {
        let event = message(b"21.5", Meaning::Event);
        let mut json = Vec::new();
        unnamed(&event, Qos::AtLeastOnce).encode_rest(&mut json);
        assert_eq!(send(&event, 100), json.len());
        // The test holds a reference as the retained map does.
        assert_eq!(send(&message(b"21.5", Meaning::Value), 1), 0);
        let large = vec![b'x'; KEPT_PAYLOAD_BYTES_MAX + 1];
        assert_eq!(send(&message(&large, Meaning::Event), 100), 0);
    }
}
