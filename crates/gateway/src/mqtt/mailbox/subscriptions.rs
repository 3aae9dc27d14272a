//! The subscriptions of a session, bounded in number and bytes.

use std::{collections::HashSet, sync::Arc};

use fogmux_bus::{Completer, Subscription};

use super::super::{
    announced::Announced,
    session::{LeftGroups, share_tag},
};

/// See the module.
#[derive(Debug, Default)]
pub(in crate::mqtt) struct Subscriptions {
    all: HashSet<Subscription>,
    bytes: usize,
    /// Shared subscriptions that the client has left, as long as messages wait by them.
    pub(super) leaving: Option<Box<Leaving>>,
    /// Of a link only: the retained messages of its subscriptions.
    pub(in crate::mqtt) announced: Option<Box<Announced>>,
}

/// Shared subscriptions that a client leaves.
#[derive(Debug, Default)]
pub(in crate::mqtt) struct Leaving {
    pub(in crate::mqtt) groups: LeftGroups,
    /// To be told when nothing waits by them and the store has forgotten them; `None` while no task sees to that.
    pub(super) over: Option<Arc<Completer>>,
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
        if let Some(leaving) = self.leaving.as_mut().filter(|_| subscription.group.is_some()) {
            // It takes its messages after all.
            leaving.groups.remove(&share_tag(subscription));
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

    /// Removes a shared one, whose messages go to other members. Says whether it was there.
    pub(in crate::mqtt) fn leave(&mut self, subscription: &Subscription) -> bool {
        let existed = self.remove(subscription);
        if existed {
            let groups = &mut self.leaving.get_or_insert_default().groups;
            groups.insert(share_tag(subscription), Arc::new(subscription.clone()));
        }
        existed
    }

    /// The number of them.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Each of them, in no order.
    pub(super) fn each(&self) -> impl Iterator<Item = &Subscription> {
        self.all.iter()
    }

    /// All of them, and the shared ones that it was leaving.
    pub(in crate::mqtt) fn into_all(self) -> (HashSet<Subscription>, LeftGroups) {
        (self.all, self.leaving.map_or_else(LeftGroups::default, |leaving| leaving.groups))
    }
}
