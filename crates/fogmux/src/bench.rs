//! `fogmux bench`: the traffic generator from the command line.

mod agent;
pub(crate) mod arguments;
mod compare;
mod curve;
mod effect;
mod energy;
mod fleet;
mod handshakes;
mod lock;
mod matrix;
mod paper;
mod peer;
mod progress;
mod record;
mod signals;
mod threshold;

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use fogmux_net::KeyLogFile;
use fogmux_traffic::agent::Remote;
use fogmux_traffic::conductor::{Conductor, Target, Watcher, serve_repetition};
use fogmux_traffic::measure::build::note_features;
use fogmux_traffic::measure::environment::Environment;
use fogmux_traffic::outcome::{self, Run};
use fogmux_traffic::repetition::{Repetitions, Void};
use fogmux_traffic::report;
use fogmux_traffic::report::figure::Figure;
use fogmux_traffic::report::journal;
use fogmux_traffic::report::json::ReadError;
use fogmux_traffic::report::terminal::Layout;
use fogmux_traffic::report::threshold::Threshold;
use fogmux_traffic::target::{Home, serve_origin};
use fogmux_traffic::{Experiment, Outcome};
use tokio::runtime::{Builder, LocalOptions};

use self::arguments::{Bench, Columns, Host, Output, Report, Thresholds};
use self::effect::Served;
use self::progress::progress;
use self::record::Record;
use crate::exit::{Failure, Status};
use crate::open_files;
use crate::output::say;
use crate::parent;
use crate::terminal::columns;

/// The features of this program, by their names in `Cargo.toml`, and whether it was built with them.
const FEATURES: [(&str, bool); 6] = [
    ("bench", cfg!(feature = "bench")),
    ("coap", cfg!(feature = "coap")),
    ("http", cfg!(feature = "http")),
    ("mqtt", cfg!(feature = "mqtt")),
    ("xmpp", cfg!(feature = "xmpp")),
    ("tls-openssl", cfg!(feature = "tls-openssl")),
];

/// Runs the command.
pub(crate) fn run(command: &Bench) -> Result<(), Failure> {
    note_features(FEATURES.into_iter().filter(|(_, is_there)| *is_there).map(|(name, _)| name));
    match command {
        Bench::Run(arguments) => {
            let experiments = [arguments.shape.experiment()];
            effect::refuse(&arguments.shape.given, &experiments[0], Served::Gateway)?;
            prepare(&experiments, &arguments.output)?;
            let repetitions = arguments.until.repetitions(arguments.repeat);
            let done = perform(|| captured(arguments), &experiments, repetitions, &arguments.output)?;
            finish(done, &arguments.output, &arguments.columns, &arguments.thresholds)
        }
        Bench::Matrix(arguments) => {
            let (experiments, repeat) = matrix::experiments(arguments)?;
            prepare(&experiments, &arguments.output)?;
            let repetitions = arguments.until.repetitions(repeat);
            let output = &arguments.output;
            let done = perform(|| conductor(&arguments.host, output), &experiments, repetitions, output)?;
            finish(done, &arguments.output, &arguments.columns, &arguments.thresholds)
        }
        Bench::Curve(arguments) => curve::run(arguments),
        Bench::Fleet(arguments) => fleet::run(arguments),
        Bench::Handshakes(arguments) => handshakes::run(arguments),
        Bench::Paper(command) => paper::run(command),
        Bench::Peer(arguments) => {
            let (target, experiment) = peer::target(arguments, Served::Broker)?;
            let experiments = [experiment];
            prepare(&experiments, &arguments.output)?;
            let conductor = Conductor::new(target, arguments.output.key_log.clone());
            let repetitions = arguments.until.repetitions(arguments.repeat);
            let done = perform(|| Ok(conductor), &experiments, repetitions, &arguments.output)?;
            finish(done, &arguments.output, &arguments.columns, &arguments.thresholds)
        }
        Bench::Agent(arguments) => agent::run(arguments),
        Bench::Origin => serve_origin().map_err(|error| Failure::new(Status::Unavailable, error)),
        Bench::Repetition => block_on(async {
            let done = serve_repetition(&binary()?, signals::stop()?).await;
            done.map_err(|error| Failure::new(Status::Unavailable, error))
        })?,
        Bench::Pair(arguments) => compare::pair(arguments),
        Bench::Compare(arguments) => compare::run(arguments),
        Bench::Report(arguments) => render(arguments),
    }
}

/// Opens the file of `--live`, if there is one.
fn watcher(output: &Output) -> Result<Option<Watcher>, Failure> {
    let open = |path: &PathBuf| Watcher::of(path, left_out).map_err(|error| Failure::io(path.display(), &error));
    output.live.as_ref().map(open).transpose()
}

fn left_out(lines: u64) {
    eprintln!("{lines} lines of --live were left out: there was no room for them, as in a pipe that nobody reads");
}

/// Refuses experiments that cannot be done, and files that cannot be written, before anything is started.
fn prepare(experiments: &[Experiment], output: &Output) -> Result<(), Failure> {
    if let Some(parent) = output.end_with {
        parent::end_with(parent)?;
        parent::give_way();
    }
    experiments.iter().try_for_each(Experiment::check).map_err(|error| Failure::new(Status::Usage, error))?;
    open_files::raise_limit();
    let clients = |experiment: &Experiment| u64::from(experiment.publishers) + u64::from(experiment.subscribers);
    let most = experiments.iter().map(clients).max().unwrap_or_default();
    open_files::check_room(most).map_err(|error| Failure::new(Status::Usage, error))?;
    if let Some(directory) = &output.out {
        report::try_directory(directory).map_err(|error| Failure::io(directory.display(), &error))?;
        lock::hold(directory)?;
    }
    energy::check(output)?;
    if let Some(file) = &output.key_log {
        KeyLogFile::open(file).map_err(|error| Failure::io(file.display(), &error))?;
    }
    Ok(())
}

/// The results of a run, with their record and the gateway's machine.
struct Done {
    record: Record,
    runs: Vec<Run>,
    gateway_environment: Option<Environment>,
    /// The signal that has ended it early.
    stopped: Option<&'static str>,
}

fn now_unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Writes every format into the directory of `output`, if there is one, and returns the files. The record ends only
/// when they are there: it has the repetitions of a report that could not be written.
fn write(
    report: &outcome::Report,
    output: &Output,
    record: Record,
    stopped: Option<&'static str>,
) -> Result<Vec<PathBuf>, Failure> {
    let Some(directory) = &output.out else { return Ok(Vec::new()) };
    let written = std::fs::create_dir_all(directory)
        .and_then(|()| report::json::write(report, &directory.join("report.json")))
        .and_then(|()| report::render(report, directory));
    let files = written.map_err(|error| Failure::io(directory.display(), &error))?;
    record.end(stopped);
    Ok(files)
}

/// Lists files on standard error.
fn list(files: &[PathBuf]) {
    files.iter().for_each(|file| eprintln!("{}", file.display()));
}

fn print_results(report: &outcome::Report, figures: &[Figure]) -> Result<(), Failure> {
    let summaries = report::summaries(&report.runs);
    let layout = Layout { width: columns(std::io::stdout()), figures };
    say!(
        "{}\n{}{}{}",
        report::terminal::results(&summaries, layout),
        report::best::terminal(&summaries, layout.width),
        report::slices::terminal(&summaries, layout.width),
        report::terminal::warnings(&summaries)
    )
}

/// Renders every report of a directory, and the journal of a measurement that was interrupted. A file that is none is
/// named, and the others are rendered all the same.
fn render(arguments: &Report) -> Result<(), Failure> {
    let directory = &arguments.directory;
    let failed = |error: std::io::Error| Failure::io(directory.display(), &error);
    let (mut all, mut broken) = (0, 0);
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let is_journal = path.file_name().is_some_and(|name| name == journal::NAME);
        if !is_journal && path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        all += 1;
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let found = if is_journal { journal::read_plain(directory).map_err(no_report) } else { read(&path) };
        let rendered = found.and_then(|report| report::render_as(&report, directory, &name).map_err(failed));
        match rendered {
            Ok(files) => files.iter().try_for_each(|file| say!("{}\n", file.display()))?,
            Err(failure) => {
                broken += 1;
                eprintln!("{}", failure.message().unwrap_or_default());
            }
        }
    }
    match (all, broken) {
        (0, _) => Err(Failure::new(Status::DataErr, "the directory has no JSON file of `fogmux bench`")),
        (_, 0) => Ok(()),
        (all, broken) => Err(Failure::new(Status::DataErr, format!("{broken} of {all} JSON files were not rendered"))),
    }
}

fn read(path: &std::path::Path) -> Result<outcome::Report, Failure> {
    report::json::read(path).map_err(no_report)
}

/// The error names the file.
fn no_report(error: ReadError) -> Failure {
    Failure::new(Status::DataErr, error)
}

/// Returns a conductor with a local gateway, whose directory is removed afterwards, or with an agent's.
fn conductor(host: &Host, output: &Output) -> Result<Conductor, Failure> {
    let target = match (&host.agent, &host.agent_key) {
        (Some(agent), Some(key)) => {
            let remote = Remote::connect(agent, key).map_err(|error| Failure::new(Status::Unavailable, error))?;
            Target::Agent(Box::new(remote))
        }
        _ => {
            let home = Home::temporary(binary()?).map_err(|error| Failure::new(Status::Unavailable, error))?;
            Target::Gateway(Box::new(home))
        }
    };
    Ok(Conductor::new(target, output.key_log.clone()))
}

/// As `conductor`, also capturing the frames of the first repetition if requested.
fn captured(arguments: &arguments::Run) -> Result<Conductor, Failure> {
    let Some(capture) = &arguments.capture else { return conductor(&arguments.host, &arguments.output) };
    if arguments.shape.link == "loopback" {
        return Err(Failure::new(Status::Usage, "--capture needs a link: add --link lossless, or another"));
    }
    let keys = arguments.output.key_log.clone().unwrap_or_else(|| capture.with_extension("keys"));
    let output = Output { key_log: Some(keys), ..arguments.output.clone() };
    Ok(conductor(&arguments.host, &output)?.with_capture(Some(capture.clone())))
}

/// The path of this program, which is the gateway as well.
fn binary() -> Result<PathBuf, Failure> {
    std::env::current_exe().map_err(|error| Failure::io("fogmux", &error))
}

/// Returns the runtime of the generator's single thread.
fn block_on<T>(future: impl Future<Output = T>) -> Result<T, Failure> {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default())
        .map_err(|error| Failure::io("runtime", &error))?;
    Ok(runtime.block_on(future))
}

fn perform(
    conductor: impl FnOnce() -> Result<Conductor, Failure>,
    experiments: &[Experiment],
    repetitions: Repetitions,
    output: &Output,
) -> Result<Done, Failure> {
    block_on(async {
        let stop = signals::stop()?;
        let mut conductor = conductor()?.until(stop.clone()).watched(watcher(output)?);
        let target = conductor.target();
        let runs = experiments.iter().map(|experiment| Run::of(experiment.clone(), target.clone())).collect();
        let mut record = Record::open(output, runs, conductor.gateway_environment())?;
        let mut shown = progress(experiments, repetitions.wanted, record.done());
        let begun = record.runs();
        let mut note = |run: usize, done: &Result<Outcome, Void>| record.note(run, done);
        let mut runs = conductor.perform(begun, repetitions, &mut shown, &mut note).await;
        energy::note(output, &mut runs);
        let stopped = *stop.borrow();
        let gateway_environment = conductor.gateway_environment();
        Ok::<_, Failure>(Done { record, runs, gateway_environment, stopped })
    })?
}

/// Writes the requested files and prints the results: whatever becomes of standard output, the files are there. Fails
/// if nothing was measured, if a repetition failed, or if a condition of `--fail-if` holds.
fn finish(done: Done, output: &Output, columns: &Columns, thresholds: &Thresholds) -> Result<(), Failure> {
    let Done { record, runs, gateway_environment, stopped } = done;
    let report = record.report(runs, gateway_environment, None);
    let written = write(&report, output, record, stopped);
    let printed = if output.json {
        say!("{}\n", serde_json::to_string(&report).unwrap_or_default())
    } else {
        print_results(&report, &columns.columns)
    };
    list(&written?);
    if let Some(signal) = stopped {
        return Err(signals::failure(signal));
    }
    conclude(&report.runs, &thresholds.fail_if).and(printed)
}

/// The exit code of results as a failure. Nothing was measured also where every operation failed; but a condition that
/// holds was asked for, and goes before that.
fn conclude(runs: &[Run], fail_if: &[Threshold]) -> Result<(), Failure> {
    let is_failed = |run: &&Run| run.problem.is_some() || !run.failed.is_empty() || run.is_fruitless();
    let failed = runs.iter().filter(is_failed).count();
    let checked = threshold::check(fail_if, runs);
    let is_crossed = checked.as_ref().is_err_and(|failure| failure.status == Status::Regression);
    if !is_crossed && runs.iter().all(|run| run.outcomes.is_empty() || run.is_fruitless()) {
        return Err(Failure::new(Status::Unavailable, "nothing was measured"));
    }
    checked?;
    match failed {
        0 => Ok(()),
        failed => {
            let all = runs.len();
            Err(Failure::new(Status::Unavailable, format!("{failed} of {all} experiments have a problem, named above")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(outcomes: &[(u64, u64, u64)], fail_if: &str) -> Option<Status> {
        let outcome = |(sent, acknowledged, delivered): &(u64, u64, u64)| Outcome {
            sent: *sent,
            acknowledged: *acknowledged,
            expected: *sent,
            delivered: *delivered,
            seconds: 1.0,
            ..Outcome::default()
        };
        let run =
            |each| Run { outcomes: vec![outcome(each); 3], ..Run::of(Experiment::default(), "a test".to_owned()) };
        let fail_if: Vec<Threshold> = fail_if.parse().into_iter().collect();
        conclude(&outcomes.iter().map(run).collect::<Vec<_>>(), &fail_if).err().map(|failure| failure.status)
    }

    #[test]
    fn a_measurement_of_which_nothing_came_is_none() {
        assert_eq!(code(&[(10, 10, 10)], ""), None);
        assert_eq!(code(&[(10, 0, 0)], ""), Some(Status::Unavailable));
        assert_eq!(code(&[(10, 10, 10), (10, 0, 0)], ""), Some(Status::Unavailable));
        // Some of it succeeded, or some of it is a result.
        assert_eq!([(10, 1, 0), (10, 0, 1), (0, 0, 0)].map(|each| code(&[each], "")), [None; 3]);
        // Conditions are told where they can be.
        assert_eq!(code(&[(10, 0, 0)], "rate<150/s"), Some(Status::Regression));
        assert_eq!(code(&[(10, 10, 0)], "rate<150/s"), Some(Status::Regression));
        assert_eq!(code(&[(10, 0, 0)], "p99>5ms"), Some(Status::Unavailable));
        assert_eq!(code(&[(10, 10, 0)], "p99>5ms"), Some(Status::TempFail));
    }
}
