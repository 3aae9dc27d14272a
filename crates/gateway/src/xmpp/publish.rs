//! Publishing (XEP-0060 §7.1) and clearing (§7.2, §8.4, §8.5): from requests to one batch on the bus.

use std::{borrow::Cow, sync::Arc, time::Duration};

use bytes::Bytes;
use fogmux_auth::Action;
use fogmux_bus::{
    Clearing, Completion, Meaning, Message, MessageId, Payload, Properties, Publication, Published, Qos, ReadGate as _,
    Timestamp, TopicRef,
};
use fogmux_xmpp::{
    Element, ErrorKind, PubsubCondition, StanzaCondition, StanzaError,
    iq::Answer,
    ns,
    pubsub::{self, Affiliation, NodeConfig, PublishModel, PublishOptions, PublishedItem},
};

use super::{
    core::Core,
    divided::{Divided, Done},
    nodes::{Made, NotMade},
    translate::{generated_id, item_id},
};
use crate::fan_out::FanOut;

/// Longest identifier of an item, in bytes; it is kept with the retained message.
const ITEM_ID_BYTES_MAX: usize = 1024;
/// Bytes of a string that MQTT can carry (§1.5.4).
const STRING_BYTES_MAX: usize = 65_535;

/// Items of one request.
const ITEMS_MAX: usize = 64;

/// A parsed publish request.
pub(super) struct Parts<'e> {
    pub(super) node: &'e str,
    pub(super) items: Vec<PublishedItem<'e>>,
    pub(super) options: PublishOptions<'e>,
    pub(super) headers: Vec<(Box<str>, Box<str>)>,
}

/// A publish request that is allowed.
pub(super) struct Admitted<'e> {
    topic: TopicRef<'e>,
    items: Vec<Item<'e>>,
    retain: bool,
    expires_at: Option<Timestamp>,
    /// A notification without an item, whose answer names none (§4.3).
    itemless: bool,
}

struct Item<'e> {
    /// The identifier that the publisher chose.
    id: Option<&'e str>,
    body: Body<'e>,
    content_type: Option<&'e str>,
    properties: Option<Arc<Properties>>,
}

/// A payload within the stanza, or decoded from it.
enum Body<'e> {
    Slice(&'e [u8]),
    Shared(Bytes),
}

/// An allowed request with the parts that its answer needs.
pub(super) struct Work<'e> {
    pub(super) id: &'e str,
    pub(super) from: Option<&'e str>,
    pub(super) admitted: Admitted<'e>,
}

/// The parts of a request that its answer repeats.
pub(super) struct Head<'e> {
    pub(super) id: &'e str,
    pub(super) from: Option<&'e str>,
    pub(super) topic: TopicRef<'e>,
    pub(super) retain: bool,
    /// A notification without an item, whose answer names none (§4.3).
    pub(super) itemless: bool,
}

impl<'e> Work<'e> {
    pub(super) fn head(&self) -> Head<'e> {
        let Admitted { topic, retain, itemless, .. } = self.admitted;
        Head { id: self.id, from: self.from, topic, retain, itemless }
    }

    /// The identifiers that the publisher chose, one for each item.
    pub(super) fn ids(&self) -> impl Iterator<Item = Option<&'e str>> {
        self.admitted.items.iter().map(|item| item.id)
    }
}

/// The topic of a node; not every node name is one (MQTT 5.0 §4.7).
pub(super) fn topic(node: &str) -> Result<TopicRef<'_>, StanzaError> {
    TopicRef::new(node).map_err(|error| StanzaError::new(StanzaCondition::NotAcceptable).because(error.to_string()))
}

impl Core {
    /// Checks a publish request.
    pub(super) fn admit<'e>(&self, parts: Parts<'e>) -> Result<Admitted<'e>, StanzaError> {
        let topic = topic(parts.node)?;
        let config = self.may_publish(topic, &parts.options)?;
        let retain = parts.options.persist_items.unwrap_or(config.persist_items);
        let now = self.ctx.now();
        let expiry = parts.options.item_expire.or(config.item_expire);
        check_event_type(parts.items.len(), retain, &config)?;
        let headers = parts.headers;
        // Refuses what MQTT could not carry while the publisher can still be told ([MQTT-1.5.4-2]).
        if headers.iter().any(|(name, value)| name.len().max(value.len()) > STRING_BYTES_MAX) {
            return Err(StanzaError::new(StanzaCondition::NotAcceptable).because("a header is too long"));
        }
        let shared = (!headers.is_empty()).then(|| Arc::new(Properties { user: headers, ..Properties::default() }));
        let itemless = parts.items.is_empty();
        let items = if itemless {
            vec![Item { id: None, body: Body::Slice(&[]), content_type: None, properties: shared }]
        } else {
            let admit = |item| admit_item(item, &config, shared.as_ref());
            parts.items.into_iter().map(admit).collect::<Result<_, _>>()?
        };
        let expires_at = expiry.map(|seconds| now + Duration::from_secs(u64::from(seconds)));
        Ok(Admitted { topic, items, retain, expires_at, itemless })
    }

    /// Checks the gateway's rules, then the node's. A topic that is no node yet becomes one (§7.1.4).
    fn may_publish(&self, topic: TopicRef<'_>, options: &PublishOptions) -> Result<Arc<NodeConfig>, StanzaError> {
        let node = topic.as_str();
        if !self.me.gate.may_write(node) {
            return Err(self.refusal(Action::Write, node));
        }
        let affiliate = self.me.gate.affiliate();
        let nodes = &self.door().nodes;
        let Some((config, affiliation)) = nodes.standing(node, affiliate) else {
            // If there is no room, or another client created the node meanwhile, the message is published nevertheless,
            // provided that the node is as the publisher wants it. The answer does not promise that the node is stored.
            let made: Result<Completion, NotMade> = self.create_node(node, Some(options.config()), Made::Implied);
            let config = nodes.config(node);
            options.met_by(&config)?;
            if made.is_ok() && config.access_model != pubsub::AccessModel::Open {
                self.ctx.bus().invalidate();
            }
            return Ok(config);
        };
        options.met_by(&config)?;
        let allowed = match affiliation {
            Affiliation::Owner | Affiliation::Publisher | Affiliation::PublishOnly => true,
            Affiliation::Outcast => false,
            Affiliation::Member | Affiliation::None => match config.publish_model {
                PublishModel::Open => true,
                PublishModel::Publishers => false,
                PublishModel::Subscribers => self.door().accounts.follows(self.me.jid.bare_str(), node),
            },
        };
        // §7.1.3.1
        if allowed { Ok(config) } else { Err(StanzaError::new(StanzaCondition::Forbidden)) }
    }

    /// Notes a batch: this publisher may have to wait for its subscribers.
    pub(super) fn note_published(&mut self, published: &Published) {
        self.deliveries.add(published.deliveries);
        self.hold_back(FanOut::of(published), published.slow_down.clone());
    }

    /// The work that a stanza makes if it is a publish request, in deliveries.
    pub(super) fn work(&self, stanza: &Element<'_>) -> u64 {
        let pubsub = stanza.child(ns::PUBSUB, "pubsub");
        let Some(publish) = pubsub.and_then(|pubsub| pubsub.child(ns::PUBSUB, "publish")) else { return 0 };
        let Some(Ok(topic)) = publish.attr("node").map(TopicRef::new) else { return 0 };
        let items = publish.elements().take(ITEMS_MAX).count() as u64;
        items.saturating_mul(self.ctx.worker.borrow_mut().reach(topic))
    }

    /// Publishes all gathered requests as one batch, and answers each in order. What is too much for one turn is
    /// divided if nothing that came behind the requests is handled in this one.
    pub(super) fn publish(&mut self, works: &mut Vec<Work<'_>>, are_last: bool) {
        if works.is_empty() {
            return;
        }
        let (now, unix_ms) = (self.ctx.now(), self.ctx.unix_ms(self.ctx.now()));
        let publisher = Arc::clone(&self.me.publisher);
        let mut batch: Vec<Publication<'_>> = Vec::with_capacity(works.len());
        for work in works.iter() {
            let admitted = &work.admitted;
            for item in &admitted.items {
                let payload = match &item.body {
                    Body::Slice(bytes) => Payload::Slice(bytes),
                    Body::Shared(bytes) => Payload::Shared(bytes),
                };
                let mut publication = Publication::new(admitted.topic, payload, &publisher, now, unix_ms);
                publication.qos = Qos::AtLeastOnce;
                // Clearing is a request of its own at this door.
                publication.meaning = Meaning::value_if(admitted.retain);
                publication.content_type = item.content_type;
                publication.expires_at = admitted.expires_at;
                publication.properties.clone_from(&item.properties);
                batch.push(publication);
            }
        }
        let published = if are_last {
            self.ctx.worker.borrow_mut().publish_some(&mut batch)
        } else {
            self.ctx.worker.borrow_mut().publish(&mut batch)
        };
        self.note_published(&published);
        let mut place = 0;
        for (index, work) in works.iter().enumerate() {
            let end = place + work.admitted.items.len();
            let mut done = Done::default();
            done.add(batch.get(place..end.min(published.taken)).unwrap_or_default(), &published.completions, place);
            if end > published.taken {
                let rest = batch.get(published.taken..).unwrap_or_default();
                self.divide(Divided::new(works.get(index..).unwrap_or_default(), done, rest));
                break;
            }
            self.settle(&work.head(), work.ids(), &done);
            place = end;
        }
        drop(batch);
        works.clear();
    }

    /// Answers a request of which everything is published, or refused.
    pub(super) fn settle<'i>(&mut self, head: &Head<'_>, ids: impl Iterator<Item = Option<&'i str>>, done: &Done) {
        let start = self.out.len();
        let failed = done.completions.iter().any(|completion| self.wait_for(completion));
        if failed || done.results.iter().any(|(refused, _)| *refused) {
            self.held.refused(start);
            self.send_error(head.id, head.from, &full());
        } else {
            self.send_published(head, ids, &done.results);
        }
    }

    /// Holds the next answer back, and what follows it, until the completion resolves; `true` when the store has failed
    /// already.
    fn wait_for(&mut self, completion: &Completion) -> bool {
        match completion {
            Completion::Ready => false,
            Completion::Failed => true,
            Completion::Waiting(_) | Completion::Both(_) | Completion::Sooner(_) => {
                self.held.wait(self.out.len(), completion);
                false
            }
        }
    }

    /// Holds the answer back until a change is stored.
    pub(super) fn keep(&mut self, kept: Completion) -> Result<(), StanzaError> {
        if self.wait_for(&kept) { Err(full()) } else { Ok(()) }
    }

    fn send_published<'i>(
        &mut self,
        head: &Head<'_>,
        ids: impl Iterator<Item = Option<&'i str>>,
        results: &[(bool, u64)],
    ) {
        let answer = Answer { id: head.id, from: head.from, to: self.me.jid.as_str() };
        let id = |(chosen, (_, id)): (Option<&str>, &(bool, u64))| match chosen {
            Some(chosen) => Cow::Owned(chosen.to_owned()),
            None if head.retain => Cow::Borrowed(pubsub::CURRENT),
            None => Cow::Owned(generated_id(MessageId(*id))),
        };
        let shown = if head.itemless { 0 } else { results.len() };
        let ids: Vec<Cow<'static, str>> = ids.zip(results).take(shown).map(id).collect();
        let start = self.out.len();
        answer.result(&mut self.out, |w| {
            pubsub::write_published(w, head.topic.as_str(), ids.iter().map(AsRef::as_ref));
        });
        self.held.answered(start, self.out.len());
        self.machine.sent(1, &mut self.out);
    }

    /// §7.2: retracts the retained item.
    pub(super) fn retract(
        &mut self,
        answer: &Answer<'_>,
        node: &str,
        ids: &[&str],
        notify: bool,
    ) -> Result<(), StanzaError> {
        let config = self.may_clear(node)?;
        let kept = self.ctx.bus().latest(node, self.ctx.now());
        let id = kept.as_deref().map(item_id).filter(|id| ids.contains(&pubsub::CURRENT) || ids.contains(&&**id));
        let Some(id) = id else {
            // A client that may not read is not told whether the item was there.
            if self.me.gate.may_read(node) {
                return Err(StanzaError::new(StanzaCondition::ItemNotFound));
            }
            answer.empty(&mut self.out);
            return Ok(());
        };
        // §7.2.2.1: whoever retracts may ask for the notification.
        let told = notify || config.notify_retract;
        self.clear(node, if told { Clearing::Retracted } else { Clearing::Unannounced }, Some(&id))?;
        answer.empty(&mut self.out);
        Ok(())
    }

    /// §8.5
    pub(super) fn purge(&mut self, answer: &Answer<'_>, node: &str) -> Result<(), StanzaError> {
        let config = self.may_clear(node)?;
        self.clear(node, if config.notify_retract { Clearing::Purged } else { Clearing::Unannounced }, None)?;
        answer.empty(&mut self.out);
        Ok(())
    }

    /// §8.4
    pub(super) fn delete(&mut self, answer: &Answer<'_>, node: &str) -> Result<(), StanzaError> {
        let config = self.may_clear(node)?;
        // Cleared first: a failure must not leave a node that is deleted and still has its item.
        self.clear(node, if config.notify_delete { Clearing::Deleted } else { Clearing::Unannounced }, None)?;
        let removed = self.door().nodes.remove(node, self.principal());
        self.keep(removed)?;
        let forgotten = self.door().accounts.forget_node(self.ctx.bus(), self.principal(), node);
        // Entities that the node's access model kept out may read the topic again.
        self.ctx.bus().invalidate();
        forgotten.into_iter().try_for_each(|forgotten| self.keep(forgotten))?;
        answer.empty(&mut self.out);
        Ok(())
    }

    /// Owners may clear a node; if it has no owner, whoever may write the topic.
    fn may_clear(&self, node: &str) -> Result<Arc<NodeConfig>, StanzaError> {
        self.owned(node)?;
        Ok(self.door().nodes.config(node))
    }

    /// Clears the topic; `id` names the item that subscribers are told about, and that must still be the latest.
    fn clear(&mut self, node: &str, how: Clearing, id: Option<&str>) -> Result<(), StanzaError> {
        let publisher = Arc::clone(&self.me.publisher);
        let now = self.ctx.now();
        let mut publication =
            Publication::new(topic(node)?, Payload::Slice(&[]), &publisher, now, self.ctx.unix_ms(now));
        publication.qos = Qos::AtLeastOnce;
        publication.meaning = Meaning::Clearing(how);
        let unchanged = |latest: Option<&Arc<Message>>| latest.is_some_and(|latest| Some(&*item_id(latest)) == id);
        if let Some(id) = id {
            publication.precondition = Some(&unchanged);
            publication.properties = Some(Arc::new(Properties { item_id: Some(id.into()), ..Properties::default() }));
        }
        let mut batch = [publication];
        let published = self.ctx.worker.borrow_mut().publish(&mut batch);
        self.note_published(&published);
        let outcome = batch.first().map(Publication::outcome).unwrap_or_default();
        if outcome.precondition_failed {
            return Err(StanzaError::new(StanzaCondition::ItemNotFound));
        }
        let failed = self.wait_for(published.completions.of(0));
        if outcome.refused || failed { Err(full()) } else { Ok(()) }
    }
}

/// Checks the number of items against the node's event type (§4.3, §7.1.3.6), and against the one retained item
/// (§12.10).
fn check_event_type(items: usize, retain: bool, config: &NodeConfig) -> Result<(), StanzaError> {
    let item_forbidden = !retain && !config.deliver_payloads;
    match items {
        0 if item_forbidden => Ok(()),
        0 => Err(StanzaError::bad_request().with(PubsubCondition::ItemRequired)),
        _ if item_forbidden => Err(StanzaError::bad_request().with(PubsubCondition::ItemForbidden)),
        2.. if retain || items > ITEMS_MAX => {
            Err(StanzaError::new(StanzaCondition::NotAllowed).with(PubsubCondition::MaxItemsExceeded))
        }
        _ => Ok(()),
    }
}

fn admit_item<'e>(
    item: PublishedItem<'e>,
    config: &NodeConfig,
    shared: Option<&Arc<Properties>>,
) -> Result<Item<'e>, StanzaError> {
    let id = item.id.filter(|id| !id.is_empty() && *id != pubsub::CURRENT);
    if id.is_some_and(|id| id.len() > ITEM_ID_BYTES_MAX) {
        return Err(StanzaError::new(StanzaCondition::NotAcceptable).because("the item's id is too long"));
    }
    let properties = match id {
        Some(id) => {
            let user = shared.map(|shared| shared.user.clone()).unwrap_or_default();
            Some(Arc::new(Properties { user, item_id: Some(id.into()), ..Properties::default() }))
        }
        None => shared.cloned(),
    };
    let Some(payload) = item.payload else {
        // Without delivery of payloads, an item needs none (§4.3).
        let missing = StanzaError::bad_request().with(PubsubCondition::PayloadRequired);
        let empty = Item { id, body: Body::Slice(&[]), content_type: None, properties };
        return if config.deliver_payloads { Err(missing) } else { Ok(empty) };
    };
    let too_big = |max: u32| usize::try_from(max).is_ok_and(|max| payload.bytes.len() > max);
    if config.max_payload_size.is_some_and(too_big) {
        return Err(StanzaError::new(StanzaCondition::NotAcceptable).with(PubsubCondition::PayloadTooBig));
    }
    if payload.content_type.is_some_and(|name| name.len() > STRING_BYTES_MAX) {
        return Err(StanzaError::new(StanzaCondition::NotAcceptable).because("the content type is too long"));
    }
    let body = match payload.bytes {
        Cow::Borrowed(bytes) => Body::Slice(bytes),
        Cow::Owned(bytes) => Body::Shared(bytes.into()),
    };
    Ok(Item { id, body, content_type: payload.content_type, properties })
}

/// The publication was refused: the retained message cannot be stored, or the gateway shuts down (RFC 6120 §8.3.3.18).
pub(super) fn full() -> StanzaError {
    StanzaError::new(StanzaCondition::ResourceConstraint).of_kind(ErrorKind::Wait)
}
