//! Stored records of the door: nodes, and subscriptions by bare address.
//!
//! A record is XML in the format of XEP-0060, as owners and subscribers sent it. A record that cannot be read is
//! skipped and logged; its topic is then a node with the defaults.

use std::{fmt, sync::Arc};

use fogmux_bus::Completion;
use fogmux_store::{JournalStore, RECORD_KEY_BYTES_MAX};
use fogmux_xmpp::{
    Jid, Limits, Writer,
    form::Form,
    ns, parse,
    pubsub::{Affiliation, Expire, NodeConfig},
};

use super::{
    followed::Options,
    names::user_of,
    nodes::{Affiliate, Node},
};

/// The prefix of keys of nodes; the node's name follows.
const NODES: &str = "xmpp/node/";
/// The prefix of keys of subscriptions; the bare address, a space – no address has one – and the node or filter follow.
const SUBSCRIPTIONS: &str = "xmpp/subscription/";

/// The attribute that names the principal that pays for a node, or for a part of one.
const PAYER: &str = "payer";
/// Bytes of the heap that the store keeps about a record beside its key: its entry in the table of names, which is half
/// full after it has grown, and in the index of the journal.
pub(super) const STORED_BYTES: usize = 96;

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

    /// Stores a node for the principal that has asked for it.
    pub(super) fn node(&self, by: &Arc<str>, name: &str, node: &Node) -> Completion {
        self.put(by, &format!("{NODES}{name}"), || Some(write_node(node)))
    }

    pub(super) fn no_node(&self, by: &Arc<str>, name: &str) -> Completion {
        self.put(by, &format!("{NODES}{name}"), || None)
    }

    pub(super) fn nodes(&self, domain: &Jid, visit: &mut dyn FnMut(&str, Node)) {
        self.load(NODES, &mut |key, xml| read_node(xml, domain).map(|node| visit(key, node)).is_some());
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

    /// Removes a subscription's record for the principal that has asked for it.
    pub(super) fn no_subscription(&self, by: &Arc<str>, bare: &str, node: &str) -> Completion {
        self.put(by, &subscription_key(bare, node), || None)
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

/// The bytes of the key of a node's record.
pub(super) const fn node_key_bytes(name: &str) -> usize {
    NODES.len() + name.len()
}

/// The bytes of the key of a subscription's record.
pub(super) const fn subscription_key_bytes(bare: &str, node: &str) -> usize {
    SUBSCRIPTIONS.len() + bare.len() + 1 + node.len()
}

const fn flag(on: bool) -> &'static str {
    if on { "1" } else { "0" }
}

fn subscription_key(bare: &str, node: &str) -> String {
    format!("{SUBSCRIPTIONS}{bare} {node}")
}

fn write_node(node: &Node) -> Box<[u8]> {
    let mut xml = Vec::new();
    let mut w = Writer::new(&mut xml);
    // Parts that another principal pays for say so.
    let other = |payer: &Arc<str>| (*payer != node.payer).then(|| Arc::clone(payer));
    w.start_ns("pubsub", ns::PUBSUB_OWNER).attr(PAYER, &node.payer);
    if *node.config != NodeConfig::default() {
        w.start("configure").attr_opt(PAYER, other(&node.config_payer).as_deref());
        node.config.write(&mut w, "result");
        w.end("configure");
    }
    w.start("affiliations");
    for Affiliate { jid, affiliation, payer } in &node.affiliates {
        w.start("affiliation").attr("jid", jid).attr("affiliation", affiliation.as_str());
        w.attr_opt(PAYER, other(payer).as_deref()).end("affiliation");
    }
    w.end("affiliations").end("pubsub");
    xml.into()
}

fn read_node(xml: &str, domain: &Jid) -> Option<Node> {
    let pubsub = parse::fragment(xml, &Limits::default()).ok()?;
    let list = pubsub.child(ns::PUBSUB_OWNER, "affiliations")?;
    let elements = || list.children_named(ns::PUBSUB_OWNER, "affiliation");
    let first_owner = || {
        let jid = elements().find(|one| one.attr("affiliation") == Some("owner"))?.attr("jid")?;
        Some(user_of(jid, domain).map_or_else(|| Arc::from(jid), Arc::from))
    };
    let payer: Arc<str> = pubsub.attr(PAYER).map(Arc::from).or_else(first_owner).unwrap_or_default();
    let payer_of = |payed: Option<&str>| payed.map_or_else(|| Arc::clone(&payer), Arc::from);
    let affiliates = elements().map(|element| {
        let affiliation = Affiliation::from_name(element.attr("affiliation")?)?;
        Some(Affiliate { jid: element.attr("jid")?.into(), affiliation, payer: payer_of(element.attr(PAYER)) })
    });
    let mut affiliates: Vec<_> = affiliates.collect::<Option<_>>()?;
    affiliates.shrink_to_fit();
    let (mut config, mut config_payer) = (NodeConfig::default(), Arc::clone(&payer));
    if let Some(configure) = pubsub.child(ns::PUBSUB_OWNER, "configure") {
        config.restore(&Form::in_element(configure)?);
        config_payer = payer_of(configure.attr(PAYER));
    }
    Some(Node { payer, config: Arc::new(config), config_payer, affiliates })
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

    fn domain() -> Jid {
        Jid::parse("d").expect("a domain")
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
        let affiliate =
            |jid: &str, affiliation, payer: &str| Affiliate { jid: jid.into(), affiliation, payer: payer.into() };
        let affiliates =
            vec![affiliate("ada@d", Affiliation::Owner, "ada"), affiliate("o'x@d", Affiliation::PublishOnly, "B&")];
        let node = Node { payer: "ada".into(), config: Arc::new(config), config_payer: "B&".into(), affiliates };
        let read = |xml: &[u8]| read_node(std::str::from_utf8(xml).expect("text"), &domain()).expect("whole");
        assert_eq!(read(&write_node(&node)), node);
        let node = Node { config: Arc::default(), config_payer: "ada".into(), ..node };
        let xml = write_node(&node);
        assert!(xml.len() < 300, "most nodes are small");
        assert_eq!(read(&xml), node);
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
        let (payer, config_payer) = (Arc::from("ada"), Arc::from("ada"));
        let node = Node { payer, config: Arc::default(), config_payer, affiliates: Vec::new() };
        assert!(records.node(&node.payer, "n", &node).is_ready());
        for (key, value) in [("xmpp/node/x", &b"<a"[..]), ("xmpp/node/y", b"\xff"), ("xmpp/subscription/x", b"<s/>")] {
            assert!(shelf.put(&"ada".into(), key, Some(value.into())).is_ready());
        }
        let mut names = Vec::new();
        records.nodes(&domain(), &mut |name, _| names.push(name.to_owned()));
        records.subscriptions(&mut |kept| names.push(kept.node.to_string()));
        assert_eq!(names, ["n"]);
    }
}
