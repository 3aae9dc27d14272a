//! `/.well-known/core` (RFC 6690 §4): the topics that have a value and that the caller may read.

use std::{net::SocketAddr, time::Duration};

use fogmux_bus::{Filter, Message, ReadGate, Timestamp, Topic, etag};
use fogmux_coap::{
    Code, ETag, Payload, Query, Request, Response, Ticket, content_format,
    link_format::{Link, write_segment},
};
use smallvec::SmallVec;

use super::{
    context::CoapContext,
    core::{Ask, Core, machine_time},
    identity::Identity,
    looks::Allowance,
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

/// The link to the list of all topics.
const ROOT_LINK: Link<'static> = Link {
    href: "/ps",
    resource_types: ROOT_TYPE,
    interfaces: INTERFACE,
    content_format: None,
    size: None,
    observable: true,
};

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
        self.look_again();
        if self.server.is_continued(machine_time(ask.now), &ticket) {
            // A later block of a list that is kept, made by the same rules: it need not be made again.
            self.respond(ask.now, ticket, &Response::new(Code::CONTENT));
            return;
        }
        let mut list = List::new(&self.ctx, queries);
        if filter.as_str() == "#" {
            list.add(&ROOT_LINK);
        }
        if !self.fill(ask, filter, &mut list) {
            self.respond(ask.now, ticket, &Response::unavailable(LOOK_AGAIN_AFTER));
            return;
        }
        self.respond(ask.now, ticket, &response(&list.text));
    }

    /// Says whether the list is to be shown.
    fn fill(&mut self, ask: &Ask<'_>, filter: &Filter, list: &mut List<'_>) -> bool {
        fill(&self.ctx, &mut self.lists, (ask.now, ask.from), ask.identity, filter, list)
    }
}

/// All that somebody may read, as far as the queries let it through. `None` if others have asked for too much of late.
#[cfg(target_os = "linux")]
pub(super) fn all_links(
    ctx: &CoapContext,
    allowance: &mut Allowance,
    asked: (Timestamp, SocketAddr),
    gate: &Identity,
    queries: &[Query<'_>],
) -> Option<String> {
    let mut list = List::new(ctx, queries);
    list.add(&ROOT_LINK);
    let all = Filter::new("#").ok()?;
    fill(ctx, allowance, asked, gate, &all, &mut list).then_some(list.text)
}

/// Adds the topics that may be read. Says whether the list is to be shown: others may have asked for too many of late.
fn fill(
    ctx: &CoapContext,
    allowance: &mut Allowance,
    (now, from): (Timestamp, SocketAddr),
    gate: &Identity,
    filter: &Filter,
    list: &mut List<'_>,
) -> bool {
    let mut after: Option<Topic> = None;
    let mut looks = allowance.begin(now, unfinished::owner(gate.principal(), from));
    loop {
        let chunk = ctx.bus().retained(filter, after.as_ref(), CHUNK, now);
        for message in chunk.messages.iter().filter(|message| gate.may_read(&message.topic)) {
            list.add_topic(message);
        }
        let may_go_on = allowance.spend(&mut looks, chunk.scanned, chunk.messages.len());
        after = chunk.next;
        if after.is_none() || list.left == 0 {
            return true;
        }
        if !may_go_on {
            let is_shown = looks.is_all_there_is();
            if !is_shown {
                ctx.shared.metrics.shares.refused(Table::CoapLists, &gate.principal().name, now);
            }
            return is_shown;
        }
    }
}

/// The response with a list.
pub(super) fn response(list: &str) -> Response<'_> {
    Response {
        content_format: Some(content_format::LINK_FORMAT),
        etag: Some(ETag::from_u64(etag(list.as_bytes(), None))),
        payload: Payload::Slice(list.as_bytes()),
        ..Response::new(Code::CONTENT)
    }
}

/// A list of links on its way.
struct List<'q> {
    text: String,
    href: String,
    queries: &'q [Query<'q>],
    left: usize,
}

impl<'q> List<'q> {
    fn new(ctx: &CoapContext, queries: &'q [Query<'q>]) -> Self {
        Self { text: String::new(), href: String::new(), queries, left: ctx.door.config.links_max }
    }

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
