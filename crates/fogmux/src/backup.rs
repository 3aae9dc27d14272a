//! `fogmux backup` and `fogmux restore`: all that a gateway keeps, in one file (ADR 0048).
//!
//! The file is a tar archive (POSIX.1-2017 pax and ustar interchange format) of
//!
//! ```text
//! fogmux-backup.json     format, version, time, where files outside the data directory were
//! data/…                 keys, certificates, users, rules, OSCORE contexts
//! config/…               the configuration and conf.d
//! named/KEY              files outside the data directory that the configuration names
//! store/…                the store, as it was at one moment
//! SHA256SUMS             of all of them, as `sha256sum --check` reads it
//! ```

pub(crate) mod control;
mod manifest;
mod members;
pub(crate) mod restore;
#[cfg(feature = "http")]
pub(crate) mod send;
mod sums;
mod tar;
mod target;

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fogmux_store::{CopyError, JournalStore, OpenError, StoreFile};

use crate::cli::Backup;
use crate::config::Config;
use crate::data;
use crate::exit::{Failure, Status};
use crate::installed;
use crate::interrupted;
use crate::oscore;
use crate::output::say;
use manifest::Manifest;
use sums::Summed;
use target::Target;

/// How long a gateway that has just been started may take from its store to its control socket.
const STARTING: Duration = Duration::from_secs(10);
/// The pause between two looks.
const POLLED: Duration = Duration::from_millis(50);
/// The name of the file of sums, the last of an archive.
const SUMS: &str = "SHA256SUMS";

/// Writes a backup.
pub(crate) fn run(arguments: &Backup) -> Result<(), Failure> {
    let gateway = installed::find(&arguments.files)?;
    let directory = gateway.directory()?;
    if !directory.is_dir() {
        let text = format!("{}: there is no data directory; name it with --data DIR", directory.display());
        return Err(Failure::new(Status::NoInput, text));
    }
    let store = gateway.config.store.path.clone();
    let contents = Contents {
        config: &gateway.config,
        file: gateway.located.config.as_deref(),
        directory: &directory,
        store: None,
        name: &arguments.file,
    };
    let inside = members::is_inside(&arguments.file, &directory)
        || store.is_some_and(|store| members::is_inside(&arguments.file, &store));
    let made = if arguments.file.as_os_str() == "-" {
        let mut out = BufWriter::new(io::stdout().lock());
        let made = contents.write(&mut out)?;
        out.flush().map_err(|error| Failure::io("standard output", &error))?;
        made
    } else if inside {
        let text = format!("{} is in the data directory, of which it would be a part", arguments.file.display());
        return Err(Failure::new(Status::Usage, text));
    } else {
        interrupted::listen()?;
        let target = Target::create(&arguments.file)?;
        let made = contents.write(&mut BufWriter::new(&target.file))?;
        let _finishing = interrupted::hold();
        target.put_in_place()?;
        made
    };
    warn_of_abandoned(&arguments.file);
    report(arguments, &made)
}

/// Warns of other backups beside a file that were ended before they could remove what they had written.
fn warn_of_abandoned(file: &Path) {
    if file.as_os_str() == "-" {
        return;
    }
    for path in target::abandoned_beside(file) {
        eprintln!("fogmux: warning: {}: left by a backup that was ended; it has keys: remove it", path.display());
    }
}

/// A backup that was written.
struct Made {
    files: usize,
    bytes: u64,
    running: bool,
    unreadable_blocks: u64,
    skipped: Vec<PathBuf>,
}

/// The parts of a backup.
struct Contents<'a> {
    config: &'a Config,
    /// The configuration file; `None` for the built-in defaults.
    file: Option<&'a Path>,
    directory: &'a Path,
    /// The store of this process; `None` if another one may have it open.
    store: Option<JournalStore>,
    /// The name of the backup in messages.
    name: &'a Path,
}

impl Contents<'_> {
    fn write(self, out: &mut dyn Write) -> Result<Made, Failure> {
        let Self { config, directory, name, .. } = self;
        let failed = |error: io::Error| Failure::io(name.display(), &error);
        // A step of a rollover adds and renames files: they are listed and read while none is under way. The lock is
        // not held longer, for whoever takes the backup may be slow.
        let authority = directory.join(data::PKI);
        let lock = fogmux_net::pki::hold(&authority);
        let members = members::find(config, self.file, directory)?;
        let at_once = members.read_at_once(&authority)?;
        drop(lock);
        let store = config.store.path.clone().unwrap_or_else(|| directory.join(data::STORE));
        let source = match self.store {
            Some(store) => Source::Own(store),
            None => Source::open(directory, &store)?,
        };
        let mut archive = Summed::new(out);
        let manifest = Manifest::new(&members, oscore::reserved(directory)?).to_json();
        archive.add(manifest::NAME, &manifest).map_err(failed)?;
        for (name, content) in &at_once {
            archive.add(name, content).map_err(failed)?;
        }
        for member in members.files.iter().filter(|member| !at_once.contains_key(&member.name)) {
            match member.open() {
                Ok((mut file, bytes)) => archive.add_from(&member.name, bytes, &mut file).map_err(failed)?,
                // It was removed since it was listed: an old certificate, or the temporary file of a command.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(Failure::io(member.path.display(), &error)),
            }
        }
        let (unreadable_blocks, running) = source.copy(&mut |StoreFile { name, bytes, content }| {
            archive.add_padded(&format!("store/{name}"), bytes, &content)
        })?;
        let (files, bytes) = archive.finish(SUMS).map_err(failed)?;
        Ok(Made { files, bytes, running, unreadable_blocks, skipped: members.skipped })
    }
}

fn report(arguments: &Backup, made: &Made) -> Result<(), Failure> {
    let Made { files, bytes, running, unreadable_blocks, skipped } = made;
    if *unreadable_blocks > 0 {
        eprintln!(
            "fogmux: warning: the disk did not give {unreadable_blocks} blocks of the store; what was in them is missing"
        );
    }
    for path in skipped {
        eprintln!("fogmux: warning: {}: left out, it is no file and no directory of this gateway", path.display());
    }
    let of = if *running { "of the running gateway" } else { "of a gateway that does not run" };
    if arguments.json {
        let text = serde_json::json!({
            "file": arguments.file, "files": files, "bytes": bytes, "running": running,
            "unreadable_blocks": unreadable_blocks, "left_out": skipped,
        });
        // Standard output may be the archive.
        if arguments.file.as_os_str() == "-" {
            eprintln!("{text}")
        } else {
            say!("{text}\n")?
        }
        return Ok(());
    }
    let text =
        format!("{}: {files} files, {bytes} bytes, {of}; it has all keys: keep it secret", arguments.file.display());
    if arguments.file.as_os_str() == "-" {
        eprintln!("fogmux: {text}")
    } else {
        say!("{text}\n")?
    }
    Ok(())
}

/// Where the store is copied from.
enum Source {
    /// The gateway that has it open.
    Running(control::Client),
    /// This process, which has it open.
    Own(JournalStore),
    /// The directories of the data and of the store.
    AtRest { directory: PathBuf, store: PathBuf },
}

impl Source {
    fn open(directory: &Path, store: &Path) -> Result<Self, Failure> {
        match control::Client::connect(directory) {
            Ok(client) => Ok(Self::Running(client)),
            Err(error) if is_absent(&error) => {
                Ok(Self::AtRest { directory: directory.to_owned(), store: store.to_owned() })
            }
            Err(error) => Err(Failure::io(directory.join(control::NAME).display(), &error)),
        }
    }

    /// Copies the store. Returns the number of blocks that its disk did not give, and whether it was in use.
    fn copy(self, take: &mut dyn FnMut(StoreFile) -> io::Result<()>) -> Result<(u64, bool), Failure> {
        match self {
            Self::Running(client) => Ok((client.copy(take)?, true)),
            Self::Own(store) => Ok((store.copy(take).map_err(|error| failed(&error))?, true)),
            Self::AtRest { directory, store } => at_rest(&directory, &store, take),
        }
    }
}

/// Copies the store of a gateway that is not running. One that has just been started has the store before it has the
/// socket, for which this waits.
fn at_rest(
    directory: &Path,
    store: &Path,
    take: &mut dyn FnMut(StoreFile) -> io::Result<()>,
) -> Result<(u64, bool), Failure> {
    let end = Instant::now() + STARTING;
    loop {
        match fogmux_store::copy_at_rest(store, take) {
            Err(CopyError::Open(OpenError::InUse(_))) if Instant::now() < end => std::thread::sleep(POLLED),
            copied => return Ok((copied.map_err(|error| failed(&error))?, false)),
        }
        if let Ok(client) = control::Client::connect(directory) {
            return Ok((client.copy(take)?, true));
        }
    }
}

/// Whether nobody listens at the socket.
fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

fn failed(error: &CopyError) -> Failure {
    let status = match error {
        CopyError::Loan(_) | CopyError::Open(OpenError::InUse(_)) => Status::Unavailable,
        CopyError::Open(_) | CopyError::Io(_) => Status::IoErr,
    };
    Failure::new(status, format!("the store: {error}"))
}
