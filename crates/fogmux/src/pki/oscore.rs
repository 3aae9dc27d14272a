//! `fogmux pki oscore`: a security context shared by a device and the gateway (RFC 8613).

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use fogmux_oscore::file::directory::ContextFile;
use fogmux_oscore::file::{aiocoap, libcoap, toml};
use fogmux_oscore::{Id, Parameters, Zeroizing};

use crate::cli::{OscoreFormat, PkiOscore};
use crate::exit::{Failure, Status};
use crate::output::say;
use crate::passwd::enrol;
use crate::{data, installed, oscore};

/// RFC 8613 §12.3: enough entropy that a Master Secret cannot be guessed.
const SECRET_BYTES: usize = 16;
const SALT_BYTES: usize = 8;
/// The gateway's ID in contexts that it creates; a device's ID is never the same.
const GATEWAY: &[u8] = &[0];
/// The IDs to try: of one byte, then of two.
const DEVICES: u32 = 0xffff;

/// Creates or imports a context, stores the gateway's side, and prints the device's.
pub(super) fn run(arguments: &PkiOscore) -> Result<(), Failure> {
    // Checks all arguments before anything is created.
    check_name(&arguments.user)?;
    if arguments.import.is_none() && arguments.format == OscoreFormat::Aiocoap && arguments.out.is_none() {
        return Err(Failure::new(Status::Usage, "aiocoap keeps a context in a directory; name it with --out DIR"));
    }
    let found = installed::find(&arguments.files)?;
    let directory = match &found.config.coap.oscore.directory {
        Some(directory) => directory.clone(),
        None => oscore::directory(&found.config, &found.writable()?),
    };
    let parameters = match &arguments.import {
        Some(path) => ContextFile::read(path).map_err(|problem| Failure::new(Status::DataErr, problem))?.parameters,
        None => make(arguments, &directory)?,
    };
    let file = free_name(&directory, &arguments.user)?;
    check_sender(&directory, &parameters)?;
    data::create(&directory)?;
    enrol(&arguments.user, &arguments.groups, &found)?;
    let mut text = toml::write(Some(&arguments.user), &parameters);
    if arguments.import.is_none() {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        text.push_str(&toml::made(now.as_secs()));
    }
    data::replace_private(&file, text.as_bytes()).map_err(|error| Failure::io(file.display(), &error))?;
    if arguments.import.is_none() {
        hand_out(arguments, &parameters.mirrored()).inspect_err(|_| {
            // Nobody has the other side.
            let _ = fs::remove_file(&file);
        })?;
    }
    eprintln!("{}; a running gateway notices within seconds", file.display());
    Ok(())
}

fn make(arguments: &PkiOscore, directory: &Path) -> Result<Parameters, Failure> {
    Ok(Parameters {
        master_secret: Zeroizing::new(random(SECRET_BYTES)?),
        master_salt: random(SALT_BYTES)?,
        id_context: None,
        sender_id: id(GATEWAY)?,
        recipient_id: free_id(directory)?,
        algorithm: match &arguments.algorithm {
            Some(name) => name
                .parse()
                .map_err(|error: fogmux_oscore::UnknownAlgorithm| Failure::new(Status::Usage, error.to_string()))?,
            None => fogmux_oscore::Algorithm::default(),
        },
    })
}

/// Two contexts with one sender key would use the same numbers (RFC 8613 §3.3).
fn check_sender(directory: &Path, parameters: &Parameters) -> Result<(), Failure> {
    let there = ContextFile::read_all(directory).map_err(|error| Failure::new(Status::Config, error))?;
    let fingerprint = parameters.fingerprint();
    match there.iter().find(|context| context.parameters.fingerprint() == fingerprint) {
        Some(other) => {
            let path = other.path.display();
            Err(Failure::new(Status::DataErr, format!("the sender key is that of {path}; each context needs its own")))
        }
        None => Ok(()),
    }
}

/// Returns the shortest unused ID.
fn free_id(directory: &Path) -> Result<Id, Failure> {
    let taken = ContextFile::read_all(directory).map_err(|error| Failure::new(Status::Config, error))?;
    let taken: HashSet<Id> = taken.iter().map(|context| context.parameters.recipient_id).collect();
    let numbered = |number: u32| {
        let bytes = number.to_be_bytes();
        let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
        bytes.get(zeros..).and_then(|bytes| Id::new(bytes).ok())
    };
    let free = (1..=DEVICES).filter_map(numbered).find(|id| !taken.contains(id));
    free.ok_or_else(|| Failure::new(Status::DataErr, "there is no free ID for another device"))
}

fn id(bytes: &[u8]) -> Result<Id, Failure> {
    Id::new(bytes).map_err(|error| Failure::new(Status::Usage, error.to_string()))
}

fn random(bytes: usize) -> Result<Vec<u8>, Failure> {
    let mut random = vec![0; bytes];
    getrandom::fill(&mut random)
        .map_err(|error| Failure::new(Status::IoErr, format!("cannot get random numbers: {error}")))?;
    Ok(random)
}

fn check_name(user: &str) -> Result<(), Failure> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._@-".contains(&byte);
    if user.is_empty() || user.starts_with('.') || !user.bytes().all(plain) {
        return Err(Failure::new(Status::Usage, format!("{user:?}: a name may contain only letters, digits and ._@-")));
    }
    Ok(())
}

/// Returns `USER.toml`, or `USER-2.toml` and so on: a user may have several devices, each with its own context.
fn free_name(directory: &Path, user: &str) -> Result<PathBuf, Failure> {
    let first = directory.join(format!("{user}.toml"));
    let further = (2..=DEVICES).map(|number| directory.join(format!("{user}-{number}.toml")));
    let free = std::iter::once(first).chain(further).find(|file| !file.exists());
    free.ok_or_else(|| Failure::new(Status::DataErr, format!("{user} has too many contexts")))
}

/// Prints the device's side once, or writes it to the requested path.
fn hand_out(arguments: &PkiOscore, parameters: &Parameters) -> Result<(), Failure> {
    let text = match (arguments.format, &arguments.out) {
        (OscoreFormat::Fogmux, _) => toml::write(None, parameters),
        (OscoreFormat::Libcoap, _) => libcoap::write(parameters),
        (OscoreFormat::Aiocoap, None) => {
            return Err(Failure::new(Status::Usage, "aiocoap keeps a context in a directory; name it with --out DIR"));
        }
        (OscoreFormat::Aiocoap, Some(out)) => {
            let files = aiocoap::write(parameters);
            data::create(out)?;
            put(&out.join("settings.json"), &files.settings)?;
            return put(&out.join("secret.json"), &files.secret);
        }
    };
    match &arguments.out {
        Some(out) => put(out, &text),
        None => say!("{}", *text),
    }
}

fn put(file: &Path, text: &str) -> Result<(), Failure> {
    data::write_private(file, text.as_bytes()).map_err(|error| Failure::io(file.display(), &error))
}
