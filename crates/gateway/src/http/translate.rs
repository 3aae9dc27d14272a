//! Mapping between HTTP and the bus: messages as events, requests as publications.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use fogmux_bus::{Message, Properties, Publication, Qos};
use fogmux_http::{Event, Query};

/// A publication without `qos` is acknowledged like any 2xx: at least once.
pub(super) const QOS_DEFAULT: Qos = Qos::AtLeastOnce;

/// A message as an event with this name.
pub(super) fn event<'a>(message: &'a Message, qos: Qos, id: &'a str) -> Event<'a> {
    let properties = message.properties.as_deref();
    Event {
        id,
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
