//! The subscriptions of a session, bounded in number and bytes.

use std::collections::HashSet;

use fogmux_bus::Subscription;

/// See the module.
#[derive(Debug, Default)]
pub(in crate::mqtt) struct Subscriptions {
    all: HashSet<Subscription>,
    bytes: usize,
}

impl Subscriptions {
    /// Adds one, or says that there is no room for it. One that is there already needs none.
    pub(in crate::mqtt) fn admit(&mut self, subscription: &Subscription, count_max: usize, bytes_max: usize) -> bool {
        if self.all.contains(subscription) {
            return true;
        }
        let cost = subscription.cost();
        if self.all.len() >= count_max || self.bytes + cost > bytes_max {
            return false;
        }
        self.bytes += cost;
        self.all.insert(subscription.clone())
    }

    /// Removes one. Says whether it was there.
    pub(in crate::mqtt) fn remove(&mut self, subscription: &Subscription) -> bool {
        let existed = self.all.remove(subscription);
        if existed {
            self.bytes = self.bytes.saturating_sub(subscription.cost());
        }
        existed
    }

    /// The number of them.
    #[cfg(feature = "http")]
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Each of them, in no order.
    pub(super) fn each(&self) -> impl Iterator<Item = &Subscription> {
        self.all.iter()
    }

    /// All of them.
    pub(in crate::mqtt) fn into_all(self) -> HashSet<Subscription> {
        self.all
    }
}
