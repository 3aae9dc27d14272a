//! Publishing (XEP-0060 §7.1) and clearing (§7.2, §8.4, §8.5): from requests to one batch on the bus.

use std::{borrow::Cow, sync::Arc, time::Duration};

use bytes::Bytes;
use fogmux_auth::Action;
use fogmux_bus::{Completion, Payload, Properties, Publication, Publisher, Qos, Timestamp, TopicRef};
use fogmux_xmpp::{
    ErrorKind, PubsubCondition, StanzaCondition, StanzaError,
    iq::Answer,
    pubsub::{self, AccessModel, Affiliation, NodeConfig, PublishModel, PublishOptions, PublishedItem},
};

use super::{
    core::Core,
    nodes::{Made, NotMade},
    translate::Cleared,
};

/// A publish request, taken apart.
pub(super) struct Parts<'e> {
    pub(super) node: &'e str,
    pub(super) items: Vec<PublishedItem<'e>>,
    pub(super) options: PublishOptions,
    pub(super) headers: Vec<(Box<str>, Box<str>)>,
}

/// A publish request that may be done.
pub(super) struct Admitted<'e> {
    topic: TopicRef<'e>,
    items: Vec<Item<'e>>,
    retain: bool,
    expires_at: Option<Timestamp>,
    properties: Option<Arc<Properties>>,
}

struct Item<'e> {
    body: Body<'e>,
    content_type: Option<&'e str>,
}

/// Bytes as they lie in the stanza, or as they were decoded from it.
enum Body<'e> {
    Slice(&'e [u8]),
    Shared(Bytes),
}

/// An admitted request with what its answer needs.
pub(super) struct Work<'e> {
    pub(super) id: &'e str,
    pub(super) from: Option<&'e str>,
    pub(super) admitted: Admitted<'e>,
}

/// A node that cannot be a topic (MQTT 5.0 §4.7).
pub(super) fn topic(node: &str) -> Result<TopicRef<'_>, StanzaError> {
    TopicRef::new(node).map_err(|error| StanzaError::new(StanzaCondition::NotAcceptable).because(error.to_string()))
}

impl Core {
    /// Whether a publication may be done, and as what.
    pub(super) fn admit<'e>(&self, parts: Parts<'e>) -> Result<Admitted<'e>, StanzaError> {
        let topic = topic(parts.node)?;
        let config = self.may_publish(topic, &parts.options)?;
        let retain = parts.options.persist_items.unwrap_or(config.persist_items);
        let now = self.ctx.now();
        let expiry = parts.options.item_expire.or(config.item_expire);
        let items = parts.items.into_iter().map(|item| admit_item(item, &config)).collect::<Result<_, _>>()?;
        let headers = parts.headers;
        Ok(Admitted {
            topic,
            items,
            retain,
            expires_at: expiry.map(|seconds| now + Duration::from_secs(u64::from(seconds))),
            properties: (!headers.is_empty()).then(|| Arc::new(Properties { user: headers, ..Properties::default() })),
        })
    }

    /// The gateway's rules, then the node's; a topic that is no node yet becomes one (§7.1.4).
    fn may_publish(&self, topic: TopicRef<'_>, options: &PublishOptions) -> Result<Arc<NodeConfig>, StanzaError> {
        let node = topic.as_str();
        if !self.me.gate.may_write(node) {
            return Err(self.refusal(Action::Write, node));
        }
        let affiliate = self.me.gate.affiliate();
        let nodes = &self.door().nodes;
        let Some((config, affiliation)) = nodes.standing(node, affiliate) else {
            let config = NodeConfig {
                access_model: options.access_model.unwrap_or(AccessModel::Open),
                publish_model: options.publish_model.unwrap_or_default(),
                ..NodeConfig::default()
            };
            // Without room, or made by somebody else just now: the topic is published to all the same. Nor does the
            // answer promise that the node is kept.
            let _: Result<Completion, NotMade> = nodes.create(node, affiliate, Some(config), Made::Implied);
            return Ok(nodes.config(node));
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

    /// Publishes what has gathered as one batch, and answers each request in turn.
    pub(super) fn publish(&mut self, works: &mut Vec<Work<'_>>) {
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
                publication.retain = admitted.retain;
                // This door clears by requests of its own.
                publication.keep_empty = true;
                publication.content_type = item.content_type;
                publication.expires_at = admitted.expires_at;
                publication.properties.clone_from(&admitted.properties);
                batch.push(publication);
            }
        }
        let published = self.ctx.worker.borrow_mut().publish(&mut batch);
        let failed = self.wait_for(published.completion);
        let mut outcomes = batch.iter();
        for work in works.iter() {
            let ids = outcomes.by_ref().take(work.admitted.items.len());
            let results: Vec<_> = ids.map(|p| (p.outcome().refused, p.id().0)).collect();
            let refused = failed && work.admitted.retain || results.iter().any(|(refused, _)| *refused);
            if refused {
                self.send_error(work.id, work.from, &full());
            } else {
                self.send_published(work, &results);
            }
        }
        drop(batch);
        works.clear();
    }

    /// Lets the answers wait; true when the store keeps nothing any more.
    fn wait_for(&mut self, completion: Completion) -> bool {
        match completion {
            Completion::Ready => false,
            Completion::Failed => true,
            // Completions come in the order of writes: the last stands for all.
            Completion::Waiting(_) => {
                self.waiting = completion;
                false
            }
        }
    }

    /// Lets the answer wait until a change is kept.
    pub(super) fn keep(&mut self, kept: Completion) -> Result<(), StanzaError> {
        if self.wait_for(kept) { Err(full()) } else { Ok(()) }
    }

    fn send_published(&mut self, work: &Work<'_>, results: &[(bool, u64)]) {
        let answer = Answer { id: work.id, from: work.from, to: self.me.jid.as_str() };
        let retain = work.admitted.retain;
        let ids: Vec<Cow<'static, str>> = results
            .iter()
            .map(|(_, id)| if retain { Cow::Borrowed(pubsub::CURRENT) } else { Cow::Owned(format!("{id:x}")) })
            .collect();
        answer.result(&mut self.out, |w| {
            pubsub::write_published(w, work.admitted.topic.as_str(), ids.iter().map(AsRef::as_ref));
        });
        self.machine.sent(1, &mut self.out);
    }

    /// §7.2: the one item that is kept.
    pub(super) fn retract(
        &mut self,
        answer: &Answer<'_>,
        node: &str,
        ids: &[&str],
        notify: bool,
    ) -> Result<(), StanzaError> {
        let config = self.may_clear(node)?;
        let kept = self.ctx.bus().latest(node, self.ctx.now()).is_some();
        if !kept || !ids.contains(&pubsub::CURRENT) {
            return Err(StanzaError::new(StanzaCondition::ItemNotFound));
        }
        let cleared = if notify || config.notify_retract { Cleared::Retracted } else { Cleared::Quietly };
        self.clear(node, cleared)?;
        answer.empty(&mut self.out);
        Ok(())
    }

    /// §8.5
    pub(super) fn purge(&mut self, answer: &Answer<'_>, node: &str) -> Result<(), StanzaError> {
        self.may_clear(node)?;
        self.clear(node, Cleared::Purged)?;
        answer.empty(&mut self.out);
        Ok(())
    }

    /// §8.4
    pub(super) fn delete(&mut self, answer: &Answer<'_>, node: &str) -> Result<(), StanzaError> {
        let config = self.may_clear(node)?;
        let removed = self.door().nodes.remove(node);
        self.keep(removed)?;
        self.clear(node, if config.notify_delete { Cleared::Deleted } else { Cleared::Quietly })?;
        let forgotten = self.door().accounts.forget_node(self.ctx.bus(), node);
        // Whoever the node's owners kept out may read the topic again.
        self.ctx.bus().invalidate();
        self.keep(forgotten)?;
        answer.empty(&mut self.out);
        Ok(())
    }

    /// Owners may clear; a topic that nobody owns belongs to whoever may write it.
    fn may_clear(&self, node: &str) -> Result<Arc<NodeConfig>, StanzaError> {
        self.owned(node)?;
        Ok(self.door().nodes.config(node))
    }

    fn clear(&mut self, node: &str, cleared: Cleared) -> Result<(), StanzaError> {
        let publisher: Arc<Publisher> = cleared.publisher(&self.me.publisher);
        let now = self.ctx.now();
        let mut publication =
            Publication::new(topic(node)?, Payload::Slice(&[]), &publisher, now, self.ctx.unix_ms(now));
        publication.qos = Qos::AtLeastOnce;
        publication.retain = true;
        let mut batch = [publication];
        let published = self.ctx.worker.borrow_mut().publish(&mut batch);
        let failed = self.wait_for(published.completion);
        // A subscriber without room does not undo it.
        if failed { Err(full()) } else { Ok(()) }
    }
}

fn admit_item<'e>(item: PublishedItem<'e>, config: &NodeConfig) -> Result<Item<'e>, StanzaError> {
    let missing = StanzaError::bad_request().with(PubsubCondition::PayloadRequired);
    let payload = item.payload.ok_or(missing)?;
    let too_big = |max: u32| usize::try_from(max).is_ok_and(|max| payload.bytes.len() > max);
    if config.max_payload_size.is_some_and(too_big) {
        return Err(StanzaError::new(StanzaCondition::NotAcceptable).with(PubsubCondition::PayloadTooBig));
    }
    // What MQTT could not carry is refused where somebody still listens ([MQTT-1.5.4-2]).
    if payload.content_type.is_some_and(|t| t.len() > 65_535) {
        return Err(StanzaError::new(StanzaCondition::NotAcceptable).because("the content type is too long"));
    }
    let body = match payload.bytes {
        Cow::Borrowed(bytes) => Body::Slice(bytes),
        Cow::Owned(bytes) => Body::Shared(bytes.into()),
    };
    Ok(Item { body, content_type: payload.content_type })
}

/// Somebody who may lose nothing has no room, or the topic's value cannot be kept.
fn full() -> StanzaError {
    StanzaError::new(StanzaCondition::ResourceConstraint).of_kind(ErrorKind::Wait)
}
