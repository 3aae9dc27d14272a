//! A made-up machine with a data directory, for tests of what is found out about it.

use std::path::PathBuf;
use std::time::Duration;

use tempfile::TempDir;

use super::Subject;
use super::finding::{Level, Report};
use super::machine::{Machine, Process};
use crate::config::{Config, Source, load};

/// A machine of which only those files exist that a test has written.
pub(super) struct MadeUp {
    root: TempDir,
    pub(super) config: Config,
    pub(super) running: Option<Process>,
    pub(super) now: Duration,
}

impl MadeUp {
    pub(super) fn new(configuration: &str) -> Self {
        let config = load(&[Source::new("fogmux.toml", configuration)]).unwrap();
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("data")).unwrap();
        Self { root, config, running: None, now: Duration::from_secs(1_900_000_000) }
    }

    pub(super) fn path(&self, file: &str) -> PathBuf {
        self.root.path().join(file)
    }

    pub(super) fn write(&self, file: &str, text: &str) {
        let file = self.path(file);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    }

    /// The findings of one name, with their texts.
    pub(super) fn found(&self, name: &str, examine: fn(&Subject<'_>, &mut Report)) -> Vec<(Level, String)> {
        let machine = Machine::at(self.root.path());
        let subject = Subject {
            machine: &machine,
            config: &self.config,
            config_file: None,
            directory: self.path("data"),
            running: self.running.clone(),
            now: self.now,
        };
        let mut report = Report::default();
        examine(&subject, &mut report);
        report.0.into_iter().filter(|one| one.name == name).map(|one| (one.level, one.text)).collect()
    }

    /// The level of the only finding of a name.
    pub(super) fn level(&self, name: &str, examine: fn(&Subject<'_>, &mut Report)) -> Level {
        let found = self.found(name, examine);
        assert_eq!(found.len(), 1, "{found:?}");
        found[0].0
    }
}
