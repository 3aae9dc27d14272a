//! `fogmux restore`: a backup becomes a data directory. Everything is written beside it first, and takes its name only
//! when the archive has been read to its end and every sum was right.

mod stage;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufReader, Read, Write as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use sha2::{Digest as _, Sha256};

use self::stage::Stage;
pub(crate) use self::stage::abandoned_beside;
use super::SUMS;
use super::manifest::{self, Manifest};
use super::tar::{self, malformed};
use crate::cli::{Files, Restore};
use crate::data;
use crate::exit::{Failure, Status};
use crate::installed;
use crate::interrupted;
use crate::oscore::{self, BackedUp};
use crate::output::say;

/// Warns of what restorations have left that were ended before they could remove it.
fn warn_of_abandoned(directory: &Path) {
    for path in abandoned_beside(directory) {
        eprintln!("fogmux: warning: {}: left by a restore that was ended; it has keys: remove it", path.display());
    }
}

/// The longest manifest, and the longest list of sums.
const TEXT_BYTES_MAX: u64 = 64 << 20;
/// Bytes of a line of sums besides the name: 64 digits, two spaces, a line feed.
const SUM_LINE_BYTES: usize = 67;
/// Seconds by which the clocks of two machines may differ.
const TOLERANCE_S: u64 = 300;

/// Restores, or with `--check` only verifies.
pub(crate) fn run(arguments: &Restore) -> Result<(), Failure> {
    let gateway = Files { directory: arguments.directory.clone(), config: None, root: "/".into() };
    let directory = installed::locate(&gateway)?.directory()?;
    if !arguments.check {
        interrupted::listen()?;
        warn_of_abandoned(&directory);
    }
    let stage = match arguments.check {
        true => None,
        false => Some((Stage::beside(&directory)?, arguments.config_to.as_deref().map(Stage::beside).transpose()?)),
    };
    let from: Box<dyn Read> = if arguments.file.as_os_str() == "-" {
        Box::new(io::stdin().lock())
    } else {
        Box::new(File::open(&arguments.file).map_err(|error| Failure::io(arguments.file.display(), &error))?)
    };
    let refused = |error: io::Error| {
        let why = if error.kind() == io::ErrorKind::UnexpectedEof {
            "it is cut off".to_owned()
        } else if error.kind() == io::ErrorKind::InvalidData {
            error.to_string()
        } else {
            return Failure::io(arguments.file.display(), &error);
        };
        Failure::new(Status::DataErr, format!("{}: {why}; nothing was restored", arguments.file.display()))
    };
    let stages = stage.as_ref().map(|(data, config)| (data, config.as_ref()));
    let restored = extract(BufReader::with_capacity(1 << 20, from), stages).map_err(refused)?;
    if let Some((data, config)) = stage {
        // A signal ends it with both or none.
        let _finishing = interrupted::hold();
        let config_at = config.as_ref().map(|config| config.target.clone());
        let Manifest { unix_s, oscore_below: below, .. } = restored.manifest;
        let noted = oscore::restored(data.path(), BackedUp { unix_s, below });
        noted.map_err(|error| Failure::io(directory.display(), &error))?;
        if let Some(config) = config {
            config.put_in_place()?;
        }
        data.put_in_place().inspect_err(|_| {
            // Both or none.
            if let Some(config) = config_at {
                let _ = fs::remove_dir_all(config);
            }
        })?;
    }
    warn_of_clock(&restored.manifest);
    report(arguments, &directory, &restored)
}

/// Warns of a clock that shows a time before the backup was made.
fn warn_of_clock(manifest: &Manifest) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let behind = manifest.unix_s.saturating_sub(now.as_secs());
    if behind > TOLERANCE_S {
        eprintln!(
            "fogmux: warning: the backup was made {behind} seconds after what the clock of this machine says now; set \
             the clock before the gateway starts (timedatectl set-ntp true): until then OSCORE numbers are known not \
             to repeat only if the old gateway ran for less than a year after the backup"
        );
    }
}

fn report(arguments: &Restore, directory: &Path, restored: &Restored) -> Result<(), Failure> {
    let Restored { manifest, files, bytes } = restored;
    let Manifest { fogmux, unix_s, named, .. } = manifest;
    if arguments.json {
        let data = if arguments.check { None } else { Some(directory) };
        let text = serde_json::json!({
            "data": data, "files": files, "bytes": bytes, "fogmux": fogmux, "unix_s": unix_s, "named": named,
        });
        return say!("{text}\n");
    }
    let what = format!("{files} files, {bytes} bytes, written by fogmux {fogmux} at {unix_s} seconds since 1970");
    if arguments.check {
        return say!("{}: whole: {what}\n", arguments.file.display());
    }
    say!("{}: restored: {what}\n", directory.display())?;
    for (key, path) in named {
        match &arguments.config_to {
            Some(to) => say!("{key} was {}, and is in {}\n", path.display(), to.join("named").join(key).display())?,
            None => say!("{key} was {}, and is in the backup only: see --config-to\n", path.display())?,
        }
    }
    Ok(())
}

/// A backup that was read to its end.
struct Restored {
    manifest: Manifest,
    files: usize,
    bytes: u64,
}

/// Reads all files, and writes them to the stages of the data directory and of the configuration, if there are any.
fn extract(from: impl Read, stages: Option<(&Stage, Option<&Stage>)>) -> io::Result<Restored> {
    let mut archive = tar::Reader::new(from);
    let mut found: BTreeMap<String, String> = BTreeMap::new();
    let mut manifest = None;
    let mut bytes = 0;
    let mut text_bytes = 0;
    while let Some((name, length)) = archive.next_file()? {
        // Each has a line in the list of sums, so there can be no more of them than that has room for.
        text_bytes += (name.len() + SUM_LINE_BYTES) as u64;
        if text_bytes > TEXT_BYTES_MAX {
            return Err(malformed("there are too many files in it"));
        }
        if name == SUMS {
            compare(&text(&mut archive, length)?, &found)?;
            if archive.next_file()?.is_some() {
                return Err(malformed("something follows its sums"));
            }
            let manifest = manifest.ok_or_else(|| malformed("it does not say what it is"))?;
            return Ok(Restored { manifest, files: found.len(), bytes });
        }
        let mut sum = Sha256::new();
        if manifest.is_none() {
            // The first file says whether the others can be understood.
            if name != manifest::NAME {
                return Err(malformed("it is no backup of fogmux"));
            }
            let text = text(&mut archive, length)?;
            manifest = Some(Manifest::parse(&text)?);
            sum.update(&text);
        } else {
            let place = place(&name)?;
            let file = match (stages, place) {
                (Some((data, _)), Place::Data(path)) => Some(data.create(&path)?),
                (Some((_, Some(config))), Place::Config(path)) => Some(config.create(&path)?),
                (Some(_) | None, _) => None,
            };
            copy(&mut archive, file, &mut sum)?;
        }
        bytes += length;
        if found.insert(name.clone(), data_encoding::HEXLOWER.encode(&sum.finalize())).is_some() {
            return Err(malformed(&format!("{name} is in it twice")));
        }
    }
    Err(malformed("it has no sums"))
}

fn text(archive: &mut impl Read, length: u64) -> io::Result<Vec<u8>> {
    if length > TEXT_BYTES_MAX {
        return Err(malformed("a list is too long"));
    }
    let mut text = Vec::new();
    archive.read_to_end(&mut text)?;
    Ok(text)
}

fn copy(archive: &mut impl Read, mut file: Option<File>, sum: &mut Sha256) -> io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let read = archive.read(&mut buffer)?;
        let Some(part) = buffer.get(..read).filter(|part| !part.is_empty()) else { break };
        sum.update(part);
        if let Some(file) = &mut file {
            file.write_all(part)?;
        }
    }
    file.map_or(Ok(()), |file| file.sync_all())
}

/// The sums have to be those of the files that were found: of each, and of no other.
fn compare(sums: &[u8], found: &BTreeMap<String, String>) -> io::Result<()> {
    let lines = std::str::from_utf8(sums).map_err(|_| malformed("its sums are no text"))?.lines();
    let said: Option<Vec<(&str, &str)>> = lines.map(|line| line.split_once("  ")).collect();
    let said: BTreeMap<&str, &str> = said
        .ok_or_else(|| malformed("its sums are no lines of sums"))?
        .into_iter()
        .map(|(sum, name)| (name, sum))
        .collect();
    if said.len() != found.len() {
        return Err(malformed("a file is missing, or one has no sum"));
    }
    for (name, sum) in found {
        if said.get(name.as_str()) != Some(&sum.as_str()) {
            return Err(malformed(&format!("{name} is damaged")));
        }
    }
    Ok(())
}

/// Where a file goes.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    /// Below the data directory.
    Data(PathBuf),
    /// Below the directory of `--config-to`.
    Config(PathBuf),
}

/// Nothing may lead out of the directories that are restored.
fn place(name: &str) -> io::Result<Place> {
    let is_plain = |part: &str| !part.is_empty() && part != "." && part != ".." && !part.contains('\0');
    let (top, rest) = name.split_once('/').ok_or_else(|| malformed(&format!("{name:?} has no place")))?;
    if !rest.split('/').all(is_plain) {
        return Err(malformed(&format!("{name:?} leads elsewhere")));
    }
    match top {
        "data" if rest != data::STORE && !rest.starts_with("store/") => Ok(Place::Data(rest.into())),
        "store" => Ok(Place::Data(Path::new(data::STORE).join(rest))),
        "config" => Ok(Place::Config(rest.into())),
        "named" => Ok(Place::Config(name.into())),
        _ => Err(malformed(&format!("{name:?} has no place"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_of_ever_more_names_is_refused_before_they_fill_the_memory() {
        /// Empty files without an end.
        struct Endless(u64, Vec<u8>);
        impl Read for Endless {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                if self.1.is_empty() {
                    self.0 += 1;
                    let name = format!("data/{}{}", "d".repeat(4_000), self.0);
                    tar::write_header(&mut self.1, &name, 0)?;
                }
                let read = buffer.len().min(self.1.len());
                buffer[..read].copy_from_slice(&self.1[..read]);
                self.1.drain(..read);
                Ok(read)
            }
        }
        let mut begin = Vec::new();
        let manifest = br#"{"format": 1, "fogmux": "0", "unix_s": 0, "named": {}}"#;
        tar::write_header(&mut begin, manifest::NAME, manifest.len() as u64).unwrap();
        begin.extend(manifest);
        tar::pad(&mut begin, manifest.len() as u64).unwrap();
        let refused = extract(io::Cursor::new(begin).chain(Endless(0, Vec::new())), None);
        assert!(refused.is_err_and(|error| error.to_string().contains("too many files")));
    }

    #[test]
    fn every_name_has_one_place_below_a_directory_or_none() {
        assert_eq!(place("data/pki/ca.pem").unwrap(), Place::Data("pki/ca.pem".into()));
        assert_eq!(place("store/journal/00000001.seg").unwrap(), Place::Data("store/journal/00000001.seg".into()));
        assert_eq!(place("config/conf.d/a.toml").unwrap(), Place::Config("conf.d/a.toml".into()));
        assert_eq!(place("named/tls.key_file").unwrap(), Place::Config("named/tls.key_file".into()));
        for name in [
            "",
            "data",
            "data/",
            "/etc/passwd",
            "data/../x",
            "data//x",
            "data/./x",
            "../x",
            "other/x",
            "data/store/x",
            "data/store",
            "config/../../x",
            "store/..",
            "named/",
        ] {
            assert!(place(name).is_err(), "{name}");
        }
    }
}
