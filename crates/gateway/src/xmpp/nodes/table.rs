//! All nodes by name, and the share of each principal in them: places, and bytes of what it pays for.

use std::{collections::BTreeMap, sync::Arc};

use fogmux_bus::{NoRoom, Room, Shares};

use super::node::Node;

/// All nodes by name. What is inserted and removed changes the shares.
#[derive(Debug, Default)]
pub(super) struct Table {
    by_name: BTreeMap<Arc<str>, Node>,
    bytes: usize,
    /// Nodes by the principals that made them.
    places: Shares,
    /// The parts of nodes by the principals that pay for them.
    parts: Shares,
}

impl Table {
    pub(super) const fn by_name(&self) -> &BTreeMap<Arc<str>, Node> {
        &self.by_name
    }

    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn insert(&mut self, name: Arc<str>, mut node: Node) {
        self.remove(&name);
        node.payer = self.parts.name(&node.payer);
        self.places.add(&node.payer, 0);
        let (own, parts) = (Arc::clone(&node.payer), &mut self.parts);
        let shared = |payer: &mut Arc<str>| *payer = if *payer == own { Arc::clone(&own) } else { parts.name(payer) };
        shared(&mut node.config_payer);
        node.affiliates.iter_mut().for_each(|affiliate| shared(&mut affiliate.payer));
        for (payer, bytes) in node.parts(&name) {
            self.parts.add(payer, bytes);
            self.bytes += bytes;
        }
        self.by_name.insert(name, node);
    }

    pub(super) fn remove(&mut self, name: &str) {
        let Some(node) = self.by_name.remove(name) else { return };
        self.places.remove(&node.payer, 0);
        for (payer, bytes) in node.parts(name) {
            self.parts.remove(payer, bytes);
            self.bytes -= bytes;
        }
    }

    /// Whether `by` may have one more node.
    pub(super) fn admit_place(&self, room: Room, by: &str) -> Result<(), NoRoom> {
        room.admit(self.by_name.len(), self.places.of(by).count, 1)
    }

    /// Whether `by` may have a node take the place of what is there under its name. Only what `by` pays for may have
    /// grown.
    pub(super) fn admit(&self, room: Room, name: &str, after: &Node, by: &str) -> Result<(), NoRoom> {
        let (all_before, own_before) = self.by_name.get(name).map_or((0, 0), |before| before.bytes(name, by));
        let (all_after, own_after) = after.bytes(name, by);
        debug_assert!(all_after - own_after <= all_before - own_before, "others pay for what they asked for");
        match own_after.saturating_sub(own_before) {
            0 => Ok(()),
            more => {
                let given_up = (all_before - own_before).saturating_sub(all_after - own_after);
                room.admit(self.bytes.saturating_sub(given_up), self.parts.of(by).bytes, more)
            }
        }
    }

    /// Nodes, and bytes of nodes, of the principals that have most.
    pub(super) fn largest(&self) -> (usize, usize) {
        (self.places.largest(), self.parts.largest_bytes())
    }

    /// Nodes that a principal has made, and the bytes that it pays for.
    #[cfg(test)]
    pub(super) fn share(&self, principal: &str) -> (usize, usize) {
        (self.places.of(principal).count, self.parts.of(principal).bytes)
    }
}
