//! GET and FETCH without Observe: the retained message of a topic, and the list of topics.

use std::sync::Arc;

use fogmux_bus::{Door, Filter, Message};
use fogmux_coap::{Code, Response, Ticket};

use super::{
    core::{Ask, Core, machine_time},
    translate,
    transport::Path,
};

impl Core {
    /// Responds with the retained message, or 4.04.
    pub(super) fn latest(&mut self, ask: &Ask<'_>, ticket: Ticket<Path>, topic: &str) {
        let message = self.ctx.bus().latest(topic, ask.now);
        self.respond_with(ask, ticket, message.as_ref());
    }

    /// Responds with this message, or 4.04.
    pub(super) fn respond_with(&mut self, ask: &Ask<'_>, ticket: Ticket<Path>, message: Option<&Arc<Message>>) {
        let now = machine_time(ask.now);
        if self.server.is_continued(now, &ticket) {
            // A later block of a response or notification, whose message may not be retained (any more).
            self.respond(ask.now, ticket, &Response::new(Code::CONTENT));
            return;
        }
        match message {
            Some(message) => {
                self.ctx.read(message, Door::Coap, || ask.identity.publisher());
                self.server.respond(now, ticket, &translate::representation(message, ask.now), &mut self.out);
            }
            None => self.server.respond(now, ticket, &Response::new(Code::NOT_FOUND), &mut self.out),
        }
    }

    /// `/ps` with or without a filter: one topic's message when the filter names one, links otherwise.
    pub(super) fn list(&mut self, ask: &Ask<'_>, ticket: Ticket<Path>, filter: &str) {
        let Ok(filter) = Filter::new(filter) else {
            self.respond(ask.now, ticket, &Response::diagnostic(Code::BAD_REQUEST, "not a filter"));
            return;
        };
        if ask.identity.may_read_nothing(&self.ctx, Some(ask.from), filter.as_str()) {
            self.respond(ask.now, ticket, &Response::new(Code::FORBIDDEN));
        } else if filter.is_exact() {
            self.latest(ask, ticket, filter.as_str());
        } else {
            self.links(ask, ticket, &filter, &[]);
        }
    }
}
