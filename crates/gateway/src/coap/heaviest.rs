//! The observations that end when all of a socket hold too much: those of the owner that holds most, the one with most
//! first (ADR 0036). Otherwise many observations with little each would end one with more.

use std::collections::HashMap;

use fogmux_fair::{Owner, Room};
use foldhash::quality::RandomState;

/// Observations by owner, in the order in which they end.
pub(super) struct Heaviest<T> {
    owners: Room<Held<T>>,
}

/// The observations of an owner, the one with most last.
struct Held<T> {
    observations: Vec<(usize, T)>,
    /// The sum of what they hold.
    all: usize,
}

impl<T: Ord> Heaviest<T> {
    /// Observations with their owners and what each holds.
    pub(super) fn of(observations: impl Iterator<Item = (Owner, usize, T)>) -> Self {
        let mut by_owner: HashMap<Owner, Vec<(usize, T)>, RandomState> = HashMap::default();
        for (owner, holds, observation) in observations {
            by_owner.entry(owner).or_default().push((holds, observation));
        }
        let mut owners = Room::new(0);
        for (owner, mut observations) in by_owner {
            observations.sort_unstable();
            let all = observations.iter().map(|(holds, _)| holds).sum();
            owners.enter(owner, all, Held { observations, all });
        }
        Self { owners }
    }
}

impl<T> Iterator for Heaviest<T> {
    type Item = (Owner, T);

    fn next(&mut self) -> Option<Self::Item> {
        let owner = self.owners.heaviest()?;
        let (number, _) = self.owners.of_owner(&owner).next()?;
        let held = self.owners.get_mut(number)?;
        let (holds, observation) = held.observations.pop()?;
        held.all -= holds;
        let left = held.all;
        self.owners.set(number, left);
        Some((owner, observation))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_holds_most_in_all_loses_the_largest_first() {
        let owner = |last: u8| Owner::nameless([192, 0, 2, last].into());
        let many = (0..10).map(|number| (owner(1), 10 + number, number));
        let one = [(owner(2), 60, 100), (owner(3), 0, 101)];
        let ended: Vec<usize> = Heaviest::of(many.chain(one)).map(|(_, observation)| observation).collect();
        // Those of the first hold 145 to begin with; the others, 60.
        assert_eq!(ended, [9, 8, 7, 6, 5, 100, 4, 3, 2, 1, 0]);
    }
}
