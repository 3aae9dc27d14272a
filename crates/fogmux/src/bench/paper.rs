//! `fogmux bench paper`: published experiments, listed, shown, and repeated.

use fogmux_traffic::paper::{self, NAMES, PaperError, PaperResult};
use fogmux_traffic::repetition::Repetitions;
use fogmux_traffic::report;

use super::arguments::{Output, Paper, PaperRun};
use super::{Done, signals};
use crate::exit::{Failure, Status};
use crate::terminal::columns;

/// Runs the subcommand.
pub(super) fn run(command: &Paper) -> Result<(), Failure> {
    match command {
        Paper::List => list(),
        Paper::Show { name } => {
            print!("{}", report::document::terminal(&load(name)?, columns(std::io::stdout())));
            Ok(())
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
        println!("{name}: {} ({}, {})", paper.head.title, paper.head.authors, paper.head.year);
        println!("    tables {}; {} claims", tables.join(" "), paper.claims.len());
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
    let done = super::perform(|| super::conductor(&arguments.host, output), &plan.experiments, repetitions, output)?;
    finish(paper::tabulate(&plan, &done.runs), done, output)
}

fn finish(result: PaperResult, done: Done, output: &Output) -> Result<(), Failure> {
    if output.json {
        println!("{}", serde_json::to_string(&result).unwrap_or_default());
    } else {
        print!("{}", report::paper::terminal(&result, columns(std::io::stdout())));
    }
    let Done { record, runs, gateway_environment, stopped } = done;
    if let Some(directory) = &output.out {
        let report = record.report(runs, gateway_environment, Some(result));
        super::write(&report, directory).map_err(|error| Failure::io(directory.display(), &error))?;
    }
    record.end(stopped);
    stopped.map_or(Ok(()), |signal| Err(signals::failure(signal)))
}
