//! A subscription as the subscriber names it – a filter, perhaps shared (MQTT 5.0 §4.8.2) – and wants it.

use std::sync::Arc;

use crate::{
    filter::{Filter, FilterError},
    message::Qos,
};

/// How a subscriber wants a filter's messages.
#[derive(Clone)]
pub struct SubscribeOptions {
    /// Tells the subscriptions of one mailbox apart; those with the same tag are merged when several match.
    pub tag: u64,
    /// Highest QoS to deliver with.
    pub max_qos: Qos,
    /// Do not deliver what the subscriber itself published.
    pub no_local: bool,
    /// Deliver with the retain flag as published.
    pub retain_as_published: bool,
    /// Given back with each delivery.
    pub id: Option<u32>,
    /// The right to read of the subscriber; `None`: everything.
    pub gate: Option<Arc<dyn ReadGate>>,
}

impl Default for SubscribeOptions {
    fn default() -> Self {
        Self { tag: 0, max_qos: Qos::ExactlyOnce, no_local: false, retain_as_published: true, id: None, gate: None }
    }
}

/// Decides what a subscriber may read. Asked when routes are computed, not per message; call
/// [`crate::Bus::invalidate`] when its answers change.
pub trait ReadGate: Send + Sync {
    /// Whether messages on this topic may be delivered.
    fn may_read(&self, topic: &str) -> bool;

    /// The name of the principal whose share the subscription counts to; it does not change. `None`: nobody's.
    fn principal(&self) -> Option<Arc<str>> {
        None
    }
}

/// Why a string is not a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubscriptionError {
    /// The filter itself.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// A share name is missing or has `/`, `+` or `#` ([MQTT-4.8.2-1], [MQTT-4.8.2-2]).
    #[error("$share is followed by a name without wildcards and a filter")]
    ShareName,
}

/// A filter and, for a shared subscription, the name of the group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Subscription {
    /// The filter.
    pub filter: Filter,
    /// The share name of `$share/<name>/<filter>`.
    pub group: Option<Arc<str>>,
}

impl Subscription {
    /// An ordinary subscription.
    #[must_use]
    pub const fn to(filter: Filter) -> Self {
        Self { filter, group: None }
    }

    /// Reads `<filter>` or `$share/<name>/<filter>`.
    ///
    /// # Errors
    /// [`SubscriptionError`] for an invalid filter or share name.
    pub fn parse(text: &str) -> Result<Self, SubscriptionError> {
        let shared = match text.strip_prefix("$share") {
            Some("") => return Err(SubscriptionError::ShareName),
            Some(rest) => rest.strip_prefix('/'),
            None => None,
        };
        let Some(rest) = shared else { return Ok(Self::to(Filter::new(text)?)) };
        let (name, filter) = rest.split_once('/').ok_or(SubscriptionError::ShareName)?;
        if name.is_empty() || name.contains(['+', '#', '\0']) || filter.is_empty() {
            return Err(SubscriptionError::ShareName);
        }
        Ok(Self { filter: Filter::new(filter)?, group: Some(Arc::from(name)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s4_8_2_shared() {
        let shared = Subscription::parse("$share/g/a/#").unwrap();
        assert_eq!((shared.group.as_deref(), shared.filter.as_str()), (Some("g"), "a/#"));
        for bad in ["$share", "$share/", "$share/g", "$share/g/", "$share//a", "$share/+/a", "$share/g#/a"] {
            assert_eq!(Subscription::parse(bad), Err(SubscriptionError::ShareName), "{bad}");
        }
        assert_eq!(Subscription::parse("$shared/g/a").unwrap().group, None);
    }
}
