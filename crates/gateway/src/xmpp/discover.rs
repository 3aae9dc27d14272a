//! Service discovery (XEP-0030) and retrieving items (XEP-0060 §6.5).

use std::sync::Arc;

use fogmux_auth::Action;
use fogmux_bus::{Door, Filter, Message, ReadGate as _, Topic};
use fogmux_xmpp::{
    StanzaCondition, StanzaError,
    disco::{self, Identity, Item, PUBSUB_FEATURES, SERVER_FEATURES},
    form::{self, FieldType},
    iq::Answer,
    ns,
    pubsub::{self, Affiliation, ItemOut},
    rsm::PageRequest,
    writer::written_len,
};

use super::{core::Core, translate::item_id};

/// Nodes in one answer, and bytes of their names in it, as far as it is not one name.
const NODES_PER_PAGE: usize = 500;
const PAGE_BYTES: usize = 128 << 10;

impl Core {
    /// The server, and the sender's own account (XEP-0030 §3, RFC 6121 §8.5).
    pub(super) fn server_info(&mut self, answer: &Answer<'_>, request: &disco::Request<'_>) -> Result<(), StanzaError> {
        if request.node.is_some() {
            return Err(StanzaError::new(StanzaCondition::ItemNotFound));
        }
        let server = answer.from.is_none_or(|from| !from.contains('@'));
        let identity = if server {
            Identity { category: "server", kind: "im", name: Some("fogmux") }
        } else {
            Identity { category: "account", kind: "registered", name: None }
        };
        answer.result(&mut self.out, |w| disco::write_info(w, None, &[identity], SERVER_FEATURES, |_| {}));
        Ok(())
    }

    pub(super) fn server_items(&mut self, answer: &Answer<'_>, request: &disco::Request<'_>) {
        let service = self.door().service.clone();
        let item = Item { jid: service.as_str(), node: None, name: Some("Topics") };
        let server = request.node.is_none() && answer.from.is_none_or(|from| !from.contains('@'));
        let items: &[Item<'_>] = if server { &[item] } else { &[] };
        answer.result(&mut self.out, |w| disco::write_items(w, request.node, items, None));
    }

    /// XEP-0060 §5.1, §5.3 and §5.4
    pub(super) fn service_info(
        &mut self,
        answer: &Answer<'_>,
        request: &disco::Request<'_>,
    ) -> Result<(), StanzaError> {
        let Some(node) = request.node else {
            let identity = Identity { category: "pubsub", kind: "service", name: Some("fogmux topics") };
            answer.result(&mut self.out, |w| disco::write_info(w, None, &[identity], PUBSUB_FEATURES, |_| {}));
            return Ok(());
        };
        let absent = Err(StanzaError::new(StanzaCondition::ItemNotFound));
        if !self.exists(node) {
            return absent;
        }
        if !self.me.gate.access().may_read(node) {
            // The sender is not told that there is such a node. The log and the list of refusals are.
            let _ = self.refusal(Action::Read, node);
            return absent;
        }
        if !self.me.gate.may_read(node) {
            return absent;
        }
        let config = self.door().nodes.config(node);
        let identity = Identity { category: "pubsub", kind: "leaf", name: config.title.as_deref() };
        answer.result(&mut self.out, |w| {
            disco::write_info(w, Some(node), &[identity], &[ns::PUBSUB], |w| {
                form::open(w, "result", ns::META_DATA);
                let mut line = |var: &str, value: &str| {
                    form::field(w, var, FieldType::TextSingle, None, &[value], &[]);
                };
                line("pubsub#title", config.title.as_deref().unwrap_or_default());
                line("pubsub#description", config.description.as_deref().unwrap_or_default());
                form::close(w);
            });
        });
        Ok(())
    }

    /// XEP-0060 §5.2 and §5.5: nodes that were made and topics that have a value, as far as the sender may read them.
    pub(super) fn service_items(
        &mut self,
        answer: &Answer<'_>,
        request: &disco::Request<'_>,
    ) -> Result<(), StanzaError> {
        let service = self.door().service.clone();
        let jid = service.as_str();
        if let Some(node) = request.node {
            let kept = self.may_retrieve(node)?;
            let id = kept.as_deref().map(item_id);
            let item = id.as_deref().map(|id| Item { jid, node: None, name: Some(id) });
            answer.result(&mut self.out, |w| disco::write_items(w, Some(node), item.as_slice(), None));
            return Ok(());
        }
        let page = request.page.clone().unwrap_or_default();
        if page.before.is_some() || page.index.is_some() {
            return Err(StanzaError::new(StanzaCondition::FeatureNotImplemented).because("pages go forward only"));
        }
        let size = page.max.map_or(NODES_PER_PAGE, |max| usize::try_from(max).unwrap_or(NODES_PER_PAGE));
        let size = size.min(NODES_PER_PAGE);
        let (mut names, mut more, looks) = self.readable_nodes(page.after.as_deref(), size);
        let mut bytes = 0;
        let fits = names.iter().take_while(|name| {
            bytes += written_len(name);
            bytes <= PAGE_BYTES
        });
        let fits = fits.count().max(1);
        more |= fits < names.len();
        names.truncate(fits);
        self.deliveries.add(looks.saturating_mul(LOOK));
        let items: Vec<Item<'_>> = names.iter().map(|node| Item { jid, node: Some(node), name: None }).collect();
        // The count may be approximate (XEP-0059 §2.6). That of all nodes, an upper bound, is for those who may read
        // all; others are told no more than they see.
        let everything = self.me.gate.access().is_everything_allowed(Action::Read);
        let all = || self.door().nodes.len() + self.ctx.bus().retained_size().0;
        let count = if everything { all() } else { names.len() + usize::from(more) };
        let bounds = (request.page.is_some() || more).then_some((0, count));
        answer.result(&mut self.out, |w| disco::write_items(w, None, &items, bounds));
        Ok(())
    }

    /// The first `size` nodes behind `after` in order, whether there may be more, and how many were looked at.
    fn readable_nodes(&self, after: Option<&str>, size: usize) -> (Vec<Arc<str>>, bool, u64) {
        let Ok(all) = Filter::new("#") else { return (Vec::new(), false, 0) };
        let mut looks = 0;
        let mut found: Vec<Arc<str>> = Vec::new();
        let mut after: Option<String> = after.map(str::to_owned);
        // Each round looks at a page of either kind; those up to the smaller end of the two are complete.
        for _ in 0..ROUNDS {
            let made = self.door().nodes.names(after.as_deref(), NODES_PER_PAGE);
            let topic = after.as_deref().and_then(|a| Topic::new(a).ok());
            let kept = self.ctx.bus().retained(&all, topic.as_ref(), NODES_PER_PAGE, self.ctx.now());
            let more = made.len() == NODES_PER_PAGE || kept.next.is_some();
            looks += (made.len() + kept.scanned) as u64;
            let made_end = made.last().filter(|_| made.len() == NODES_PER_PAGE);
            let kept_end = kept.next.as_ref().map(|topic| Arc::<str>::from(topic.as_str()));
            let end = made_end.cloned().into_iter().chain(kept_end).min();
            let topics = kept.messages.iter().map(|message| Arc::<str>::from(message.topic.as_str()));
            let mut names: Vec<Arc<str>> = made.iter().cloned().chain(topics).collect();
            names.retain(|name| end.as_ref().is_none_or(|end| name <= end));
            names.sort_unstable();
            names.dedup();
            names.retain(|name| self.me.gate.may_read(name) && fogmux_xmpp::writer::is_representable(name));
            found.append(&mut names);
            if found.len() > size || !more {
                let more = more || found.len() > size;
                found.truncate(size);
                return (found, more, looks);
            }
            after = end.map(|end| end.to_string());
        }
        found.truncate(size);
        (found, true, looks)
    }

    /// The node's item, if there is one and the sender may retrieve it.
    fn may_retrieve(&self, node: &str) -> Result<Option<Arc<Message>>, StanzaError> {
        super::publish::topic(node)?;
        let gate = &self.me.gate;
        if !gate.access().may_read(node) {
            return Err(self.refusal(Action::Read, node));
        }
        if !gate.may_read(node) {
            let whitelisted = self.door().nodes.affiliation(node, gate.affiliate()) == Some(Affiliation::None);
            let error = StanzaError::new(StanzaCondition::Forbidden);
            // §6.5.9.6
            let closed = StanzaError::new(StanzaCondition::NotAllowed).with(fogmux_xmpp::PubsubCondition::ClosedNode);
            return Err(if whitelisted { closed } else { error });
        }
        let kept = self.ctx.bus().latest(node, self.ctx.now());
        if kept.is_none() && !self.exists(node) {
            return Err(StanzaError::new(StanzaCondition::ItemNotFound));
        }
        Ok(kept)
    }

    /// XEP-0060 §6.5
    pub(super) fn items(
        &mut self,
        answer: &Answer<'_>,
        node: &str,
        max_items: Option<u32>,
        ids: &[&str],
        page: Option<&PageRequest>,
    ) -> Result<(), StanzaError> {
        let message = self.may_retrieve(node)?.filter(|message| {
            // The latest item can also be asked for as the current one, whatever its id.
            let wanted = ids.is_empty() || ids.contains(&pubsub::CURRENT) || ids.contains(&&*item_id(message));
            wanted && max_items != Some(0)
        });
        let id = message.as_deref().map(item_id);
        let ids: Option<&str> = id.as_deref();
        let all: &[&str] = ids.as_slice();
        let range = page.map_or(Ok(0..all.len()), |page| page.range(all, all.len()))?;
        let item = message.as_ref().filter(|_| !range.is_empty());
        let items: Vec<ItemOut<'_>> = item
            .zip(ids)
            .map(|(m, id)| ItemOut { id, content_type: m.content_type.as_deref(), bytes: &m.payload })
            .into_iter()
            .collect();
        let bounds = page.map(|_| (range.start, all.len()));
        if let Some(message) = item {
            self.ctx.read(message, Door::Xmpp, || &self.me.publisher);
        }
        answer.result(&mut self.out, |w| pubsub::write_items(w, node, &items, bounds));
        Ok(())
    }
}

/// The work of looking at a node for a list, in deliveries: rules are asked, and its name is copied.
const LOOK: u64 = 8;

/// Pages of nodes looked at for one answer, when most of them may not be read.
const ROUNDS: usize = 8;
