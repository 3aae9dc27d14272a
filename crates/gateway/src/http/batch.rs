//! `POST /publish`: many messages in one request, one result for each line.

use std::{ops::Range, rc::Rc};

use bytes::Bytes;
use fogmux_auth::Action;
use fogmux_bus::{Completion, Meaning, Outcome, Payload as BusPayload, Properties, Publication, SlowDown, TopicRef};
use fogmux_http::{Kind, Problem, event::Decoded, publish as ndjson};
use http::{Response, request::Parts};
use http_body::Body;

use super::{
    body::{self, Bounds},
    conn::Conn,
    idempotent::{self, Claimed},
    identity::Identity,
    payload::Payload,
    respond, topics, translate,
};
use crate::{pause::Pause, unfinished::Place};

/// Lines that go to the bus together, and their bytes: one lock and one wake for all of them, and no longer than others
/// may wait.
const TURN: usize = 64;
const TURN_BYTES: usize = 64 << 10;
/// Refused lines whose results give the reason. A line of one byte would otherwise be answered by a hundred.
const REASONS_MAX: u32 = 100;

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
    let config = &conn.ctx.door.config;
    let bounds = Bounds::of(config, config.batch_bytes_max);
    let generation = conn.ctx.authority().generation();
    let collected = body::collect(&conn.ctx, &parts.headers, body, bounds, identity.owner(conn)).await?;
    identity.check_again(conn, generation)?;
    if ndjson::lines(collected.bytes()).nth(config.batch_lines_max).is_some() {
        let detail = format!("at most {} lines", config.batch_lines_max);
        return Err(Problem::new(Kind::ContentTooLarge).detail(detail));
    }
    let held = match idempotent::claim(conn, identity, parts, collected.bytes())? {
        Claimed::Perform(held) => held,
        Claimed::Replay(response) => return Ok(response),
    };
    let results = publish_lines(conn, identity, collected.bytes()).await;
    Ok(held.finish(conn, results.map(|results| respond::own(ndjson::NDJSON, results))))
}

/// Publishes the lines. The batch counts among unread answers meanwhile, with the lines that wait and the results that
/// have come together; if it gives way, the rest of its lines is not published.
async fn publish_lines(conn: &Rc<Conn>, identity: &Identity, body: &[u8]) -> Result<Vec<u8>, Problem<'static>> {
    let mut results = Results::default();
    let mut place = Place::new(&conn.ctx.door.unread, identity.owner(conn));
    let mut lines = ndjson::lines(body).peekable();
    let mut turn_bytes = TURN_BYTES;
    while lines.peek().is_some() {
        let (mut turn, mut bytes) = (Vec::with_capacity(TURN), 0);
        while turn.len() < TURN
            && bytes < turn_bytes
            && let Some((number, line)) = lines.next()
        {
            bytes += line.len();
            turn.push(Line::read(conn, identity, number, line));
        }
        let mut rest = &*turn;
        // Those with very many subscribers take more than one turn.
        while !rest.is_empty() {
            conn.progress.take_turn().await;
            let (published, asked) = publish_turn(conn, identity, rest, &mut results);
            rest = rest.get(published..).unwrap_or_default();
            let next = rest.first().map(|line| line.number).or_else(|| lines.peek().map(|(number, _)| *number));
            if !place.set(&conn.ctx, body.len() + results.text.capacity(), results.text.len()) {
                return Err(ended_at(next));
            }
            if let Some(pause) = Pause::of(asked) {
                turn_bytes = pause.next_turn(bytes, Some(turn_bytes)).unwrap_or(TURN_BYTES).min(TURN_BYTES);
                tokio::select! {
                    biased;
                    () = pause.keep(&conn.ctx) => {}
                    () = place.waiter().gave_way() => {}
                }
            } else {
                turn_bytes = TURN_BYTES;
                tokio::task::yield_now().await;
            }
        }
    }
    Ok(results.settled().await)
}

/// The refusal of a batch whose lines from a number on were not published.
fn ended_at(number: Option<u32>) -> Problem<'static> {
    let problem = Problem::new(Kind::Unavailable).retry_after(1);
    problem.detail(match number {
        Some(number) => format!("too much waits for clients; lines from {number} on were not published"),
        None => "too much waits for clients; every line was handled".to_owned(),
    })
}

/// The results of the lines, some of which hold only if the store keeps their messages.
#[derive(Default)]
struct Results {
    text: Vec<u8>,
    waiting: Vec<Waiting>,
    reasons: Reasons,
}

/// The refused lines whose results have given the reason.
#[derive(Default)]
struct Reasons(u32);

/// Lines whose messages one commit of the store writes.
struct Waiting {
    completion: Completion,
    /// Their numbers, and the places of their results.
    lines: Vec<(u32, Range<usize>)>,
}

impl Reasons {
    fn push(&mut self, number: u32, problem: &Problem<'_>, text: &mut Vec<u8>) {
        if self.0 < REASONS_MAX {
            self.0 += 1;
            ndjson::push_refused(number, problem, text);
        } else {
            ndjson::push_refused_briefly(number, problem, text);
        }
    }
}

impl Results {
    fn refuse(&mut self, number: u32, problem: &Problem<'_>) {
        self.reasons.push(number, problem, &mut self.text);
    }

    /// Notes that the result behind `start` holds if the completion resolves with success.
    fn wait(&mut self, completion: &Completion, number: u32, start: usize) {
        let line = (number, start..self.text.len());
        match self.waiting.last_mut() {
            _ if completion.is_ready() => {}
            Some(last) if last.completion.is_same(completion) => last.lines.push(line),
            _ => self.waiting.push(Waiting { completion: completion.clone(), lines: vec![line] }),
        }
    }

    /// The results when it is known what the store has kept.
    async fn settled(mut self) -> Vec<u8> {
        let mut failed = Vec::new();
        for Waiting { completion, lines } in self.waiting {
            if completion.await.is_err() {
                failed.extend(lines);
            }
        }
        if failed.is_empty() {
            self.text.shrink_to_fit();
            return self.text;
        }
        let problem = topics::refused(Outcome { refused: true, unkept: true, ..Outcome::default() });
        let (mut text, mut done) = (Vec::with_capacity(self.text.len()), 0);
        for (number, place) in failed {
            text.extend_from_slice(self.text.get(done..place.start).unwrap_or_default());
            self.reasons.push(number, &problem, &mut text);
            done = place.end;
        }
        text.extend_from_slice(self.text.get(done..).unwrap_or_default());
        text
    }
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
        let limit = conn.ctx.door.config.payload_bytes_max;
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

/// Publishes lines together, as many as others have to wait for. Returns their number, and the pause that subscribers
/// ask for.
fn publish_turn(
    conn: &Conn,
    identity: &Identity,
    turn: &[Line<'_>],
    results: &mut Results,
) -> (usize, Option<SlowDown>) {
    let now = conn.ctx.now();
    let unix_ms = conn.ctx.unix_ms(now);
    let mut batch: Vec<Publication<'_>> = Vec::with_capacity(turn.len());
    // Lines of a principal whose own queues have no room for more are refused.
    let memory = conn.ctx.bus().memory();
    let is_stopped = memory.pressure() && memory.stops(&identity.owner(conn));
    let taken = if is_stopped { &[] } else { turn };
    for ready in taken.iter().filter_map(|line| line.message.as_ref().ok()) {
        // Checked when the line was read.
        let Ok(topic) = TopicRef::new(&ready.decoded.topic) else { continue };
        let payload = BusPayload::Slice(&ready.decoded.payload);
        let mut publication = Publication::new(topic, payload, &identity.publisher, now, unix_ms);
        translate::apply(&mut publication, ready.decoded.qos, ready.decoded.expiry_seconds);
        publication.meaning = Meaning::value_if(ready.decoded.retain);
        publication.content_type = ready.decoded.content_type.as_deref();
        publication.properties.clone_from(&ready.properties);
        batch.push(publication);
    }
    let published = conn.ctx.worker.borrow_mut().publish_some(&mut batch);
    conn.progress.delivered(published.deliveries);
    let mut outcomes = batch.iter().map(Publication::outcome).enumerate();
    for (place, line) in turn.iter().enumerate() {
        let start = results.text.len();
        match &line.message {
            Err(problem) => results.refuse(line.number, problem),
            Ok(ready) => match outcomes.next() {
                Some((index, _)) if index >= published.taken => return (place, published.slow_down),
                Some((index, outcome)) if !outcome.refused => {
                    let text = &mut results.text;
                    ndjson::push_accepted(line.number, &ready.decoded.topic, outcome.matched, text);
                    if ready.decoded.retain || outcome.stored {
                        results.wait(published.completions.of(index), line.number, start);
                    }
                }
                outcome => {
                    let outcome = outcome.map(|(_, outcome)| outcome).unwrap_or_default();
                    results.refuse(line.number, &topics::refused(outcome));
                }
            },
        }
    }
    (turn.len(), published.slow_down)
}
