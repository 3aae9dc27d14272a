//! Stored records of the door: nodes, and subscriptions by bare address.
//!
//! A record is XML in the format of XEP-0060, as owners and subscribers sent it. A record that cannot be read is
//! skipped and logged; its topic is then a node with the defaults.

use std::{fmt, sync::Arc};

use fogmux_bus::Completion;
use fogmux_store::{JournalStore, RECORD_KEY_BYTES_MAX};
use fogmux_xmpp::{
    Limits, Writer,
    form::Form,
    ns, parse,
    pubsub::{Affiliation, Expire, NodeConfig},
};

use super::followed::Options;

/// The prefix of keys of nodes; the node's name follows.
const NODES: &str = "xmpp/node/";
/// The prefix of keys of subscriptions; the bare address, a space – no address has one – and the node or filter follow.
const SUBSCRIPTIONS: &str = "xmpp/subscription/";

/// Storage for the door's records.
pub trait NodeStore: fmt::Debug + Send + Sync {
    /// Replaces or removes the value of a key for a principal, whose share of what waits for the disk it takes. The
    /// completion is like that of a retained message.
    fn put(&self, principal: &Arc<str>, key: &str, value: Option<Box<[u8]>>) -> Completion;

    /// Visits the records whose keys have this prefix.
    fn load(&self, prefix: &str, visit: &mut dyn FnMut(&str, &[u8]));
}

impl NodeStore for JournalStore {
    fn put(&self, principal: &Arc<str>, key: &str, value: Option<Box<[u8]>>) -> Completion {
        self.put_record_for(principal, key, value)
    }

    fn load(&self, prefix: &str, visit: &mut dyn FnMut(&str, &[u8])) {
        self.records(prefix, visit);
    }
}

/// A stored node.
pub(super) struct KeptNode {
    pub(super) config: NodeConfig,
    pub(super) affiliations: Vec<(Arc<str>, Affiliation)>,
}

/// A stored subscription.
pub(super) struct KeptSubscription {
    pub(super) bare: Arc<str>,
    pub(super) node: Arc<str>,
    pub(super) principal: Arc<str>,
    pub(super) wildcard: bool,
    pub(super) options: Options,
}

/// The records, if there is a store for them.
#[derive(Debug, Clone, Default)]
pub(super) struct Records(Option<Arc<dyn NodeStore>>);

impl Records {
    pub(super) fn new(store: Option<Arc<dyn NodeStore>>) -> Self {
        Self(store)
    }

    fn put(&self, principal: &Arc<str>, key: &str, value: impl FnOnce() -> Option<Box<[u8]>>) -> Completion {
        let Some(store) = &self.0 else { return Completion::Ready };
        if key.len() <= RECORD_KEY_BYTES_MAX {
            return store.put(principal, key, value());
        }
        // A name too long for a key is a few bytes shorter than the longest topic. There is no record to remove.
        if value().is_some() { Completion::Failed } else { Completion::Ready }
    }

    pub(super) fn node(&self, node: &str, config: &NodeConfig, affiliations: &[(Arc<str>, Affiliation)]) -> Completion {
        self.put(&first_owner(affiliations), &format!("{NODES}{node}"), || Some(write_node(config, affiliations)))
    }

    pub(super) fn no_node(&self, node: &str, affiliations: &[(Arc<str>, Affiliation)]) -> Completion {
        self.put(&first_owner(affiliations), &format!("{NODES}{node}"), || None)
    }

    pub(super) fn nodes(&self, visit: &mut dyn FnMut(&str, KeptNode)) {
        self.load(NODES, &mut |key, xml| read_node(xml).map(|node| visit(key, node)).is_some());
    }

    pub(super) fn subscription(&self, kept: &KeptSubscription) -> Completion {
        let key = subscription_key(&kept.bare, &kept.node);
        let ends = match kept.options.expire {
            None => None,
            Some(Expire::At(unix_s)) => Some(unix_s.to_string()),
            // Such a subscription ends with the process.
            Some(Expire::Presence) => return self.put(&kept.principal, &key, || None),
        };
        let mut xml = Vec::new();
        Writer::new(&mut xml)
            .start_ns("subscription", ns::PUBSUB)
            .attr("principal", &kept.principal)
            .attr("filter", flag(kept.wildcard))
            .attr("deliver", flag(kept.options.deliver))
            .attr_opt("body", kept.options.include_body.then_some("1"))
            .attr_opt("expire", ends.as_deref())
            .end("subscription");
        self.put(&kept.principal, &key, || Some(xml.into()))
    }

    pub(super) fn no_subscription(&self, principal: &Arc<str>, bare: &str, node: &str) -> Completion {
        self.put(principal, &subscription_key(bare, node), || None)
    }

    pub(super) fn subscriptions(&self, visit: &mut dyn FnMut(KeptSubscription)) {
        self.load(SUBSCRIPTIONS, &mut |key, xml| read_subscription(key, xml).map(&mut *visit).is_some());
    }

    fn load(&self, prefix: &str, read: &mut dyn FnMut(&str, &str) -> bool) {
        let Some(store) = &self.0 else { return };
        let mut damaged = 0_u64;
        store.load(prefix, &mut |key, value| {
            let whole = std::str::from_utf8(value).ok().zip(key.strip_prefix(prefix));
            damaged += u64::from(!whole.is_some_and(|(xml, key)| read(key, xml)));
        });
        if damaged > 0 {
            tracing::error!(damaged, prefix, "skipped damaged records; these nodes and subscriptions are lost");
        }
    }
}

/// The owner to whose share a node counts.
fn first_owner(affiliations: &[(Arc<str>, Affiliation)]) -> Arc<str> {
    let owner = affiliations.iter().find(|(_, affiliation)| *affiliation == Affiliation::Owner);
    owner.map(|(jid, _)| Arc::clone(jid)).unwrap_or_default()
}

const fn flag(on: bool) -> &'static str {
    if on { "1" } else { "0" }
}

fn subscription_key(bare: &str, node: &str) -> String {
    format!("{SUBSCRIPTIONS}{bare} {node}")
}

fn write_node(config: &NodeConfig, affiliations: &[(Arc<str>, Affiliation)]) -> Box<[u8]> {
    let mut xml = Vec::new();
    let mut w = Writer::new(&mut xml);
    w.start_ns("pubsub", ns::PUBSUB_OWNER);
    if *config != NodeConfig::default() {
        w.start("configure");
        config.write(&mut w, "result");
        w.end("configure");
    }
    w.start("affiliations");
    for (jid, affiliation) in affiliations {
        w.start("affiliation").attr("jid", jid).attr("affiliation", affiliation.as_str()).end("affiliation");
    }
    w.end("affiliations").end("pubsub");
    xml.into()
}

fn read_node(xml: &str) -> Option<KeptNode> {
    let pubsub = parse::fragment(xml, &Limits::default()).ok()?;
    let mut config = NodeConfig::default();
    if let Some(configure) = pubsub.child(ns::PUBSUB_OWNER, "configure") {
        config.restore(&Form::in_element(configure)?);
    }
    let affiliations = pubsub.child(ns::PUBSUB_OWNER, "affiliations")?.children_named(ns::PUBSUB_OWNER, "affiliation");
    let affiliations = affiliations.map(|element| {
        let affiliation = Affiliation::from_name(element.attr("affiliation")?)?;
        Some((Arc::from(element.attr("jid")?), affiliation))
    });
    Some(KeptNode { config, affiliations: affiliations.collect::<Option<_>>()? })
}

fn read_subscription(key: &str, xml: &str) -> Option<KeptSubscription> {
    let (bare, node) = key.split_once(' ')?;
    let element = parse::fragment(xml, &Limits::default()).ok()?;
    let expire = element.attr("expire").map(|unix_s| unix_s.parse().map(Expire::At)).transpose().ok()?;
    Some(KeptSubscription {
        bare: bare.into(),
        node: node.into(),
        principal: element.attr("principal")?.into(),
        wildcard: element.attr("filter") == Some("1"),
        options: Options {
            deliver: element.attr("deliver") == Some("1"),
            include_body: element.attr("body") == Some("1"),
            expire,
        },
    })
}

#[cfg(test)]
pub(super) mod tests {
    use std::{
        collections::BTreeMap,
        sync::{Mutex, PoisonError},
    };

    use fogmux_xmpp::pubsub::{AccessModel, PublishModel, SendLast};

    use super::*;

    /// A store in memory that outlives the gateways of a test.
    #[derive(Debug, Default)]
    pub(in crate::xmpp) struct Shelf(Mutex<BTreeMap<String, Box<[u8]>>>);

    impl NodeStore for Shelf {
        fn put(&self, _: &Arc<str>, key: &str, value: Option<Box<[u8]>>) -> Completion {
            let mut records = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            match value {
                Some(value) => records.insert(key.to_owned(), value),
                None => records.remove(key),
            };
            Completion::Ready
        }

        fn load(&self, prefix: &str, visit: &mut dyn FnMut(&str, &[u8])) {
            let records = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
            records.iter().filter(|(key, _)| key.starts_with(prefix)).for_each(|(key, value)| visit(key, value));
        }
    }

    #[test]
    fn nodes_come_back_as_they_were() {
        let config = NodeConfig {
            title: Some("a <b> & 'c'\nd".into()),
            description: None,
            persist_items: false,
            item_expire: Some(7),
            max_payload_size: None,
            deliver_notifications: false,
            deliver_payloads: false,
            notify_retract: false,
            notify_delete: false,
            notify_config: true,
            subscribe: false,
            access_model: AccessModel::Whitelist,
            publish_model: PublishModel::Subscribers,
            send_last: SendLast::Never,
        };
        let affiliations = [("ada@d".into(), Affiliation::Owner), ("o'x@d".into(), Affiliation::PublishOnly)];
        let xml = write_node(&config, &affiliations);
        let kept = read_node(std::str::from_utf8(&xml).expect("text")).expect("whole");
        assert_eq!((kept.config, &*kept.affiliations), (config, &affiliations[..]));
        let xml = write_node(&NodeConfig::default(), &affiliations);
        assert!(xml.len() < 250, "most nodes are small");
        assert_eq!(read_node(std::str::from_utf8(&xml).expect("text")).expect("whole").config, NodeConfig::default());
    }

    #[test]
    fn subscriptions_come_back_with_their_options() {
        let records = Records::new(Some(Arc::new(Shelf::default()) as _));
        let kept = |node: &str, expire| KeptSubscription {
            bare: "ada@d".into(),
            node: node.into(),
            principal: "Ada".into(),
            wildcard: false,
            options: Options { deliver: true, include_body: true, expire },
        };
        for (node, expire) in [("a", None), ("b c", Some(Expire::At(7))), ("gone", Some(Expire::Presence))] {
            assert!(records.subscription(&kept(node, expire)).is_ready());
        }
        let mut found = Vec::new();
        records.subscriptions(&mut |kept| found.push((kept.node.to_string(), kept.options)));
        let options = |expire| Options { deliver: true, include_body: true, expire };
        // Presence does not outlive the process.
        assert_eq!(found, [("a".to_owned(), options(None)), ("b c".to_owned(), options(Some(Expire::At(7))))]);
    }

    #[test]
    fn damaged_records_are_skipped() {
        let shelf = Arc::new(Shelf::default());
        let records = Records::new(Some(Arc::clone(&shelf) as _));
        assert!(records.node("n", &NodeConfig::default(), &[]).is_ready());
        for (key, value) in [("xmpp/node/x", &b"<a"[..]), ("xmpp/node/y", b"\xff"), ("xmpp/subscription/x", b"<s/>")] {
            assert!(shelf.put(&"ada".into(), key, Some(value.into())).is_ready());
        }
        let mut names = Vec::new();
        records.nodes(&mut |name, _| names.push(name.to_owned()));
        records.subscriptions(&mut |kept| names.push(kept.node.to_string()));
        assert_eq!(names, ["n"]);
    }
}
