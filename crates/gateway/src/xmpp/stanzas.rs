//! Stanzas of a bound connection: their addressees, and the answers to requests.

use fogmux_auth::{Action, Decision};
use fogmux_xmpp::{
    Element, IqHead, IqKind, Jid, Query, StanzaCondition, StanzaError, Writer,
    iq::{self, Answer},
    ns, pubsub,
};

use super::{
    core::Core,
    publish::{self, Work},
};
use crate::audit;

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
    pub(super) fn handle_all(&mut self, stanzas: &[Element<'_>]) {
        let mut works = Vec::new();
        for stanza in stanzas {
            match stanza.name {
                "iq" => self.handle_iq(stanza, &mut works),
                "message" => {
                    self.publish(&mut works, false);
                    self.handle_message(stanza);
                }
                _ => self.handle_presence(stanza),
            }
        }
        self.publish(&mut works, true);
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
                self.publish(works, false);
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
        self.publish(works, false);
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
            R::Subscriptions { node } => self.subscriptions(answer, *node),
            R::Affiliations { node } => self.affiliations(answer, *node),
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
