//! The network of a repetition. It is kept for the next one, unless chance would go on in it where it has ended.

use crate::experiment::Experiment;
use crate::link::{Conditions, Laid, LinkError};
use crate::outcome::Outcome;

/// The last link, if there is one.
#[derive(Default)]
pub(super) struct Network {
    lies: Option<(String, Laid)>,
}

impl Network {
    /// The link; nothing on loopback.
    pub(super) fn laid(&self) -> Option<&Laid> {
        self.lies.as_ref().map(|(_, laid)| laid)
    }

    /// Lays the link that the experiment asks for, unless it lies already. Repetition `number` loses the same frames
    /// whenever it is done, and others than the repetition before.
    pub(super) fn lay(&mut self, experiment: &Experiment, number: u32) -> Result<(), LinkError> {
        let (link, seed) = (experiment.link.as_str(), seed(experiment.seed, number));
        // Even with the same seed, draws would go on where they have ended.
        if self.lies.as_ref().is_some_and(|(name, laid)| name == link && laid.seed().is_none()) {
            return Ok(());
        }
        // Its names are free only then.
        self.lies = None;
        let conditions: Conditions = link.parse()?;
        if !conditions.is_loopback() {
            self.lies = Some((link.to_owned(), Laid::lay(&conditions, seed)?));
        }
        Ok(())
    }

    /// Notes by what frames were lost, and whether they would be again.
    pub(super) fn note(&self, outcome: &mut Outcome) {
        let Some((name, laid)) = &self.lies else { return };
        if name.parse::<Conditions>().is_ok_and(|conditions| conditions.is_lossy()) {
            outcome.loss_by = Some(laid.means().to_string());
            outcome.loss_seed = laid.seed();
        }
    }
}

/// The seed of one repetition: the experiment's own for the first, and for others a value of their own (SplitMix64,
/// Steele et al. 2014).
fn seed(seed: u64, number: u32) -> u64 {
    if number == 0 {
        return seed;
    }
    let state = seed.wrapping_add(u64::from(number).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_repetition_has_a_seed_of_its_own_and_always_the_same() {
        let mut seeds: Vec<u64> = (0..1_000).map(|number| seed(7, number)).collect();
        assert_eq!(seeds[0], 7);
        assert_eq!(seeds, (0..1_000).map(|number| seed(7, number)).collect::<Vec<_>>());
        seeds.sort_unstable();
        seeds.dedup();
        assert_eq!(seeds.len(), 1_000);
        assert_ne!(seed(7, 1), seed(8, 1));
    }
}
