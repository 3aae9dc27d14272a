//! `fogmux doctor`: why something does not work, each finding with the command that mends it (ADR 0047). It changes
//! nothing, and works with and without a running gateway.

mod access;
mod acme;
mod certificates;
mod clock;
mod configuration;
mod disk;
mod files;
mod finding;
mod gateway;
mod kinds;
mod limits;
mod listeners;
mod machine;
#[cfg(test)]
mod made_up;
mod pi;
mod readers;
mod sockets;

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::cli::Doctor;
use crate::config::Config;
use crate::data;
use crate::exit::{Failure, Status};
use crate::installed;
use crate::modes::quoted;
use crate::output::say;
use finding::{Level, Report};
use machine::{Machine, Process};

/// The configuration, data and machine that are examined.
struct Subject<'a> {
    machine: &'a Machine,
    config: &'a Config,
    /// The file on the command line.
    config_file: Option<&'a Path>,
    /// The data directory.
    directory: PathBuf,
    /// The gateway that runs on it.
    running: Option<Process>,
    /// The wall clock, since 1970.
    now: Duration,
}

impl Subject<'_> {
    /// The directory of the store.
    fn store(&self) -> PathBuf {
        self.config.store.path.clone().unwrap_or_else(|| self.directory.join(data::STORE))
    }

    /// `--config FILE --data DIR` for a command that mends, as far as they were given or matter.
    fn arguments(&self) -> String {
        let mut text = String::new();
        if let Some(file) = self.config_file {
            text += &format!(" --config {}", quoted(file));
        }
        text + &format!(" --data {}", quoted(&self.directory))
    }
}

/// Examines everything, and prints it. Ends with 78 if the configuration is invalid, with 69 if there is another
/// problem or, with `--strict`, a warning.
pub(crate) fn run(arguments: &Doctor) -> Result<(), Failure> {
    let machine = Machine::here();
    let gateway = installed::locate(&arguments.files)?;
    let directory = gateway.directory()?;
    let mut report = Report::default();
    let file = gateway.config.as_deref();
    let unreadable = kinds::examine(file, &directory, &mut report);
    let config = if unreadable.configuration { None } else { configuration::examine(file, &directory, &mut report) };
    let valid = config.is_some();
    // Without a valid configuration the machine and the data directory are examined as with the defaults.
    let config = config.unwrap_or_default();
    let subject =
        Subject { machine: &machine, config: &config, config_file: file, directory, running: None, now: now() };
    examine(subject, valid, !unreadable.data, &mut report);
    if arguments.json {
        say!("{}\n", report.json())?;
    } else {
        say!("{}", report.text())?;
    }
    match status(&report, unreadable.configuration, arguments.strict) {
        Some(status) => Err(Failure::silent(status)),
        None => Ok(()),
    }
}

/// Returns how the command ends if something is wrong. `unreadable`: the configuration is, by its kind.
fn status(report: &Report, unreadable: bool, strict: bool) -> Option<Status> {
    let limit = if strict { Level::Warning } else { Level::Problem };
    if unreadable || report.has_problem("configuration") {
        return Some(Status::Config);
    }
    (report.worst() >= limit).then_some(Status::Unavailable)
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// `valid`: the configuration is; `readable`: all files of the data directory are ones that can be read.
fn examine(mut subject: Subject<'_>, valid: bool, readable: bool, report: &mut Report) {
    subject.running = gateway::examine(&subject, report);
    if valid {
        listeners::examine(&subject, report);
    }
    if valid && readable {
        access::examine(&subject, report);
        certificates::examine(&subject, report);
        acme::examine(&subject, report);
    }
    files::examine(&subject, report);
    readers::examine(&subject, report);
    clock::examine(&subject, report);
    disk::examine(&subject, report);
    limits::examine(&subject, report);
    pi::examine(&subject, report);
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn a_warning_is_a_failure_only_if_asked_for() {
        let mut report = Report::default();
        for (level, otherwise, strict) in [
            ("ok", None, None),
            ("unknown", None, None),
            ("warning", None, Some(Status::Unavailable)),
            ("problem", Some(Status::Unavailable), Some(Status::Unavailable)),
            ("configuration", Some(Status::Config), Some(Status::Config)),
        ] {
            match level {
                "ok" => report.ok("clock", ""),
                "unknown" => report.unknown("clock", ""),
                "warning" => report.warning("clock", "", ""),
                "problem" => report.problem("clock", "", ""),
                _ => report.problem("configuration", "", ""),
            }
            assert_eq!([status(&report, false, false), status(&report, false, true)], [otherwise, strict], "{level}");
        }
        assert_eq!(status(&Report::default(), true, false), Some(Status::Config), "a directory, for example");
    }

    /// A command that does not exist mends nothing.
    #[test]
    fn commands_of_ours_that_mend_are_ones_that_exist() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("fogmux.toml");
        std::fs::write(&file, "[workers]\ncount = \"many\"\n").unwrap();
        let mut report = Report::default();
        assert!(configuration::examine(Some(&file), directory.path(), &mut report).is_none());
        std::fs::write(directory.path().join("acl.toml"), "[[allow]]\nwho = 1\n").unwrap();
        let (machine, config) = (Machine::here(), Config::default());
        let directory = directory.path().into();
        let subject =
            Subject { machine: &machine, config: &config, config_file: None, directory, running: None, now: now() };
        let mut more = Report::default();
        examine(subject, true, true, &mut more);
        report.0.extend(more.0);
        let ours: Vec<&str> = report
            .0
            .iter()
            .filter_map(|finding| finding.mend.as_deref())
            .filter(|mend| mend.starts_with("fogmux "))
            .collect();
        assert!(ours.len() >= 2, "{ours:?}");
        for mend in ours {
            assert!(Cli::try_parse_from(mend.split(' ')).is_ok(), "{mend}");
        }
    }
}
