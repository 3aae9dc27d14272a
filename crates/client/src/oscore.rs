//! A client's OSCORE context (RFC 8613): a file of ours or libcoap's, or a directory of aiocoap's, and beside it how
//! far its sequence numbers are used, so that no number serves twice (appendix B.1.1). What the commands use is also
//! filed under the context itself, for the user on this machine: a copy of the file is the same context.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fogmux_oscore::file::directory::ContextFile;
use fogmux_oscore::{Context, Requests, Reservation, SealError, SequenceStore, Start};
use serde_json::{Map, Value, json};

use crate::error::ClientError;

/// Numbers that a command sets aside; what it does not use, it gives back. Of 2^40, a million killed commands may lose
/// as many.
const SET_ASIDE: u64 = 1 << 20;

/// aiocoap's own names (`oscore.FilesystemSecurityContext`).
const AIOCOAP_LOCK: &str = "lock";
const AIOCOAP_SEQUENCE: &str = "sequence.json";
const NEXT: &str = "next-to-send";

/// Reads a context and sets numbers aside for a command.
///
/// # Errors
/// The context cannot be read, or its numbers cannot be written.
pub fn open(path: &Path) -> Result<Reserved, ClientError> {
    Reserved::with(path, SET_ASIDE, state_directory().as_deref())
}

/// A context and numbers that nobody else uses. What of them was not used is given back when it goes.
pub struct Reserved {
    context: Arc<Context>,
    numbers: Arc<Numbers>,
    /// Where the numbers end that were set aside.
    below: u64,
}

impl Reserved {
    /// Reads a context of which there is no copy, and sets so many numbers aside, by one write to the disk.
    pub fn read(path: &Path, count: u64) -> Result<Self, ClientError> {
        Self::with(path, count, None)
    }

    /// The same for a context of which there may be copies, whose numbers stand in `register` as well.
    fn with(path: &Path, count: u64, register: Option<&Path>) -> Result<Self, ClientError> {
        let file = ContextFile::read(path).map_err(ClientError::Io)?;
        let user: Arc<str> = Arc::from(file.user);
        let made = |start, numbers: &Arc<Numbers>| {
            let store: Arc<dyn SequenceStore> = Arc::clone(numbers) as _;
            Context::new(Arc::clone(&user), &file.parameters, start, store)
                .map_err(|error| ClientError::Io(format!("{}: {error}", path.display())))
        };
        let mut numbers = Arc::new(Numbers::beside(path));
        if let Some(register) = register {
            let nothing = Start { next: 0, durable: 0, requests: Requests::SeenBelow(0) };
            let fingerprint = *made(nothing, &numbers)?.fingerprint();
            numbers = Arc::new(Numbers::beside(path).and_in(register, &fingerprint.to_string()));
        }
        let (next, below) = numbers.set_aside(count).map_err(|error| numbers.failed(&error))?;
        let context = made(Start { next, durable: below, requests: Requests::SeenBelow(0) }, &numbers)?;
        Ok(Self { context, numbers, below })
    }

    /// The context.
    #[must_use]
    pub const fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// The error of a command whose request could not be sealed.
    pub(crate) fn unsealed(&self, error: SealError) -> ClientError {
        match error {
            SealError::NotDurable => ClientError::Io(format!("{}: {error}", self.numbers.path.display())),
            SealError::Exhausted => ClientError::Usage("the context has no sequence numbers left; make another".into()),
            SealError::Nested | SealError::ProxyUri | SealError::TooLong => ClientError::Usage(error.to_string()),
        }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        // Other holders of the context continue to use its numbers, which must not be reused (RFC 8613 §7.2.1).
        if Arc::strong_count(&self.context) > 1 {
            return;
        }
        let next = self.context.next_number();
        // A failure here only wastes sequence numbers.
        let _ = self.numbers.give_back(next, self.below);
    }
}

/// Where commands file what they have used of each context: for this user on this machine. None where there is no such
/// place.
fn state_directory() -> Option<PathBuf> {
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".local/state"));
    let state =
        std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute()).or_else(home)?;
    let directory = state.join("fogmux-client/oscore");
    // A user without a writable home directory uses the state beside the context.
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory).ok()?;
    Some(directory)
}

/// The file that records which sequence numbers are used.
struct Numbers {
    path: PathBuf,
    lock: PathBuf,
    kind: Kind,
    /// The same of all copies of the context.
    register: Option<Box<Numbers>>,
}

/// The kind of file that a number is in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A number beside a context, which is what is locked.
    Beside,
    /// aiocoap's, with a lock of its own.
    Aiocoap,
    /// A number in a directory of such, with a lock of its own.
    Register,
}

impl SequenceStore for Numbers {
    /// Half a million messages later. If another command has set numbers aside meanwhile, these are its numbers.
    fn reserve(&self, reservation: Reservation) {
        let begin = reservation.below().saturating_sub(fogmux_oscore::CHUNK);
        if self.replace(begin, reservation.below()).unwrap_or(false) {
            reservation.is_durable();
        }
    }
}

impl Numbers {
    fn beside(context: &Path) -> Self {
        let (path, lock, kind) = if context.is_dir() {
            (context.join(AIOCOAP_SEQUENCE), context.join(AIOCOAP_LOCK), Kind::Aiocoap)
        } else {
            (context.with_added_extension("sequence"), context.to_owned(), Kind::Beside)
        };
        Self { path, lock, kind, register: None }
    }

    /// And in a directory, under the name of the context.
    fn and_in(self, register: &Path, context: &str) -> Self {
        let path = register.join(context);
        let lock = path.with_added_extension("lock");
        Self { register: Some(Box::new(Self { path, lock, kind: Kind::Register, register: None })), ..self }
    }

    /// The first number to use and the first not to use.
    fn set_aside(&self, count: u64) -> io::Result<(u64, u64)> {
        let _lock = self.lock()?;
        let Some(register) = &self.register else {
            let next = self.read()?;
            let below = next.saturating_add(count);
            self.write(below)?;
            return Ok((next, below));
        };
        let _register = register.lock()?;
        let next = self.read()?.max(register.read()?);
        let below = next.saturating_add(count);
        register.write(below)?;
        self.write(below)?;
        Ok((next, below))
    }

    fn give_back(&self, next: u64, below: u64) -> io::Result<bool> {
        self.replace(below, next)
    }

    /// Writes `to` where `from` stands; `false` when something else stands there.
    fn replace(&self, from: u64, to: u64) -> io::Result<bool> {
        let _lock = self.lock()?;
        let _register = self.register.as_ref().map(|register| register.lock()).transpose()?;
        let registered = self.register.as_ref().map(|register| register.read()).transpose()?;
        let same = self.read()? == from && registered.is_none_or(|number| number == from);
        if same {
            if let Some(register) = &self.register {
                register.write(to)?;
            }
            self.write(to)?;
        }
        Ok(same)
    }

    /// Keeps other commands away, and aiocoap, which locks the same file.
    fn lock(&self) -> io::Result<File> {
        let file = match self.kind {
            Kind::Beside => File::open(&self.lock)?,
            Kind::Aiocoap | Kind::Register => {
                File::options().write(true).create(true).truncate(false).mode(0o600).open(&self.lock)?
            }
        };
        file.lock()?;
        Ok(file)
    }

    fn read(&self) -> io::Result<u64> {
        let text = match fs::read_to_string(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            Err(error) => return Err(error),
        };
        let number =
            if self.is_aiocoaps() { fields(&text).get(NEXT).and_then(Value::as_u64) } else { text.trim().parse().ok() };
        number.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "it does not say which number is next"))
    }

    /// Returns when it is on the disk.
    fn write(&self, number: u64) -> io::Result<()> {
        let text = if self.is_aiocoaps() {
            let mut fields = fs::read_to_string(&self.path).map_or_else(|_| Map::new(), |text| fields(&text));
            fields.insert(NEXT.to_owned(), json!(number));
            fields.entry("received").or_insert_with(|| json!("unknown"));
            Value::Object(fields).to_string()
        } else {
            format!("{number}\n")
        };
        let fresh = self.path.with_added_extension("new");
        let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&fresh, &self.path)?;
        match self.path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            Some(parent) => File::open(parent)?.sync_all(),
            None => Ok(()),
        }
    }

    fn is_aiocoaps(&self) -> bool {
        self.kind == Kind::Aiocoap
    }

    fn failed(&self, error: &io::Error) -> ClientError {
        ClientError::Io(format!("{}: {error}", self.path.display()))
    }
}

fn fields(text: &str) -> Map<String, Value> {
    serde_json::from_str(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("fogmux-client-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        path
    }

    #[test]
    fn what_is_not_used_is_given_back_unless_another_came_after() {
        let directory = scratch("numbers");
        let context = directory.join("a.toml");
        fs::write(&context, "").unwrap();
        let numbers = Numbers::beside(&context);
        let (first, end) = numbers.set_aside(SET_ASIDE).unwrap();
        assert_eq!((first, end), (0, SET_ASIDE));
        assert!(numbers.give_back(7, end).unwrap());
        let (second, end) = numbers.set_aside(SET_ASIDE).unwrap();
        assert_eq!(second, 7);
        let (third, last) = Numbers::beside(&context).set_aside(SET_ASIDE).unwrap();
        assert_eq!((third, last), (end, end + SET_ASIDE));
        assert!(!numbers.give_back(8, end).unwrap());
        assert!(numbers.replace(last, last + 1).unwrap());
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_copy_of_a_context_goes_on_where_the_other_was() {
        let directory = scratch("copies");
        let [one, other] = ["one.toml", "other.toml"].map(|name| directory.join(name));
        let register = directory.join("register");
        fs::create_dir(&register).unwrap();
        for file in [&one, &other] {
            fs::write(file, "the same").unwrap();
        }
        let numbers = |file: &Path| Numbers::beside(file).and_in(&register, "context");
        assert_eq!(numbers(&one).set_aside(10).unwrap(), (0, 10));
        assert_eq!(numbers(&other).set_aside(10).unwrap(), (10, 20), "at the same time");
        assert!(!numbers(&one).give_back(3, 10).unwrap(), "the other came after");
        assert!(numbers(&other).give_back(12, 20).unwrap());
        assert_eq!(numbers(&one).set_aside(10).unwrap(), (12, 22), "after each other");
        fs::remove_file(other.with_added_extension("sequence")).unwrap();
        assert_eq!(numbers(&other).set_aside(10).unwrap(), (22, 32), "a copy without what stood beside it");
        fs::remove_file(register.join("context")).unwrap();
        assert_eq!(numbers(&one).set_aside(10).unwrap(), (22, 32), "what stands beside it is enough for the one");
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn aiocoap_finds_its_own_file() {
        let directory = scratch("aiocoap");
        fs::write(directory.join(AIOCOAP_SEQUENCE), r#"{"next-to-send": 300, "received": {"index": 4}}"#).unwrap();
        let numbers = Numbers::beside(&directory);
        let (next, end) = numbers.set_aside(SET_ASIDE).unwrap();
        assert_eq!(next, 300);
        assert!(numbers.give_back(302, end).unwrap());
        let text = fs::read_to_string(directory.join(AIOCOAP_SEQUENCE)).unwrap();
        assert_eq!(fields(&text), fields(r#"{"next-to-send": 302, "received": {"index": 4}}"#));
        fs::remove_dir_all(directory).unwrap();
    }
}
