//! `fogmux bench paper`: published experiments, listed, shown, and repeated.

use fogmux_traffic::outcome::Run;
use fogmux_traffic::paper::table::Verdict;
use fogmux_traffic::paper::{self, NAMES, PaperError, PaperResult};
use fogmux_traffic::repetition::Repetitions;
use fogmux_traffic::report;

use super::arguments::{Output, Paper, PaperRun};
use super::{Done, signals};
use crate::exit::{Failure, Status};
use crate::output::say;
use crate::terminal::columns;

/// Runs the subcommand.
pub(super) fn run(command: &Paper) -> Result<(), Failure> {
    match command {
        Paper::List => list(),
        Paper::Show { name } => {
            say!("{}", report::document::terminal(&load(name)?, columns(std::io::stdout())))
        }
        Paper::Run(arguments) => rerun(arguments),
    }
}

fn load(name: &str) -> Result<paper::Paper, Failure> {
    paper::load(name).map_err(wrong)
}

fn wrong(error: PaperError) -> Failure {
    Failure::new(Status::Usage, error)
}

fn list() -> Result<(), Failure> {
    for name in NAMES {
        let paper = load(name)?;
        let tables: Vec<&str> = paper.tables.iter().map(|table| table.id.as_str()).collect();
        say!("{name}: {} ({}, {})\n", paper.head.title, paper.head.authors, paper.head.year)?;
        say!("    tables {}; {} claims\n", tables.join(" "), paper.claims.len())?;
    }
    Ok(())
}

fn rerun(arguments: &PaperRun) -> Result<(), Failure> {
    let mut paper = load(&arguments.name)?;
    if let Some(link) = &arguments.link {
        paper.head.defaults.insert("link".to_owned(), link.clone().into());
    }
    let mut plan = paper::plan(&paper, &arguments.table, arguments.quick).map_err(wrong)?;
    plan.repetitions = arguments.repeat.unwrap_or(plan.repetitions);
    super::prepare(&plan.experiments, &arguments.output)?;
    let output = &arguments.output;
    let repetitions = Repetitions::exactly(plan.repetitions);
    let conductor = || Ok(super::conductor(&arguments.host, output)?.with_alone(plan.alone()));
    let done = super::perform(conductor, &plan.experiments, repetitions, output)?;
    finish(paper::tabulate(&plan, &done.runs), done, output)
}

fn finish(result: PaperResult, done: Done, output: &Output) -> Result<(), Failure> {
    let Done { record, runs, gateway_environment, stopped } = done;
    let report = record.report(runs, gateway_environment, Some(result.clone()));
    let written = super::write(&report, output, record, stopped);
    let printed = if output.json {
        say!("{}\n", serde_json::to_string(&result).unwrap_or_default())
    } else {
        let warnings = report::terminal::warnings(&report::summaries(&report.runs));
        say!("{}{warnings}", report::paper::terminal(&result, columns(std::io::stdout())))
    };
    super::list(&written?);
    let conclusion = match stopped {
        Some(signal) => Err(signals::failure(signal)),
        None => conclude(&result, &report.runs),
    };
    conclusion.and(printed)
}

/// The exit code of what has been printed: the gravest of what keeps numbers from being what they should be.
fn conclude(result: &PaperResult, runs: &[Run]) -> Result<(), Failure> {
    let all = runs.len();
    let crashed = runs.iter().filter(|run| run.outcomes.is_empty()).count();
    let void = runs.iter().filter(|run| run.problem.is_some() || !run.failed.is_empty()).count();
    let inconclusive = result.claims.iter().filter(|claim| claim.verdict == Verdict::Inconclusive).count();
    let (status, why) = match (crashed, void, inconclusive) {
        (0, 0, 0) => return Ok(()),
        (crashed, ..) if crashed > 0 && crashed == all => (Status::Unavailable, "nothing was measured".to_owned()),
        (1.., ..) => (Status::Software, format!("every repetition of {crashed} of {all} experiments failed")),
        (0, 1.., _) => (Status::Unavailable, format!("repetitions of {void} of {all} experiments failed")),
        (0, 0, 1..) => {
            (Status::TempFail, format!("{inconclusive} claims are inconclusive: the generator was the limit"))
        }
    };
    Err(Failure::new(status, why))
}

#[cfg(test)]
mod tests {
    use fogmux_traffic::paper::table::ClaimResult;
    use fogmux_traffic::{Experiment, Outcome};

    use super::*;

    fn code(runs: &[(usize, &[&str])], verdict: Verdict) -> Option<Status> {
        let run = |(outcomes, failed): &(usize, &[&str])| Run {
            outcomes: vec![Outcome::default(); *outcomes],
            failed: failed.iter().map(|why| (*why).to_owned()).collect(),
            ..Run::of(Experiment::default(), "a test".to_owned())
        };
        let words = String::new;
        let (id, text, place, because, paper_agrees) = (words(), words(), words(), words(), None);
        let claims = vec![ClaimResult { id, text, place, verdict, because, paper_agrees }];
        let runs: Vec<Run> = runs.iter().map(run).collect();
        conclude(&PaperResult { claims, ..PaperResult::default() }, &runs).err().map(|failure| failure.status)
    }

    #[test]
    fn each_way_of_showing_nothing_has_a_code_of_its_own() {
        let fine: (usize, &[&str]) = (5, &[]);
        assert_eq!(code(&[fine, fine], Verdict::DoesNotHold), None);
        assert_eq!(code(&[fine, (0, &["the gateway died"; 3])], Verdict::Holds), Some(Status::Software));
        assert_eq!(code(&[(0, &["no root"; 3]), (0, &["no root"; 3])], Verdict::Holds), Some(Status::Unavailable));
        assert_eq!(code(&[fine, (5, &["the gateway died"])], Verdict::Inconclusive), Some(Status::Unavailable));
        assert_eq!(code(&[fine], Verdict::Inconclusive), Some(Status::TempFail));
    }
}
