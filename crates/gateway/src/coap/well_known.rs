//! `/.well-known/core` (RFC 6690 §4): the topics that have a value and that the caller may read.

use std::time::Duration;

use fogmux_bus::{Filter, Message, ReadGate, Topic, etag};
use fogmux_coap::{
    Code, ETag, Payload, Query, Request, Response, Ticket, content_format,
    link_format::{Link, write_segment},
};
use smallvec::SmallVec;

use super::{
    core::{Ask, Core, machine_time},
    translate::ROOT,
    transport::Path,
};
use crate::{shares::Table, unfinished};

/// The resource type of a topic (RFC 6690 §3.1).
const TOPIC_TYPE: &str = "fogmux.topic";

/// The resource type of the list of all topics.
const ROOT_TYPE: &str = "fogmux.topics";

/// The interface of both: PUT and POST publish, GET reads, Observe follows (RFC 6690 §3.2).
const INTERFACE: &str = "fogmux.ps";

/// After what time to ask again for a list that took too many looks.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Messages looked at between two looks at how many links there are.
const CHUNK: usize = 128;

impl Core {
    /// Everything, as far as the queries let it through.
    pub(super) fn discover(&mut self, ask: &Ask<'_>, request: &Request<'_>, ticket: Ticket<Path>) {
        let queries: SmallVec<[Query<'_>; 2]> = request.queries().collect();
        match Filter::new("#") {
            Ok(all) => self.links(ask, ticket, &all, &queries),
            Err(_) => self.respond(ask.now, ticket, &Response::new(Code::INTERNAL_SERVER_ERROR)),
        }
    }

    /// Links to the topics that match a filter; to the list itself too when that is everything.
    pub(super) fn links(&mut self, ask: &Ask<'_>, ticket: Ticket<Path>, filter: &Filter, queries: &[Query<'_>]) {
        if self.server.is_continued(machine_time(ask.now), &ticket) {
            // A later block of a list that is kept: it need not be made again.
            self.respond(ask.now, ticket, &Response::new(Code::CONTENT));
            return;
        }
        let mut list = List { text: String::new(), href: String::new(), queries, left: self.ctx.door.config.links_max };
        if filter.as_str() == "#" {
            list.add(&Link {
                href: "/ps",
                resource_types: ROOT_TYPE,
                interfaces: INTERFACE,
                observable: true,
                ..Link::default()
            });
        }
        if !self.fill(ask, filter, &mut list) {
            self.respond(ask.now, ticket, &Response::unavailable(LOOK_AGAIN_AFTER));
            return;
        }
        let response = Response {
            content_format: Some(content_format::LINK_FORMAT),
            etag: Some(ETag::from_u64(etag(list.text.as_bytes(), None))),
            payload: Payload::Slice(list.text.as_bytes()),
            ..Response::new(Code::CONTENT)
        };
        self.respond(ask.now, ticket, &response);
    }

    /// Says whether the list is to be shown: others may have asked for too many of late.
    fn fill(&mut self, ask: &Ask<'_>, filter: &Filter, list: &mut List<'_>) -> bool {
        let mut after: Option<Topic> = None;
        let owner = unfinished::owner(ask.identity.principal(), ask.from);
        let mut looks = self.lists.begin(ask.now, owner);
        loop {
            let chunk = self.ctx.bus().retained(filter, after.as_ref(), CHUNK, ask.now);
            for message in chunk.messages.iter().filter(|message| ask.identity.gate.may_read(&message.topic)) {
                list.add_topic(message);
            }
            let may_go_on = self.lists.spend(&mut looks, chunk.scanned, chunk.messages.len());
            after = chunk.next;
            if after.is_none() || list.left == 0 {
                return true;
            }
            if !may_go_on {
                let is_shown = looks.is_all_there_is();
                if !is_shown {
                    let principal = &ask.identity.principal().name;
                    self.ctx.shared.metrics.shares.refused(Table::CoapLists, principal, ask.now);
                }
                return is_shown;
            }
        }
    }
}

/// A list of links on its way.
struct List<'q> {
    text: String,
    href: String,
    queries: &'q [Query<'q>],
    left: usize,
}

impl List<'_> {
    fn add_topic(&mut self, message: &Message) {
        let mut href = std::mem::take(&mut self.href);
        href.clear();
        href.push('/');
        href.push_str(ROOT);
        for level in message.topic.split('/') {
            href.push('/');
            write_segment(&mut href, level);
        }
        let content_type = message.content_type.as_deref();
        self.add(&Link {
            href: &href,
            resource_types: TOPIC_TYPE,
            interfaces: INTERFACE,
            content_format: content_type.and_then(|mime| content_format::of_representation(mime, &message.payload)),
            size: Some(message.payload.len()),
            observable: true,
        });
        self.href = href;
    }

    fn add(&mut self, link: &Link<'_>) {
        if self.left > 0 && self.queries.iter().all(|query| link.matches(query)) {
            link.write(&mut self.text);
            self.left -= 1;
        }
    }
}
