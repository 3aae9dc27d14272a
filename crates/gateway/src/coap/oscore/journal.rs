//! The journal of sequence numbers that may have been used, which survives a power cut (RFC 8613 appendix B.1.1).
//!
//! A line for each chunk of each context: `fingerprint below - checksum`. The highest line of a context counts. In
//! place of `-` earlier versions wrote which requests a context had seen when it was put to rest; that is not believed
//! any more, since a copy of the file says it, too. Lines are appended and synced by a thread of its own; at start the
//! file is written anew.
//!
//! A fingerprint of noughts says until when lines were lost, one of ones where the contexts of a restored backup begin.

use std::{
    collections::BTreeMap,
    fs::{self, File, TryLockError},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
    sync::mpsc::{self, Receiver, Sender, SyncSender},
    thread,
    time::{Duration, Instant},
};

use fogmux_oscore::{CHUNK, Fingerprint, Reservation};
use sha2::{Digest as _, Sha256};

/// Beyond this many lines more than contexts, the file is written anew.
const LINES_MAX: usize = 8192;

/// How soon a journal that could not be written is written again for the next chunk of numbers.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// How often, and how far apart, a lock is tried.
const LOCK_ATTEMPTS: u32 = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(50);

/// The state of one context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// Numbers from here on were certainly not used.
    pub(super) below: u64,
}

/// Says that this process writes the journal and no other; two gateways would use the same numbers.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

impl Lock {
    /// On a journal. Waits a moment for one who is about to end.
    pub(super) fn take(journal: &Path) -> io::Result<Self> {
        let path = journal.with_extension("lock");
        Self::on(File::options().write(true).create(true).truncate(false).mode(0o600).open(path)?)
    }

    /// Whether a journal is missing beside a lock of an earlier run.
    pub(super) fn misses(journal: &Path) -> bool {
        journal.with_extension("lock").exists() && !journal.exists()
    }

    /// On a directory of contexts, which another gateway with another journal must not use; nothing is written there.
    pub(super) fn take_directory(directory: &Path) -> io::Result<Self> {
        Self::on(File::open(directory)?)
    }

    fn on(file: File) -> io::Result<Self> {
        for _ in 0..LOCK_ATTEMPTS {
            match file.try_lock() {
                Ok(()) => return Ok(Self { _file: file }),
                Err(TryLockError::WouldBlock) => thread::sleep(LOCK_PAUSE),
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
        Err(io::Error::new(io::ErrorKind::ResourceBusy, "another gateway uses it"))
    }
}

/// All lines of a file.
#[derive(Debug, Default)]
pub(super) struct Records {
    known: BTreeMap<Fingerprint, Record>,
    /// Bytes of lines that cannot be read.
    damaged_bytes: u64,
}

impl Records {
    pub(super) fn read(path: &Path) -> io::Result<Self> {
        match fs::read(path) {
            Ok(bytes) => Ok(Self::parse(&bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error),
        }
    }

    fn parse(bytes: &[u8]) -> Self {
        let mut records = Self::default();
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            match parse_line(line) {
                Some((fingerprint, record)) => records.put(fingerprint, record),
                None => records.damaged_bytes += line.len() as u64,
            }
        }
        records
    }

    /// The state of a context; one without a line begins with the number `first`, if that is known. A damaged line may
    /// have been of this context, and may have reserved a chunk; there are fewer lines in it than bytes.
    pub(super) fn of(&self, fingerprint: &Fingerprint, first: Option<u64>) -> Option<Record> {
        let known = self.known.get(fingerprint).copied();
        if self.damaged_bytes == 0 {
            return known;
        }
        let below = known.map(|record| record.below).or(first)?;
        Some(Record { below: below.saturating_add(self.damaged_bytes.saturating_mul(CHUNK)) })
    }

    /// Notes a line. Numbers that were reserved do not come back.
    pub(super) fn put(&mut self, fingerprint: Fingerprint, record: Record) {
        let known = self.known.entry(fingerprint).or_insert(record);
        known.below = known.below.max(record.below);
    }

    /// Notes that lines of contexts may be lost that were made before the clock gave the number `first`.
    pub(super) fn lose(&mut self, first: u64) {
        self.put(Fingerprint::NONE, Record { below: first });
    }

    /// A context that was made when the clock gave numbers below this may have had a line that was lost.
    pub(super) fn lost_below(&self) -> u64 {
        self.known.get(&Fingerprint::NONE).map_or(0, |record| record.below)
    }

    /// Notes that these are contexts of a backup, none of which has used a number from `first` on.
    pub(super) fn restore(&mut self, first: u64) {
        self.put(Fingerprint::ALL, Record { below: first });
    }

    /// Where contexts without a line begin because they come from a backup.
    pub(super) fn restored_from(&self) -> Option<u64> {
        self.known.get(&Fingerprint::ALL).map(|record| record.below)
    }

    /// From this number on no context has any reserved.
    pub(super) fn highest(&self) -> u64 {
        let all = self.known.iter().filter(|(fingerprint, _)| **fingerprint != Fingerprint::NONE);
        all.map(|(_, record)| record.below).max().unwrap_or_default()
    }

    /// Moves every context ahead for good, so that the damaged lines can go. Now the clock gives the number `first`.
    pub(super) fn heal(&mut self, first: u64) -> u64 {
        let all: Vec<Fingerprint> = self.known.keys().copied().filter(|known| *known != Fingerprint::NONE).collect();
        for fingerprint in all {
            if let Some(record) = self.of(&fingerprint, None) {
                self.known.insert(fingerprint, record);
            }
        }
        if self.damaged_bytes > 0 {
            self.lose(first);
        }
        std::mem::take(&mut self.damaged_bytes)
    }

    /// Puts these in the place of the file, and only returns when they are there for good.
    fn write(&self, path: &Path) -> io::Result<File> {
        let fresh = path.with_extension("new");
        let lines: String = self.known.iter().map(|(fingerprint, record)| line(fingerprint, *record)).collect();
        let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
        file.write_all(lines.as_bytes())?;
        file.sync_all()?;
        fs::rename(&fresh, path)?;
        if let Some(directory) = path.parent() {
            File::open(directory)?.sync_all()?;
        }
        // Renamed, it is still this one; from here on it is appended to.
        Ok(file)
    }
}

fn line(fingerprint: &Fingerprint, record: Record) -> String {
    let text = format!("{fingerprint} {} -", record.below);
    format!("{text} {}\n", checksum(&text))
}

fn parse_line(line: &[u8]) -> Option<(Fingerprint, Record)> {
    let (text, sum) = str::from_utf8(line).ok()?.strip_suffix('\n')?.rsplit_once(' ')?;
    if checksum(text) != sum {
        return None;
    }
    let mut fields = text.split(' ');
    let (fingerprint, below) = (fields.next()?, fields.next()?);
    Some((fingerprint.parse().ok()?, Record { below: below.parse().ok()? }))
}

fn checksum(text: &str) -> String {
    Sha256::digest(text).iter().take(4).map(|byte| format!("{byte:02x}")).collect()
}

/// A command to the thread.
enum Command {
    Reserve(Reservation),
    /// Writes lines of contexts that are new, and says when they are there.
    Put(Vec<(Fingerprint, Record)>, SyncSender<bool>),
}

/// The way to the thread that writes. When it goes, the thread ends.
#[derive(Debug)]
pub(super) struct Journal {
    commands: Sender<Command>,
}

impl Journal {
    /// Writes these records in the place of the file and starts the thread.
    pub(super) fn open(path: &Path, lock: Lock, records: Records) -> io::Result<Self> {
        let file = records.write(path)?;
        let (commands, waiting) = mpsc::channel();
        let mut writer = Writer { path: path.to_owned(), _lock: lock, file, records, lines: 0, failed: None };
        thread::Builder::new().name("oscore-journal".to_owned()).spawn(move || writer.run(&waiting))?;
        Ok(Self { commands })
    }

    /// Asks for a chunk of numbers; does not wait.
    pub(super) fn reserve(&self, reservation: Reservation) {
        // When the thread is gone, the reservation comes back in the error and is dropped: it failed.
        let _ = self.commands.send(Command::Reserve(reservation));
    }

    /// Writes records and waits until they are there for good; `false` when they are not.
    pub(super) fn put(&self, records: Vec<(Fingerprint, Record)>) -> bool {
        let (done, wait) = mpsc::sync_channel(1);
        self.commands.send(Command::Put(records, done)).is_ok() && wait.recv().unwrap_or(false)
    }
}

struct Writer {
    path: std::path::PathBuf,
    _lock: Lock,
    file: File,
    records: Records,
    lines: usize,
    /// When a sync failed last: what the file holds is not known any more, so nothing is promised before another file
    /// has taken its place.
    failed: Option<Instant>,
}

impl Writer {
    fn run(&mut self, waiting: &Receiver<Command>) {
        while let Ok(first) = waiting.recv() {
            // All that wait have one sync together.
            let commands: Vec<Command> = std::iter::once(first).chain(waiting.try_iter()).collect();
            let written = self.write(&commands);
            for command in commands {
                match command {
                    Command::Reserve(reservation) if written => reservation.is_durable(),
                    Command::Reserve(_) => {}
                    Command::Put(_, done) => {
                        let _ = done.send(written);
                    }
                }
            }
        }
    }

    fn write(&mut self, commands: &[Command]) -> bool {
        let mut lines = String::new();
        // Somebody waits for those that are put; chunks are asked for again with every message that needs one.
        let is_urgent = commands.iter().any(|command| matches!(command, Command::Put(..)));
        if self.failed.is_some_and(|at| !is_urgent && at.elapsed() < RETRY_AFTER) {
            return false;
        }
        for command in commands {
            match command {
                Command::Reserve(reservation) => {
                    let record = Record { below: reservation.below() };
                    self.take(*reservation.context().fingerprint(), record, &mut lines);
                }
                Command::Put(records, _) => {
                    records.iter().for_each(|(fingerprint, record)| self.take(*fingerprint, *record, &mut lines));
                }
            }
        }
        let written = if self.failed.is_some() || self.lines > LINES_MAX + self.records.known.len() {
            self.lines = 0;
            self.records.write(&self.path).map(|file| self.file = file)
        } else {
            self.file.write_all(lines.as_bytes()).and_then(|()| self.file.sync_data())
        };
        let journal = self.path.display();
        match (&written, self.failed) {
            (Err(error), None) => tracing::error!(%error, %journal, "OSCORE sequence numbers cannot be saved: \
                no notification and no new request is protected until they can"),
            (Ok(()), Some(_)) => tracing::info!(%journal, "OSCORE sequence numbers are saved again"),
            (Err(_), Some(_)) | (Ok(()), None) => {}
        }
        self.failed = written.is_err().then(Instant::now);
        written.is_ok()
    }

    fn take(&mut self, fingerprint: Fingerprint, record: Record, lines: &mut String) {
        lines.push_str(&line(&fingerprint, record));
        self.lines += 1;
        self.records.put(fingerprint, record);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fingerprint(byte: u8) -> Fingerprint {
        format!("{byte:02x}").repeat(16).parse().unwrap()
    }

    const USED: Record = Record { below: 2048 };
    const BEHIND: Record = Record { below: 1030 };

    #[test]
    fn the_highest_line_of_a_context_counts() {
        let rested = format!("{} 1030 77/0x0a", fingerprint(1));
        let rested = format!("{rested} {}\n", checksum(&rested));
        let text = line(&fingerprint(1), USED) + &line(&fingerprint(2), BEHIND) + &rested;
        let records = Records::parse(text.as_bytes());
        assert_eq!(records.of(&fingerprint(1), Some(0)), Some(USED), "as it was written once");
        assert_eq!(records.of(&fingerprint(2), Some(0)), Some(BEHIND));
        assert_eq!(records.of(&fingerprint(3), Some(0)), None);
        let text = line(&fingerprint(1), USED) + &line(&fingerprint(1), BEHIND);
        assert_eq!(Records::parse(text.as_bytes()).of(&fingerprint(1), Some(0)), Some(USED));
    }

    #[test]
    fn a_damaged_line_moves_every_context_ahead() {
        let (first, second) = (line(&fingerprint(1), BEHIND), line(&fingerprint(2), USED));
        for (text, lost) in [(first.clone() + &second.replace('2', "3"), second.len()), (first.clone() + "torn", 4)] {
            let mut records = Records::parse(text.as_bytes());
            let below = |known: u64| Some(Record { below: known + lost as u64 * CHUNK });
            assert_eq!(records.of(&fingerprint(1), Some(0)), below(1030));
            assert_eq!(records.of(&fingerprint(2), Some(0)), below(0));
            assert_eq!(records.of(&fingerprint(2), Some(9000)), below(9000));
            assert_eq!(records.heal(5000), lost as u64);
            assert_eq!(records.of(&fingerprint(1), Some(0)), below(1030));
            assert_eq!(records.of(&fingerprint(2), Some(0)), None);
            assert_eq!(records.lost_below(), 5000);
        }
    }

    #[test]
    fn what_is_put_is_there_when_it_is_opened_again() {
        let directory = std::env::temp_dir().join(format!("fogmux-journal-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join("journal");
        let journal = Journal::open(&path, Lock::take(&path).unwrap(), Records::default()).unwrap();
        assert_eq!(Lock::take(&path).unwrap_err().kind(), io::ErrorKind::ResourceBusy);
        assert!(journal.put(vec![(fingerprint(1), USED), (fingerprint(2), BEHIND)]));
        let records = Records::read(&path).unwrap();
        assert_eq!(
            (records.of(&fingerprint(1), Some(0)), records.of(&fingerprint(2), Some(0))),
            (Some(USED), Some(BEHIND))
        );
        for below in 0..LINES_MAX as u64 + 10 {
            assert!(
                journal
                    .commands
                    .send(Command::Put(vec![(fingerprint(1), Record { below })], mpsc::sync_channel(1).0))
                    .is_ok()
            );
        }
        assert!(journal.put(vec![(fingerprint(3), USED)]));
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.lines().count() < LINES_MAX);
        let last = Record { below: LINES_MAX as u64 + 9 };
        assert_eq!(Records::parse(text.as_bytes()).of(&fingerprint(1), Some(0)), Some(last));
        fs::remove_dir_all(&directory).unwrap();
    }
}
