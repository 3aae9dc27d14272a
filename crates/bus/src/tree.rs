//! The subscription tree: one node per level, in an arena, walked without recursion.

mod matched;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use hashbrown::HashMap;

pub(crate) use self::matched::Matched;
use crate::{
    id::SlotId,
    route::Sub,
    share::{Share, Shares},
    subscription::Subscription,
};

/// Subscriptions that end at one node, sorted by key, so that one of many is found without a walk.
#[derive(Default)]
struct Leaf {
    direct: Vec<Arc<Sub>>,
    groups: BTreeMap<Arc<str>, Vec<Arc<Sub>>>,
}

impl Leaf {
    fn is_empty(&self) -> bool {
        self.direct.is_empty() && self.groups.is_empty()
    }

    fn list(&mut self, group: Option<&Arc<str>>) -> &mut Vec<Arc<Sub>> {
        match group {
            None => &mut self.direct,
            Some(name) => self.groups.entry(Arc::clone(name)).or_default(),
        }
    }
}

#[derive(Default)]
struct Node {
    children: HashMap<Box<str>, u32, foldhash::fast::RandomState>,
    plus: Option<u32>,
    here: Option<Box<Leaf>>,
    /// Of `…/#`: this level and all below.
    below: Option<Box<Leaf>>,
}

impl Node {
    fn is_empty(&self) -> bool {
        self.children.is_empty() && self.plus.is_none() && self.here.is_none() && self.below.is_none()
    }
}

/// Bytes of a node: itself, its entry in its parent's table, and the allocator's share; its level comes on top.
const NODE_BYTES: usize = size_of::<Node>() + 140;
/// Bytes of a subscription beside its nodes; its filter, which the subscriber keeps, comes on top.
const SUB_BYTES: usize = size_of::<Sub>() + 160;
/// Places of nodes that are not given back to the allocator.
const SPARE_NODES: usize = 1024;

impl Subscription {
    /// Bytes that it takes up at most: as if no other shared a level with it.
    #[must_use]
    pub fn cost(&self) -> usize {
        let levels = self.filter.split('/').count();
        levels * NODE_BYTES + 2 * self.filter.len() + SUB_BYTES
    }
}

/// All subscriptions.
pub(crate) struct Tree {
    nodes: Vec<Node>,
    /// Of the places in `nodes`; the lowest are taken first, so that the end can be given back.
    free: BTreeSet<u32>,
    bytes: usize,
    count: usize,
    /// The number of shared subscriptions.
    shared: usize,
    /// The subscriptions of each principal, by [`Subscription::cost`].
    shares: Shares,
}

impl Default for Tree {
    fn default() -> Self {
        Self {
            nodes: vec![Node::default()],
            free: BTreeSet::new(),
            bytes: 0,
            count: 0,
            shared: 0,
            shares: Shares::default(),
        }
    }
}

const ROOT: u32 = 0;

impl Tree {
    pub(crate) const fn len(&self) -> usize {
        self.count
    }

    /// Bytes that they take up, levels of filters included.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The number of shared subscriptions (§4.8.2).
    pub(crate) const fn shared(&self) -> usize {
        self.shared
    }

    /// The subscriptions of one principal, levels of filters included as if no other shared them.
    pub(crate) fn share(&self, principal: &str) -> Share {
        self.shares.of(principal)
    }

    /// The largest number of subscriptions that one principal has.
    pub(crate) fn largest_share(&self) -> usize {
        self.shares.largest()
    }

    fn node(&self, id: u32) -> Option<&Node> {
        self.nodes.get(id as usize)
    }

    fn node_mut(&mut self, id: u32) -> Option<&mut Node> {
        self.nodes.get_mut(id as usize)
    }

    fn allocate(&mut self) -> Option<u32> {
        if let Some(id) = self.free.pop_first() {
            return Some(id);
        }
        let id = u32::try_from(self.nodes.len()).ok()?;
        self.nodes.push(Node::default());
        Some(id)
    }

    fn child(&self, parent: u32, level: &str) -> Option<u32> {
        let node = self.node(parent)?;
        if level == "+" { node.plus } else { node.children.get(level).copied() }
    }

    fn child_or_new(&mut self, parent: u32, level: &str) -> Option<u32> {
        if let Some(id) = self.child(parent, level) {
            return Some(id);
        }
        let id = self.allocate()?;
        let node = self.node_mut(parent)?;
        if level == "+" {
            node.plus = Some(id);
        } else {
            node.children.insert(Box::from(level), id);
        }
        self.bytes += NODE_BYTES + level.len();
        Some(id)
    }

    /// Adds or replaces a subscription. Returns whether there was one.
    pub(crate) fn insert(&mut self, subscription: &Subscription, sub: Sub) -> bool {
        let mut at = ROOT;
        let mut below = false;
        for level in subscription.filter.split('/') {
            if level == "#" {
                below = true;
                break;
            }
            let Some(next) = self.child_or_new(at, level) else { return false };
            at = next;
        }
        let Some(node) = self.node_mut(at) else { return false };
        let leaf = if below { &mut node.below } else { &mut node.here }.get_or_insert_default();
        let list = leaf.list(subscription.group.as_ref());
        let principal = sub.principal();
        let existed = match list.binary_search_by_key(&sub.key(), |s| s.key()) {
            Ok(at) => {
                let replaced = list.get_mut(at).map(|old| std::mem::replace(old, Arc::new(sub)));
                if let Some(old) = replaced.and_then(|old| old.principal()) {
                    self.shares.remove(&old, subscription.cost());
                }
                true
            }
            Err(at) => {
                list.insert(at, Arc::new(sub));
                self.bytes += SUB_BYTES + subscription.filter.len();
                self.count += 1;
                self.shared += usize::from(subscription.group.is_some());
                false
            }
        };
        if let Some(principal) = principal {
            self.shares.add(&principal, subscription.cost());
        }
        existed
    }

    fn leaf(&self, subscription: &Subscription) -> Option<&Leaf> {
        let mut at = ROOT;
        for level in subscription.filter.split('/') {
            if level == "#" {
                return self.node(at)?.below.as_deref();
            }
            at = self.child(at, level)?;
        }
        self.node(at)?.here.as_deref()
    }

    /// Whether a subscription exists.
    pub(crate) fn contains(&self, subscription: &Subscription, key: (SlotId, u64)) -> bool {
        let list = self.leaf(subscription).and_then(|leaf| match &subscription.group {
            None => Some(&leaf.direct),
            Some(name) => leaf.groups.get(name),
        });
        list.is_some_and(|list| list.binary_search_by_key(&key, |sub| sub.key()).is_ok())
    }

    /// The members of a shared subscription's group.
    pub(crate) fn members(&self, subscription: &Subscription) -> Vec<Arc<Sub>> {
        let members = self.leaf(subscription).zip(subscription.group.as_ref());
        members.and_then(|(leaf, name)| leaf.groups.get(name)).cloned().unwrap_or_default()
    }

    /// Removes a subscription. Returns whether there was one.
    pub(crate) fn remove(&mut self, subscription: &Subscription, slot: SlotId, tag: u64) -> bool {
        let mut path: Vec<(u32, &str)> = Vec::with_capacity(8);
        let mut at = ROOT;
        let mut below = false;
        for level in subscription.filter.split('/') {
            if level == "#" {
                below = true;
                break;
            }
            let Some(next) = self.child(at, level) else { return false };
            path.push((at, level));
            at = next;
        }
        let Some(removed) = self.remove_from_leaf(at, below, subscription.group.as_ref(), (slot, tag)) else {
            return false;
        };
        if let Some(principal) = removed.principal() {
            self.shares.remove(&principal, subscription.cost());
        }
        self.bytes = self.bytes.saturating_sub(SUB_BYTES + subscription.filter.len());
        self.count -= 1;
        self.shared -= usize::from(subscription.group.is_some());
        // Empty nodes are removed, from the end of the path upwards.
        for (parent, level) in path.into_iter().rev() {
            if !self.node(at).is_some_and(Node::is_empty) {
                break;
            }
            if let Some(node) = self.node_mut(at) {
                *node = Node::default();
            }
            self.bytes = self.bytes.saturating_sub(NODE_BYTES + level.len());
            self.free.insert(at);
            if let Some(node) = self.node_mut(parent) {
                if level == "+" {
                    node.plus = None;
                } else {
                    node.children.remove(level);
                    if node.children.is_empty() {
                        node.children = HashMap::default();
                    }
                }
            }
            at = parent;
        }
        self.give_back();
        true
    }

    /// Gives back the free places at the end.
    fn give_back(&mut self) {
        while let Some(&last) = self.free.last().filter(|last| **last as usize + 1 == self.nodes.len()) {
            self.free.remove(&last);
            self.nodes.pop();
        }
        if self.nodes.capacity() > SPARE_NODES && self.nodes.len() < self.nodes.capacity() / 4 {
            self.nodes.shrink_to(self.nodes.len() * 2);
        }
    }

    fn remove_from_leaf(
        &mut self,
        at: u32,
        below: bool,
        group: Option<&Arc<str>>,
        key: (SlotId, u64),
    ) -> Option<Arc<Sub>> {
        let node = self.node_mut(at)?;
        let place = if below { &mut node.below } else { &mut node.here };
        let leaf = place.as_mut()?;
        let removed = match group {
            None => remove_sorted(&mut leaf.direct, key),
            Some(name) => {
                let members = leaf.groups.get_mut(name)?;
                let removed = remove_sorted(members, key);
                if members.is_empty() {
                    leaf.groups.remove(name);
                }
                removed
            }
        };
        if leaf.is_empty() {
            *place = None;
        }
        removed
    }
}

fn remove_sorted(list: &mut Vec<Arc<Sub>>, key: (SlotId, u64)) -> Option<Arc<Sub>> {
    let at = list.binary_search_by_key(&key, |s| s.key()).ok()?;
    Some(list.remove(at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        id::WorkerId,
        route::{Batch, Picks, Pushed, Standing, Subscriber, Wake},
        subscription::SubscribeOptions,
    };

    struct Nobody;

    impl Subscriber for Nobody {
        fn standing(&self) -> Standing {
            Standing::Away
        }

        fn push(&self, _: WorkerId, _: bool, _: &Batch<'_, '_>, _: Picks<'_>, _: &mut Pushed) -> Wake {
            Wake::Done
        }

        fn wake(&self) {}
    }

    #[test]
    fn what_is_removed_leaves_neither_bytes_nor_places() {
        let mut tree = Tree::default();
        let deep = "/x".repeat(150);
        let filters: Vec<_> = (0..2000).map(|n| Subscription::parse(&format!("{n}{deep}")).unwrap()).collect();
        for filter in &filters {
            let before = tree.bytes();
            let sub = Sub { subscriber: Arc::new(Nobody), slot: SlotId(1), options: SubscribeOptions::default() };
            assert!(!tree.insert(filter, sub));
            assert!((100 * 150..=filter.cost()).contains(&(tree.bytes() - before)));
        }
        assert!(filters.iter().rev().step_by(2).all(|filter| tree.remove(filter, SlotId(1), 0)));
        assert!(filters.iter().step_by(2).all(|filter| tree.remove(filter, SlotId(1), 0)));
        assert_eq!((tree.bytes(), tree.len(), tree.nodes.len(), tree.free.len()), (0, 0, 1, 0));
        assert!(tree.nodes.capacity() <= SPARE_NODES * 2);
    }
}
