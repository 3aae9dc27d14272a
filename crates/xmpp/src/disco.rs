//! Service discovery (XEP-0030).

use crate::element::Element;
use crate::error::StanzaError;
use crate::ns;
use crate::rsm::{self, PageRequest};
use crate::writer::Writer;

/// A question about an entity or one of its nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request<'e> {
    /// The node asked about.
    pub node: Option<&'e str>,
    /// The page wanted, when items are asked for.
    pub page: Option<PageRequest>,
}

impl<'e> Request<'e> {
    /// Reads `<query/>`.
    ///
    /// # Errors
    /// `<bad-request/>` for a page that is none.
    pub fn of(query: &'e Element<'_>) -> Result<Self, StanzaError> {
        Ok(Self { node: query.attr("node"), page: PageRequest::in_element(query)? })
    }
}

/// An identity: category and type of the registry, and a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity<'a> {
    /// Such as `pubsub`.
    pub category: &'a str,
    /// Such as `service`.
    pub kind: &'a str,
    /// For people.
    pub name: Option<&'a str>,
}

/// The features of the server (RFC 6120, RFC 6121 and the extensions served for accounts).
pub const SERVER_FEATURES: &[&str] = &[ns::DISCO_INFO, ns::DISCO_ITEMS, ns::PING, ns::VERSION];

/// The features of the pubsub service (XEP-0060 §10).
pub const PUBSUB_FEATURES: &[&str] = &[
    ns::DISCO_INFO,
    ns::DISCO_ITEMS,
    ns::PING,
    ns::VERSION,
    ns::RSM,
    ns::SHIM,
    ns::JSON,
    ns::FOGMUX,
    ns::PUBSUB,
    "http://jabber.org/protocol/pubsub#access-open",
    "http://jabber.org/protocol/pubsub#access-whitelist",
    "http://jabber.org/protocol/pubsub#auto-create",
    "http://jabber.org/protocol/pubsub#config-node",
    "http://jabber.org/protocol/pubsub#config-node-max",
    "http://jabber.org/protocol/pubsub#create-and-configure",
    "http://jabber.org/protocol/pubsub#create-nodes",
    "http://jabber.org/protocol/pubsub#delete-items",
    "http://jabber.org/protocol/pubsub#delete-nodes",
    "http://jabber.org/protocol/pubsub#instant-nodes",
    "http://jabber.org/protocol/pubsub#item-ids",
    "http://jabber.org/protocol/pubsub#last-published",
    "http://jabber.org/protocol/pubsub#leased-subscription",
    "http://jabber.org/protocol/pubsub#manage-subscriptions",
    "http://jabber.org/protocol/pubsub#member-affiliation",
    "http://jabber.org/protocol/pubsub#meta-data",
    "http://jabber.org/protocol/pubsub#modify-affiliations",
    "http://jabber.org/protocol/pubsub#outcast-affiliation",
    "http://jabber.org/protocol/pubsub#persistent-items",
    "http://jabber.org/protocol/pubsub#publish",
    "http://jabber.org/protocol/pubsub#publish-only-affiliation",
    "http://jabber.org/protocol/pubsub#publish-options",
    "http://jabber.org/protocol/pubsub#publisher-affiliation",
    "http://jabber.org/protocol/pubsub#purge-nodes",
    "http://jabber.org/protocol/pubsub#retract-items",
    "http://jabber.org/protocol/pubsub#retrieve-affiliations",
    "http://jabber.org/protocol/pubsub#retrieve-default",
    "http://jabber.org/protocol/pubsub#retrieve-default-sub",
    "http://jabber.org/protocol/pubsub#retrieve-items",
    "http://jabber.org/protocol/pubsub#retrieve-subscriptions",
    "http://jabber.org/protocol/pubsub#subscribe",
    "http://jabber.org/protocol/pubsub#subscription-options",
];

/// Appends the answer to `disco#info`; `extra` may add a form (XEP-0128).
pub fn write_info(
    w: &mut Writer<'_>,
    node: Option<&str>,
    identities: &[Identity<'_>],
    features: &[&str],
    extra: impl FnOnce(&mut Writer<'_>),
) {
    w.start_ns("query", ns::DISCO_INFO).attr_opt("node", node);
    for identity in identities {
        w.start("identity").attr("category", identity.category).attr("type", identity.kind);
        w.attr_opt("name", identity.name).end("identity");
    }
    for feature in features {
        w.start("feature").attr("var", feature).end("feature");
    }
    extra(w);
    w.end("query");
}

/// One thing below another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Item<'a> {
    /// Its address.
    pub jid: &'a str,
    /// Its node at that address.
    pub node: Option<&'a str>,
    /// For people.
    pub name: Option<&'a str>,
}

/// Appends the answer to `disco#items`. `page` gives the index of the first item and the number of all; the items'
/// nodes name the page.
pub fn write_items(w: &mut Writer<'_>, node: Option<&str>, items: &[Item<'_>], page: Option<(usize, usize)>) {
    w.start_ns("query", ns::DISCO_ITEMS).attr_opt("node", node);
    for item in items {
        w.start("item").attr("jid", item.jid).attr_opt("node", item.node).attr_opt("name", item.name).end("item");
    }
    if let Some((index, count)) = page {
        let id = |item: &Item<'_>| item.node.or(item.name).unwrap_or_default().to_owned();
        let ends = items.first().map(id).zip(items.last().map(id));
        rsm::write(w, ends.as_ref().map(|(first, last)| (first.as_str(), last.as_str())), index, count);
    }
    w.end("query");
}
