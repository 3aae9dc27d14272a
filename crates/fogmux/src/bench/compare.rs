//! `fogmux bench compare` and `pair`: what became better or worse, as text and as an exit code.

use std::path::{Path, PathBuf};
use std::process::Command;

use fogmux_traffic::conductor::{Conductor, Stop, Target};
use fogmux_traffic::measure::build;
use fogmux_traffic::repetition::{EACH, Rounds, Side, alternate};
use fogmux_traffic::report::compare::{self, Comparison, Conclusion, Shown};
use fogmux_traffic::target::Home;
use fogmux_traffic::text::said;
use fogmux_traffic::{Experiment, Run};

use super::arguments::{Columns, Compare, Output, Pair, Peer, Thresholds, Until};
use super::effect::{self, Served};
use super::record::Record;
use super::{Done, peer, read, signals};
use crate::exit::{Failure, Status};
use crate::output::say;
use crate::terminal::columns;

/// Digits of a program's hash in the name of a side: two builds of one version are told apart.
const HASH_DIGITS: usize = 12;

/// Compares two reports, or both sides of one.
pub(super) fn run(arguments: &Compare) -> Result<(), Failure> {
    let before = read(&arguments.before)?;
    let mut comparison = match &arguments.after {
        Some(after) => compare::compare(&before, &read(after)?, arguments.session / 100.0),
        None => both_sides(&before.runs)?,
    };
    let shown = shown(arguments.all);
    let printed = match (arguments.json, arguments.markdown) {
        (true, _) => say!("{}\n", serde_json::to_string(&comparison).unwrap_or_default()),
        (false, true) => say!("{}", comparison.markdown(shown)),
        (false, false) => say!("{}", comparison.terminal(shown, columns(std::io::stdout()))),
    };
    if let Some(directory) = &arguments.out {
        let names = match &arguments.after {
            Some(after) => [arguments.before.display().to_string(), after.display().to_string()],
            None => targets(&before.runs),
        };
        render(&comparison, directory, &names)?;
    }
    if arguments.common {
        comparison.only_before.clear();
        comparison.only_after.clear();
    }
    conclude(&comparison).and(printed)
}

/// The names of the sides of a pair.
fn targets(runs: &[Run]) -> [String; 2] {
    let mut targets = runs.iter().map(|run| run.target.clone());
    std::array::from_fn(|_| targets.next().unwrap_or_default())
}

/// Writes the page of a comparison.
fn render(comparison: &Comparison, directory: &Path, sides: &[String; 2]) -> Result<(), Failure> {
    let written = comparison.render(directory, sides.each_ref().map(String::as_str));
    let written = written.map_err(|error| Failure::io(directory.display(), &error))?;
    written.iter().for_each(|file| eprintln!("{}", file.display()));
    Ok(())
}

fn both_sides(runs: &[Run]) -> Result<Comparison, Failure> {
    let [first, second] = runs else {
        return Err(Failure::new(Status::Usage, "one file is compared if `bench pair` wrote it; else name two"));
    };
    compare::paired(first, second).map_err(|error| Failure::new(Status::Usage, error))
}

fn shown(all: bool) -> Shown {
    if all { Shown::Everything } else { Shown::Changes }
}

/// Returns the exit code as a failure; what is worse has been printed.
fn conclude(comparison: &Comparison) -> Result<(), Failure> {
    let (status, why) = match comparison.conclusion() {
        Conclusion::Fine => return Ok(()),
        Conclusion::Regression => return Err(Failure::silent(Status::Regression)),
        Conclusion::Crashed => (Status::Software, "every repetition of an experiment failed that worked before"),
        Conclusion::Different => (Status::Config, "the experiments differ; --common compares those in both"),
        Conclusion::Incomparable => (Status::NoInput, "nothing to compare: no experiment has repetitions in both"),
        Conclusion::Inconclusive => {
            (Status::TempFail, "inconclusive: too few repetitions, or they scatter too much; --until 5% does more")
        }
    };
    Err(Failure::new(status, why))
}

/// Measures two programs in turn and compares them.
pub(super) fn pair(arguments: &Pair) -> Result<(), Failure> {
    let done = super::block_on(rounds(arguments))??;
    let Done { record, runs, gateway_environment, stopped } = done;
    let comparison = both_sides(&runs)?;
    let report = record.report(runs, gateway_environment, None);
    let written = super::write(&report, &arguments.output, record, stopped);
    let printed = print(arguments, &comparison);
    super::list(&written?);
    if let Some(directory) = &arguments.output.out {
        render(&comparison, directory, &targets(&report.runs))?;
    }
    let conclusion = match stopped {
        Some(signal) => Err(signals::failure(signal)),
        None => conclude(&comparison),
    };
    conclusion.and(printed)
}

/// Measures both sides in turn.
async fn rounds(arguments: &Pair) -> Result<Done, Failure> {
    let sides = [&arguments.before, &arguments.after];
    if arguments.ca.is_some() && !sides.iter().any(|program| has_tls(arguments, program)) {
        return Err(Failure::new(Status::Usage, "--ca has no effect: neither side is a broker that is reached by TLS"));
    }
    let stop = signals::stop()?;
    let mut a = side(arguments, &arguments.before, &arguments.pid_before, &stop)?;
    let mut b = side(arguments, &arguments.after, &arguments.pid_after, &stop)?;
    if a.experiment != b.experiment {
        let why = "the URLs lead to different doors: the experiments would differ";
        return Err(Failure::new(Status::Usage, why));
    }
    let experiment = a.experiment;
    super::prepare(std::slice::from_ref(&experiment), &arguments.output)?;
    let rounds = Rounds::of(arguments.rounds, arguments.until, arguments.rounds_max);
    let targets = [format!("A: {}", a.name), format!("B: {}", b.name)];
    let runs = targets.map(|target| Run::of(experiment.clone(), target));
    let mut record = Record::of_rounds(&arguments.output, runs.into(), EACH)?;
    let repetitions = rounds.wanted.saturating_mul(4);
    let mut progress = super::progress::progress(std::slice::from_ref(&experiment), repetitions, record.done());
    let mut done = 0;
    let begun = <[Run; 2]>::try_from(record.runs());
    let begun = begun.map_err(|_| Failure::new(Status::DataErr, "a pair has two runs"))?;
    let execute = async |side, round| {
        if stop.borrow().is_none() {
            progress(&experiment, done);
            done += 1;
        }
        let conductor = match side {
            Side::A => &mut a.conductor,
            Side::B => &mut b.conductor,
        };
        Ok(conductor.repeat(&experiment, round).await?)
    };
    let mut runs = alternate(begun, rounds, execute, |round| record.note_round(round)).await;
    super::energy::note(&arguments.output, &mut runs);
    let stopped = *stop.borrow();
    Ok(Done { record, runs: runs.into(), gateway_environment: None, stopped })
}

fn print(arguments: &Pair, comparison: &Comparison) -> Result<(), Failure> {
    if arguments.output.json {
        return say!("{}\n", serde_json::to_string(comparison).unwrap_or_default());
    }
    say!("{}", comparison.terminal(shown(arguments.all), columns(std::io::stdout())))
}

/// A program, and what it is to do.
struct Program {
    conductor: Conductor,
    name: String,
    experiment: Experiment,
}

fn side(arguments: &Pair, program: &str, pids: &[u32], stop: &Stop) -> Result<Program, Failure> {
    let key_log = arguments.output.key_log.clone();
    if program.contains("://") {
        let broker = Peer {
            url: program.to_owned(),
            shape: arguments.shape.clone(),
            pid: pids.to_vec(),
            ca: arguments.ca.clone().filter(|_| has_tls(arguments, program)),
            name: None,
            cert: None,
            key: None,
            psk_id: None,
            psk: None,
            oscore: None,
            repeat: 1,
            until: Until::default(),
            output: Output::default(),
            columns: Columns::default(),
            thresholds: Thresholds::default(),
        };
        let (target, experiment) = peer::target(&broker, served(arguments))?;
        let conductor = Conductor::new(target, key_log).until(stop.clone()).watched(super::watcher(&arguments.output)?);
        return Ok(Program { name: conductor.target(), conductor, experiment });
    }
    if !pids.is_empty() {
        let why = format!("--pid-before and --pid-after are for URLs: the processes of {program} are known");
        return Err(Failure::new(Status::Usage, why));
    }
    let path = PathBuf::from(program);
    let hash = build::sha256(&path).map_err(|error| Failure::io(program, &error))?;
    let hash = hash.get(..HASH_DIGITS).unwrap_or_default();
    let name = format!("{} ({program}, SHA-256 {hash}…)", version(&path)?);
    let path = path.canonicalize().map_err(|error| Failure::io(program, &error))?;
    let home = Home::temporary(path).map_err(|error| Failure::new(Status::Unavailable, error))?;
    let conductor = Conductor::new(Target::Gateway(Box::new(home)), key_log);
    let conductor = conductor.until(stop.clone()).watched(super::watcher(&arguments.output)?);
    let experiment = arguments.shape.experiment();
    effect::refuse(&arguments.shape.given, &experiment, served(arguments))?;
    Ok(Program { conductor, name, experiment })
}

/// The ends that are measured: a flag that has an effect on one side is not refused because of the other.
fn served(arguments: &Pair) -> Served {
    let is_broker = |program: &String| program.contains("://");
    if is_broker(&arguments.before) && is_broker(&arguments.after) { Served::Broker } else { Served::Gateway }
}

/// Whether a side is a broker that is reached by TLS or DTLS.
fn has_tls(arguments: &Pair, program: &str) -> bool {
    program.contains("://") && (peer::is_secure(program) || arguments.shape.security.is_secure())
}

/// Returns what the program says it is.
fn version(path: &Path) -> Result<String, Failure> {
    let answer = Command::new(path).arg("--version").output().map_err(|error| Failure::io(path.display(), &error))?;
    let text = String::from_utf8_lossy(&answer.stdout).trim().to_owned();
    if answer.status.success() && text.starts_with("fogmux") {
        return Ok(said(&text));
    }
    Err(Failure::new(Status::Usage, format!("{} is no fogmux binary: --version says {text:?}", path.display())))
}
