//! The agent itself: lets one generator in at a time.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::channel::{REPLY_BYTES_MAX, REQUEST_BYTES_MAX, Until, prepare, receive, send};
use super::message::{Reply, Request};
use super::session::Session;
use super::{AgentError, Keys};

/// Connections at once, strangers included.
const CONNECTIONS_MAX: usize = 8;
/// In which a handshake has to be over.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// How long a generator waits for one that is about to leave.
const SEAT_WAIT: Duration = Duration::from_secs(5);
/// Between two looks at a listener that has no descriptors left.
const PAUSE: Duration = Duration::from_millis(200);

/// An agent that listens.
pub struct Agent {
    listener: TcpListener,
    inner: Arc<Inner>,
}

struct Inner {
    config: Arc<ServerConfig>,
    /// `fogmux`.
    binary: PathBuf,
    connections: AtomicUsize,
    place: Mutex<Place>,
    /// The place was left.
    left: Condvar,
}

/// Of the one generator.
#[derive(Default)]
struct Place {
    taken: Option<TcpStream>,
    /// Nobody comes in any more.
    closed: bool,
}

/// Leaves the place when it goes, however that comes.
struct Seat<'i>(&'i Inner);

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        self.0.place().taken = None;
        self.0.left.notify_all();
    }
}

/// A connection among others.
struct Counted(Arc<Inner>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Agent {
    /// Listens at an address, with the keys of its directory; `binary` is `fogmux`.
    ///
    /// # Errors
    /// The address cannot be had.
    pub fn bind(address: SocketAddr, keys: &Keys, binary: PathBuf) -> Result<Self, AgentError> {
        let listener = TcpListener::bind(address).map_err(AgentError::io(address.to_string()))?;
        let inner = Inner {
            config: Arc::clone(&keys.server),
            binary,
            connections: AtomicUsize::new(0),
            place: Mutex::default(),
            left: Condvar::new(),
        };
        Ok(Self { listener, inner: Arc::new(inner) })
    }

    /// The address that the agent listens on.
    ///
    /// # Errors
    /// An error of the socket.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Lets generators in, on a thread of its own that lasts as long as the process.
    ///
    /// # Errors
    /// There is no thread, or no second handle of the socket.
    pub fn start(&self) -> io::Result<()> {
        let (listener, inner) = (self.listener.try_clone()?, Arc::clone(&self.inner));
        let accept = move || {
            loop {
                match listener.accept() {
                    Ok((stream, _)) => inner.take(stream),
                    Err(_) => thread::sleep(PAUSE),
                }
            }
        };
        thread::Builder::new().name("agent".to_owned()).spawn(accept).map(drop)
    }

    /// Shows the generator out, lets none in, and returns when the last gateway has ended.
    pub fn stop(&self) {
        let mut place = self.inner.place();
        place.closed = true;
        if let Some(stream) = &place.taken {
            // Else it has gone by itself.
            let _ = stream.shutdown(Shutdown::Both);
        }
        while place.taken.is_some() {
            place = self.inner.left.wait(place).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Inner {
    fn place(&self) -> MutexGuard<'_, Place> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(self: &Arc<Self>, stream: TcpStream) {
        let before = self.connections.fetch_add(1, Ordering::Relaxed);
        let counted = Counted(Arc::clone(self));
        if before >= CONNECTIONS_MAX {
            return;
        }
        // Errors of a session are dropped, since its client is gone or unknown. Without a thread it is closed, too.
        let serve = move || drop(counted.0.serve(stream));
        let _ = thread::Builder::new().name("agent-session".to_owned()).spawn(serve);
    }

    fn serve(&self, stream: TcpStream) -> io::Result<()> {
        prepare(&stream)?;
        let mut connection = ServerConnection::new(Arc::clone(&self.config)).map_err(io::Error::other)?;
        let mut hurried = Until(&stream, Instant::now() + HANDSHAKE_MAX);
        connection.complete_io(&mut hurried)?;
        let mut stream = StreamOwned::new(connection, stream);
        stream.sock.set_write_timeout(Some(HANDSHAKE_MAX))?;
        let Some(_seat) = self.enter(&stream.sock)? else {
            // Asked first: what is not read would break the connection before the answer is there.
            stream.sock.set_read_timeout(Some(HANDSHAKE_MAX))?;
            receive::<Request>(&mut stream, REQUEST_BYTES_MAX)?;
            let why = "another generator is at work".to_owned();
            return send(&mut stream, &Reply::Refused { why }, REPLY_BYTES_MAX);
        };
        stream.sock.set_read_timeout(None)?;
        self.converse(stream)
    }

    /// Takes the place when it is free. A generator that has just ended still holds it until its gateway has ended,
    /// too: the next one waits for that.
    fn enter(&self, stream: &TcpStream) -> io::Result<Option<Seat<'_>>> {
        let is_taken = |place: &mut Place| !place.closed && place.taken.is_some();
        let waited = self.left.wait_timeout_while(self.place(), SEAT_WAIT, is_taken);
        let (mut place, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if place.closed || place.taken.is_some() {
            return Ok(None);
        }
        place.taken = Some(stream.try_clone()?);
        Ok(Some(Seat(self)))
    }

    /// Until the generator goes; then there is no gateway any more.
    fn converse(&self, mut stream: StreamOwned<ServerConnection, TcpStream>) -> io::Result<()> {
        let mut session = Session::new(stream.sock.local_addr()?.ip(), self.binary.clone());
        while let Some(request) = receive::<Request>(&mut stream, REQUEST_BYTES_MAX)? {
            if let Some(reply) = session.answer(request) {
                send(&mut stream, &reply, REPLY_BYTES_MAX)?;
            }
        }
        Ok(())
    }
}
