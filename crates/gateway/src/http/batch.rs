//! `POST /publish`: many messages in one request, one result for each line.

use std::rc::Rc;

use bytes::Bytes;
use fogmux_auth::Action;
use fogmux_bus::{Completion, Payload as BusPayload, Properties, Publication, TopicRef};
use fogmux_http::{Kind, Problem, event::Decoded, publish as ndjson};
use http::{Response, request::Parts};
use http_body::Body;

use super::{
    body::{self, Bounds},
    idempotent::{self, Claimed},
    identity::Identity,
    payload::Payload,
    respond,
    service::Conn,
    topics, translate,
};

/// Lines that go to the bus together: one lock and one wake for all of them, and no longer than others may wait.
const TURN: usize = 64;

/// Reads the batch whole, then publishes it in turns.
pub(super) async fn publish<B>(
    conn: &Rc<Conn>,
    identity: &Identity,
    parts: &Parts,
    body: B,
) -> Result<Response<Payload>, Problem<'static>>
where
    B: Body<Data = Bytes> + Unpin,
{
    if !ndjson::is_batch(topics::content_type(&parts.headers)?) {
        return Err(Problem::new(Kind::UnsupportedMediaType).detail("a batch is application/x-ndjson"));
    }
    let config = &conn.ctx.shared.http.config;
    let bounds = Bounds::of(config, config.batch_bytes_max);
    let collected = body::collect(&conn.ctx, &parts.headers, body, bounds).await?;
    if ndjson::lines(collected.bytes()).nth(config.batch_lines_max).is_some() {
        let detail = format!("at most {} lines", config.batch_lines_max);
        return Err(Problem::new(Kind::ContentTooLarge).detail(detail));
    }
    let held = match idempotent::claim(conn, identity, parts, collected.bytes())? {
        Claimed::Perform(held) => held,
        Claimed::Replay(response) => return Ok(response),
    };
    let result = publish_lines(conn, identity, collected.bytes()).await;
    Ok(held.finish(conn, result))
}

async fn publish_lines(
    conn: &Rc<Conn>,
    identity: &Identity,
    body: &[u8],
) -> Result<Response<Payload>, Problem<'static>> {
    let mut results = Vec::new();
    let mut last = Completion::Ready;
    let mut lines = ndjson::lines(body).peekable();
    while lines.peek().is_some() {
        let turn: Vec<Line<'_>> =
            lines.by_ref().take(TURN).map(|(number, line)| Line::read(conn, identity, number, line)).collect();
        let completion = publish_turn(conn, identity, &turn, &mut results);
        // Completions come in the order of writes: the last stands for all.
        if !completion.is_ready() {
            last = completion;
        }
        tokio::task::yield_now().await;
    }
    last.await.map_err(|failed| Problem::new(Kind::Unavailable).detail(failed.to_string()))?;
    Ok(respond::own(ndjson::NDJSON, results))
}

/// A line that may be published, or the reason why not.
struct Line<'a> {
    number: u32,
    message: Result<Ready<'a>, Problem<'static>>,
}

struct Ready<'a> {
    decoded: Decoded<'a>,
    properties: Option<std::sync::Arc<Properties>>,
}

impl<'a> Line<'a> {
    fn read(conn: &Conn, identity: &Identity, number: u32, line: &'a [u8]) -> Self {
        Self { number, message: Self::message(conn, identity, line) }
    }

    fn message(conn: &Conn, identity: &Identity, line: &'a [u8]) -> Result<Ready<'a>, Problem<'static>> {
        let mut decoded = ndjson::parse_line(line)?;
        let limit = conn.ctx.shared.http.config.payload_bytes_max;
        if decoded.payload.len() > limit {
            return Err(Problem::new(Kind::ContentTooLarge).detail(format!("at most {limit} bytes")));
        }
        topics::checked(&decoded.topic)?;
        identity.gate.check(&conn.ctx, Action::Write, &decoded.topic)?;
        let correlation = decoded.correlation.take().map(Bytes::from);
        let user = std::mem::take(&mut decoded.properties);
        let properties = translate::properties(user, decoded.reply_to.as_deref(), correlation);
        translate::check(decoded.content_type.as_deref(), properties.as_deref())?;
        Ok(Ready { decoded, properties })
    }
}

fn publish_turn(conn: &Conn, identity: &Identity, turn: &[Line<'_>], results: &mut Vec<u8>) -> Completion {
    let now = conn.ctx.now();
    let unix_ms = conn.ctx.unix_ms(now);
    let mut batch: Vec<Publication<'_>> = Vec::with_capacity(turn.len());
    for ready in turn.iter().filter_map(|line| line.message.as_ref().ok()) {
        // Checked when the line was read.
        let Ok(topic) = TopicRef::new(&ready.decoded.topic) else { continue };
        let payload = BusPayload::Slice(&ready.decoded.payload);
        let mut publication = Publication::new(topic, payload, &identity.publisher, now, unix_ms);
        translate::apply(&mut publication, ready.decoded.qos, ready.decoded.expiry_seconds);
        publication.retain = ready.decoded.retain;
        publication.keep_empty = true;
        publication.content_type = ready.decoded.content_type.as_deref();
        publication.properties.clone_from(&ready.properties);
        batch.push(publication);
    }
    let published = conn.ctx.worker.borrow_mut().publish(&mut batch);
    let mut outcomes = batch.iter().map(Publication::outcome);
    for line in turn {
        match &line.message {
            Err(problem) => ndjson::push_refused(line.number, problem, results),
            Ok(ready) => match outcomes.next() {
                Some(outcome) if !outcome.refused => {
                    ndjson::push_accepted(line.number, &ready.decoded.topic, outcome.matched, results);
                }
                outcome => {
                    let problem = topics::refused(outcome.unwrap_or_default());
                    ndjson::push_refused(line.number, &problem, results);
                }
            },
        }
    }
    published.completion
}
