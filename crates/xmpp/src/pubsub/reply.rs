//! The contents of IQ results (XEP-0060).

use super::affiliation::{Affiliation, SubscriptionState};
use super::config::NodeConfig;
use super::options::SubscribeOptions;
use crate::ns;
use crate::payload;
use crate::rsm;
use crate::writer::Writer;

/// §8.1.2: the name of an instant node.
pub fn write_created(w: &mut Writer<'_>, node: &str) {
    entity(w, |w| {
        w.start("create").attr("node", node).end("create");
    });
}

/// §7.1.2: the ids that the items were given.
pub fn write_published<'i>(w: &mut Writer<'_>, node: &str, ids: impl Iterator<Item = &'i str>) {
    entity(w, |w| {
        w.start("publish").attr("node", node);
        for id in ids {
            w.start("item").attr("id", id).end("item");
        }
        w.end("publish");
    });
}

/// An item to be handed out.
#[derive(Debug, Clone, Copy)]
pub struct ItemOut<'m> {
    /// Its id.
    pub id: &'m str,
    /// Its media type.
    pub content_type: Option<&'m str>,
    /// Its bytes.
    pub bytes: &'m [u8],
}

/// §6.5: items, with a page's bounds `(index, count)` when a page was asked for.
pub fn write_items(w: &mut Writer<'_>, node: &str, items: &[ItemOut<'_>], page: Option<(usize, usize)>) {
    entity(w, |w| {
        w.start("items").attr("node", node);
        for item in items {
            w.start("item").attr("id", item.id);
            w.raw_with(|out| payload::write(out, item.content_type, item.bytes)).end("item");
        }
        w.end("items");
        if let Some((index, count)) = page {
            rsm::write(w, items.first().map(|i| i.id).zip(items.last().map(|i| i.id)), index, count);
        }
    });
}

/// A subscription to be told about.
#[derive(Debug, Clone, Copy)]
pub struct SubscriptionOut<'s> {
    /// The node, or the filter it follows.
    pub node: &'s str,
    /// The subscribed address.
    pub jid: &'s str,
    /// Its state.
    pub state: SubscriptionState,
}

impl SubscriptionOut<'_> {
    fn write(&self, w: &mut Writer<'_>, with_node: bool) {
        w.start("subscription");
        if with_node {
            w.attr("node", self.node);
        }
        w.attr("jid", self.jid).attr("subscription", self.state.as_str());
    }
}

/// §6.1.2: the state of a new subscription.
pub fn write_subscribed(w: &mut Writer<'_>, subscription: &SubscriptionOut<'_>) {
    entity(w, |w| {
        subscription.write(w, true);
        w.start("subscribe-options").end("subscribe-options").end("subscription");
    });
}

/// §5.6: one's own subscriptions.
pub fn write_subscriptions(w: &mut Writer<'_>, node: Option<&str>, subscriptions: &[SubscriptionOut<'_>]) {
    entity(w, |w| {
        w.start("subscriptions").attr_opt("node", node);
        for subscription in subscriptions {
            subscription.write(w, true);
            w.end("subscription");
        }
        w.end("subscriptions");
    });
}

/// §5.7: one's own affiliations.
pub fn write_affiliations(w: &mut Writer<'_>, node: Option<&str>, affiliations: &[(&str, Affiliation)]) {
    entity(w, |w| {
        w.start("affiliations").attr_opt("node", node);
        for (node, affiliation) in affiliations {
            w.start("affiliation").attr("node", node).attr("affiliation", affiliation.as_str()).end("affiliation");
        }
        w.end("affiliations");
    });
}

/// §6.3.3 and §6.4.2: the options of a subscription, or (`jid` missing) those that a new one has.
pub fn write_subscription_options(
    w: &mut Writer<'_>,
    node: Option<&str>,
    jid: Option<&str>,
    options: &SubscribeOptions,
    filter: Option<&str>,
) {
    let name = if jid.is_some() { "options" } else { "default" };
    entity(w, |w| {
        w.start(name).attr_opt("node", node).attr_opt("jid", jid);
        options.write(w, "form", filter);
        w.end(name);
    });
}

/// §8.2.2 and §8.3.2: the configuration of a node, or (`node` missing) that of a new one.
pub fn write_node_config(w: &mut Writer<'_>, node: Option<&str>, config: &NodeConfig) {
    let name = if node.is_some() { "configure" } else { "default" };
    owner(w, |w| {
        w.start(name).attr_opt("node", node);
        config.write(w, "form");
        w.end(name);
    });
}

/// §8.8.1: all subscriptions of a node.
pub fn write_owner_subscriptions(w: &mut Writer<'_>, node: &str, subscriptions: &[SubscriptionOut<'_>]) {
    owner(w, |w| {
        w.start("subscriptions").attr("node", node);
        for subscription in subscriptions {
            subscription.write(w, false);
            w.end("subscription");
        }
        w.end("subscriptions");
    });
}

/// §8.9.1: all affiliations of a node.
pub fn write_owner_affiliations(w: &mut Writer<'_>, node: &str, affiliations: &[(&str, Affiliation)]) {
    owner(w, |w| {
        w.start("affiliations").attr("node", node);
        for (jid, affiliation) in affiliations {
            w.start("affiliation").attr("jid", jid).attr("affiliation", affiliation.as_str()).end("affiliation");
        }
        w.end("affiliations");
    });
}

fn entity(w: &mut Writer<'_>, body: impl FnOnce(&mut Writer<'_>)) {
    w.start_ns("pubsub", ns::PUBSUB);
    body(w);
    w.end("pubsub");
}

fn owner(w: &mut Writer<'_>, body: impl FnOnce(&mut Writer<'_>)) {
    w.start_ns("pubsub", ns::PUBSUB_OWNER);
    body(w);
    w.end("pubsub");
}
