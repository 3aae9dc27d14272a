//! `/topics/<topic>`: the retained message, and publishing with and without retaining.

use std::{rc::Rc, sync::Arc};

use bytes::Bytes;
use fogmux_auth::Action;
use fogmux_bus::{Clearing, Door, Meaning, Message, Outcome, Publication, StoreFailed, Timestamp, TopicRef, etag};
use fogmux_http::{
    Kind, Problem, Query, accept,
    condition::{Access, Conditions, Validators, Verdict},
};
use http::{
    HeaderMap, Method, Response, StatusCode,
    header::{ACCEPT, CONTENT_ENCODING, CONTENT_RANGE, CONTENT_TYPE, ETAG},
    request::Parts,
};
use http_body::Body;

#[cfg(feature = "traces")]
use super::trace;
use super::{
    body::{self, Bounds, Collected},
    conn::Conn,
    idempotent::{self, Claimed},
    identity::Identity,
    payload::Payload,
    respond, translate,
};
use crate::pause::Pause;

/// GET and HEAD without waiting.
pub(super) fn read(
    conn: &Rc<Conn>,
    identity: &Identity,
    topic: &str,
    parts: &Parts,
    now: Timestamp,
) -> Result<Response<Payload>, Problem<'static>> {
    let topic = checked(topic)?;
    identity.gate.check(&conn.ctx, Action::Read, topic.as_str())?;
    latest(conn, identity, conn.ctx.bus().latest(topic.as_str(), now).as_ref(), &parts.headers)
}

/// The response to GET with this retained message.
pub(super) fn latest(
    conn: &Conn,
    identity: &Identity,
    current: Option<&Arc<Message>>,
    headers: &HeaderMap,
) -> Result<Response<Payload>, Problem<'static>> {
    let verdict = Conditions::of(headers).evaluate(Access::Read, current.map(validators));
    match (verdict, current) {
        (Verdict::Failed, _) => Err(Problem::new(Kind::PreconditionFailed)),
        (Verdict::NotModified, Some(message)) => Ok(respond::not_modified(message)),
        (Verdict::Proceed, Some(message)) if acceptable(message, headers) => {
            conn.ctx.read(message, Door::Http, || &identity.publisher);
            Ok(whole(conn, message))
        }
        (Verdict::Proceed, Some(_)) => Err(Problem::new(Kind::NotAcceptable)),
        (Verdict::NotModified | Verdict::Proceed, None) => Err(Problem::new(Kind::NoMessage)),
    }
}

/// 200 with a message, and with the context of its trace where messages are traced.
pub(super) fn whole(conn: &Conn, message: &Arc<Message>) -> Response<Payload> {
    #[cfg(not(feature = "traces"))]
    let _ = conn;
    let response = respond::message(message);
    #[cfg(feature = "traces")]
    let response = trace::put(&conn.ctx, message, response);
    response
}

/// A message has one representation. If its type is not acceptable to the client, the response is 406; a message
/// without a type is always acceptable.
fn acceptable(message: &Message, headers: &HeaderMap) -> bool {
    let Some(content_type) = message.content_type.as_deref() else { return true };
    if !headers.contains_key(ACCEPT) {
        return true;
    }
    let lines = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accept::quality(lines, content_type) > 0
}

pub(super) fn validators(message: &Arc<Message>) -> Validators {
    Validators { etag: message.etag(), modified_unix_ms: message.ingest_unix_ms }
}

/// The bus's own rules for topics, where they go beyond the path's.
pub(super) fn checked(topic: &str) -> Result<TopicRef<'_>, Problem<'static>> {
    TopicRef::new(topic).map_err(|error| Problem::new(Kind::InvalidTopic).detail(error.to_string()))
}

/// PUT, POST and DELETE.
pub(super) async fn write<B>(
    conn: &Rc<Conn>,
    identity: &Identity,
    topic: &str,
    parts: &Parts,
    body: B,
) -> Result<Response<Payload>, Problem<'static>>
where
    B: Body<Data = Bytes> + Unpin,
{
    let topic = checked(topic)?;
    identity.gate.check(&conn.ctx, Action::Write, topic.as_str())?;
    // The outcome of a condition tells of the message that is there.
    if !Conditions::of(&parts.headers).is_empty() {
        identity.gate.check(&conn.ctx, Action::Read, topic.as_str())?;
    }
    let query = Query::parse(parts.uri.query()).map_err(|invalid| invalid.problem())?;
    if parts.method == Method::DELETE {
        return clear(conn, identity, topic, parts).await;
    }
    check_body_headers(&parts.headers)?;
    let content_type = content_type(&parts.headers)?;
    let properties = translate::query_properties(&query);
    #[cfg(feature = "traces")]
    let properties = trace::take(&conn.ctx, &parts.headers, properties);
    translate::check(content_type, properties.as_deref())?;
    let config = &conn.ctx.door.config;
    let bounds = Bounds::of(config, config.payload_bytes_max);
    let generation = conn.ctx.authority().generation();
    let collected = body::collect(&conn.ctx, &parts.headers, body, bounds, identity.owner(conn)).await?;
    identity.check_again(conn, generation)?;
    if generation != conn.ctx.authority().generation() {
        identity.gate.check(&conn.ctx, Action::Write, topic.as_str())?;
    }
    let put = Put { topic, query: &query, content_type, properties, collected: &collected };
    if parts.method == Method::PUT {
        return keep(conn, identity, &put, &parts.headers).await;
    }
    let claimed = match idempotent::claim(conn, identity, parts, collected.bytes())? {
        Claimed::Perform(ticket) => ticket,
        Claimed::Replay(response) => return Ok(response),
    };
    let result = post(conn, identity, &put, &parts.headers).await;
    Ok(claimed.finish(conn, result))
}

struct Put<'a> {
    topic: TopicRef<'a>,
    query: &'a Query<'a>,
    content_type: Option<&'a str>,
    properties: Option<Arc<fogmux_bus::Properties>>,
    collected: &'a Collected,
}

impl<'a> Put<'a> {
    fn publication(&self, conn: &Conn, identity: &'a Identity) -> Publication<'a> {
        let now = conn.ctx.now();
        let payload = self.collected.payload();
        let mut publication = Publication::new(self.topic, payload, &identity.publisher, now, conn.ctx.unix_ms(now));
        translate::apply(&mut publication, self.query.qos, self.query.expiry_seconds);
        publication.content_type = self.content_type;
        publication.properties.clone_from(&self.properties);
        publication
    }
}

/// PUT: 201 for the first, 204 for the next (RFC 9110 §9.3.4). A client that may not read is not told which it was.
async fn keep(
    conn: &Rc<Conn>,
    identity: &Identity,
    put: &Put<'_>,
    headers: &HeaderMap,
) -> Result<Response<Payload>, Problem<'static>> {
    if put.query.retain == Some(false) {
        return Err(Problem::new(Kind::InvalidParameter).detail("PUT keeps; POST is for retain=false"));
    }
    let replaced = publish_kept(conn, put.publication(conn, identity), headers).await?;
    let created = !replaced && identity.gate.access().may_read(put.topic.as_str());
    let code = if created { StatusCode::CREATED } else { StatusCode::NO_CONTENT };
    let mut response = respond::status(code);
    if let Some(tag) = respond::etag(etag(put.collected.bytes(), put.content_type)) {
        response.headers_mut().insert(ETAG, tag);
    }
    Ok(response)
}

/// POST: 202, delivered to current subscribers.
async fn post(
    conn: &Rc<Conn>,
    identity: &Identity,
    put: &Put<'_>,
    headers: &HeaderMap,
) -> Result<Response<Payload>, Problem<'static>> {
    let mut publication = put.publication(conn, identity);
    if put.query.retain == Some(true) {
        publish_kept(conn, publication, headers).await?;
        return Ok(respond::status(StatusCode::ACCEPTED));
    }
    let conditions = Conditions::of(headers);
    let holds = |current: Option<&Arc<Message>>| holds(&conditions, current);
    publication.precondition = (!conditions.is_empty()).then_some(&holds);
    publish(conn, publication).await?;
    Ok(respond::status(StatusCode::ACCEPTED))
}

/// DELETE: 204 whether a message was retained or not.
async fn clear(
    conn: &Rc<Conn>,
    identity: &Identity,
    topic: TopicRef<'_>,
    parts: &Parts,
) -> Result<Response<Payload>, Problem<'static>> {
    let now = conn.ctx.now();
    let unix_ms = conn.ctx.unix_ms(now);
    let mut publication = Publication::new(topic, fogmux_bus::Payload::Slice(&[]), &identity.publisher, now, unix_ms);
    publication.qos = translate::QOS_DEFAULT;
    publication.meaning = Meaning::Clearing(Clearing::Cleared);
    #[cfg(feature = "traces")]
    {
        publication.properties = trace::take(&conn.ctx, &parts.headers, None);
    }
    let conditions = Conditions::of(&parts.headers);
    let holds = |current: Option<&Arc<Message>>| holds(&conditions, current);
    publication.precondition = (!conditions.is_empty()).then_some(&holds);
    publish(conn, publication).await?;
    Ok(respond::status(StatusCode::NO_CONTENT))
}

/// Publishes and retains under the request's conditions. Returns whether a message was retained before.
async fn publish_kept(
    conn: &Rc<Conn>,
    publication: Publication<'_>,
    headers: &HeaderMap,
) -> Result<bool, Problem<'static>> {
    let conditions = Conditions::of(headers);
    let holds = |current: Option<&Arc<Message>>| holds(&conditions, current);
    let mut publication = publication;
    publication.meaning = Meaning::Value;
    publication.precondition = (!conditions.is_empty()).then_some(&holds);
    publish(conn, publication).await
}

fn holds(conditions: &Conditions<'_>, current: Option<&Arc<Message>>) -> bool {
    conditions.evaluate(Access::Write, current.map(validators)) == Verdict::Proceed
}

/// Publishes one message and waits until it is stored. Returns whether a message was retained before.
async fn publish(conn: &Rc<Conn>, publication: Publication<'_>) -> Result<bool, Problem<'static>> {
    let mut batch = [publication];
    conn.progress.take_turn().await;
    let published = conn.ctx.worker.borrow_mut().publish(&mut batch);
    conn.progress.delivered(published.deliveries);
    let [publication] = batch;
    let outcome = publication.outcome();
    drop(publication);
    if outcome.precondition_failed {
        return Err(Problem::new(Kind::PreconditionFailed));
    }
    if outcome.refused {
        return Err(refused(outcome));
    }
    if let Some(pause) = Pause::after_one(published.slow_down) {
        pause.keep(&conn.ctx).await;
    }
    let kept = published.completions.of(0).clone().await;
    kept.map_err(|StoreFailed| unkept())?;
    Ok(outcome.replaced)
}

/// 507 for what the store does not keep: its disk is full or fails.
fn unkept() -> Problem<'static> {
    Problem::new(Kind::InsufficientStorage).detail(StoreFailed.to_string())
}

/// The answer to a publication that the bus refused: 507 if the store takes nothing, 503 if a limit is reached.
pub(super) fn refused(outcome: Outcome) -> Problem<'static> {
    if outcome.unkept {
        return unkept();
    }
    Problem::new(Kind::Unavailable).detail("there is no room for the message now").retry_after(1)
}

/// Refuses a content coding or a range, which other doors could not express.
fn check_body_headers(headers: &HeaderMap) -> Result<(), Problem<'static>> {
    // RFC 9110 §14.5.
    if headers.contains_key(CONTENT_RANGE) {
        return Err(Problem::new(Kind::BadRequest).detail("a message is published whole, without Content-Range"));
    }
    // RFC 9110 §15.5.16.
    if headers.get_all(CONTENT_ENCODING).iter().any(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity")) {
        return Err(Problem::new(Kind::UnsupportedMediaType).detail("the body must not have a Content-Encoding"));
    }
    Ok(())
}

/// The `Content-Type`, byte for byte; one that is not UTF-8 is refused, because other doors could not carry it.
pub(super) fn content_type(headers: &HeaderMap) -> Result<Option<&str>, Problem<'static>> {
    let Some(value) = headers.get(CONTENT_TYPE) else { return Ok(None) };
    let text = std::str::from_utf8(value.as_bytes())
        .map_err(|_| Problem::new(Kind::UnsupportedMediaType).detail("Content-Type is not UTF-8"))?;
    Ok((!text.is_empty()).then_some(text))
}
