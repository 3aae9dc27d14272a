//! A subscription of an account: its node or filter, its options, and its tag on the bus.

use std::sync::Arc;

use fogmux_bus::{Bus, Filter, Qos, ReadGate, SubscribeOptions, Subscription};
use fogmux_xmpp::pubsub::Expire;

use super::accounts::Resource;

/// The bit of a tag for a subscription by full address.
const FULL: u64 = 1;
/// The bit of a tag for notifications with a body.
const BODY: u64 = 2;
/// The distance between the tags of two subscriptions.
pub(super) const TAG_STEP: u64 = 4;

/// Whether a tag is of a subscription by full address.
pub(super) const fn is_full(tag: u64) -> bool {
    tag & FULL != 0
}

/// Whether a tag is of a subscription whose notifications have a body.
pub(super) const fn has_body(tag: u64) -> bool {
    tag & BODY != 0
}

/// A subscription of an account.
#[derive(Debug, Clone)]
pub(super) struct Followed {
    /// The node, or the filter, as the client names it.
    pub(super) node: Arc<str>,
    pub(super) wildcard: bool,
    /// The resource, for a subscription by full address.
    pub(super) resource: Option<Box<str>>,
    pub(super) options: Options,
    pub(super) subscription: Subscription,
    pub(super) tag: u64,
}

/// The options of a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Options {
    pub(super) deliver: bool,
    pub(super) include_body: bool,
    pub(super) expire: Option<Expire>,
}

impl Options {
    pub(super) fn tag_flags(self, resource: Option<&str>) -> u64 {
        let flag = |on: bool, bit: u64| if on { bit } else { 0 };
        flag(resource.is_some(), FULL) | flag(self.include_body, BODY)
    }
}

impl Followed {
    /// Whether it reaches a resource of this name.
    pub(super) fn reaches(&self, name: &str) -> bool {
        self.resource.as_deref().is_none_or(|own| own == name)
    }

    /// Whether its notifications are sent to a resource that it reaches.
    pub(super) fn is_delivered_to(&self, resource: &Resource) -> bool {
        self.options.deliver && (self.resource.is_some() || resource.presence.takes_bare())
    }

    /// The subscribed address.
    pub(super) fn jid(&self, bare: &str) -> String {
        self.resource.as_ref().map_or_else(|| bare.to_owned(), |resource| format!("{bare}/{resource}"))
    }
}

/// A stored subscription: its bare address and its node or filter.
pub(super) type Name = (Arc<str>, Arc<str>);

/// A subscription as it was before a change.
#[derive(Debug)]
pub(super) struct Before {
    pub(super) principal: Arc<str>,
    pub(super) followed: Option<Followed>,
}

/// A new subscription.
#[derive(Debug)]
pub(super) struct Follow<'a> {
    pub(super) node: &'a str,
    pub(super) wildcard: bool,
    pub(super) resource: Option<&'a str>,
    pub(super) options: Options,
    pub(super) subscription: Subscription,
}

/// The bus's subscription for a node, or for a filter.
pub(super) fn subscription(node: &str, wildcard: bool) -> Option<Subscription> {
    if wildcard { Subscription::parse(node).ok() } else { Filter::new(node).ok().map(Subscription::to) }
}

pub(super) fn attach(
    bus: &Bus,
    followed: &Followed,
    resource: &Resource,
) -> Result<(), fogmux_bus::TooManySubscriptions> {
    if !followed.is_delivered_to(resource) {
        detach(bus, followed, resource);
        return Ok(());
    }
    let gate: Arc<dyn ReadGate> = Arc::clone(&resource.gate) as _;
    let max_qos = if resource.acknowledges { Qos::AtLeastOnce } else { Qos::AtMostOnce };
    let options = SubscribeOptions { tag: followed.tag, max_qos, gate: Some(gate), ..SubscribeOptions::default() };
    bus.subscribe(&resource.inbox, &followed.subscription, options).map(|_| ())
}

pub(super) fn detach(bus: &Bus, followed: &Followed, resource: &Resource) {
    bus.unsubscribe(&resource.inbox, &followed.subscription, followed.tag);
}
