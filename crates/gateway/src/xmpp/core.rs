//! A bound connection without its socket: its state, and the handling of stanzas.

use std::{net::SocketAddr, rc::Rc, sync::Arc};

use fogmux_auth::{Action, Decision};
use fogmux_bus::{DELIVERIES_PER_TURN, Publisher};
use fogmux_fair::Owner;
use fogmux_xmpp::{
    Element, IqHead, IqKind, Jid, Query, ServerEvent, ServerStream, StanzaCondition, StanzaError, Writer,
    iq::{self, Answer},
    ns, pubsub,
};

use super::{
    XmppDoor,
    access::Gate,
    accounts::Inbox,
    context::XmppContext,
    control::Control,
    fill::{OUT_BYTES_HIGH, Replay, Why},
    held::Held,
    held_back::HeldBack,
    presence::{PRESENCE_PER_READ, Said},
    publish::{self, Work},
};
use crate::{audit, turn::Deliveries, unfinished};

/// Stanzas taken in one go; their publications are one batch.
const STANZAS_PER_BATCH: usize = 64;
/// Requests that read something which are answered before others of the worker have their turn.
const READS_PER_TURN: u32 = 16;

/// The client.
#[derive(Debug)]
pub(super) struct Me {
    pub(super) jid: Jid,
    pub(super) gate: Arc<Gate>,
    pub(super) publisher: Arc<Publisher>,
    pub(super) inbox: Inbox,
    pub(super) control: Arc<Control>,
}

/// A bound connection without its socket.
pub(super) struct Core {
    pub(super) ctx: Rc<XmppContext>,
    pub(super) machine: ServerStream,
    pub(super) me: Me,
    /// The output.
    pub(super) out: Vec<u8>,
    /// The answers in `out` that wait for the store. `out` is not written before all have what they wait for.
    pub(super) held: Held,
    /// The reasons for which this publisher is not read.
    pub(super) held_back: Option<Box<HeldBack>>,
    /// Retained messages that are still to be sent.
    pub(super) replays: Vec<Replay>,
    /// Whether deliveries may be left in the mailbox for which nothing will wake the task.
    pub(super) backlog: bool,
    /// The reason to send the retained messages of all subscriptions again, after those being sent.
    pub(super) due: Option<Why>,
    /// Presence that the client has sent and that has not taken effect yet.
    pub(super) said: Option<Said>,
    /// How often presence may still take effect in this read.
    presence_left: u16,
    /// There was no room for the answers to all that was read, or it was too much for one turn.
    pub(super) stopped: bool,
    /// Deliveries of publications in this turn.
    pub(super) deliveries: Deliveries,
}

impl Drop for Core {
    fn drop(&mut self) {
        let shared = self.door().accounts.leave(self.ctx.bus(), &self.me.jid, &self.me.inbox);
        if !shared.is_empty() {
            let left = self.me.inbox.with(fogmux_bus::FifoMailbox::take_shared);
            let left = left.into_iter().filter_map(|one| Some((one.message, Arc::clone(shared.get(&one.tag)?))));
            crate::left::hand_on(&self.ctx, left.collect());
        }
        self.ctx.bus().close(&self.me.inbox);
    }
}

/// The addressee of a stanza.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    /// The server, or the sender's own account.
    Server,
    /// The publish-subscribe service.
    Service,
    /// An address of this domain without an account.
    Nobody,
    /// Another domain: servers are not connected to each other here.
    Abroad,
}

impl Core {
    /// The owner of what it makes the gateway keep.
    pub(super) fn owner(&self) -> Owner {
        let access = self.me.gate.access();
        let peer = access.peer().unwrap_or(SocketAddr::from(([0, 0, 0, 0], 0)));
        unfinished::owner(access.principal(), peer)
    }

    pub(super) fn new(ctx: Rc<XmppContext>, machine: ServerStream, me: Me, out: Vec<u8>) -> Self {
        // The mailbox may have taken deliveries since it was attached.
        let (held, replays, backlog) = (Held::default(), Vec::new(), true);
        Self {
            ctx,
            machine,
            me,
            out,
            held,
            held_back: None,
            replays,
            backlog,
            due: None,
            said: None,
            presence_left: 0,
            stopped: false,
            deliveries: Deliveries::default(),
        }
    }

    pub(super) fn door(&self) -> &XmppDoor {
        &self.ctx.door
    }

    /// Takes bytes; how many are done with. Stops before the end when the output is full, as a request of a hundred
    /// bytes may have an answer of a megabyte, or when others have to have their turn.
    pub(super) fn take(&mut self, bytes: &[u8]) -> usize {
        let mut used = 0;
        let mut ended = false;
        let mut reads = 0;
        self.stopped = false;
        self.deliveries = Deliveries::default();
        self.presence_left = PRESENCE_PER_READ;
        // Output of the machine itself goes behind the answers to earlier stanzas.
        let mut tail = Vec::new();
        let mut spare = self.ctx.stanzas.take();
        let mut stanzas = Vec::new();
        while !ended {
            let managed = self.machine.management().is_enabled();
            let mut work = 0;
            while stanzas.len() < STANZAS_PER_BATCH && work < DELIVERIES_PER_TURN {
                let rest = bytes.get(used..).unwrap_or_default();
                let (taken, event) = self.machine.handle_with(rest, &mut tail, &mut spare);
                used += taken;
                match event {
                    Some(ServerEvent::Stanza(stanza)) => {
                        let reads_something = stanza.name == "iq" && stanza.attr("type") == Some("get");
                        work += self.work(&stanza);
                        stanzas.push(stanza);
                        if reads_something {
                            // Its answer may be the last that there is room for.
                            reads += 1;
                            break;
                        }
                    }
                    Some(ServerEvent::Failed(error)) => {
                        tracing::debug!(%error, "stream failed");
                        self.ctx.shared.metrics.xmpp.misbehaved.increment();
                        ended = true;
                        break;
                    }
                    // Other events belong to the login.
                    Some(
                        ServerEvent::Ended
                        | ServerEvent::StartTls
                        | ServerEvent::Authenticate { .. }
                        | ServerEvent::Response(_)
                        | ServerEvent::Aborted
                        | ServerEvent::Bind(_),
                    )
                    | None => {
                        ended = true;
                        break;
                    }
                }
            }
            self.handle_all(&stanzas);
            stanzas.drain(..).for_each(|stanza| spare.recycle(stanza));
            self.out.append(&mut tail);
            let has_worked = reads >= READS_PER_TURN || self.deliveries.are_enough();
            if !ended && (self.out.len() >= OUT_BYTES_HIGH || has_worked) {
                self.stopped = used < bytes.len();
                ended = true;
            }
            if self.machine.management().is_enabled() && !managed {
                self.door().accounts.acknowledges(self.ctx.bus(), &self.me.jid);
            }
        }
        self.ctx.stanzas.replace(spare);
        self.apply_presence();
        used
    }

    fn handle_all(&mut self, stanzas: &[Element<'_>]) {
        let mut works = Vec::new();
        for stanza in stanzas {
            match stanza.name {
                "iq" => self.handle_iq(stanza, &mut works),
                "message" => {
                    self.publish(&mut works);
                    self.handle_message(stanza);
                }
                _ => self.handle_presence(stanza),
            }
        }
        self.publish(&mut works);
    }

    /// Refuses messages, which reach nobody here. An error is never answered with an error (RFC 6120 §8.3.1), and a
    /// message without `to` is for the sender's own account (§10.3.1).
    fn handle_message(&mut self, message: &Element<'_>) {
        if matches!(message.attr("type"), Some("error" | "headline")) {
            return;
        }
        let to = message.attr("to").unwrap_or(self.me.jid.bare_str());
        let condition = match self.target(Some(to)) {
            Ok(Target::Abroad) => StanzaCondition::RemoteServerNotFound,
            Ok(Target::Server | Target::Service | Target::Nobody) => StanzaCondition::ServiceUnavailable,
            Err(error) => error.condition,
        };
        let mut w = Writer::new(&mut self.out);
        w.start("message").attr("type", "error").attr_opt("id", message.attr("id"));
        w.attr("from", to).attr("to", self.me.jid.as_str());
        StanzaError::new(condition).write(&mut w);
        w.end("message");
        self.machine.sent(1, &mut self.out);
    }

    fn target(&self, to: Option<&str>) -> Result<Target, StanzaError> {
        let Some(to) = to else { return Ok(Target::Server) };
        // The service first, as it is written by nearly everybody.
        if to == self.door().service.as_str() {
            return Ok(Target::Service);
        }
        let to = Jid::parse(to).map_err(|_| StanzaError::new(StanzaCondition::JidMalformed))?;
        let own = to == self.me.jid || to.as_str() == self.me.jid.bare_str();
        Ok(match () {
            () if to == self.door().service => Target::Service,
            () if own || to == self.door().server.domain => Target::Server,
            () if [self.door().server.domain.domain(), self.door().service.domain()].contains(&to.domain()) => {
                Target::Nobody
            }
            () => Target::Abroad,
        })
    }

    fn handle_iq<'e>(&mut self, iq: &'e Element<'_>, works: &mut Vec<Work<'e>>) {
        let id = iq.attr("id").unwrap_or_default();
        let (head, target) = match IqHead::of(iq).and_then(|head| self.target(head.to).map(|target| (head, target))) {
            Ok((IqHead { kind: IqKind::Result | IqKind::Error, .. }, _)) => return,
            Ok(found) => found,
            // Only requests are answered.
            Err(_) if matches!(iq.attr("type"), Some("result" | "error")) => return,
            Err(error) => return self.refuse(id, iq.attr("to"), works, &error),
        };
        let query = match Query::of(iq, head.kind) {
            Ok(query) => query,
            Err(error) => return self.refuse(id, head.to, works, &error),
        };
        match (target, query) {
            (Target::Service, Query::Pubsub(pubsub::Request::Publish { node, items, options, headers })) => {
                let parts = publish::Parts { node, items, options, headers };
                match self.admit(parts) {
                    Ok(admitted) => works.push(Work { id: head.id, from: head.to, admitted }),
                    Err(error) => self.refuse(id, head.to, works, &error),
                }
            }
            (_, query) => {
                self.publish(works);
                if self.said.is_some() && self.presence_left > 0 {
                    self.presence_left -= 1;
                    self.apply_presence();
                }
                self.answer(head, target, &query);
            }
        }
    }

    /// The error for a refusal by the gateway's rules.
    #[cold]
    pub(super) fn refusal(&self, action: Action, topic: &str) -> StanzaError {
        self.refused_by(action, topic, &self.me.gate.access().decide(action, topic))
    }

    /// As above, when the rule is known; logged the first time.
    #[cold]
    pub(super) fn refused_by(&self, action: Action, topic: &str, decision: &Decision) -> StanzaError {
        audit::refused_action(&self.ctx, self.me.gate.access(), None, action, topic, decision);
        StanzaError::new(StanzaCondition::Forbidden).because(decision.to_string())
    }

    /// Answers with an error, in turn.
    fn refuse(&mut self, id: &str, from: Option<&str>, works: &mut Vec<Work<'_>>, error: &StanzaError) {
        self.publish(works);
        self.send_error(id, from, error);
    }

    pub(super) fn send_error(&mut self, id: &str, from: Option<&str>, error: &StanzaError) {
        if error.condition == StanzaCondition::Forbidden {
            self.ctx.shared.metrics.xmpp.unauthorized.increment();
        }
        Answer { id, from, to: self.me.jid.as_str() }.error(&mut self.out, error);
        self.machine.sent(1, &mut self.out);
    }

    fn answer(&mut self, head: IqHead<'_>, target: Target, query: &Query<'_>) {
        let start = self.out.len();
        let jid = self.me.jid.clone();
        let answer = Answer { id: head.id, from: head.to, to: jid.as_str() };
        let done = match target {
            Target::Service => self.answer_as_service(&answer, query),
            Target::Server => self.answer_as_server(&answer, query),
            Target::Nobody => Err(StanzaError::new(StanzaCondition::ServiceUnavailable)),
            // RFC 6120 §8.3.3.16
            Target::Abroad => Err(StanzaError::new(StanzaCondition::RemoteServerNotFound)),
        };
        match done {
            Ok(()) => {
                self.held.answered(start, self.out.len());
                self.machine.sent(1, &mut self.out);
            }
            Err(error) => {
                self.held.refused(start);
                self.out.truncate(start);
                self.send_error(head.id, head.to, &error);
            }
        }
    }

    fn answer_as_server(&mut self, answer: &Answer<'_>, query: &Query<'_>) -> Result<(), StanzaError> {
        match query {
            Query::Session | Query::Ping => answer.empty(&mut self.out),
            Query::Version => self.answer_version(answer),
            Query::DiscoInfo(request) => self.server_info(answer, request)?,
            Query::DiscoItems(request) => self.server_items(answer, request),
            // The roster is empty and stays so (RFC 6121 §2.1.4).
            Query::RosterGet => answer.result(&mut self.out, |w| {
                w.start_ns("query", ns::ROSTER).end("query");
            }),
            Query::RosterSet => return Err(StanzaError::new(StanzaCondition::NotAllowed)),
            Query::Pubsub(_) | Query::Unknown => return Err(StanzaError::new(StanzaCondition::ServiceUnavailable)),
        }
        Ok(())
    }

    fn answer_as_service(&mut self, answer: &Answer<'_>, query: &Query<'_>) -> Result<(), StanzaError> {
        match query {
            Query::Ping => answer.empty(&mut self.out),
            Query::Version => self.answer_version(answer),
            Query::DiscoInfo(request) => self.service_info(answer, request)?,
            Query::DiscoItems(request) => self.service_items(answer, request)?,
            Query::Pubsub(request) => self.answer_pubsub(answer, request)?,
            Query::Session | Query::RosterGet | Query::RosterSet | Query::Unknown => {
                return Err(StanzaError::new(StanzaCondition::ServiceUnavailable));
            }
        }
        Ok(())
    }

    fn answer_version(&mut self, answer: &Answer<'_>) {
        answer.result(&mut self.out, |w| iq::write_version(w, "fogmux", env!("CARGO_PKG_VERSION")));
    }

    fn answer_pubsub(&mut self, answer: &Answer<'_>, request: &pubsub::Request<'_>) -> Result<(), StanzaError> {
        use pubsub::Request as R;
        match request {
            R::Create { node, config } => self.create(answer, *node, config.as_ref()),
            R::Publish { .. } => Err(StanzaError::bad_request()),
            R::Retract { node, ids, notify } => self.retract(answer, node, ids, *notify),
            R::Purge { node } => self.purge(answer, node),
            R::Delete { node } => self.delete(answer, node),
            R::Subscribe { node, jid, options } => self.subscribe(answer, *node, jid, options.as_ref()),
            R::Unsubscribe { node, jid, .. } => self.unsubscribe(answer, *node, jid),
            R::GetOptions { node, jid, .. } => self.get_options(answer, *node, jid),
            R::SetOptions { node, jid, options, .. } => self.set_options(answer, *node, jid, options.as_ref()),
            R::DefaultOptions { node } => {
                self.default_options(answer, *node);
                Ok(())
            }
            R::Items { node, max_items, ids, page } => self.items(answer, node, *max_items, ids, page.as_ref()),
            R::Subscriptions { node } => {
                self.subscriptions(answer, *node);
                Ok(())
            }
            R::Affiliations { node } => {
                self.affiliations(answer, *node);
                Ok(())
            }
            R::GetConfig { node } => self.get_config(answer, node),
            R::SetConfig { node, config } => self.set_config(answer, node, config.as_ref()),
            R::DefaultConfig => {
                self.default_config(answer);
                Ok(())
            }
            R::GetSubscriptions { node } => self.get_subscriptions(answer, node),
            R::SetSubscriptions { node, changes } => self.set_subscriptions(answer, node, changes),
            R::GetAffiliations { node } => self.get_affiliations(answer, node),
            R::SetAffiliations { node, changes } => self.set_affiliations(answer, node, changes),
        }
    }
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core").finish_non_exhaustive()
    }
}
