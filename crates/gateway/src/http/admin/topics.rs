//! `GET /api/v1/topics`: the retained messages that the requester may read, without their payloads.

use fogmux_http::{
    Problem,
    api::{Moment, Page, TopicEntry, Topics, Weight, cursor},
};

use super::super::{conn::Conn, identity::Identity};

/// One page. It may be empty and not the last one: what the requester may not read is passed over, and not named by the
/// cursor either.
pub(super) fn page(conn: &Conn, identity: &Identity, page: &Page<'_>) -> Result<Vec<u8>, Problem<'static>> {
    let (ctx, now) = (&conn.ctx, conn.ctx.now());
    let cursors = &ctx.door.cursors;
    let after = page.after.as_deref().map(|given| cursors.open(given)).transpose()?;
    let found = ctx.bus().retained_page(&page.prefix, after.as_deref(), page.limit, now);
    let mut topics = Vec::with_capacity(found.messages.len());
    let readable = |topic: &str| identity.gate.access().may_read(topic);
    let next = found.next.as_deref();
    let next = next.map(|last| if readable(last) { Ok(cursor(last)) } else { cursors.seal(last) });
    let mut next = next.transpose()?;
    let mut weight = Weight::default();
    for message in &found.messages {
        let topic = message.topic.as_str();
        if !readable(topic) {
            continue;
        }
        if !weight.takes(&[topic, &message.publisher.principal, message.content_type.as_deref().unwrap_or_default()]) {
            next = topics.last().map(|entry: &TopicEntry<'_>| cursor(entry.topic));
            break;
        }
        topics.push(TopicEntry {
            topic,
            bytes: message.payload.len(),
            content_type: message.content_type.as_deref(),
            qos: message.qos as u8,
            time: Moment(message.ingest_unix_ms),
            door: message.publisher.door.map(fogmux_bus::Door::name),
            publisher: &message.publisher.principal,
            expires_seconds: message.seconds_left(now),
        });
    }
    Ok(Topics { topics, next }.to_json())
}
