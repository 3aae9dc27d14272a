//! The nodes that a client publishes to and follows: each is made, or set, as the experiment wants it before its first
//! request goes out.
//!
//! Peers have no node until somebody creates it, and ours keeps the items of one that nobody has configured. Publish-
//! options in each publication would do as well, but cost every message some 250 bytes more and the server their
//! parsing; they are what is left when the node is somebody else's.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use fogmux_xmpp::writer::is_representable;
use fogmux_xmpp::{Element, StanzaCondition, StanzaError, ns};

use super::request::{self, Passing, Requests};
use crate::driver::{DriverError, Request, Role};
use crate::experiment::Door;

/// The feature that says that publish-options are heeded (XEP-0060 §7.1.5).
const PUBLISH_OPTIONS: &str = "http://jabber.org/protocol/pubsub#publish-options";

/// Nodes that some client of the same driver has made as they must be.
pub(super) type Prepared = Rc<RefCell<HashSet<Box<str>>>>;

/// The nodes of one client.
pub(super) struct Nodes {
    service: Box<str>,
    jid: Box<str>,
    role: Role,
    retain: bool,
    prepared: Prepared,
    known: Vec<Node>,
    by_topic: HashMap<Box<str>, usize>,
    /// The one that was asked for last; mostly it is asked for again.
    last: usize,
}

struct Node {
    topic: Box<str>,
    requests: Requests,
    stage: Stage,
    held: Vec<Held>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Nobody has asked for anything but its item.
    Untouched,
    /// It is being created.
    Creating,
    /// It was there, and is being configured.
    Configuring,
    /// It is somebody else's; whether publish-options help is being asked.
    Discovering,
    Ready,
}

/// A request that waits for its node.
pub(super) struct Held {
    topic: Box<str>,
    /// Of a publication; none for a subscription.
    payload: Option<Box<[u8]>>,
    /// The pattern's.
    pub(super) tag: u64,
}

impl Held {
    /// As it was submitted.
    pub(super) fn request(&self) -> Request<'_> {
        let topic = &self.topic;
        match &self.payload {
            Some(payload) => Request::Publish { topic, payload },
            None => Request::Subscribe { topic },
        }
    }
}

impl Nodes {
    pub(super) fn new(service: &str, jid: &str, role: Role, retain: bool, prepared: Prepared) -> Self {
        let (service, jid) = (service.into(), jid.into());
        Self { service, jid, role, retain, prepared, known: Vec::new(), by_topic: HashMap::new(), last: 0 }
    }

    /// Whether the request may go out now. If not it is held, and its node is made ready.
    pub(super) fn is_ready(&mut self, request: Request<'_>, tag: u64, out: &mut Vec<u8>) -> Result<bool, DriverError> {
        let (topic, payload) = match request {
            Request::Publish { topic, payload } => (topic, Some(payload)),
            Request::Subscribe { topic } => (topic, None),
            Request::Get { topic } => return self.find(topic).map(|_| true),
        };
        let index = self.find(topic)?;
        let Some(node) = self.known.get_mut(index) else { return Ok(true) };
        if node.stage == Stage::Untouched {
            if self.prepared.borrow().contains(topic) {
                node.stage = Stage::Ready;
            } else {
                request::create(out, &self.service, index as u64, topic, self.retain);
                node.stage = Stage::Creating;
            }
        }
        if node.stage != Stage::Ready {
            node.held.push(Held { topic: topic.into(), payload: payload.map(Into::into), tag });
        }
        Ok(node.stage == Stage::Ready)
    }

    /// Appends a request.
    pub(super) fn write(&mut self, request: Request<'_>, tag: u64, out: &mut Vec<u8>) {
        let (Request::Publish { topic, .. } | Request::Get { topic } | Request::Subscribe { topic }) = request;
        let Some(node) = self.find(topic).ok().and_then(|index| self.known.get(index)) else { return };
        match request {
            Request::Publish { payload, .. } => node.requests.publish(out, tag, payload),
            Request::Get { .. } => node.requests.get(out, tag),
            Request::Subscribe { .. } => node.requests.subscribe(out, tag),
        }
    }

    /// Takes the answer to what was asked for the node `index`; what may go out now.
    pub(super) fn answered(
        &mut self,
        index: u64,
        iq: &Element<'_>,
        error: Option<&StanzaError>,
        out: &mut Vec<u8>,
    ) -> Vec<Held> {
        let Some(node) = usize::try_from(index).ok().and_then(|index| self.known.get_mut(index)) else {
            return Vec::new();
        };
        let exists = error.is_some_and(|error| error.condition == StanzaCondition::Conflict);
        node.stage = match (node.stage, error) {
            (Stage::Creating | Stage::Configuring, None) => {
                self.prepared.borrow_mut().insert(node.topic.clone());
                Stage::Ready
            }
            (Stage::Creating, Some(_)) if exists => {
                request::configure(out, &self.service, index, &node.topic, self.retain);
                Stage::Configuring
            }
            // Kept is what nodes do by themselves, and who only follows may take them as they are.
            (Stage::Creating | Stage::Configuring, Some(_)) if self.retain || self.role == Role::Subscriber => {
                Stage::Ready
            }
            (Stage::Creating | Stage::Configuring, Some(_)) => {
                request::discover(out, &self.service, index);
                Stage::Discovering
            }
            (Stage::Discovering, None) if offers_publish_options(iq) => {
                node.requests = Requests::new(&self.service, &self.jid, &node.topic, Passing::ByOptions);
                Stage::Ready
            }
            (Stage::Discovering, _) => Stage::Ready,
            (stage @ (Stage::Untouched | Stage::Ready), _) => stage,
        };
        if node.stage == Stage::Ready { std::mem::take(&mut node.held) } else { Vec::new() }
    }

    /// The index of a topic's node, which is noted down if it is new.
    fn find(&mut self, topic: &str) -> Result<usize, DriverError> {
        if self.known.get(self.last).is_some_and(|node| *node.topic == *topic) {
            return Ok(self.last);
        }
        if let Some(index) = self.by_topic.get(topic) {
            self.last = *index;
            return Ok(*index);
        }
        if !is_representable(topic) {
            return Err(DriverError::Unsupported { door: Door::Xmpp, what: "topic with control characters" });
        }
        let requests = Requests::new(&self.service, &self.jid, topic, Passing::ByNode);
        let node = Node { topic: topic.into(), requests, stage: Stage::Untouched, held: Vec::new() };
        self.last = self.known.len();
        self.by_topic.insert(topic.into(), self.last);
        self.known.push(node);
        Ok(self.last)
    }
}

fn offers_publish_options(iq: &Element<'_>) -> bool {
    let query = iq.child(ns::DISCO_INFO, "query");
    let mut features = query.into_iter().flat_map(|query| query.children_named(ns::DISCO_INFO, "feature"));
    features.any(|feature| feature.attr("var") == Some(PUBLISH_OPTIONS))
}
