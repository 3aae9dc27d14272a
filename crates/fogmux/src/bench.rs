//! `fogmux bench`: the traffic generator from the command line.

pub(crate) mod arguments;
mod matrix;
mod paper;
mod peer;

use std::io::IsTerminal as _;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use fogmux_traffic::Experiment;
use fogmux_traffic::conductor::{Conductor, Target};
use fogmux_traffic::measure::environment::Environment;
use fogmux_traffic::outcome::{self, Run};
use fogmux_traffic::paper::PaperResult;
use fogmux_traffic::report;
use fogmux_traffic::target::Home;

use self::arguments::{Bench, Compare, Output, Report};
use crate::exit::{Failure, Status};

/// Of the JSON format.
const VERSION: u32 = 1;

/// Does what the command says.
pub(crate) fn run(command: &Bench) -> Result<(), Failure> {
    match command {
        Bench::Run(arguments) => {
            let experiments = [arguments.shape.experiment()];
            let runs = perform(own_gateway(&arguments.output)?, &experiments, arguments.repeat)?;
            finish(runs, &arguments.output)
        }
        Bench::Matrix(arguments) => {
            let (experiments, repetitions) = matrix::experiments(arguments);
            let runs = perform(own_gateway(&arguments.output)?, &experiments, repetitions)?;
            finish(runs, &arguments.output)
        }
        Bench::Paper(command) => paper::run(command),
        Bench::Peer(arguments) => {
            let (target, experiment) = peer::target(arguments)?;
            let conductor = Conductor::new(target, arguments.output.key_log.clone());
            let runs = perform(conductor, &[experiment], arguments.repeat)?;
            finish(runs, &arguments.output)
        }
        Bench::Compare(arguments) => compare(arguments),
        Bench::Report(arguments) => render(arguments),
    }
}

fn report_of(runs: Vec<Run>, paper: Option<PaperResult>) -> outcome::Report {
    outcome::Report {
        version: VERSION,
        command: std::env::args().collect::<Vec<_>>().join(" "),
        began_unix_s: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
        environment: Environment::here(),
        runs,
        paper,
    }
}

/// Writes every format, and says which files.
fn write(report: &outcome::Report, directory: &std::path::Path) -> std::io::Result<()> {
    std::fs::create_dir_all(directory)?;
    report::json::write(report, &directory.join("report.json"))?;
    report::render(report, directory)?.iter().for_each(|file| eprintln!("{}", file.display()));
    Ok(())
}

fn print_table(report: &outcome::Report) {
    let summaries = report::summaries(&report.runs);
    println!("{}", report::terminal::table(&summaries, None));
    print!("{}", report::terminal::warnings(&summaries));
}

/// Two reports beside one another.
fn compare(arguments: &Compare) -> Result<(), Failure> {
    let before = read(&arguments.before)?;
    let after = read(&arguments.after)?;
    let comparison = report::compare::compare(&before, &after);
    let shown = if arguments.all { report::compare::Shown::Everything } else { report::compare::Shown::Changes };
    match arguments.markdown {
        true => print!("{}", comparison.markdown(shown)),
        false => print!("{}", comparison.terminal(shown)),
    }
    if comparison.has_regression() { Err(Failure::silent(Status::Regression)) } else { Ok(()) }
}

/// Every report of a directory, rendered by this version.
fn render(arguments: &Report) -> Result<(), Failure> {
    let directory = &arguments.directory;
    let failed = |error: std::io::Error| Failure::io(directory.display(), &error);
    let mut found = false;
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        for file in report::render_as(&read(&path)?, directory, &name).map_err(failed)? {
            println!("{}", file.display());
        }
        found = true;
    }
    if found { Ok(()) } else { Err(Failure::new(Status::DataErr, "there is no JSON file of `fogmux bench` here")) }
}

fn read(path: &std::path::Path) -> Result<outcome::Report, Failure> {
    report::json::read(path).map_err(|error| Failure::new(Status::DataErr, format!("{}: {error}", path.display())))
}

/// A conductor with a gateway of its own, in a directory that is gone afterwards.
fn own_gateway(output: &Output) -> Result<Conductor, Failure> {
    let binary = std::env::current_exe().map_err(|error| Failure::io("fogmux", &error))?;
    // Nobody else's to read, or to have been there before; `Home` removes it.
    let directory = tempfile::Builder::new().prefix("fogmux-bench-").tempdir();
    let directory = directory.map_err(|error| Failure::io("temporary directory", &error))?.keep();
    let home = Home::make(directory, binary).map_err(|error| Failure::new(Status::Unavailable, error))?;
    Ok(Conductor::new(Target::Gateway(Box::new(home)), output.key_log.clone()))
}

/// The one thread of the generator.
fn block_on<T>(future: impl Future<Output = T>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        // Sockets are looked at after every few tasks: a client that always has something to do must not starve others.
        .event_interval(11)
        .build()
        .map_err(|error| Failure::io("runtime", &error))?;
    Ok(tokio::task::LocalSet::new().block_on(&runtime, future))
}

fn perform(mut conductor: Conductor, experiments: &[Experiment], repetitions: u32) -> Result<Vec<Run>, Failure> {
    let mut shown = progress(experiments, repetitions);
    let runs = block_on(conductor.perform(experiments, repetitions, &mut shown))?;
    Ok(runs)
}

/// Tells what is being done, and how long it will take.
fn progress(experiments: &[Experiment], repetitions: u32) -> impl FnMut(&Experiment, u32) + use<> {
    let display = if std::io::stderr().is_terminal() {
        report::progress::Display::Bar { columns: 80 }
    } else {
        report::progress::Display::Lines
    };
    let rounds = usize::try_from(repetitions).unwrap_or(1);
    let each: Vec<f64> = experiments.iter().map(expected_seconds).collect();
    let expected = each.repeat(rounds);
    let mut progress = report::progress::Progress::new(std::io::stderr(), display, expected, Instant::now());
    let mut first = true;
    move |experiment, repetition| {
        let now = Instant::now();
        if !std::mem::take(&mut first) {
            progress.done(now);
        }
        // Who closes standard error does not want to know.
        let _ = progress.at(&format!("{} #{}", experiment.title(), repetition + 1), now);
    }
}

/// With starting and ending a gateway.
fn expected_seconds(experiment: &Experiment) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "below 2^53")]
    let counted = experiment.count.map(|count| experiment.rate.map_or(1.0, |rate| count as f64 / rate));
    counted.unwrap_or(f64::MAX).min(experiment.seconds + experiment.warm_up_seconds) + 0.4
}

/// Prints, and writes where the arguments say. Nothing measured at all is a failure.
fn finish(runs: Vec<Run>, output: &Output) -> Result<(), Failure> {
    let report = report_of(runs, None);
    if output.json {
        println!("{}", serde_json::to_string(&report).unwrap_or_default());
    } else {
        print_table(&report);
    }
    if let Some(directory) = &output.out {
        write(&report, directory).map_err(|error| Failure::io(directory.display(), &error))?;
    }
    match report.runs.iter().all(|run| run.outcomes.is_empty()) {
        true => Err(Failure::new(Status::Unavailable, "nothing was measured")),
        false => Ok(()),
    }
}
