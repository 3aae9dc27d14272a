//! A room that owners fill together (ADR 0036). While there is room nobody is limited. When it is overfull, entries of
//! the owner that has most give way, so an owner that has no more than its fair share never loses an entry and always
//! gets another.
//!
//! Pure data: no lock, no clock, no I/O.

mod divide;
mod owner;

use std::collections::{BTreeMap, BTreeSet, HashMap};

pub use divide::{divide, level};
use owner::Node;
pub use owner::Owner;

/// Oldest entries of an owner among which one that rests is looked for.
const OLDEST: usize = 8;

/// Entries with their weights. `T` is whatever belongs to an entry.
#[derive(Debug)]
pub struct Room<T> {
    weight_max: usize,
    /// The number of the next entry: numbers are never used twice and grow with time.
    next: u64,
    entries: HashMap<u64, Entry<T>>,
    /// The entries of each owner, by age.
    by_owner: BTreeSet<(Owner, u64)>,
    /// The weight of each node that has some.
    weights: BTreeMap<Node, usize>,
    /// The same, by parent and weight.
    by_weight: BTreeSet<(Node, usize, Node)>,
}

#[derive(Debug)]
struct Entry<T> {
    owner: Owner,
    weight: usize,
    value: T,
}

/// An entry that gave way.
#[derive(Debug, PartialEq, Eq)]
pub struct GaveWay<T> {
    /// Its number.
    pub number: u64,
    /// Its owner.
    pub owner: Owner,
    /// Its value.
    pub value: T,
}

impl<T> Room<T> {
    /// An empty room for entries of `weight_max` together.
    #[must_use]
    pub fn new(weight_max: usize) -> Self {
        Self {
            weight_max,
            next: 0,
            entries: HashMap::new(),
            by_owner: BTreeSet::new(),
            weights: BTreeMap::new(),
            by_weight: BTreeSet::new(),
        }
    }

    /// The weight of all entries.
    #[must_use]
    pub fn weight(&self) -> usize {
        self.weight_of(&Node::All)
    }

    /// The weight of an owner's entries.
    #[must_use]
    pub fn weight_of_owner(&self, owner: &Owner) -> usize {
        self.weight_of(&owner.0)
    }

    /// The number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The room that is left.
    #[must_use]
    pub fn free(&self) -> usize {
        self.weight_max.saturating_sub(self.weight())
    }

    /// Whether entries have to give way.
    #[must_use]
    pub fn is_overfull(&self) -> bool {
        self.weight() > self.weight_max
    }

    /// Adds an entry. Returns its number.
    pub fn enter(&mut self, owner: Owner, weight: usize, value: T) -> u64 {
        let number = self.next;
        self.next += 1;
        self.change(&owner, 0, weight);
        self.by_owner.insert((owner.clone(), number));
        self.entries.insert(number, Entry { owner, weight, value });
        number
    }

    /// Changes an entry's weight. False if there is no such entry any more.
    pub fn set(&mut self, number: u64, weight: usize) -> bool {
        let Some(entry) = self.entries.get_mut(&number) else { return false };
        let before = std::mem::replace(&mut entry.weight, weight);
        let owner = entry.owner.clone();
        self.change(&owner, before, weight);
        true
    }

    /// The value of an entry.
    #[must_use]
    pub fn get(&self, number: u64) -> Option<&T> {
        self.entries.get(&number).map(|entry| &entry.value)
    }

    /// The value of an entry, to be changed.
    #[must_use]
    pub fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        self.entries.get_mut(&number).map(|entry| &mut entry.value)
    }

    /// Removes an entry.
    pub fn leave(&mut self, number: u64) -> Option<T> {
        let Entry { owner, weight, value } = self.entries.remove(&number)?;
        self.change(&owner, weight, 0);
        self.by_owner.remove(&(owner, number));
        Some(value)
    }

    /// The owner that has most: of the principals, with all nameless clients as one of them; of those the network, and
    /// of its hosts the one.
    #[must_use]
    pub fn heaviest(&self) -> Option<Owner> {
        self.heaviest_from(Node::All)
    }

    /// The owner that has most of those who share with this one: itself if it is a principal, else of all nameless
    /// clients.
    #[must_use]
    pub fn heaviest_beside(&self, owner: &Owner) -> Option<Owner> {
        if owner.is_principal() {
            return (self.weight_of_owner(owner) > 0).then(|| owner.clone());
        }
        self.heaviest_from(Node::Nameless)
    }

    /// The owner of which an entry gives way to the newest of `owner`, whose weight is counted already: one that has
    /// more than it where their shares part. `None` if none has more: among equals nobody gives way to another.
    #[must_use]
    pub fn heavier_than(&self, owner: &Owner) -> Option<Owner> {
        let mut path = vec![owner.0.clone()];
        while let Some(parent) = path.last().and_then(Node::parent) {
            path.push(parent);
        }
        path.reverse();
        let mut levels = path.iter().zip(path.iter().skip(1));
        let top = levels.find_map(|(parent, own)| {
            let heaviest = self.heaviest_below(parent)?;
            (self.weight_of(&heaviest) > self.weight_of(own)).then_some(heaviest)
        })?;
        self.heaviest_from(top.clone()).or(Some(Owner(top)))
    }

    fn heaviest_from(&self, mut node: Node) -> Option<Owner> {
        let top = node.clone();
        while let Some(heaviest) = self.heaviest_below(&node) {
            node = heaviest;
        }
        (node != top).then_some(Owner(node))
    }

    /// An owner's entries, the oldest first.
    pub fn of_owner(&self, owner: &Owner) -> impl DoubleEndedIterator<Item = (u64, &T)> {
        let all = self.by_owner.range((owner.clone(), 0)..=(owner.clone(), u64::MAX));
        all.filter_map(|(_, number)| Some((*number, &self.entries.get(number)?.value)))
    }

    /// Removes the entry that gives way next, if the room is overfull: one of the owner that has most. Of its oldest
    /// entries the one that has rested for longest goes, as `rests` tells; if none rests, its newest, so that older
    /// ones come to an end.
    pub fn give_way<R: Ord>(&mut self, rests: impl Fn(&T) -> Option<R>) -> Option<GaveWay<T>> {
        if !self.is_overfull() {
            return None;
        }
        let owner = self.heaviest()?;
        let resting = self.of_owner(&owner).take(OLDEST);
        let resting = resting.filter_map(|(number, value)| Some((rests(value)?, number)));
        let longest = resting.reduce(|longest, other| if other.0 > longest.0 { other } else { longest });
        let number = longest.map(|(_, number)| number).or_else(|| Some(self.of_owner(&owner).next_back()?.0))?;
        Some(GaveWay { number, value: self.leave(number)?, owner })
    }

    fn weight_of(&self, node: &Node) -> usize {
        self.weights.get(node).copied().unwrap_or(0)
    }

    fn heaviest_below(&self, parent: &Node) -> Option<Node> {
        let mut below = self.by_weight.range(..(parent.clone(), usize::MAX, Node::All));
        below.next_back().filter(|(of, ..)| of == parent).map(|(_, _, node)| node.clone())
    }

    fn change(&mut self, owner: &Owner, before: usize, after: usize) {
        let mut next = (before != after).then(|| owner.0.clone());
        while let Some(node) = next {
            let old = self.weight_of(&node);
            let new = old.saturating_sub(before).saturating_add(after);
            next = node.parent();
            if let Some(parent) = &next {
                self.by_weight.remove(&(parent.clone(), old, node.clone()));
                if new > 0 {
                    self.by_weight.insert((parent.clone(), new, node.clone()));
                }
            }
            if new > 0 {
                self.weights.insert(node, new);
            } else {
                self.weights.remove(&node);
            }
        }
    }
}

#[cfg(test)]
mod tests;
