//! `fogmux bench paper`: published experiments, listed, shown, and repeated.

use fogmux_traffic::conductor::Conductor;
use fogmux_traffic::outcome::Run;
use fogmux_traffic::paper::{self, NAMES, PaperError, PaperResult, Plan};
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
    let began_unix_s = super::now_unix_s();
    let (result, done) = super::block_on(async {
        let stop = signals::stop()?;
        let mut conductor = super::conductor(&arguments.host, &arguments.output)?.until(stop.clone());
        let (result, runs) = perform(&mut conductor, &plan).await;
        let (gateway_environment, stopped) = (conductor.gateway_environment(), *stop.borrow());
        Ok::<_, Failure>((result, Done { began_unix_s, runs, gateway_environment, stopped }))
    })??;
    finish(result, done, &arguments.output)
}

async fn perform(conductor: &mut Conductor, plan: &Plan<'_>) -> (PaperResult, Vec<Run>) {
    let mut shown = super::progress::progress(&plan.experiments, plan.repetitions);
    let target = conductor.target();
    paper::rerun(plan, &target, async |experiment, repetition| {
        shown(experiment, repetition);
        conductor.repeat(experiment).await.map_err(|error| error.to_string())
    })
    .await
}

fn finish(result: PaperResult, done: Done, output: &Output) -> Result<(), Failure> {
    if output.json {
        println!("{}", serde_json::to_string(&result).unwrap_or_default());
    } else {
        print!("{}", report::paper::terminal(&result, columns(std::io::stdout())));
    }
    let stopped = done.stopped;
    if let Some(directory) = &output.out {
        super::write(&super::report_of(done, Some(result)), directory)
            .map_err(|error| Failure::io(directory.display(), &error))?;
    }
    stopped.map_or(Ok(()), |signal| Err(signals::failure(signal)))
}
