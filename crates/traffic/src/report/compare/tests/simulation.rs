//! False alarms among reports of the same thing, and what is found of a slowdown, with synthetic noise under fixed
//! seeds.
//!
//! A repetition has six figures: rate, processor time, cycles, instructions, memory and bytes of a message. Those of
//! time share most of their noise, as they do on a machine. Cycles have the noise of a 99th percentile, and
//! instructions that of a median: histograms would take most of the time here.

use super::*;
use crate::measure::statistics::simulation::Random;
use crate::outcome::Bytes;

/// A machine on which the generator runs.
#[derive(Clone, Copy)]
struct Machine {
    name: &'static str,
    /// Standard deviation of a repetition.
    scatter: f64,
    /// How often a repetition is disturbed and takes half as long again, or twice as long.
    disturbed: f64,
    /// Standard deviation of what changes slowly, a tenth from one repetition to the next.
    drift: f64,
    /// Standard deviation of a session as a whole.
    session: f64,
}

const QUIET: Machine = Machine { name: "quiet", scatter: 0.02, disturbed: 0.0, drift: 0.005, session: 0.01 };
/// Two shared vCPUs: consecutive pairs of 0.6 s scatter by 11 %, and sessions differ as [`SESSION`] says.
const SHARED: Machine = Machine { name: "shared", scatter: 0.08, disturbed: 0.03, drift: 0.02, session: 0.02 };
const DISTURBED: Machine = Machine { name: "disturbed", disturbed: 0.10, ..SHARED };
/// Reports of such a machine cannot be compared; rounds can.
const DRIFTING: Machine = Machine { name: "drifting", drift: 0.10, session: 0.10, ..SHARED };

impl Machine {
    fn begin(self, random: &mut Random) -> Session {
        let [session, drifted] = [self.session, self.drift].map(|deviation| deviation * random.normal());
        Session { machine: self, session, drifted }
    }
}

/// The state of a machine while repetitions follow one another.
struct Session {
    machine: Machine,
    session: f64,
    drifted: f64,
}

impl Session {
    /// A repetition of something that takes `cost` times as long as usual.
    fn repetition(&mut self, random: &mut Random, cost: f64) -> Figures {
        let Machine { scatter, disturbed, drift, .. } = self.machine;
        self.drifted = REMAINS * self.drifted + (1.0 - REMAINS * REMAINS).sqrt() * drift * random.normal();
        let stalled = if random.uniform() < disturbed { 1.5 + 0.5 * random.uniform() } else { 1.0 };
        let shared = self.session + self.drifted + 0.8 * scatter * random.normal();
        let mut time = |usual: f64, own: f64| usual * cost * stalled * (shared + own * scatter * random.normal()).exp();
        let (rate, instructions, cycles) = (1e4 / time(1.0, 0.6), time(2e3, 0.6), time(9e3, 1.5));
        // Processor time is not waiting time: it scatters by half as much, and stalls do not count.
        let cpu_us = 10.0 * cost * (shared / 2.0 + 0.3 * scatter * random.normal()).exp();
        let peak_resident_bytes = 13e6 * (0.02 * random.normal()).exp();
        Figures { rate, cpu_us, instructions, cycles, peak_resident_bytes }
    }
}

/// Of a drift, from one repetition to the next.
const REMAINS: f64 = 0.9;

/// The figures of a repetition, of one message where they are not of all.
#[derive(Clone, Copy)]
struct Figures {
    rate: f64,
    cpu_us: f64,
    instructions: f64,
    cycles: f64,
    peak_resident_bytes: f64,
}

impl Figures {
    const NAMES: [Figure; 5] =
        [Figure::Rate, Figure::GatewayCpu, Figure::Instructions, Figure::Cycles, Figure::PeakMemory];

    fn all(self) -> [f64; 5] {
        [self.rate, self.cpu_us, self.instructions, self.cycles, self.peak_resident_bytes]
    }

    /// Writes them into an outcome: making new ones, with their histograms, would take most of the time.
    #[expect(clippy::cast_possible_truncation, reason = "below 2^53")]
    fn write(self, outcome: &mut Outcome) {
        let delivered = (self.rate * 1e5).round();
        outcome.gateway = Some(ProcessUse {
            cpu_us: self.cpu_us * delivered,
            peak_resident_bytes: self.peak_resident_bytes as u64,
            instructions: Some((self.instructions * delivered) as u64),
            cycles: Some((self.cycles * delivered) as u64),
            ..ProcessUse::default()
        });
        let delivered = delivered as u64;
        outcome.bytes = Bytes { protocol_up: 70 * delivered, protocol_down: 4 * delivered, ..Bytes::default() };
        outcome.seconds = 1e5;
        (outcome.sent, outcome.acknowledged) = (delivered, delivered);
        (outcome.expected, outcome.delivered) = (delivered, delivered);
    }
}

/// A report of one experiment and so many repetitions, yet empty.
fn blank(repetitions: usize) -> Report {
    of_outcomes(vec![Outcome::default(); repetitions])
}

/// Fills a report.
fn simulate(report: &mut Report, machine: Machine, cost: f64, random: &mut Random) {
    let mut session = machine.begin(random);
    report.runs[0].outcomes.iter_mut().for_each(|outcome| session.repetition(random, cost).write(outcome));
}

fn blank_rounds() -> [Run; 2] {
    ["A", "B"].map(|target| Run {
        outcomes: vec![Outcome::default(); 2 * ROUNDS],
        ..Run::of(Experiment::default(), target.to_owned())
    })
}

/// Fills both sides of paired runs: A B B A, B A A B, …
fn simulate_rounds([a, b]: &mut [Run; 2], machine: Machine, cost: f64, random: &mut Random) {
    let mut session = machine.begin(random);
    let [mut of_a, mut of_b] = [a, b].map(|side| side.outcomes.iter_mut());
    for round in 0..ROUNDS {
        for place in 0..4 {
            let is_inner = place == 1 || place == 2;
            let (side, cost) = if is_inner == (round % 2 == 0) { (&mut of_b, cost) } else { (&mut of_a, 1.0) };
            session.repetition(random, cost).write(side.next().unwrap());
        }
    }
}

/// The changes between two reports of many experiments, as `compare` finds them, without the reports.
fn simulated_matrix(machine: Machine, experiments: usize, repetitions: usize, random: &mut Random) -> Vec<Change> {
    let sides = [1, 2].map(|_| {
        let mut session = machine.begin(random);
        let mut runs = vec![Vec::new(); experiments];
        for _ in 0..repetitions {
            runs.iter_mut().for_each(|run| run.push(session.repetition(random, 1.0).all()));
        }
        runs
    });
    let mut findings = Vec::new();
    for (before, after) in sides[0].iter().zip(&sides[1]) {
        for (at, figure) in Figures::NAMES.into_iter().enumerate() {
            let [before, after] = [before, after].map(|run| run.iter().map(|all| all[at]).collect::<Vec<_>>());
            let Difference { ratio, p } = Difference::between(&before, &after, SESSION).unwrap();
            let test = Test::Ratio { ratio, p, floor: None };
            findings.push(Finding { experiment: String::new(), figure, before: 1.0, after: 1.0, effect: None, test });
        }
    }
    Rule { hidden: HIDDEN }.judge(findings)
}

/// How many of a hundred comparisons conclude this.
fn of_hundred(seed: u64, mut is_it: impl FnMut(&mut Random) -> bool) -> usize {
    (0..100).filter(|number| is_it(&mut Random::of(seed * 1_000 + number))).count()
}

fn is_regression(comparison: &Comparison) -> bool {
    comparison.conclusion() == Conclusion::Regression
}

fn differs(comparison: &Comparison) -> bool {
    comparison.count(Verdict::Regression) + comparison.count(Verdict::Improvement) > 0
}

const MACHINES: [Machine; 3] = [QUIET, SHARED, DISTURBED];

#[test]
fn reports_of_the_same_thing_differ_in_at_most_five_of_a_hundred_pairs() {
    for (seed, repetitions) in [(1, 5), (2, 3)] {
        let [mut before, mut after] = [1, 2].map(|_| blank(repetitions));
        for machine in MACHINES {
            let alarms = of_hundred(seed, |random| {
                [&mut before, &mut after].into_iter().for_each(|report| simulate(report, machine, 1.0, random));
                differs(&compare(&before, &after, SESSION))
            });
            println!("{repetitions} repetitions on a {} machine: {alarms} false alarms", machine.name);
            assert!(alarms <= 5, "{alarms} on a {} machine", machine.name);
        }
    }
}

/// Anywhere among the 225 figures of 45 experiments.
#[test]
fn matrices_of_the_same_thing_differ_in_at_most_five_of_a_hundred_pairs() {
    for (seed, repetitions) in [(5, 5), (6, 3)] {
        for machine in MACHINES {
            let alarms = of_hundred(seed, |random| {
                let changes = simulated_matrix(machine, 45, repetitions, random);
                changes.iter().any(|change| matches!(change.verdict, Verdict::Regression | Verdict::Improvement))
            });
            println!("45 × {repetitions} repetitions on a {} machine: {alarms} false alarms", machine.name);
            assert!(alarms <= 5, "{alarms} on a {} machine", machine.name);
        }
    }
}

#[test]
fn reports_show_a_loss_by_half() {
    for (machine, repetitions, least) in [(QUIET, 3, 100), (SHARED, 5, 95), (QUIET, 4, 100)] {
        let [mut before, mut after] = [1, 2].map(|_| blank(repetitions));
        let found = of_hundred(7, |random| {
            simulate(&mut before, machine, 1.0, random);
            simulate(&mut after, machine, 2.0, random);
            is_regression(&compare(&before, &after, SESSION))
        });
        println!("{} repetitions on a {} machine: a loss by half found {found} times", repetitions, machine.name);
        assert!(found >= least, "{found} on a {} machine", machine.name);
    }
}

#[test]
fn paired_runs_of_the_same_thing_differ_in_at_most_five_of_a_hundred() {
    let mut sides = blank_rounds();
    for machine in [QUIET, SHARED, DISTURBED, DRIFTING] {
        let alarms = of_hundred(3, |random| {
            simulate_rounds(&mut sides, machine, 1.0, random);
            differs(&paired(&sides[0], &sides[1]).unwrap())
        });
        println!("{}: {alarms} false alarms", machine.name);
        assert!(alarms <= 5, "{alarms} on a {} machine", machine.name);
    }
}

/// In the rate, which scatters more than processor time. Where a tenth of the repetitions stall, a third of the rounds
/// are disturbed: that takes more of them.
#[test]
fn paired_runs_find_a_slowdown_by_a_tenth_in_at_least_ninety_of_a_hundred() {
    let mut sides = blank_rounds();
    for machine in [QUIET, SHARED, DRIFTING] {
        let found = of_hundred(4, |random| {
            simulate_rounds(&mut sides, machine, 1.0 / 0.9, random);
            verdict_of(&paired(&sides[0], &sides[1]).unwrap(), Figure::Rate) == Some(Verdict::Regression)
        });
        println!("{}: a slowdown by a tenth found {found} times", machine.name);
        assert!(found >= 90, "{found} on a {} machine", machine.name);
    }
}

/// The default of `fogmux bench pair`.
const ROUNDS: usize = 20;
