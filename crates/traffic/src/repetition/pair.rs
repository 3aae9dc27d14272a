//! Two programs in turn: A B B A, then B A A B.

use super::{FAILURES_IN_A_ROW, TRIES_EACH, UNTIL_MIN, Void, amount, is_look, keep_whole_rounds};
use crate::outcome::{Outcome, Run};
use crate::report::compare::is_narrow;

/// One of the two programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The first.
    A,
    /// The second.
    B,
}

/// Repetitions of each side in a round.
pub const EACH: usize = 2;

/// How many rounds there are; each has two repetitions of either side.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rounds {
    /// At least so many in which the generator was nowhere the limit.
    pub wanted: u32,
    /// More until the intervals of the ratios are at most this share wide to both sides, if asked for.
    pub until: Option<f64>,
    /// But at most so many.
    pub most: u32,
}

impl Rounds {
    /// A fixed number, or more until the ratios are known to this share, up to `most`. Fewer than six show nothing.
    #[must_use]
    pub fn of(wanted: u32, until: Option<f64>, most: u32) -> Self {
        let wanted = wanted.max(UNTIL_MIN);
        Self { wanted, until, most: if until.is_some() { most.max(wanted) } else { wanted } }
    }
}

/// Measures two programs in rounds. A round in which a repetition failed is dropped, and it and each in which the
/// generator was the limit are replaced, as [`super::interleave`] does; one that was stopped is the last. `execute` is
/// given the side and the number of the round, and `note` is told the result of each. Runs that have rounds already go
/// on.
pub async fn alternate(
    runs: [Run; 2],
    rounds: Rounds,
    mut execute: impl AsyncFnMut(Side, u32) -> Result<Outcome, Void>,
    mut note: impl FnMut(Round<'_>),
) -> [Run; 2] {
    let [mut a, mut b] = whole_rounds(runs);
    let mut tries = amount(a.outcomes.len() / EACH + a.failed.len() + b.failed.len());
    let mut failures_in_a_row = if a.outcomes.is_empty() { tries } else { 0 };
    while failures_in_a_row < FAILURES_IN_A_ROW && is_open(&a, &b, rounds, tries) {
        match round(tries, &mut execute).await {
            Ok([of_a, of_b]) => {
                failures_in_a_row = 0;
                note(Round::Done([&of_a, &of_b]));
                a.outcomes.extend(of_a);
                b.outcomes.extend(of_b);
            }
            Err((_, Void::Stopped(why))) => return [a, b].map(|run| Run { problem: Some(why.clone()), ..run }),
            Err((side, Void::Failed(problem))) => {
                failures_in_a_row += 1;
                note(Round::Failed(side, &problem));
                let failed = match side {
                    Side::A => &mut a.failed,
                    Side::B => &mut b.failed,
                };
                failed.push(problem);
            }
        }
        tries += 1;
    }
    for run in [&mut a, &mut b] {
        if amount(run.outcomes.len() / EACH) < rounds.wanted {
            let too_few = || format!("{} of {} rounds", run.outcomes.len() / EACH, rounds.wanted);
            run.problem = Some(run.failed.last().cloned().unwrap_or_else(too_few));
        }
    }
    [a, b]
}

/// The result of a round.
#[derive(Clone, Copy, Debug)]
pub enum Round<'a> {
    /// Its repetitions, of either side.
    Done([&'a [Outcome]; 2]),
    /// It was dropped: a repetition of this side failed for this reason.
    Failed(Side, &'a str),
}

/// Both runs without what is left of a round of which the journal has only a part.
fn whole_rounds(mut runs: [Run; 2]) -> [Run; 2] {
    keep_whole_rounds(&mut runs, EACH);
    runs.map(|run| Run { problem: None, ..run })
}

/// Does one round: both repetitions of each side, or the first failure.
async fn round(
    number: u32,
    execute: &mut impl AsyncFnMut(Side, u32) -> Result<Outcome, Void>,
) -> Result<[Vec<Outcome>; 2], (Side, Void)> {
    let order = if number.is_multiple_of(2) {
        [Side::A, Side::B, Side::B, Side::A]
    } else {
        [Side::B, Side::A, Side::A, Side::B]
    };
    let [mut a, mut b] = [Vec::new(), Vec::new()];
    for side in order {
        let outcome = execute(side, number).await.map_err(|void| (side, void))?;
        match side {
            Side::A => a.push(outcome),
            Side::B => b.push(outcome),
        }
    }
    Ok([a, b])
}

fn is_open(a: &Run, b: &Run, rounds: Rounds, tries: u32) -> bool {
    let is_free = |outcomes: &[Outcome]| outcomes.iter().all(|outcome| outcome.limited_by_generator.is_none());
    let pairs = a.outcomes.chunks_exact(EACH).zip(b.outcomes.chunks_exact(EACH));
    let done = amount(a.outcomes.len() / EACH);
    let usable = amount(pairs.filter(|(a, b)| is_free(a) && is_free(b)).count());
    let is_bound = usable == 0 && done >= rounds.wanted;
    let is_done = |share| usable >= rounds.most || (is_look(usable, rounds.wanted) && is_narrow(a, b, share));
    let wants_more = usable < rounds.wanted || rounds.until.is_some_and(|share| !is_done(share));
    tries < rounds.most.saturating_mul(TRIES_EACH) && !is_bound && wants_more
}

#[cfg(test)]
mod tests {
    use super::super::tests::{good, limited, now};
    use super::*;
    use crate::experiment::Experiment;

    fn alternated(rounds: Rounds, mut execute: impl FnMut(Side, u32) -> Result<Outcome, String>) -> [Run; 2] {
        let execute = async |side, number| execute(side, number).map_err(Void::Failed);
        now(alternate(runs(), rounds, execute, |_| {}))
    }

    fn runs() -> [Run; 2] {
        ["A", "B"].map(|side| Run::of(Experiment::default(), side.to_owned()))
    }

    #[test]
    fn sides_alternate_so_that_a_drift_cancels() {
        let mut order = String::new();
        let [a, b] = alternated(Rounds::of(6, None, 6), |side, _| {
            order.push_str(if side == Side::A { "A" } else { "B" });
            Ok(good(order.len() as u64))
        });
        assert_eq!(order, "ABBABAAB".repeat(3));
        let sum = |run: &Run| run.outcomes.iter().map(|outcome| outcome.delivered).sum::<u64>();
        assert_eq!((sum(&a), a.outcomes.len()), (sum(&b), b.outcomes.len()));
    }

    #[test]
    fn a_round_that_failed_or_was_limited_is_replaced() {
        let mut tries = 0;
        let [a, b] = alternated(Rounds::of(6, None, 6), |side, round| {
            tries += 1;
            match (side, round) {
                (Side::B, 1) => Err("the gateway died".to_owned()),
                (Side::A, 2) => Ok(limited()),
                _ => Ok(good(100)),
            }
        });
        assert_eq!((a.outcomes.len(), b.outcomes.len(), tries), (14, 14, 29));
        assert_eq!(
            (a.failed.len(), b.failed.as_slice(), a.problem, b.problem),
            (0, &["the gateway died".to_owned()][..], None, None)
        );
    }

    #[test]
    fn a_round_that_is_stopped_is_the_last_and_not_counted() {
        let execute = async |side, round| match (side, round) {
            (Side::B, 2) => Err(Void::Stopped("ended by SIGINT".to_owned())),
            (Side::A | Side::B, _) => Ok(good(1)),
        };
        for run in now(alternate(runs(), Rounds::of(6, None, 6), execute, |_| {})) {
            assert_eq!((run.outcomes.len(), run.problem.as_deref()), (4, Some("ended by SIGINT")));
            assert!(run.failed.is_empty());
        }
    }

    #[test]
    fn a_pair_that_was_interrupted_goes_on_with_whole_rounds() {
        let [mut a, mut b] = runs();
        (a.outcomes, b.outcomes) = (vec![good(1); 6], vec![good(1); 5]);
        b.failed = vec!["the gateway died".to_owned()];
        let (mut first, mut noted) = (None, 0);
        let execute = async |_, round| {
            first.get_or_insert(round);
            Ok(good(1))
        };
        let note = |round: Round<'_>| noted += i32::from(matches!(round, Round::Done([[_, _], [_, _]])));
        let [a, b] = now(alternate([a, b], Rounds::of(6, None, 6), execute, note));
        assert_eq!((a.outcomes.len(), b.outcomes.len(), first, noted), (12, 12, Some(3), 4));
    }

    #[test]
    fn tries_are_bounded() {
        let [a, b] = alternated(Rounds::of(6, None, 6), |side, _| match side {
            Side::A => Ok(good(1)),
            Side::B => Err("it does not start".to_owned()),
        });
        assert_eq!((a.outcomes.len(), b.failed.len(), b.problem.as_deref()), (0, 3, Some("it does not start")));
        let [a, _] = alternated(Rounds::of(6, None, 6), |_, _| Ok(limited()));
        assert_eq!((a.outcomes.len(), a.problem), (12, None));
        let [a, _] = alternated(Rounds::of(6, Some(0.000_1), 20), |side, round| {
            Ok(good(1_000 + 97 * u64::from(round % 5) * u64::from(side == Side::B)))
        });
        assert_eq!(a.outcomes.len(), 40);
    }
}
