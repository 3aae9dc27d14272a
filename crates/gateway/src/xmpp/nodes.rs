//! Topics as nodes: their configuration and affiliations. Topics that nobody has created or published to by XMPP have
//! neither and behave by the defaults. Changes are stored: answers wait for the [`Completion`].
//!
//! Each part of a node counts for the principal that asked for it, so that nobody's request makes the share of another
//! larger (ADR 0068).

mod node;
mod table;
#[cfg(test)]
mod tests;

use std::{
    ops::Bound,
    sync::{
        Arc, LazyLock, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use fogmux_bus::{Bus, Completion, NoRoom};
use fogmux_xmpp::{
    Jid,
    pubsub::{Affiliation, NodeConfig},
};

pub(super) use self::node::{Affiliate, Node};
use self::table::Table;
use super::{doubts::Doubts, kept::Records};

/// Bytes of the name of a node that has a configuration or affiliations of its own; topics with longer ones are nodes
/// with the defaults.
const NAME_BYTES_MAX: usize = 1024;

/// One for all nodes that were not configured.
static DEFAULT: LazyLock<Arc<NodeConfig>> = LazyLock::new(Arc::default);

/// The bounds of all nodes together.
#[derive(Debug, Clone, Copy)]
pub(super) struct NodesMax {
    pub(super) count: usize,
    /// Bytes of the heap that they take.
    pub(super) bytes: usize,
}

/// Why a node was not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotMade {
    /// There is one.
    Exists,
    /// As many as there may be, or as this principal may have.
    Full(NoRoom),
    /// The name is too long.
    TooLong,
    /// The store does not take it.
    NotKept,
}

/// Why a node was not changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotChanged {
    /// There is none.
    Missing,
    /// It would have no owner, or too many affiliations.
    Affiliations,
    /// As many bytes as there may be, or as this principal may have.
    Full(NoRoom),
    /// The store does not take it.
    NotKept,
}

/// Why a node is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Made {
    /// Somebody asked for it.
    Asked,
    /// Somebody published to it. Only half of the room is for those, so that a flood of topics leaves some.
    Implied,
}

/// All nodes, bounded.
#[derive(Debug)]
pub(super) struct Nodes {
    nodes: RwLock<Table>,
    /// Counts the changes, so that what was made of a configuration is known to be outdated.
    changes: AtomicU64,
    max: NodesMax,
    records: Records,
    /// Nodes as they were before changes that are not stored yet. Locked before `nodes`.
    doubts: Mutex<Doubts<Arc<str>, Option<Node>>>,
}

impl Nodes {
    /// The nodes that are kept, also where they exceed the bounds. Records of before principals were noted in them
    /// count for the first owner, a user of `domain`.
    pub(super) fn new(max: NodesMax, records: Records, domain: &Jid) -> Self {
        let mut nodes = Table::default();
        records.nodes(domain, &mut |name, kept| {
            nodes.insert(name.into(), Node { config: shared(&kept.config), ..kept });
        });
        let doubts = Mutex::default();
        Self { nodes: RwLock::new(nodes), changes: AtomicU64::new(0), max, records, doubts }
    }

    fn read(&self) -> RwLockReadGuard<'_, Table> {
        self.nodes.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Table> {
        let nodes = self.nodes.write().unwrap_or_else(PoisonError::into_inner);
        // Under the lock: a reader that sees the new number reads the nodes after the change.
        self.changes.fetch_add(1, Relaxed);
        nodes
    }

    fn doubts(&self) -> MutexGuard<'_, Doubts<Arc<str>, Option<Node>>> {
        self.doubts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Undoes the changes that the store has not kept. Returns whether there were any.
    pub(super) fn undo(&self) -> bool {
        let mut doubts = self.doubts();
        let failed = doubts.failed();
        if failed.is_empty() {
            return false;
        }
        let mut nodes = self.write();
        for (name, before) in failed {
            nodes.remove(&name);
            if let Some(node) = before {
                nodes.insert(name, node);
            }
        }
        true
    }

    /// A number that is different after every change.
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Relaxed)
    }

    /// Makes a node that belongs to `owner`, for which the principal `by` pays.
    pub(super) fn create(
        &self,
        node: &str,
        owner: &Arc<str>,
        by: &Arc<str>,
        config: Option<NodeConfig>,
        made: Made,
        bus: &Bus,
    ) -> Result<Completion, NotMade> {
        let room = |max: usize| match made {
            Made::Asked => bus.room(max),
            Made::Implied => bus.room(max / 2),
        };
        let mut doubts = self.doubts();
        let mut nodes = self.write();
        if nodes.by_name().contains_key(node) {
            return Err(NotMade::Exists);
        }
        if node.len() > NAME_BYTES_MAX {
            return Err(NotMade::TooLong);
        }
        let (jid, payer) = (Arc::clone(owner), Arc::clone(by));
        let affiliates = vec![Affiliate { jid, affiliation: Affiliation::Owner, payer }];
        let config = config.map_or_else(|| Arc::clone(&DEFAULT), |config| shared(&config));
        let new = Node { payer: Arc::clone(by), config, config_payer: Arc::clone(by), affiliates };
        nodes.admit_place(room(self.max.count), by).map_err(NotMade::Full)?;
        nodes.admit(room(self.max.bytes), node, &new, by).map_err(NotMade::Full)?;
        // Under the lock, so that records are written in the order of changes; it never waits.
        let kept = self.records.node(by, node, &new);
        if matches!(kept, Completion::Failed) {
            return Err(NotMade::NotKept);
        }
        let name: Arc<str> = node.into();
        doubts.push(Arc::clone(&name), &kept, None);
        nodes.insert(name, new);
        Ok(kept)
    }

    /// Removes a node at the request of the principal `by`, unless the store does not take that.
    pub(super) fn remove(&self, node: &str, by: &Arc<str>) -> Completion {
        let mut doubts = self.doubts();
        let mut nodes = self.write();
        let Some((name, found)) = nodes.by_name().get_key_value(node) else { return Completion::Ready };
        let kept = self.records.no_node(by, node);
        if !matches!(kept, Completion::Failed) {
            doubts.push(Arc::clone(name), &kept, Some(found.clone()));
            nodes.remove(node);
        }
        kept
    }

    /// Puts a node in the place of one at the request of the principal `by`, if there is room for it and the store
    /// takes it. Returns the one before.
    fn replace(
        &self,
        node: &str,
        by: &Arc<str>,
        bus: &Bus,
        change: impl FnOnce(&Node) -> Option<Node>,
    ) -> Result<(Node, Completion), NotChanged> {
        let mut doubts = self.doubts();
        let mut nodes = self.write();
        let (name, before) = nodes.by_name().get_key_value(node).ok_or(NotChanged::Missing)?;
        let (name, before) = (Arc::clone(name), before.clone());
        let after = change(&before).ok_or(NotChanged::Affiliations)?;
        nodes.admit(bus.room(self.max.bytes), node, &after, by).map_err(NotChanged::Full)?;
        let kept = self.records.node(by, node, &after);
        if matches!(kept, Completion::Failed) {
            return Err(NotChanged::NotKept);
        }
        doubts.push(Arc::clone(&name), &kept, Some(before.clone()));
        nodes.insert(name, after);
        Ok((before, kept))
    }

    /// How `who` stands to the node; none when there is no such node.
    pub(super) fn affiliation(&self, node: &str, who: &str) -> Option<Affiliation> {
        self.read().by_name().get(node).map(|found| found.affiliation(who))
    }

    /// The configuration; the default where there is none.
    pub(super) fn config(&self, node: &str) -> Arc<NodeConfig> {
        self.read().by_name().get(node).map_or_else(|| Arc::clone(&DEFAULT), |found| Arc::clone(&found.config))
    }

    /// Configuration and affiliation at once.
    pub(super) fn standing(&self, node: &str, who: &str) -> Option<(Arc<NodeConfig>, Affiliation)> {
        self.read().by_name().get(node).map(|found| (Arc::clone(&found.config), found.affiliation(who)))
    }

    /// Puts another configuration in place at the request of the principal `by`. Says whether what may be read has
    /// changed.
    pub(super) fn configure(
        &self,
        node: &str,
        config: &NodeConfig,
        by: &Arc<str>,
        bus: &Bus,
    ) -> Result<(bool, Completion), NotChanged> {
        let (before, kept) = self.replace(node, by, bus, |before| Some(before.configured(shared(config), by)))?;
        Ok((before.config.access_model != config.access_model, kept))
    }

    /// Whether owners let `who` read.
    pub(super) fn may_read(&self, node: &str, who: &str) -> bool {
        self.read().by_name().get(node).is_none_or(|found| found.affiliation(who).may_read(found.whitelisted()))
    }

    /// All affiliations of a node but `none`.
    pub(super) fn affiliations(&self, node: &str) -> Vec<(Arc<str>, Affiliation)> {
        let nodes = self.read();
        let of = |found: &Node| {
            let all = found.affiliates.iter();
            all.map(|one| (Arc::clone(&one.jid), one.affiliation)).collect()
        };
        nodes.by_name().get(node).map(of).unwrap_or_default()
    }

    /// The nodes that `who` has an affiliation with.
    pub(super) fn affiliations_of(&self, who: &str, node: Option<&str>) -> Vec<(Arc<str>, Affiliation)> {
        let nodes = self.read();
        let of = |(name, found): (&Arc<str>, &Node)| {
            let affiliation = found.affiliation(who);
            (affiliation != Affiliation::None).then(|| (Arc::clone(name), affiliation))
        };
        match node {
            Some(node) => nodes.by_name().get_key_value(node).and_then(of).into_iter().collect(),
            None => nodes.by_name().iter().filter_map(of).collect(),
        }
    }

    /// Changes affiliations at the request of the principal `by`, all or none.
    pub(super) fn affiliate(
        &self,
        node: &str,
        changes: &[(Arc<str>, Affiliation)],
        by: &Arc<str>,
        bus: &Bus,
    ) -> Result<Completion, NotChanged> {
        Ok(self.replace(node, by, bus, |before| before.affiliated(changes, by))?.1)
    }

    /// Names of nodes behind `after`, in order.
    pub(super) fn names(&self, after: Option<&str>, limit: usize) -> Vec<Arc<str>> {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let nodes = self.read();
        nodes
            .by_name()
            .range::<str, _>((start, Bound::Unbounded))
            .take(limit)
            .map(|(name, _)| Arc::clone(name))
            .collect()
    }

    pub(super) fn len(&self) -> usize {
        self.read().by_name().len()
    }

    /// Bytes of the heap that the nodes take.
    pub(super) fn bytes(&self) -> usize {
        self.read().bytes()
    }

    /// Nodes, and bytes of nodes, of the principals that have most.
    pub(super) fn largest(&self) -> (usize, usize) {
        self.read().largest()
    }
}

/// Most nodes have the defaults, and share them.
fn shared(config: &NodeConfig) -> Arc<NodeConfig> {
    if *config == **DEFAULT { Arc::clone(&DEFAULT) } else { Arc::new(config.clone()) }
}
