//! Reads files into a configuration or a list of its problems.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};

use super::clashes::find_clashes;
use super::listeners::Listeners;
use super::model::Config;
use super::problem::{Problem, Problems, Source};
use super::reader::{Findings, read_source};

/// The name under which `--set` appears in problems.
const COMMAND_LINE: &str = "--set";

/// Returns the texts to read, in order: the file, `conf.d/*.toml` beside it by name, then the command line's `--set`.
///
/// # Errors
/// Every file and directory that cannot be read; `conf.d` need not exist.
pub(crate) fn sources(file: Option<&Path>, settings: &[String]) -> Result<Vec<Source>, Unreadable> {
    let mut sources = Vec::new();
    let mut unreadable = Vec::new();
    if let Some(file) = file {
        let beside = file.parent().map(|parent| parent.join("conf.d")).unwrap_or_else(|| "conf.d".into());
        let more = toml_files(&beside).unwrap_or_else(|error| {
            unreadable.push((beside, error));
            Vec::new()
        });
        for file in [file.to_owned()].into_iter().chain(more) {
            match fogmux_file::read_to_string(&file) {
                Ok(text) => sources.push(Source::new(file, text)),
                Err(error) => unreadable.push((file, error)),
            }
        }
    }
    if !settings.is_empty() {
        let text = settings.iter().map(|line| setting(line)).collect::<Vec<_>>().join("\n");
        sources.push(Source::new(COMMAND_LINE, text));
    }
    if unreadable.is_empty() { Ok(sources) } else { Err(Unreadable(unreadable)) }
}

/// Files and directories that cannot be read, in the order in which they are.
#[derive(Debug)]
pub(crate) struct Unreadable(Vec<(PathBuf, std::io::Error)>);

/// One a line.
impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = self.0.iter().map(|(file, error)| format!("{}: {error}", file.display()));
        f.write_str(&lines.collect::<Vec<_>>().join("\n"))
    }
}

/// Reads all sources into one configuration.
///
/// # Errors
/// Every problem of every source, and the clashes between keys, in the order of files and lines.
pub(crate) fn load(sources: &[Source]) -> Result<Config, Problems> {
    let mut config = Config { listeners: Listeners::with_defaults_of(sources), ..Config::default() };
    let mut findings = Findings::default();
    for source in sources {
        read_source(source, &mut config, &mut findings);
    }
    find_clashes(&config, &mut findings);
    if findings.problems.is_empty() { Ok(config) } else { Err(ordered(findings.problems, sources)) }
}

fn ordered(mut problems: Vec<Problem>, sources: &[Source]) -> Problems {
    let rank: HashMap<_, _> = sources.iter().enumerate().map(|(rank, source)| (source.file.as_path(), rank)).collect();
    problems.sort_by_key(|problem| match &problem.location {
        Some(at) => (rank.get(at.file.as_path()).copied().unwrap_or(usize::MAX), at.line),
        None => (usize::MAX, 0),
    });
    Problems(problems)
}

fn toml_files(directory: &Path) -> std::io::Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        // A link that leads nowhere is no empty directory: what is in it may only not be mounted yet.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && directory.symlink_metadata().is_err() => {
            return Ok(Vec::new());
        }
        Err(error) => return Err(error),
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Parses `key=value`. A value that is not TOML is taken as text: `--set listeners.mqtt.address=127.0.0.1:0`.
fn setting(line: &str) -> String {
    let Some((key, value)) = line.split_once('=') else { return line.replace('\n', " ") };
    let value = value.trim().replace('\n', " ");
    let is_toml = format!("value = {value}").parse::<toml::Table>().is_ok();
    if is_toml { format!("{key} = {value}") } else { format!("{key} = {}", toml::Value::String(value)) }
}
