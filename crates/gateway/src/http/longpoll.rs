//! `GET /topics/<topic>?wait=SECONDS`: the latest message, or the next one if it is worth waiting for.
//!
//! A client whose `If-None-Match` names the value it has waits for another one, transient messages included; a client
//! without it waits only if nothing is retained. Messages between two polls may be missed; a stream delivers all.

use std::{future::poll_fn, rc::Rc, sync::Arc, time::Duration};

use fogmux_auth::{Action, Door};
use fogmux_bus::{
    Account, Claim, Delivered, Delivery, Filter, Mailbox, Message, Publication, Slot, SubscribeOptions, Subscription,
    Timestamp, Topic,
};
use fogmux_http::{
    Kind, Problem, Query,
    condition::{Access, Conditions, Verdict},
};
use http::{HeaderMap, Response, request::Parts};

use super::{
    answer::{Answer, or_problem},
    conn::Conn,
    identity::Identity,
    payload::Payload,
    topics,
};

/// GET and HEAD with a query.
pub(super) fn read(
    conn: &Rc<Conn>,
    identity: &Rc<Identity>,
    topic: String,
    parts: Parts,
    now: Timestamp,
) -> Result<Answer, Problem<'static>> {
    let query = Query::parse(parts.uri.query()).map_err(|invalid| invalid.problem())?;
    let wait = query.wait_seconds.map(|seconds| Duration::from_secs(u64::from(seconds)));
    let wait = wait.map_or(Duration::ZERO, |wait| wait.min(conn.ctx.door.config.wait_max));
    let current = conn.ctx.bus().latest(&topic, now);
    if wait.is_zero() || !worth_waiting(current.as_ref(), &parts.headers) {
        return topics::read(conn, identity, &topic, &parts, now).map(Answer::now);
    }
    topics::checked(&topic)?;
    identity.gate.check(&conn.ctx, Action::Read, &topic)?;
    let (conn, identity) = (Rc::clone(conn), Rc::clone(identity));
    Ok(Answer::later(async move { or_problem(wait_for(&conn, &identity, &topic, &parts.headers, wait).await) }))
}

/// Whether there is no message, or no new one.
fn worth_waiting(current: Option<&Arc<Message>>, headers: &HeaderMap) -> bool {
    let verdict = Conditions::of(headers).evaluate(Access::Read, current.map(topics::validators));
    match verdict {
        Verdict::Failed => false,
        Verdict::NotModified => true,
        Verdict::Proceed => current.is_none(),
    }
}

async fn wait_for(
    conn: &Rc<Conn>,
    identity: &Identity,
    topic: &str,
    headers: &HeaderMap,
    wait: Duration,
) -> Result<Response<Payload>, Problem<'static>> {
    let waiting = Waiting::start(conn, identity, topic)?;
    // A message may have come between the first look and the subscription.
    let now = conn.ctx.now();
    let current = conn.ctx.bus().latest(topic, now);
    if !worth_waiting(current.as_ref(), headers) {
        return topics::latest(conn, identity, current.as_ref(), headers);
    }
    // A credential that ends meanwhile is asked for again.
    let wait = wait.min(identity.expires().since(now));
    let next = tokio::select! {
        message = waiting.next(identity, headers) => Some(message),
        () = tokio::time::sleep(wait) => None,
        () = conn.ctx.drain() => {
            return Err(Problem::new(Kind::Unavailable).detail("the gateway is shutting down").retry_after(5));
        }
    };
    // The rules may have changed meanwhile, whatever ended the wait.
    if !identity.holds(&conn.ctx, &conn.peer) {
        return Err(Problem::new(Kind::Forbidden).detail("the credential has ended"));
    }
    identity.gate.check(&conn.ctx, Action::Read, topic)?;
    match next.filter(|message| !message.meaning.is_clearing()) {
        Some(message) => Ok(topics::whole(conn, &message)),
        // After a clearing there may be a value again.
        None => {
            let current = conn.ctx.bus().latest(topic, conn.ctx.now());
            topics::latest(conn, identity, current.as_ref(), headers)
        }
    }
}

/// A mailbox of the newest message only.
#[derive(Debug)]
struct Newest {
    message: Option<Arc<Message>>,
    account: Arc<Account>,
}

impl Mailbox for Newest {
    fn deliver(&mut self, publication: &Publication<'_>, delivery: &Delivery<'_>) -> Delivered {
        if self.account.gives_way(delivery.held) {
            return Delivered::Full(1);
        }
        match self.message.replace(Arc::clone(publication.share())) {
            None => Delivered::Queued,
            Some(_) => Delivered::Conflated,
        }
    }

    fn buffered_bytes(&self) -> usize {
        self.message.as_ref().map_or(0, |message| message.size())
    }

    fn waiting(&self) -> usize {
        usize::from(self.message.is_some())
    }

    fn close(&mut self) {
        self.message = None;
    }

    fn door(&self) -> Option<Door> {
        Some(Door::Http)
    }

    fn account(&self) -> Option<&Arc<Account>> {
        Some(&self.account)
    }
}

/// A subscription for as long as the poll lasts.
struct Waiting {
    conn: Rc<Conn>,
    slot: Arc<Slot<Newest>>,
    claim: Claim,
    subscription: Subscription,
}

impl Waiting {
    fn start(conn: &Rc<Conn>, identity: &Identity, topic: &str) -> Result<Self, Problem<'static>> {
        let invalid = |error: &dyn std::fmt::Display| Problem::new(Kind::InvalidTopic).detail(error.to_string());
        let topic = Topic::new(topic).map_err(|error| invalid(&error))?;
        let filter = Filter::new(&topic).map_err(|error| invalid(&error))?;
        let subscription = Subscription::to(filter);
        let bus = conn.ctx.bus();
        let account = bus.memory().account(identity.owner(conn));
        let slot = bus.slot(Newest { message: None, account }, conn.ctx.id);
        let claim = slot.claim(conn.ctx.id);
        let gate: Arc<dyn fogmux_bus::ReadGate> = Arc::<super::identity::Gate>::clone(&identity.gate);
        let options = SubscribeOptions { gate: Some(gate), ..SubscribeOptions::default() };
        bus.subscribe(&slot, &subscription, options)
            .map_err(|error| Problem::new(Kind::Unavailable).detail(error.to_string()).retry_after(1))?;
        Ok(Self { conn: Rc::clone(conn), slot, claim, subscription })
    }

    /// The next message that the client does not have.
    async fn next(&self, identity: &Identity, headers: &HeaderMap) -> Arc<Message> {
        poll_fn(|cx| {
            let taken = self.slot.poll_with(self.claim, cx, |newest| newest.message.take()).ok().flatten();
            self.conn.ctx.bus().counters().drained(u64::from(taken.is_some()), 0, 0);
            let now = self.conn.ctx.now();
            match taken.filter(|message| !message.is_expired(now) && !worth_waiting(Some(message), headers)) {
                Some(message) => {
                    self.conn.ctx.delivered(&message, Door::Http, || Some(&identity.publisher));
                    std::task::Poll::Ready(message)
                }
                None => std::task::Poll::Pending,
            }
        })
        .await
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.conn.ctx.bus().unsubscribe(&self.slot, &self.subscription, 0);
        self.conn.ctx.bus().close(&self.slot);
    }
}
