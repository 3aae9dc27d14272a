//! PUT, POST and DELETE: a turn's publications are one batch on the bus; responses are sent when they are true.

use std::{
    ops::Range,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use fogmux_auth::Action;
use fogmux_bus::{
    Clearing, Completion, DELIVERIES_PER_TURN, Meaning, Message, Outcome, Payload, Publication, Published, Qos,
    ReadGate as _, SlowDown, StoreFailed, Timestamp, TopicRef,
};
use fogmux_coap::{Body, Code, ETag, Request, Response, Ticket};
use fogmux_fair::Owner;
use smallvec::SmallVec;

use super::{
    core::{Ask, Core, machine_time},
    holding::Held,
    identity::Identity,
    pending::{Owed, Places},
    translate,
    transport::Path,
};
use crate::{shares::Table, unfinished};

/// The Max-Age when a publication is refused for lack of room.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The Max-Age when the store has failed and the operator has to act.
const RETRY_AFTER_FAILURE: Duration = Duration::from_secs(60);

/// Publications that are handed to the bus together: as many as datagrams are read with one call.
const PUTS_PER_TURN: usize = 32;

/// A publication that waits for the end of the turn.
struct Put<'a> {
    ticket: Ticket<Path>,
    owner: Owner,
    topic: Range<usize>,
    body: Body<'a>,
    content_type: Option<&'static str>,
    qos: Qos,
    meaning: Meaning,
    expires_at: Option<Timestamp>,
    identity: Arc<Identity>,
}

/// A publication that was made.
struct Made {
    ticket: Ticket<Path>,
    owner: Owner,
    meaning: Meaning,
    /// As its publisher may know it.
    outcome: Outcome,
}

/// The code of a publication that succeeded.
const fn done(meaning: Meaning, outcome: Outcome) -> Code {
    match meaning {
        Meaning::Value if !outcome.replaced => Code::CREATED,
        Meaning::Value | Meaning::Event => Code::CHANGED,
        Meaning::Clearing(_) => Code::DELETED,
    }
}

/// The batch of publications of a turn.
pub(super) struct Batch<'a> {
    /// Their topics, one behind the other.
    pub(super) topics: String,
    puts: Vec<Put<'a>>,
    /// The work that they will make, in deliveries.
    work: u64,
}

impl Batch<'_> {
    pub(super) const fn new(topics: String) -> Self {
        Self { topics, puts: Vec::new(), work: 0 }
    }

    /// The room, to be used again.
    pub(super) fn into_topics(mut self) -> String {
        self.topics.clear();
        self.topics
    }
}

impl Core {
    /// Checks a publication and puts it into the batch.
    pub(super) fn write<'a>(
        &mut self,
        ask: &Ask<'_>,
        request: Request<'a>,
        ticket: Ticket<Path>,
        start: usize,
        batch: &mut Batch<'a>,
    ) {
        let owner = unfinished::owner(ask.identity.principal(), ask.from);
        let topic = batch.topics.get(start..).unwrap_or_default();
        let checked = self.check(ask, &request, topic, &ticket);
        let put = match checked.and_then(|checked| self.check_room(ask, topic, &owner, checked, batch)) {
            Ok((meaning, content_type)) => Put {
                topic: start..batch.topics.len(),
                content_type,
                qos: ask.parameters.qos.unwrap_or(default_qos(&ticket)),
                meaning,
                expires_at: ask.parameters.expiry.map(|expiry| ask.now + expiry),
                identity: Arc::clone(ask.identity),
                body: request.body.clone(),
                owner,
                ticket,
            },
            Err(refusal) => {
                batch.topics.truncate(start);
                self.respond(ask.now, ticket, &refusal);
                return;
            }
        };
        if request.is_conditional() {
            self.publish(ask.now, batch);
            // The topics are still there; `publish` empties only the list.
            self.publish_if(ask.now, &request, put, &batch.topics);
            return;
        }
        if batch.puts.capacity() == 0 {
            // Grown step by step, each would be moved five times.
            batch.puts.reserve(PUTS_PER_TURN);
        }
        batch.work += topic_of(&put, &batch.topics).map_or(0, |topic| self.ctx.worker.borrow_mut().reach(topic));
        batch.puts.push(put);
        if batch.puts.len() >= PUTS_PER_TURN || batch.work >= DELIVERIES_PER_TURN {
            self.publish(ask.now, batch);
        }
    }

    /// Checks that the owner may have one more answer that waits for the disk, and that its own queues do not hold so
    /// much that it has to wait.
    fn check_room(
        &self,
        ask: &Ask<'_>,
        topic: &str,
        owner: &Owner,
        checked: Checked,
        batch: &Batch<'_>,
    ) -> Result<Checked, Response<'static>> {
        let (bus, max) = (self.ctx.bus(), self.ctx.door.config.pending_max);
        if bus.memory().pressure() && bus.memory().stops(owner) {
            return Err(Response::too_many_requests(RETRY_AFTER));
        }
        let places = Places { max, reserve: bus.room(max).left(0).saturating_sub(max) };
        // An event is not written, nor is it that something which is not there was deleted.
        let is_written = match checked.0 {
            Meaning::Event => false,
            Meaning::Value => true,
            Meaning::Clearing(_) => bus.latest(topic, ask.now).is_some(),
        };
        if is_written && !self.pending.admits(owner, batch.puts.iter().map(|put| &put.owner), places) {
            self.ctx.shared.metrics.shares.refused_owner(Table::CoapPending, owner, ask.now);
            return Err(Response::too_many_requests(RETRY_AFTER));
        }
        Ok(checked)
    }

    fn check(
        &self,
        ask: &Ask<'_>,
        request: &Request<'_>,
        topic: &str,
        ticket: &Ticket<Path>,
    ) -> Result<Checked, Response<'static>> {
        let topic = TopicRef::new(topic).map_err(|_| Response::diagnostic(Code::BAD_REQUEST, "not a topic"))?;
        if let Some(code) = ask.identity.refusal(&self.ctx, Some(ask.from), Action::Write, topic.as_str()) {
            return Err(Response::new(code));
        }
        // The outcome of a condition tells of the message that is there.
        if request.is_conditional()
            && let Some(code) = ask.identity.refusal(&self.ctx, Some(ask.from), Action::Read, topic.as_str())
        {
            return Err(Response::new(code));
        }
        let meaning = match (request.method, ask.parameters.retain) {
            (Code::DELETE, _) => Meaning::Clearing(Clearing::Cleared),
            (Code::PUT, Some(false)) => {
                return Err(Response::diagnostic(Code::BAD_REQUEST, "PUT keeps; POST is for retain=false"));
            }
            (Code::PUT, _) | (_, Some(true)) => Meaning::Value,
            (_, Some(false) | None) => Meaning::Event,
        };
        if self.holding.has_many_for(&ticket.peer()) {
            return Err(Response::unavailable(RETRY_AFTER));
        }
        if self.server.has_too_many_under_way(ticket) {
            return Err(Response::too_many_requests(RETRY_AFTER));
        }
        if meaning.is_clearing() {
            return Ok((meaning, None));
        }
        translate::content_type(request).map(|content_type| (meaning, content_type)).map_err(Response::new)
    }

    /// Publishes the batch and responds, or lets the responses wait for the store.
    pub(super) fn publish(&mut self, now: Timestamp, batch: &mut Batch<'_>) {
        if batch.puts.is_empty() {
            return;
        }
        let unix_ms = self.ctx.unix_ms(now);
        batch.work = 0;
        let mut puts = std::mem::take(&mut batch.puts);
        // The topic was checked when it was added.
        puts.retain(|put| topic_of(put, &batch.topics).is_some());
        let topics = &batch.topics;
        let mut publications: SmallVec<[Publication<'_>; 4]> = SmallVec::with_capacity(puts.len());
        publications.extend(puts.iter().filter_map(|put| Some(publication(put, topic_of(put, topics)?, now, unix_ms))));
        let published = self.ctx.worker.borrow_mut().publish(&mut publications);
        let outcomes: SmallVec<[Outcome; 32]> = publications.iter().map(Publication::outcome).collect();
        drop(publications);
        let answers = puts.into_iter().zip(outcomes).map(|(put, outcome)| {
            let outcome = outcome_for(&put, topics, outcome);
            Made { ticket: put.ticket, owner: put.owner, meaning: put.meaning, outcome }
        });
        self.answer(now, published, answers);
    }

    /// If-Match and If-None-Match (RFC 7252 §5.10.8), evaluated under the lock that orders retained publications.
    fn publish_if(&mut self, now: Timestamp, request: &Request<'_>, put: Put<'_>, topics: &str) {
        let holds = |current: Option<&Arc<Message>>| {
            request.precondition_holds(current.map(|message| ETag::from_u64(message.etag())).as_ref())
        };
        let Some(topic) = topic_of(&put, topics) else { return };
        let mut batch = [publication(&put, topic, now, self.ctx.unix_ms(now))];
        let [publication] = &mut batch;
        if put.meaning.is_state() {
            publication.precondition = Some(&holds);
        } else if !holds(self.ctx.bus().latest(topic.as_str(), now).as_ref()) {
            self.respond(now, put.ticket, &Response::new(Code::PRECONDITION_FAILED));
            return;
        }
        let published = self.ctx.worker.borrow_mut().publish(&mut batch);
        let [publication] = batch;
        let outcome = publication.outcome();
        drop(publication);
        let outcome = outcome_for(&put, topics, outcome);
        self.answer(
            now,
            published,
            std::iter::once(Made { ticket: put.ticket, owner: put.owner, meaning: put.meaning, outcome }),
        );
    }

    /// Responds to the publications of a batch, or lets each response wait for its own completion.
    fn answer(&mut self, now: Timestamp, published: Published, answers: impl Iterator<Item = Made>) {
        self.deliveries.add(published.deliveries);
        let Published { completions, slow_down, .. } = published;
        // Without room an answer is not held back: no peer is refused for what others wait for.
        let holds = !self.is_reliable
            && slow_down.as_ref().is_some_and(|asked| asked.until.is_some())
            && self.holding.len() < self.ctx.door.config.pending_max / 2;
        let mut held = Vec::new();
        for (index, Made { ticket, owner, meaning, outcome }) in answers.enumerate() {
            // Those of which nothing is kept wait for nothing.
            let is_kept = meaning.is_state() || outcome.stored;
            let completion = if is_kept { completions.of(index) } else { &Completion::Ready };
            if outcome.precondition_failed {
                self.respond(now, ticket, &Response::new(Code::PRECONDITION_FAILED));
            } else if outcome.refused {
                let after = if outcome.unkept { RETRY_AFTER_FAILURE } else { RETRY_AFTER };
                self.respond(now, ticket, &Response::unavailable(after));
            } else if outcome.slowed && holds {
                self.server.defer(machine_time(now), &ticket);
                let completion = completion.clone();
                held.push(Held { answer: Owed { ticket, code: done(meaning, outcome), owner }, completion });
            } else if completion.is_ready() {
                self.respond(now, ticket, &Response::new(done(meaning, outcome)));
            } else {
                self.server.defer(machine_time(now), &ticket);
                self.pending.push(completion, Owed { ticket, code: done(meaning, outcome), owner });
            }
        }
        if let Some(asked) = slow_down {
            self.slow_down(asked, held);
        }
    }

    /// Lets the publisher wait for subscribers: the answers to datagrams are held back, a connection is not read.
    fn slow_down(&mut self, asked: SlowDown, held: Vec<Held>) {
        if self.is_reliable {
            SlowDown::merge(&mut self.slow_down, asked);
        } else if !held.is_empty() {
            self.holding.push(asked, held);
        }
    }

    /// Whether a response to this peer waits for the store or for a subscriber.
    pub(super) fn owes(&self, path: &Path) -> bool {
        self.holding.is_for(path) || self.pending.is_for(path.association)
    }

    /// Sends responses that were held back, or lets them wait for the store.
    fn release(&mut self, answers: Vec<Held>) {
        let now = self.ctx.now();
        for Held { answer, completion } in answers {
            if completion.is_ready() {
                self.respond(now, answer.ticket, &Response::new(answer.code));
            } else {
                self.pending.push(&completion, answer);
            }
        }
    }

    /// Sends responses whose completions have resolved.
    pub(super) fn complete(&mut self, cx: &mut Context<'_>) -> bool {
        let mut any = false;
        self.pending.begin_turn();
        if let Poll::Ready(answers) = self.holding.poll(&self.ctx, cx) {
            any = true;
            self.release(answers);
        }
        while let Some((result, answers)) = self.pending.poll(cx) {
            let now = self.ctx.now();
            for Owed { ticket, code, .. } in answers {
                let response = match result {
                    Ok(()) => Response::new(code),
                    Err(StoreFailed) => Response::unavailable(RETRY_AFTER_FAILURE),
                };
                self.respond(now, ticket, &response);
            }
            any = true;
        }
        any
    }
}

/// The meaning of a publication that was checked, and its content type.
type Checked = (Meaning, Option<&'static str>);

/// The outcome as its publisher may know it: one that may not read is not told whether there was a message before.
fn outcome_for(put: &Put<'_>, topics: &str, outcome: Outcome) -> Outcome {
    let tells = put.meaning == Meaning::Value && !outcome.replaced;
    let hides = tells && !topic_of(put, topics).is_some_and(|topic| put.identity.may_read(topic.as_str()));
    Outcome { replaced: outcome.replaced || hides, ..outcome }
}

/// The QoS without `?qos=`: 1 for a Confirmable.
const fn default_qos(ticket: &Ticket<Path>) -> Qos {
    if ticket.is_confirmable() { Qos::AtLeastOnce } else { Qos::AtMostOnce }
}

fn topic_of<'t>(put: &Put<'_>, topics: &'t str) -> Option<TopicRef<'t>> {
    TopicRef::new(topics.get(put.topic.clone())?).ok()
}

fn publication<'p>(put: &'p Put<'_>, topic: TopicRef<'p>, now: Timestamp, unix_ms: u64) -> Publication<'p> {
    let payload = match &put.body {
        _ if put.meaning.is_clearing() => Payload::Slice(&[]),
        Body::Slice(bytes) => Payload::Slice(bytes),
        Body::Whole(bytes) => Payload::Shared(bytes),
    };
    let mut publication = Publication::new(topic, payload, put.identity.publisher(), now, unix_ms);
    publication.qos = put.qos;
    publication.meaning = put.meaning;
    publication.content_type = put.content_type;
    publication.expires_at = put.expires_at;
    publication
}
