//! A node's configuration and affiliations, the bytes that each part of them takes, and who pays for it (ADR 0068).

use std::sync::Arc;

use fogmux_bus::{COUNTS_BYTES, allocation};
use fogmux_xmpp::pubsub::{AccessModel, Affiliation, NodeConfig};

use super::super::kept::{STORED_BYTES, node_key_bytes};

/// Affiliations of one node.
pub(super) const AFFILIATIONS_MAX: usize = 256;

/// An affiliation, and the principal that pays for it: whoever added it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::xmpp) struct Affiliate {
    pub(in crate::xmpp) jid: Arc<str>,
    pub(in crate::xmpp) affiliation: Affiliation,
    pub(in crate::xmpp) payer: Arc<str>,
}

impl Affiliate {
    fn bytes(&self) -> usize {
        size_of::<Self>() + shared_text(&self.jid)
    }
}

/// A node with a configuration or affiliations of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::xmpp) struct Node {
    /// The principal that made the node, and pays for its place and its name as long as it is there.
    pub(in crate::xmpp) payer: Arc<str>,
    pub(in crate::xmpp) config: Arc<NodeConfig>,
    /// The principal that pays for the configuration: the last one to make it larger.
    pub(in crate::xmpp) config_payer: Arc<str>,
    pub(in crate::xmpp) affiliates: Vec<Affiliate>,
}

impl Node {
    pub(super) fn affiliation(&self, who: &str) -> Affiliation {
        self.affiliates
            .iter()
            .find(|affiliate| *affiliate.jid == *who)
            .map_or(Affiliation::None, |affiliate| affiliate.affiliation)
    }

    pub(super) fn whitelisted(&self) -> bool {
        self.config.access_model == AccessModel::Whitelist
    }

    /// Another configuration, for which `by` pays if it is larger.
    pub(super) fn configured(&self, config: Arc<NodeConfig>, by: &Arc<str>) -> Self {
        let (before, after) = (config_bytes(&self.config), config_bytes(&config));
        let payer = match after {
            // The defaults cost nothing, and have no record.
            0 => &self.payer,
            _ if after > before => by,
            _ => &self.config_payer,
        };
        let config_payer = Arc::clone(payer);
        Self { config, config_payer, ..self.clone() }
    }

    /// Other affiliations; `by` pays for those that are added. `None` if the node would have no owner, or too many.
    pub(super) fn affiliated(&self, changes: &[(Arc<str>, Affiliation)], by: &Arc<str>) -> Option<Self> {
        let mut affiliates = self.affiliates.clone();
        for (jid, affiliation) in changes {
            let at = affiliates.iter().position(|affiliate| affiliate.jid == *jid);
            match (at.and_then(|at| affiliates.get_mut(at)), at) {
                (_, Some(at)) if *affiliation == Affiliation::None => drop(affiliates.remove(at)),
                (Some(there), _) => there.affiliation = *affiliation,
                (None, _) if *affiliation == Affiliation::None => {}
                (None, _) => {
                    let (jid, payer) = (Arc::clone(jid), Arc::clone(by));
                    affiliates.push(Affiliate { jid, affiliation: *affiliation, payer });
                }
            }
        }
        let owned = affiliates.iter().any(|affiliate| affiliate.affiliation == Affiliation::Owner);
        affiliates.shrink_to_fit();
        (owned && affiliates.len() <= AFFILIATIONS_MAX).then(|| Self { affiliates, ..self.clone() })
    }

    /// The parts of the node, each with the principal that pays for it and its bytes of the heap.
    pub(super) fn parts(&self, name: &str) -> impl Iterator<Item = (&Arc<str>, usize)> {
        // A node of a B-tree has room for eleven entries, and half of it is in use when names come in order.
        let place = 2 * (size_of::<(Arc<str>, Self)>()) + shared_text(name) + shared_text(&self.payer);
        let stored = STORED_BYTES + allocation(node_key_bytes(name));
        let config = (&self.config_payer, config_bytes(&self.config) + self.name_bytes(&self.config_payer));
        let affiliates = self.affiliates.iter().map(|one| (&one.payer, one.bytes() + self.name_bytes(&one.payer)));
        [(&self.payer, place + stored), config].into_iter().chain(affiliates)
    }

    /// The bytes of the node, and those of them that `who` pays for.
    pub(super) fn bytes(&self, name: &str, who: &str) -> (usize, usize) {
        self.parts(name)
            .fold((0, 0), |(all, own), (payer, bytes)| (all + bytes, own + bytes * usize::from(**payer == *who)))
    }

    /// The name of a principal that pays for a part is held once for all nodes, as long as there is such a part.
    fn name_bytes(&self, payer: &Arc<str>) -> usize {
        if *payer == self.payer { 0 } else { shared_text(payer) }
    }
}

fn shared_text(text: &str) -> usize {
    allocation(COUNTS_BYTES + text.len())
}

/// Most nodes have the defaults, which all of them share.
fn config_bytes(config: &NodeConfig) -> usize {
    if *config == NodeConfig::default() {
        return 0;
    }
    let text = |text: &Option<Box<str>>| text.as_ref().map_or(0, |text| allocation(text.len()));
    allocation(COUNTS_BYTES + size_of::<NodeConfig>()) + text(&config.title) + text(&config.description)
}
