//! Warnings about the reliability of results.

use std::fmt;

use super::figure::{DECISIVE, Figure};
use super::number::{Unit, with_unit};
use super::summary::Summary;
use crate::outcome::{Comings, Outcome, Run};

/// Processor seconds of others, for each second of a repetition, from which on they are named: a twentieth of a core.
const OTHERS_NOTICEABLE: f64 = 0.05;
/// Shorter repetitions say nothing of others: the kernel counts in hundredths of a second, and what was waited for at
/// the end is counted, too.
const OTHERS_SECONDS_MIN: f64 = 0.25;

/// A warning about a run or a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The run; `None` for all.
    pub run: Option<String>,
    /// The text of the warning.
    pub text: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.run {
            Some(run) => write!(f, "{run}: {}", self.text),
            None => f.write_str(&self.text),
        }
    }
}

/// All there are, the gravest of each run first. The same for many runs is said once.
#[must_use]
pub fn warnings(summaries: &[Summary<'_>]) -> Vec<Warning> {
    let mut all: Vec<Warning> = Vec::new();
    for summary in summaries {
        let of_run = |text| Warning { run: Some(summary.label.clone()), text };
        all.extend(
            [
                problem(summary),
                limited(summary),
                behind(summary),
                fruitless(summary),
                errors(summary),
                unanswered(summary),
                foreign(summary),
                away(summary),
                wide(summary),
                unseeded(summary),
                unmetered(summary),
            ]
            .into_iter()
            .flatten()
            .map(of_run),
        );
    }
    all.extend(others(summaries));
    all.extend(weak(summaries));
    all.extend(few(summaries));
    all
}

/// Repetitions that failed. The first reason comes first: those after it may have found nobody any more.
fn problem(summary: &Summary<'_>) -> Option<String> {
    let Run { problem, failed, .. } = summary.run;
    let failures = match failed.as_slice() {
        [] => None,
        [only] => Some(format!("a repetition failed: {only}")),
        [first, ..] => Some(format!("{} repetitions failed; the first: {first}", failed.len())),
    };
    match (problem, failures) {
        (None, failures) => failures,
        (Some(problem), None) => Some(problem.clone()),
        (Some(problem), Some(failures)) => match failed.as_slice() {
            [first, ..] if first == problem => Some(problem.clone()),
            // A problem that is none of the failures, such as a signal, does not say why there is no outcome.
            [first, ..] if failed.contains(problem) => Some(format!("{first}; and then: {problem}")),
            _ => Some(format!("{problem}; {failures}")),
        },
    }
}

/// Figures of such a run are those of nothing.
fn fruitless(summary: &Summary<'_>) -> Option<String> {
    let is_all = summary.run.is_fruitless();
    is_all.then(|| "no operation succeeded in any repetition: nothing was measured".to_owned())
}

/// An interval that did not become as narrow as `--until` asked for; the widest.
fn wide(summary: &Summary<'_>) -> Option<String> {
    let until = summary.run.until?;
    let half = |figure: Figure| Some((figure, summary.get(figure)?.half_width()?));
    let wide = DECISIVE.into_iter().filter_map(half).filter(|(_, half)| *half > until);
    let (figure, half) = wide.max_by(|(_, one), (_, other)| one.total_cmp(other))?;
    let (title, half, until) = (figure.meaning().title, half * 100.0, until * 100.0);
    Some(format!("{title} is known to ±{half:.1} % only, not to ±{until} % as was asked for"))
}

fn limited(summary: &Summary<'_>) -> Option<String> {
    let (first, why) = summary.left_out.first()?;
    let of = summary.run.outcomes.len();
    Some(if summary.is_bound {
        format!("the generator set the pace in every repetition ({why}): the rate is a lower bound")
    } else if summary.left_out.len() == 1 {
        format!("repetition {first} of {of} is left out: the generator set the pace ({why})")
    } else {
        format!("{} of {of} repetitions are left out: the generator set the pace ({why})", summary.left_out.len())
    })
}

/// The target was slower than the schedule: what was measured is not what was asked for.
fn behind(summary: &Summary<'_>) -> Option<String> {
    let behind = summary.used.iter().filter(|outcome| outcome.fell_behind()).count();
    if behind == 0 {
        return None;
    }
    let rate = |figure| summary.get(figure).map(|rate| with_unit(Unit::PerSecond, rate.median)).unwrap_or_default();
    let (offered, achieved) = (rate(Figure::Offered), rate(Figure::Achieved));
    let sum =
        |count: fn(&Outcome) -> Option<u64>| summary.used.iter().filter_map(|outcome| count(outcome)).sum::<u64>();
    let (due, late, unsent) = (sum(|all| all.offered), sum(|all| all.behind), sum(|all| all.unsent));
    Some(format!(
        "{behind} of {} repetitions fell behind the schedule: {offered} were offered and {achieved} achieved; of {due} \
         operations {late} were not sent in time and {unsent} of these never",
        summary.used.len()
    ))
}

fn errors(summary: &Summary<'_>) -> Option<String> {
    let failed: u64 = summary.used.iter().map(|outcome| outcome.errors).sum();
    let broken: u64 = summary.used.iter().map(|outcome| outcome.disconnects).sum();
    let first = summary.used.iter().find_map(|outcome| outcome.first_error.as_deref());
    (failed + broken > 0).then(|| {
        let first = first.map(|text| format!("; the first: {text}")).unwrap_or_default();
        format!("{failed} operations failed and {broken} connections broke{first}")
    })
}

fn unanswered(summary: &Summary<'_>) -> Option<String> {
    let unanswered: u64 = summary.used.iter().map(|outcome| outcome.unanswered).sum();
    let sent: u64 = summary.used.iter().map(|outcome| outcome.sent).sum();
    (unanswered > 0).then(|| format!("of {sent} operations {unanswered} were never answered"))
}

fn foreign(summary: &Summary<'_>) -> Option<String> {
    let foreign: u64 = summary.used.iter().map(|outcome| outcome.foreign).sum();
    (foreign > 0).then(|| format!("{foreign} messages came that nobody had sent to their subscriber"))
}

/// Clients that left, and were not back when it ended.
fn away(summary: &Summary<'_>) -> Option<String> {
    let all: Vec<&Comings> = summary.used.iter().filter_map(|outcome| outcome.comings.as_ref()).collect();
    let (left, returned) = all.iter().fold((0, 0), |(left, back), one| (left + one.left, back + one.returned));
    let failed: u64 = all.iter().map(|one| one.failed).sum();
    let attempts = if failed > 0 { format!("; {failed} attempts to come back failed") } else { String::new() };
    let away = left.saturating_sub(returned);
    let is_asked = summary.run.experiment.storm_seconds.is_some();
    let never = is_asked && summary.used.iter().all(|one| one.comings.as_ref().is_none_or(|all| all.storm.is_none()));
    match (away, never) {
        (0, true) if !summary.used.is_empty() => Some("it was over before all clients were to leave".to_owned()),
        (0, _) if failed == 0 => None,
        (0, _) => Some(format!("all of {left} clients that left came back{attempts}")),
        _ => Some(format!("of {left} clients that left, {away} were not back when it ended{attempts}")),
    }
}

/// Frames that the kernel chose to lose: the same seed does not lose them again.
fn unseeded(summary: &Summary<'_>) -> Option<String> {
    let kernel = summary.used.iter().find(|outcome| outcome.loss_seed.is_none())?;
    let by = kernel.loss_by.as_deref()?;
    Some(format!("{by} chose the frames that were lost, not --seed; --link seeded,… loses the same again"))
}

/// Repetitions of which the meter's file says nothing.
fn unmetered(summary: &Summary<'_>) -> Option<String> {
    let why = |outcome: &Outcome| outcome.energy.as_ref().and_then(|energy| energy.unmetered.clone());
    let all: Vec<String> = summary.used.iter().filter_map(|outcome| why(outcome)).collect();
    let (first, of) = (all.first()?, summary.used.len());
    Some(format!("the energy of {} of {of} repetitions was not measured: {first}", all.len()))
}

/// One warning for all runs: where others are busy, they are so all the time.
fn others(summaries: &[Summary<'_>]) -> Option<Warning> {
    let share = |summary: &Summary<'_>| {
        // The others are watched as long as the generator is: to the end of the drain.
        let watched = |outcome: &Outcome| (outcome.generator.wall_us / 1e6).max(outcome.seconds);
        let long = summary.used.iter().filter(|outcome| watched(outcome) >= OTHERS_SECONDS_MIN);
        long.map(|outcome| outcome.others_cpu_s / watched(outcome)).fold(0.0, f64::max)
    };
    let disturbed: Vec<_> = summaries
        .iter()
        .map(|summary| (share(summary), summary))
        .filter(|(share, _)| *share > OTHERS_NOTICEABLE)
        .collect();
    let (worst, of) = disturbed.iter().copied().max_by(|(one, _), (other, _)| one.total_cmp(other))?;
    let text = format!("others on this machine used up to {:.0} % of a core meanwhile", worst * 100.0);
    Some(match disturbed.len() {
        1 => Warning { run: Some(of.label.clone()), text },
        runs => {
            let text = format!("{text}, most in {}; {runs} of {} were disturbed", of.label, summaries.len());
            Warning { run: None, text }
        }
    })
}

fn weak(summaries: &[Summary<'_>]) -> Vec<Warning> {
    let mut all = Vec::new();
    for summary in summaries {
        let profile = summary.run.experiment.security.profile;
        let Some(why) = profile.weak.filter(|_| profile.is_encrypted()) else { continue };
        let warning = Warning { run: None, text: format!("profile {} is weak: {why}", profile.name) };
        if !all.contains(&warning) {
            all.push(warning);
        }
    }
    all
}

fn few(summaries: &[Summary<'_>]) -> Option<Warning> {
    let fewest = summaries.iter().map(|summary| summary.used.len()).filter(|used| *used > 0).min()?;
    (fewest < 5).then(|| Warning {
        run: None,
        text: match fewest {
            1 => "some figures come from one repetition and have no interval".to_owned(),
            _ => format!("some figures come from {fewest} repetitions; with so few, intervals are wide"),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Experiment;

    fn said(outcomes: Vec<Outcome>, security: &str) -> String {
        let experiment = Experiment { security: security.parse().unwrap(), ..Experiment::default() };
        let run = Run { outcomes, ..Run::of(experiment, "fogmux".to_owned()) };
        let all = warnings(&[Summary::of(&run, "run".to_owned())]);
        all.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    }

    fn good() -> Outcome {
        Outcome { delivered: 10, seconds: 1.0, ..Outcome::default() }
    }

    #[test]
    fn five_quiet_repetitions_leave_nothing_to_say() {
        assert_eq!(said(vec![good(); 5], "high"), "");
    }

    #[test]
    fn what_disturbs_many_runs_is_said_once() {
        let loaded = |others_cpu_s| Run {
            outcomes: vec![Outcome { others_cpu_s, ..good() }; 5],
            ..Run::of(Experiment::default(), "fogmux".to_owned())
        };
        let runs = [loaded(0.2), loaded(0.0), loaded(0.7)];
        let summaries: Vec<_> =
            runs.iter().zip(["a", "b", "c"]).map(|(run, label)| Summary::of(run, label.to_owned())).collect();
        let all: Vec<_> = warnings(&summaries).iter().map(ToString::to_string).collect();
        assert_eq!(
            all,
            ["others on this machine used up to 70 % of a core meanwhile, most in c; 2 of 3 were disturbed"]
        );
    }

    #[test]
    fn frames_that_the_kernel_chose_are_named() {
        let by = |seed| Outcome { loss_by: Some("nftables".to_owned()), loss_seed: seed, ..good() };
        assert!(said(vec![by(None); 5], "high").contains("nftables chose the frames that were lost, not --seed"));
        assert_eq!(said(vec![by(Some(1)); 5], "high"), "");
    }

    #[test]
    fn failures_that_were_replaced_and_intervals_that_stayed_wide_are_named() {
        let outcomes = [100, 120, 90, 130, 80, 100].map(|delivered| Outcome { delivered, ..good() });
        let run = Run {
            outcomes: outcomes.to_vec(),
            failed: vec!["the gateway died".to_owned()],
            until: Some(0.02),
            ..Run::of(Experiment::default(), "fogmux".to_owned())
        };
        let all: Vec<_> = warnings(&[Summary::of(&run, "run".to_owned())]).iter().map(ToString::to_string).collect();
        let wide = "run: rate is known to ±25.0 % only, not to ±2 % as was asked for";
        assert_eq!(all, ["run: a repetition failed: the gateway died", wide]);
        let died = "the connection of publisher 0 ended 1.004 s after the measurement began: Connection reset";
        let failed = vec![died.to_owned(), "Connection refused".to_owned()];
        let gone = Run { problem: failed.last().cloned(), failed, outcomes: Vec::new(), ..run.clone() };
        let said: Vec<_> = warnings(&[Summary::of(&gone, "run".to_owned())]).iter().map(ToString::to_string).collect();
        assert_eq!(said, [format!("run: {died}; and then: Connection refused")]);
        let narrow = Run { until: Some(0.25), failed: Vec::new(), ..run };
        assert!(warnings(&[Summary::of(&narrow, "run".to_owned())]).is_empty());
    }

    #[test]
    fn what_has_ended_a_measurement_does_not_hide_why_there_is_nothing() {
        let ended = Run {
            problem: Some("ended by SIGTERM".to_owned()),
            failed: vec!["no connection within 10 s".to_owned()],
            ..Run::of(Experiment::default(), "stub".to_owned())
        };
        let all = |run: &Run| -> Vec<String> {
            warnings(&[Summary::of(run, "run".to_owned())]).iter().map(ToString::to_string).collect()
        };
        assert_eq!(all(&ended), ["run: ended by SIGTERM; a repetition failed: no connection within 10 s"]);
        // The last failure is the problem itself.
        let failed = Run { problem: ended.failed.last().cloned(), ..ended };
        assert_eq!(all(&failed), ["run: no connection within 10 s"]);
    }

    #[test]
    fn each_doubt_is_named() {
        let limited = Outcome { limited_by_generator: Some("its core was busy".to_owned()), ..good() };
        let mut outcomes = vec![good(); 5];
        outcomes.push(limited);
        assert!(
            said(outcomes, "high")
                .contains("repetition 6 of 6 is left out: the generator set the pace (its core was busy)")
        );
        let loaded = Outcome { others_cpu_s: 0.5, ..good() };
        assert!(said(vec![loaded; 5], "high").contains("50 % of a core"));
        let short = Outcome { others_cpu_s: 0.5, seconds: 0.001, ..good() };
        assert_eq!(said(vec![short; 5], "high"), "");
        let failed = Outcome { errors: 2, first_error: Some("4.03".to_owned()), ..good() };
        assert!(
            said(vec![failed; 5], "high").contains("10 operations failed and 0 connections broke; the first: 4.03")
        );
        let behind = Outcome { offered: Some(20), behind: Some(9), unsent: Some(4), ..good() };
        assert!(
            said(vec![behind; 5], "high").contains("of 100 operations 45 were not sent in time and 20 of these never")
        );
        let prompt = Outcome { offered: Some(1_000), behind: Some(10), unsent: Some(0), ..good() };
        assert_eq!(said(vec![prompt; 5], "high"), "");
        assert!(said(vec![good()], "high").contains("one repetition"));
        assert!(said(vec![good(); 5], "low").contains("profile low is weak"));
    }
}
