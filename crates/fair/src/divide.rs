//! The part of a budget that each owner gets.

use std::collections::BTreeMap;

use crate::{Owner, owner::Node};

/// The size to which all have to come down for their sum to be `budget` at most: the largest. Sorts them.
#[must_use]
pub fn level(sizes: &mut [usize], budget: usize) -> usize {
    sizes.sort_unstable();
    let mut left = budget;
    for (index, size) in sizes.iter().enumerate() {
        let share = left / (sizes.len() - index);
        if *size > share {
            return share;
        }
        left -= size;
    }
    usize::MAX
}

/// Returns how much each owner keeps so that the sum is at most `budget`. Those that have most are reduced to a common
/// level, principals first, then networks, then hosts. An owner that has no more than its fair share keeps all of it.
#[must_use]
pub fn divide(owners: &[(Owner, usize)], budget: usize) -> Vec<usize> {
    let mut kept = vec![0; owners.len()];
    let all: Vec<Leaf> = owners.iter().enumerate().map(|(index, (owner, has))| Leaf::new(index, owner, *has)).collect();
    divide_below(all, budget, &mut kept);
    kept
}

/// An owner on the way down the tree.
struct Leaf {
    index: usize,
    has: usize,
    /// Its nodes, from itself to the one below what it has in common with the others.
    path: Vec<Node>,
}

impl Leaf {
    fn new(index: usize, owner: &Owner, has: usize) -> Self {
        let mut path = vec![owner.0.clone()];
        while let Some(parent) = path.last().and_then(Node::parent).filter(|parent| *parent != Node::All) {
            path.push(parent);
        }
        Self { index, has, path }
    }
}

fn divide_below(leaves: Vec<Leaf>, budget: usize, kept: &mut [usize]) {
    let mut nodes: BTreeMap<Option<Node>, Vec<Leaf>> = BTreeMap::new();
    for mut leaf in leaves {
        nodes.entry(leaf.path.pop()).or_default().push(leaf);
    }
    let sum = |leaves: &[Leaf]| leaves.iter().fold(0_usize, |sum, leaf| sum.saturating_add(leaf.has));
    let mut sizes: Vec<usize> = nodes.values().map(|leaves| sum(leaves)).collect();
    let level = level(&mut sizes, budget);
    for leaves in nodes.into_values() {
        let budget = sum(&leaves).min(level);
        match leaves.as_slice() {
            [one] => {
                if let Some(kept) = kept.get_mut(one.index) {
                    *kept = budget;
                }
            }
            _ if leaves.iter().all(|leaf| leaf.path.is_empty()) => {
                // The same owner more than once: in the order given.
                leaves.iter().fold(budget, |left, leaf| {
                    let part = leaf.has.min(left);
                    if let Some(kept) = kept.get_mut(leaf.index) {
                        *kept = part;
                    }
                    left - part
                });
            }
            _ => divide_below(leaves, budget, kept),
        }
    }
}
