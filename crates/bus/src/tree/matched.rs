//! The subscriptions that match a topic.

use std::sync::Arc;

use super::{Leaf, ROOT, Tree};
use crate::route::Sub;

/// The subscriptions that match a topic.
#[derive(Default)]
pub(crate) struct Matched {
    pub(crate) direct: Vec<Arc<Sub>>,
    pub(crate) groups: Vec<Vec<Arc<Sub>>>,
    /// Nodes that were looked at.
    nodes: usize,
}

impl Matched {
    /// The work of finding them and of building routes from them, in deliveries: a node takes some 20 nanoseconds, and
    /// a subscription some 100, whether it becomes a delivery of its own or not.
    pub(crate) fn work(&self) -> u64 {
        let subscriptions = self.direct.len() + self.groups.iter().map(Vec::len).sum::<usize>();
        (self.nodes / 2 + 2 * subscriptions) as u64
    }

    fn take(&mut self, leaf: Option<&Leaf>) {
        let Some(leaf) = leaf else { return };
        self.direct.extend(leaf.direct.iter().cloned());
        self.groups.extend(leaf.groups.values().cloned());
    }
}

impl Tree {
    /// Finds the subscriptions whose filter matches a topic. A leading wildcard does not match `$`-topics
    /// ([MQTT-4.7.2-1]).
    pub(crate) fn matching(&self, topic: &str) -> Matched {
        let mut matched = Matched::default();
        let hidden = topic.starts_with('$');
        let mut layer: Vec<u32> = vec![ROOT];
        let mut next: Vec<u32> = Vec::new();
        for (depth, level) in topic.split('/').enumerate() {
            let wild = !(hidden && depth == 0);
            matched.nodes += layer.len();
            for &id in &layer {
                let Some(node) = self.node(id) else { continue };
                if wild {
                    matched.take(node.below.as_deref());
                    next.extend(node.plus);
                }
                next.extend(node.children.get(level));
            }
            std::mem::swap(&mut layer, &mut next);
            next.clear();
            if layer.is_empty() {
                return matched;
            }
        }
        matched.nodes += layer.len();
        for &id in &layer {
            let Some(node) = self.node(id) else { continue };
            matched.take(node.here.as_deref());
            matched.take(node.below.as_deref());
        }
        matched
    }
}
