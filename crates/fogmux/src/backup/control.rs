//! The control socket of a running gateway: `control` in the data directory, for its owner and root. It gives out a
//! copy of the store, which only the process that has it open can make.
//!
//! A client sends `fogmux 1 backup` and a line feed. The gateway answers `ok`, then for each file `file BYTES CONTENT
//! NAME`, where CONTENT bytes follow and the rest is zeros, at the end `end UNREADABLE`. `error TEXT` takes the place
//! of any of these lines and ends the answer. Numbers are decimal.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fogmux_store::{JournalStore, StoreFile};
use tokio::sync::Mutex;

use crate::exit::{Failure, Status};

/// The name of the socket in the data directory.
pub(crate) const NAME: &str = "control";
/// The request. A release that changes the answer counts up.
const REQUEST: &str = "fogmux 1 backup";
/// The longest line of either side: a name, or an error.
const LINE_MAX: u64 = 8 << 10;
/// How long one side waits for the other: a client may write to a slow disk.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a client may take for its request.
const REQUEST_PATIENCE: Duration = Duration::from_secs(10);
/// The pause after a client could not be accepted.
const PAUSE: Duration = Duration::from_secs(1);
/// Clients that may wait for their copies.
const CLIENTS_MAX: usize = 8;
/// The stack of a thread, which copies segments to a socket.
const STACK: usize = 256 << 10;

/// Held by whoever copies the store: one at a time.
pub(crate) type Copies = Arc<Mutex<()>>;

/// The gateway's side. The socket is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Control {
    socket: PathBuf,
}

impl Control {
    /// Opens the socket, and serves it with a thread of its own. Whoever has the store open owns the data directory, so
    /// a socket that is there already was left behind.
    pub(crate) fn open(directory: &Path, store: JournalStore, copies: Copies) -> io::Result<Self> {
        let socket = directory.join(NAME);
        match std::fs::remove_file(&socket) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let listener = at(directory, |path| UnixListener::bind(path))?;
        // The data directory is closed to others as well.
        std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o600))?;
        let serve = move || accept(&listener, &Arc::new(store), &copies);
        thread("control").spawn(serve)?;
        Ok(Self { socket })
    }
}

fn thread(name: &str) -> std::thread::Builder {
    std::thread::Builder::new().name(name.to_owned()).stack_size(STACK)
}

/// Gives each client a thread, so that one that says nothing does not keep others from being heard.
fn accept(listener: &UnixListener, store: &Arc<JournalStore>, copies: &Copies) {
    let clients = Arc::new(());
    let mut failing = false;
    for client in listener.incoming() {
        let client = match client {
            Ok(client) => client,
            Err(error) => {
                // No descriptor is left, for example: the client waits, and accept(2) would fail again at once.
                if !std::mem::replace(&mut failing, true) {
                    tracing::warn!(%error, "a client of the control socket cannot be accepted yet");
                }
                std::thread::sleep(PAUSE);
                continue;
            }
        };
        failing = false;
        // One of the references is the loop's.
        if Arc::strong_count(&clients) > CLIENTS_MAX {
            let _ = (&client).write_all(b"error others are waiting already\n");
            continue;
        }
        let (counted, store, copies) = (Arc::clone(&clients), Arc::clone(store), Arc::clone(copies));
        let serve = move || {
            let _counted = counted;
            if let Err(error) = serve(&client, &store, &copies) {
                tracing::warn!(%error, "a copy of the store was not finished");
            }
        };
        if let Err(error) = thread("copy").spawn(serve) {
            tracing::warn!(%error, "a client of the control socket cannot be served");
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // It is of no use to anybody.
        let _ = std::fs::remove_file(&self.socket);
    }
}

/// Calls `with` with a path of the socket that is short enough for an address, however long that of the directory is.
fn at<T>(directory: &Path, with: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    let directory = File::open(directory)?;
    with(&PathBuf::from(format!("/proc/self/fd/{}/{NAME}", directory.as_raw_fd())))
}

/// One copy at a time.
fn serve(client: &UnixStream, store: &JournalStore, copies: &Mutex<()>) -> io::Result<()> {
    let peer = rustix::net::sockopt::socket_peercred(client)?.uid;
    if !peer.is_root() && peer != rustix::process::geteuid() {
        return Ok(());
    }
    client.set_write_timeout(Some(PATIENCE))?;
    let mut out = client;
    let request = Until { stream: client, end: Instant::now() + REQUEST_PATIENCE };
    if line(&mut BufReader::new(request))? != REQUEST {
        return out.write_all(b"error this gateway is of another release\n");
    }
    let _alone = copies.blocking_lock();
    out.write_all(b"ok\n")?;
    tracing::info!("a copy of the store is made for a backup");
    let copied = store.copy(&mut |StoreFile { name, bytes, content }| {
        writeln!(out, "file {bytes} {} {name}", content.len())?;
        out.write_all(&content)
    });
    match copied {
        Ok(unreadable) => writeln!(out, "end {unreadable}"),
        Err(error) => {
            tracing::warn!(%error, "the store cannot be copied");
            writeln!(out, "error {}", error.to_string().replace('\n', " "))
        }
    }
}

/// A stream that is read until a moment, however little comes at a time.
struct Until<'a> {
    stream: &'a UnixStream,
    end: Instant,
}

impl io::Read for Until<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        (&mut &*self.stream).read(buffer)
    }
}

/// The side of `fogmux backup`.
#[derive(Debug)]
pub(super) struct Client(BufReader<UnixStream>);

impl Client {
    /// Connects to the gateway that runs on a data directory.
    pub(super) fn connect(directory: &Path) -> io::Result<Self> {
        let stream = at(directory, |path| UnixStream::connect(path))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self(BufReader::new(stream)))
    }

    /// Has the store copied. Returns the number of blocks that its disk did not give.
    pub(super) fn copy(mut self, take: &mut dyn FnMut(StoreFile) -> io::Result<()>) -> Result<u64, Failure> {
        writeln!(self.0.get_mut(), "{REQUEST}").map_err(failed)?;
        match self.line()?.as_str() {
            "ok" => {}
            _ => return Err(Failure::new(Status::Unavailable, "the running gateway did not understand")),
        }
        loop {
            let line = self.line()?;
            let (bytes, content, name) = match line.split(' ').collect::<Vec<_>>()[..] {
                ["end", unreadable] => return unreadable.parse().map_err(|_| malformed()),
                ["file", bytes, content, name] => (bytes.parse(), content.parse(), name.to_owned()),
                _ => return Err(malformed()),
            };
            let (Ok(bytes), Ok(length)) = (bytes, content) else { return Err(malformed()) };
            let mut content = Vec::new();
            self.0.by_ref().take(length).read_to_end(&mut content).map_err(failed)?;
            if content.len() as u64 != length {
                return Err(failed(io::ErrorKind::UnexpectedEof.into()));
            }
            take(StoreFile { name, bytes, content }).map_err(|error| Failure::io("the backup", &error))?;
        }
    }

    fn line(&mut self) -> Result<String, Failure> {
        let read = line(&mut self.0).map_err(failed)?;
        match read.strip_prefix("error ") {
            Some(error) => Err(Failure::new(Status::Unavailable, format!("the running gateway: {error}"))),
            None => Ok(read),
        }
    }
}

fn line(from: &mut impl io::BufRead) -> io::Result<String> {
    let mut line = Vec::new();
    from.take(LINE_MAX).read_until(b'\n', &mut line)?;
    match line.pop() {
        Some(b'\n') => String::from_utf8(line).map_err(io::Error::other),
        Some(_) | None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Why there is no answer: the gateway is busy, or gone. Both pass.
fn failed(error: io::Error) -> Failure {
    let is_one_of = |kinds: &[io::ErrorKind]| kinds.contains(&error.kind());
    let why = if is_one_of(&[io::ErrorKind::WouldBlock, io::ErrorKind::TimedOut]) {
        "did not answer in time".to_owned()
    } else if is_one_of(&[io::ErrorKind::UnexpectedEof, io::ErrorKind::BrokenPipe, io::ErrorKind::ConnectionReset]) {
        "ended meanwhile".to_owned()
    } else {
        format!("did not answer: {error}")
    };
    Failure::new(Status::Unavailable, format!("the running gateway {why}"))
}

fn malformed() -> Failure {
    Failure::new(Status::Protocol, "the running gateway sent what is no copy of a store")
}
