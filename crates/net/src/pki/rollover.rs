//! Rollover of the authority: another one takes its place while both are trusted (RFC 4210 §4.4).
//!
//! ```text
//!            ca.pem        ca.key   ca-next.key   ca-old.key   server     devices
//!            A             A                                   by A       by A
//! begun      A B           A        B                          by A       by B
//! switched   B A           B                      A            by B       by B
//!            B             B                                   by B       by B
//! ```
//!
//! Who verifies must know a key before somebody signs by it. The gateway verifies devices and knows B at once, so from
//! the beginning they get certificates by B, together with both authorities: one visit to each device. Devices verify
//! the gateway, whose own certificate is by A until they have both.
//!
//! The phase is told by which keys are there, and a key counts only if its certificate is in `ca.pem`. Each step writes
//! files whole, in an order in which all states between two writes work and are gone on from by the same step.

use std::{fs, io, path::Path, time::SystemTime};

use rcgen::KeyPair;
use zeroize::Zeroizing;

use super::{
    Authority, PkiError, SERVER, believable,
    bundle::Bundle,
    ca_name, ca_params, ensure_others, ensure_server,
    files::{Access, lock, remove, rename, write},
    new_key,
};
use crate::{dates::Dates, profile::KeyKind};

/// The key of the authority that takes over.
pub(super) const NEXT: &str = "ca-next.key";
/// The key of the authority that was taken over from, for its revocation list.
pub(super) const OLD: &str = "ca-old.key";

/// How far a rollover is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Both authorities are trusted; the gateway's certificate is by the old one, those of devices are by the new one.
    Begun,
    /// Both authorities are trusted; all certificates are by the new one.
    Switched,
}

impl Phase {
    /// Its name in metrics and in the administration API.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Begun => "begun",
            Self::Switched => "switched",
        }
    }
}

/// A rollover that is under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rollover {
    /// How far it is.
    pub phase: Phase,
    /// The authority that is to go.
    pub old: Dates,
    /// The authority that is to stay.
    pub new: Dates,
}

/// A step that cannot be done in the present phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OutOfOrder {
    /// Another rollover is to begin before the last one has ended.
    #[error("the rollover before has not ended: `fogmux pki rollover finish` ends it")]
    NotFinished,
    /// There is no second authority.
    #[error("no rollover is under way: `fogmux pki rollover begin` begins one")]
    NotBegun,
    /// The gateway's certificate is still by the authority that is to go.
    #[error("the gateway's certificate is still by the old authority: `fogmux pki rollover switch` comes first")]
    NotSwitched,
}

impl Rollover {
    /// The rollover of a directory; `None` if none is under way.
    ///
    /// # Errors
    /// [`PkiError`]: a file cannot be read.
    pub fn of(directory: &Path) -> Result<Option<Self>, PkiError> {
        let file = directory.join(CERTIFICATES);
        if !file.exists() {
            return Ok(None);
        }
        Ok(State::read(directory, Bundle::read(&file)?)?.rollover())
    }
}

/// The authority's certificates, those of both in a rollover.
const CERTIFICATES: &str = "ca.pem";
const KEY: &str = "ca.key";

/// The phase that the files of a directory show.
struct State {
    bundle: Bundle,
    /// The names of the authorities whose keys are in `ca.key`, `ca-next.key` and `ca-old.key`, if they are trusted.
    current: Option<String>,
    next: Option<String>,
    old: Option<String>,
}

impl State {
    fn read(directory: &Path, bundle: Bundle) -> Result<Self, PkiError> {
        let name = |file: &str| -> Result<Option<String>, PkiError> {
            let file = directory.join(file);
            if !file.exists() {
                return Ok(None);
            }
            let name = ca_name(&super::authority::read_key(&file)?);
            Ok(Some(name).filter(|name| bundle.contains(name)))
        };
        // Without a second key there is no rollover, and the first is left alone.
        let (next, old) = (name(NEXT)?, name(OLD)?);
        let current = if next.is_some() || old.is_some() { name(KEY)? } else { None };
        Ok(Self { current, next, old, bundle })
    }

    fn rollover(&self) -> Option<Rollover> {
        let (phase, old, new) = match (&self.current, &self.next, &self.old) {
            // An interrupted switch has copied the key of the current one already.
            (Some(current), Some(next), _) if current != next => (Phase::Begun, current, next),
            (Some(current), _, Some(old)) if current != old => (Phase::Switched, old, current),
            _ => return None,
        };
        Some(Rollover { phase, old: self.bundle.dates(old)?, new: self.bundle.dates(new)? })
    }
}

/// The name of the authority that signs nothing any more; `None` outside a rollover that has switched.
pub(super) fn retired(directory: &Path) -> Result<Option<String>, PkiError> {
    // The usual case costs a look.
    if !directory.join(OLD).exists() {
        return Ok(None);
    }
    let state = State::read(directory, Bundle::read(&directory.join(CERTIFICATES))?)?;
    Ok(state.old.clone().filter(|_| state.rollover().is_some_and(|found| found.phase == Phase::Switched)))
}

/// Makes a second authority and has both trusted. Where that is done already, nothing is changed.
///
/// # Errors
/// [`PkiError`]; [`OutOfOrder::NotFinished`].
pub fn begin(directory: &Path, kind: KeyKind, now: SystemTime) -> Result<Rollover, PkiError> {
    Authority::open(directory)?;
    let file = directory.join(CERTIFICATES);
    if Rollover::of(directory)?.is_none() {
        // An interrupted end of the one before has left this.
        finish(directory, now)?;
    }
    let _lock = lock(&file)?;
    let current = Authority::open(directory)?;
    match Rollover::of(directory)? {
        Some(found) if found.phase == Phase::Begun => return Ok(found),
        Some(_) => return Err(OutOfOrder::NotFinished.into()),
        None => {}
    }
    let mut bundle = Bundle::read(&file)?;
    let key = new_key(kind)?;
    let name = ca_name(&key);
    let made = ca_params(&key, believable(now)).self_signed(&key);
    let made = made.map_err(|source| PkiError::Key { file: directory.join(NEXT), source })?;
    // Nobody knows the key before its certificate is in the bundle: one that an interrupted attempt has left is lost.
    write(&directory.join(NEXT), &Zeroizing::new(key.serialize_pem()), Access::Owner)?;
    // Where there is a list, each authority has one: the gateway refuses a file without a list of those that it trusts.
    Authority::of(directory, key).list_if_others_have(now)?;
    bundle.insert_behind(&current.name(), made.pem())?;
    debug_assert!(bundle.contains(&name));
    bundle.write(&file)?;
    Rollover::of(directory)?.ok_or_else(|| OutOfOrder::NotBegun.into())
}

/// Has the new authority sign everything, and the gateway's certificates made anew. Where that is done already, what
/// is missing is done.
///
/// # Errors
/// [`PkiError`]; [`OutOfOrder::NotBegun`].
pub fn switch(directory: &Path, now: SystemTime) -> Result<Rollover, PkiError> {
    let file = directory.join(CERTIFICATES);
    let switched = {
        let _lock = lock_of(&file)?;
        let found = Rollover::of(directory)?.ok_or(OutOfOrder::NotBegun)?;
        let [key, next, old] = [KEY, NEXT, OLD].map(|name| directory.join(name));
        if found.phase == Phase::Begun {
            // The key is in two files for a while, and never in none.
            write(&old, &read(&key)?, Access::Owner)?;
            rename(&next, &key)?;
        }
        let mut bundle = Bundle::read(&file)?;
        let name = Authority::open(directory)?.name();
        // Programs of before rollovers read the first only.
        if bundle.put_first(&name) {
            bundle.write(&file)?;
        }
        Rollover::of(directory)?.ok_or(OutOfOrder::NotBegun)?
    };
    renew_servers(directory, now)?;
    Ok(switched)
}

/// Ends trust in the old authority, and removes its key and its revocation list. Returns whether there was anything to
/// be done.
///
/// # Errors
/// [`PkiError`]; [`OutOfOrder::NotSwitched`].
pub fn finish(directory: &Path, now: SystemTime) -> Result<bool, PkiError> {
    let is_old = |found: &Rollover| found.phase == Phase::Begun;
    if Rollover::of(directory)?.as_ref().is_some_and(is_old) {
        return Err(OutOfOrder::NotSwitched.into());
    }
    let (file, old) = (directory.join(CERTIFICATES), directory.join(OLD));
    if !old.exists() {
        return Ok(false);
    }
    // An interrupted switch may have left one by the old authority.
    renew_servers(directory, now)?;
    let _lock = lock_of(&file)?;
    if Rollover::of(directory)?.as_ref().is_some_and(is_old) {
        return Err(OutOfOrder::NotSwitched.into());
    }
    let current = Authority::open(directory)?;
    let gone = Authority::of(directory, super::authority::read_key(&old)?);
    if gone.name() != current.name() {
        current.list_if_others_have(now)?;
        let mut bundle = Bundle::read(&file)?;
        if bundle.remove(&gone.name()) {
            bundle.write(&file)?;
        }
        gone.remove_list()?;
    }
    remove(&old)?;
    Ok(true)
}

/// Makes the certificates of the gateway anew that are not by the authority that signs now. Those of an operator are
/// not in this directory.
fn renew_servers(directory: &Path, now: SystemTime) -> Result<(), PkiError> {
    if directory.join(SERVER).with_added_extension("pem").exists() {
        ensure_server(directory, KeyKind::EcdsaP256, &[], now)?;
    }
    ensure_others(directory, now)
}

/// Waits for others; a directory without an authority gets no lock.
fn lock_of(file: &Path) -> Result<fs::File, PkiError> {
    if file.exists() { lock(file) } else { Err(OutOfOrder::NotBegun.into()) }
}

fn read(file: &Path) -> Result<Zeroizing<String>, PkiError> {
    let text = fogmux_file::read_to_string(file).map(Zeroizing::new);
    text.map_err(|source: io::Error| PkiError::Io { file: file.into(), source })
}

/// The key that signs for devices: of the new authority as soon as it is trusted.
pub(super) fn key_for_devices(directory: &Path) -> Result<Option<KeyPair>, PkiError> {
    let next = directory.join(NEXT);
    let begun = next.exists() && Rollover::of(directory)?.is_some_and(|found| found.phase == Phase::Begun);
    begun.then(|| super::authority::read_key(&next)).transpose()
}

#[cfg(test)]
mod tests;
