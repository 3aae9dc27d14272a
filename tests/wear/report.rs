//! The figures of a measurement, the table of them, and the goals.

use std::time::Duration;

use crate::load::{Load, To};
use crate::medium::BLOCK;
use crate::subject::{SD, Subject};
use crate::written::Written;

/// Blocks of the device for each block that the process writes, at most.
const BLOCKS_MAX: f64 = 1.2;
/// Bytes a day with profile `sd` and a hundred updates a second.
const SD_DAY_MAX: f64 = 2e9;
/// Bytes of the files for 12 kB of live data.
const FILES_MAX: u64 = 4 << 20;
/// Commits a second from which blocks are judged however the file system is mounted: ext4 writes three blocks of its
/// own once in five seconds, because the times of files change.
const OFTEN: f64 = 4.0;
/// Commits below which blocks are not judged: what ext4 writes once is most of them then.
const FEW: u64 = 10;
/// The option with which it does that once in a minute.
pub(crate) const LATE: &str = "commit=60";

const DAY: f64 = 86_400.0;

/// A measurement.
pub(crate) struct Figures {
    pub(crate) load: Load,
    pub(crate) subject: Subject,
    /// Options of the mount; none are the defaults.
    pub(crate) mount: &'static str,
    pub(crate) published: f64,
    pub(crate) elapsed: Duration,
    pub(crate) written: Written,
    /// The largest size of the files.
    pub(crate) files: u64,
}

impl Figures {
    fn seconds(&self) -> f64 {
        self.elapsed.as_secs_f64()
    }

    fn commits_per_second(&self) -> Option<f64> {
        Some(self.written.commits? as f64 / self.seconds())
    }

    fn blocks(&self, bytes: u64) -> Option<f64> {
        let commits = self.written.commits.filter(|commits| *commits > 0)?;
        Some(bytes as f64 / BLOCK as f64 / commits as f64)
    }

    fn device_blocks(&self) -> Option<f64> {
        self.blocks(self.written.device?)
    }

    fn a_day(&self, bytes: u64) -> f64 {
        bytes as f64 / self.seconds() * DAY
    }

    /// The cells of a line of the table.
    pub(crate) fn cells(&self) -> Vec<String> {
        let number =
            |value: Option<f64>, digits: usize| value.map_or("–".to_owned(), |value| format!("{value:.digits$}"));
        let per_second = |bytes: u64| format!("{:.0}", bytes as f64 / self.seconds());
        vec![
            self.load.name.to_owned(),
            self.subject.name(),
            if self.mount == crate::DEFAULTS { "–".to_owned() } else { self.mount.to_owned() },
            number(self.commits_per_second(), 2),
            per_second(self.written.pages),
            per_second(self.written.calls),
            self.written.device.map_or("–".to_owned(), per_second),
            number(Some(self.a_day(self.written.calls) / 1e6), 1),
            number(self.written.device.map(|bytes| self.a_day(bytes) / 1e6), 1),
            number(self.written.device.map(|bytes| bytes as f64 / self.published), 0),
            number(self.blocks(self.written.calls), 3),
            number(self.device_blocks(), 3),
            format!("{}", self.files >> 10),
        ]
    }

    /// The goals that are missed.
    pub(crate) fn missed(&self) -> Vec<String> {
        let mut missed = Vec::new();
        let who = format!("{}, {} ({})", self.load.name, self.subject.name(), self.mount);
        let Subject::Gateway(settings) = &self.subject else { return missed };
        if let Some(delay) = self.subject.delay() {
            let is_often = self.mount == LATE || self.commits_per_second().is_some_and(|rate| rate >= OFTEN);
            let is_judged = is_often && self.written.commits.is_some_and(|commits| commits >= FEW);
            // Messages that stay fill more than a block of a commit, and files that grow are written twice.
            let stays = Some(self.written.calls).filter(|_| self.load.to == To::Absent);
            let own = stays.and_then(|bytes| self.blocks(bytes)).map_or(1.0, |own| own.max(1.0));
            if let Some(blocks) = self.device_blocks().filter(|blocks| is_judged && *blocks > BLOCKS_MAX * own) {
                missed.push(format!("{who}: {blocks:.3} blocks a commit are more than {BLOCKS_MAX} times {own:.3}"));
            }
            let most = 1.0 + self.seconds() / delay.as_secs_f64();
            if let Some(commits) = self.written.commits.filter(|commits| *commits as f64 > most) {
                missed.push(format!("{who}: {commits} commits in {:.1} s are more than {most:.0}", self.seconds()));
            }
        }
        if *settings == SD && self.load.to == To::Retained {
            let day = self.a_day(self.written.device.unwrap_or(self.written.calls));
            if day > SD_DAY_MAX {
                missed.push(format!("{who}: {day:.0} bytes a day are more than {SD_DAY_MAX:.0}"));
            }
        }
        if self.load.to != To::Absent && self.files > FILES_MAX {
            missed.push(format!("{who}: files of {} bytes are larger than {FILES_MAX}", self.files));
        }
        missed
    }
}

/// The heads of the columns.
pub(crate) const HEADS: [&str; 13] = [
    "load",
    "store",
    "mount",
    "commits/s",
    "pages B/s",
    "process B/s",
    "device B/s",
    "process MB/day",
    "device MB/day",
    "device B/message",
    "process blocks/commit",
    "device blocks/commit",
    "files KiB",
];

/// A line of a table in Markdown.
pub(crate) fn line<S: AsRef<str>>(cells: &[S]) -> String {
    cells.iter().fold("|".to_owned(), |line, cell| line + " " + cell.as_ref() + " |")
}
