//! Topics as nodes: their configuration and affiliations. Topics that nobody has created or published to by XMPP have
//! neither and behave by the defaults. Changes are stored: answers wait for the [`Completion`].

use std::{
    collections::BTreeMap,
    ops::Bound,
    sync::{
        Arc, LazyLock, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use fogmux_bus::{Bus, Completion, NoRoom, Shares};
use fogmux_xmpp::pubsub::{AccessModel, Affiliation, NodeConfig};

use super::{doubts::Doubts, kept::Records};

/// Bytes of the name of a node that has a configuration or affiliations of its own; topics with longer ones are nodes
/// with the defaults.
const NAME_BYTES_MAX: usize = 1024;
/// Affiliations of one node.
const AFFILIATIONS_MAX: usize = 256;

/// One for all nodes that were not configured.
static DEFAULT: LazyLock<Arc<NodeConfig>> = LazyLock::new(Arc::default);

/// All nodes, and how many each principal owns.
#[derive(Debug, Default)]
struct Table {
    by_name: BTreeMap<Arc<str>, Node>,
    shares: Shares,
}

impl Table {
    fn insert(&mut self, name: Arc<str>, node: Node) {
        if let Some(owner) = node.owner() {
            self.shares.add(owner, 0);
        }
        self.by_name.insert(name, node);
    }

    fn remove(&mut self, name: &str) -> bool {
        let Some(node) = self.by_name.remove(name) else { return false };
        if let Some(owner) = node.owner() {
            self.shares.remove(owner, 0);
        }
        true
    }
}

#[derive(Debug, Clone)]
struct Node {
    config: Arc<NodeConfig>,
    affiliations: Vec<(Arc<str>, Affiliation)>,
}

impl Node {
    fn affiliation(&self, who: &str) -> Affiliation {
        self.affiliations
            .iter()
            .find(|(jid, _)| **jid == *who)
            .map_or(Affiliation::None, |(_, affiliation)| *affiliation)
    }

    /// The first of its owners, to whose share it counts.
    fn owner(&self) -> Option<&Arc<str>> {
        let mut owners = self.affiliations.iter().filter(|(_, affiliation)| *affiliation == Affiliation::Owner);
        owners.next().map(|(jid, _)| jid)
    }

    fn whitelisted(&self) -> bool {
        self.config.access_model == AccessModel::Whitelist
    }
}

/// Why a node was not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotMade {
    /// There is one.
    Exists,
    /// As many as there may be, or as this owner may have.
    Full(NoRoom),
    /// The name is too long.
    TooLong,
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
    nodes_max: usize,
    records: Records,
    /// Nodes as they were before changes that are not stored yet. Locked before `nodes`.
    doubts: Mutex<Doubts<Arc<str>, Option<Node>>>,
}

impl Nodes {
    /// The nodes that are kept.
    pub(super) fn new(nodes_max: usize, records: Records) -> Self {
        let mut nodes = Table::default();
        records.nodes(&mut |name, kept| {
            nodes.insert(name.into(), Node { config: shared(kept.config), affiliations: kept.affiliations });
        });
        let doubts = Mutex::default();
        Self { nodes: RwLock::new(nodes), changes: AtomicU64::new(0), nodes_max, records, doubts }
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

    /// Makes a node that belongs to `owner`.
    pub(super) fn create(
        &self,
        node: &str,
        owner: &Arc<str>,
        config: Option<NodeConfig>,
        made: Made,
        bus: &Bus,
    ) -> Result<Completion, NotMade> {
        let room = match made {
            Made::Asked => self.nodes_max,
            Made::Implied => self.nodes_max / 2,
        };
        let mut doubts = self.doubts();
        let mut nodes = self.write();
        if nodes.by_name.contains_key(node) {
            return Err(NotMade::Exists);
        }
        if node.len() > NAME_BYTES_MAX {
            return Err(NotMade::TooLong);
        }
        let own = nodes.shares.of(owner).count;
        bus.room(room).admit(nodes.by_name.len(), own, 1).map_err(NotMade::Full)?;
        let config = config.map_or_else(|| Arc::clone(&DEFAULT), shared);
        let affiliations = vec![(Arc::clone(owner), Affiliation::Owner)];
        // Under the lock, so that records are written in the order of changes; it never waits.
        let kept = self.records.node(node, &config, &affiliations);
        if matches!(kept, Completion::Failed) {
            return Err(NotMade::NotKept);
        }
        let name: Arc<str> = node.into();
        doubts.push(Arc::clone(&name), &kept, None);
        nodes.insert(name, Node { config, affiliations });
        Ok(kept)
    }

    /// Removes a node, unless the store does not take that.
    pub(super) fn remove(&self, node: &str) -> Completion {
        let mut doubts = self.doubts();
        let mut nodes = self.write();
        let Some((name, found)) = nodes.by_name.get_key_value(node) else { return Completion::Ready };
        let kept = self.records.no_node(node, &found.affiliations);
        if !matches!(kept, Completion::Failed) {
            doubts.push(Arc::clone(name), &kept, Some(found.clone()));
            nodes.remove(node);
        }
        kept
    }

    /// How `who` stands to the node; none when there is no such node.
    pub(super) fn affiliation(&self, node: &str, who: &str) -> Option<Affiliation> {
        self.read().by_name.get(node).map(|found| found.affiliation(who))
    }

    /// The configuration; the default where there is none.
    pub(super) fn config(&self, node: &str) -> Arc<NodeConfig> {
        self.read().by_name.get(node).map_or_else(|| Arc::clone(&DEFAULT), |found| Arc::clone(&found.config))
    }

    /// Configuration and affiliation at once.
    pub(super) fn standing(&self, node: &str, who: &str) -> Option<(Arc<NodeConfig>, Affiliation)> {
        self.read().by_name.get(node).map(|found| (Arc::clone(&found.config), found.affiliation(who)))
    }

    /// Puts another configuration in place, unless the store does not take it. Says whether what may be read has
    /// changed; none when there is no such node.
    pub(super) fn configure(&self, node: &str, config: NodeConfig) -> Option<(bool, Completion)> {
        let mut doubts = self.doubts();
        let mut nodes = self.write();
        let found = nodes.by_name.get_mut(node)?;
        let kept = self.records.node(node, &config, &found.affiliations);
        if matches!(kept, Completion::Failed) {
            return Some((false, kept));
        }
        doubts.push(node.into(), &kept, Some(found.clone()));
        let changed = found.config.access_model != config.access_model;
        found.config = shared(config);
        Some((changed, kept))
    }

    /// Whether owners let `who` read.
    pub(super) fn may_read(&self, node: &str, who: &str) -> bool {
        self.read().by_name.get(node).is_none_or(|found| found.affiliation(who).may_read(found.whitelisted()))
    }

    /// All affiliations of a node but `none`.
    pub(super) fn affiliations(&self, node: &str) -> Vec<(Arc<str>, Affiliation)> {
        self.read().by_name.get(node).map(|found| found.affiliations.clone()).unwrap_or_default()
    }

    /// The nodes that `who` has an affiliation with.
    pub(super) fn affiliations_of(&self, who: &str, node: Option<&str>) -> Vec<(Arc<str>, Affiliation)> {
        let nodes = self.read();
        let of = |(name, found): (&Arc<str>, &Node)| {
            let affiliation = found.affiliation(who);
            (affiliation != Affiliation::None).then(|| (Arc::clone(name), affiliation))
        };
        match node {
            Some(node) => nodes.by_name.get_key_value(node).and_then(of).into_iter().collect(),
            None => nodes.by_name.iter().filter_map(of).collect(),
        }
    }

    /// Changes affiliations, all or none; nothing when the node would have no owner or too many entries, or the store
    /// does not take it.
    pub(super) fn affiliate(&self, node: &str, changes: &[(Arc<str>, Affiliation)]) -> Option<Completion> {
        let mut doubts = self.doubts();
        let mut nodes = self.write();
        let found = nodes.by_name.get_mut(node)?;
        let mut affiliations = found.affiliations.clone();
        for (who, affiliation) in changes {
            affiliations.retain(|(jid, _)| jid != who);
            if *affiliation != Affiliation::None {
                affiliations.push((Arc::clone(who), *affiliation));
            }
        }
        let owned = affiliations.iter().any(|(_, affiliation)| *affiliation == Affiliation::Owner);
        if !owned || affiliations.len() > AFFILIATIONS_MAX {
            return None;
        }
        let kept = self.records.node(node, &found.config, &affiliations);
        if matches!(kept, Completion::Failed) {
            return Some(kept);
        }
        doubts.push(node.into(), &kept, Some(found.clone()));
        let before = found.owner().cloned();
        found.affiliations = affiliations;
        let after = found.owner().cloned();
        if let (Some(before), Some(after)) = (before, after) {
            nodes.shares.remove(&before, 0);
            nodes.shares.add(&after, 0);
        }
        Some(kept)
    }

    /// Names of nodes behind `after`, in order.
    pub(super) fn names(&self, after: Option<&str>, limit: usize) -> Vec<Arc<str>> {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let nodes = self.read();
        nodes.by_name.range::<str, _>((start, Bound::Unbounded)).take(limit).map(|(name, _)| Arc::clone(name)).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.read().by_name.len()
    }
}

/// Most nodes have the defaults, and share them.
fn shared(config: NodeConfig) -> Arc<NodeConfig> {
    if config == **DEFAULT { Arc::clone(&DEFAULT) } else { Arc::new(config) }
}

#[cfg(test)]
mod tests {
    use fogmux_bus::{BusConfig, Forgetful, Timestamp};

    use super::*;

    #[test]
    fn owners_narrow_and_cannot_vanish() {
        let nodes = Nodes::new(2, Records::default());
        let config = BusConfig { reserve_percent: 0, ..BusConfig::default() };
        let bus = Bus::new(&config, Box::new(Forgetful), Timestamp::ZERO, 0);
        let ada: Arc<str> = "ada@d".into();
        let bob: Arc<str> = "bob@d".into();
        assert!(nodes.may_read("n", "bob@d"));
        let create = |node: &str, owner: &Arc<str>, made| {
            nodes.create(node, owner, None, made, &bus).map(|kept| kept.is_ready())
        };
        assert_eq!(create("n", &ada, Made::Asked), Ok(true));
        assert_eq!(create("n", &bob, Made::Asked), Err(NotMade::Exists));
        assert_eq!(nodes.affiliation("n", "ada@d"), Some(Affiliation::Owner));
        assert!(nodes.affiliate("n", &[(Arc::clone(&bob), Affiliation::Outcast)]).is_some());
        assert!(!nodes.may_read("n", "bob@d") && nodes.may_read("n", "eve@d"));
        assert!(nodes.affiliate("n", &[(Arc::clone(&ada), Affiliation::None)]).is_none());
        let whitelist = NodeConfig { access_model: AccessModel::Whitelist, ..NodeConfig::default() };
        assert!(nodes.configure("n", whitelist).is_some_and(|(changed, _)| changed));
        assert!(!nodes.may_read("n", "eve@d") && nodes.may_read("n", "ada@d"));
        assert_eq!(create("m", &ada, Made::Implied), Err(NotMade::Full(NoRoom::Full)));
        assert_eq!(create("m", &ada, Made::Asked), Ok(true));
        assert_eq!(create("o", &ada, Made::Asked), Err(NotMade::Full(NoRoom::Full)));
        assert_eq!(nodes.names(Some("m"), 9), ["n".into()]);
    }
}
