//! A relay between a client and the gateway that holds back what the client says from some point on, until it is told
//! to let it go: a handshake or a login that stops after any of its messages.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::Result;

/// How often a socket is left to look whether the relay is open, or gone.
const LOOK: Duration = Duration::from_millis(20);
/// Pieces that are kept while they are held back; a client that repeats itself adds nothing.
const HELD_MAX: usize = 64;
/// A TLS record's header: type, version, length (RFC 8446 §5.1).
const TLS_HEADER: usize = 5;
/// A DTLS record's: with epoch and sequence number before the length (RFC 6347 §4.1).
const DTLS_HEADER: usize = 13;

/// A relay; dropped, it passes nothing on any more.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    server: SocketAddr,
    /// Pieces of the client that are passed on before the others are held back.
    pass: usize,
    passed: AtomicUsize,
    held: Mutex<Vec<Vec<u8>>>,
    is_open: AtomicBool,
    is_gone: AtomicBool,
}

impl Relay {
    /// Passes on the first `pass` TLS records of what comes over TCP.
    ///
    /// # Errors
    /// When no port is left.
    pub fn over_tcp(server: SocketAddr, pass: usize) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let (relay, state) = Self::new(server, pass, listener.local_addr()?);
        thread::spawn(move || {
            while !state.is_gone() {
                match listener.accept() {
                    Ok((client, _)) => connected(client, &state),
                    Err(_) => thread::sleep(LOOK),
                }
            }
        });
        Ok(relay)
    }

    /// Passes on the first `pass` records of DTLS 1.2, or datagrams of what has no such records.
    ///
    /// # Errors
    /// When no port is left.
    pub fn over_udp(server: SocketAddr, pass: usize) -> Result<Self> {
        let near = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        let far = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        far.connect(server)?;
        near.set_read_timeout(Some(LOOK))?;
        far.set_read_timeout(Some(LOOK))?;
        let (relay, state) = Self::new(server, pass, near.local_addr()?);
        let client = Arc::new(Mutex::new(None));
        let (back, to, way) = (near.try_clone()?, Arc::clone(&client), Arc::clone(&state));
        let down = far.try_clone()?;
        thread::spawn(move || {
            let mut buffer = vec![0; 65_536];
            while !way.is_gone() {
                let Ok(count) = down.recv(&mut buffer) else { continue };
                if let Some(client) = *to.lock().unwrap_or_else(PoisonError::into_inner) {
                    let _ = back.send_to(buffer.get(..count).unwrap_or_default(), client);
                }
            }
        });
        thread::spawn(move || {
            let mut buffer = vec![0; 65_536];
            while !state.is_gone() {
                let received = near.recv_from(&mut buffer);
                state.let_go(|piece| far.send(piece).map(drop));
                let Ok((count, from)) = received else { continue };
                *client.lock().unwrap_or_else(PoisonError::into_inner) = Some(from);
                let datagram = buffer.get(..count).unwrap_or_default();
                let mut passed = Vec::new();
                for piece in records(datagram) {
                    if state.passes(piece) {
                        passed.extend(piece);
                    }
                }
                if !passed.is_empty() {
                    let _ = far.send(&passed);
                }
            }
        });
        Ok(relay)
    }

    fn new(server: SocketAddr, pass: usize, address: SocketAddr) -> (Self, Arc<State>) {
        let state = Arc::new(State {
            server,
            pass,
            passed: AtomicUsize::new(0),
            held: Mutex::default(),
            is_open: AtomicBool::new(false),
            is_gone: AtomicBool::new(false),
        });
        (Self { address, state: Arc::clone(&state) }, state)
    }

    /// Where the client is to connect to.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether something is held back.
    #[must_use]
    pub fn holds(&self) -> bool {
        !self.state.held().is_empty()
    }

    /// Passes everything on from now, first what is held back.
    pub fn open(&self) {
        self.state.is_open.store(true, Ordering::SeqCst);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.state.is_gone.store(true, Ordering::SeqCst);
    }
}

impl State {
    fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::SeqCst)
    }

    fn held(&self) -> std::sync::MutexGuard<'_, Vec<Vec<u8>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a piece is passed on now; otherwise it is held back.
    fn passes(&self, piece: &[u8]) -> bool {
        let mut held = self.held();
        // A piece that comes while others are held back goes after them.
        let is_open = self.is_open.load(Ordering::SeqCst) && held.is_empty();
        if is_open || self.passed.fetch_add(1, Ordering::SeqCst) < self.pass {
            return true;
        }
        if held.len() < HELD_MAX {
            held.push(piece.to_vec());
        }
        false
    }

    /// Sends what was held back, once the relay is open.
    fn let_go(&self, mut send: impl FnMut(&[u8]) -> io::Result<()>) {
        if self.is_open.load(Ordering::SeqCst) {
            for piece in std::mem::take(&mut *self.held()) {
                let _ = send(&piece);
            }
        }
    }
}

/// The records of DTLS 1.2 in a datagram, or all of it as one piece.
fn records(mut datagram: &[u8]) -> Vec<&[u8]> {
    let mut pieces = Vec::new();
    while let Some((header, _)) = datagram.split_first_chunk::<DTLS_HEADER>()
        && (20..=25).contains(&header[0])
        && header[1] == 0xfe
    {
        let length = DTLS_HEADER + usize::from(u16::from_be_bytes([header[11], header[12]]));
        let Some((record, rest)) = datagram.split_at_checked(length) else { break };
        pieces.push(record);
        datagram = rest;
    }
    if !datagram.is_empty() {
        pieces.push(datagram);
    }
    pieces
}

/// Passes on a connection.
fn connected(client: TcpStream, state: &Arc<State>) {
    let Ok(server) = TcpStream::connect(state.server) else { return };
    for stream in [&client, &server] {
        let _ = stream.set_nonblocking(false);
        let _ = stream.set_nodelay(true);
    }
    let (Ok(mut from), Ok(mut to)) = (server.try_clone(), client.try_clone()) else { return };
    thread::spawn(move || {
        let _ = io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Both);
    });
    let state = Arc::clone(state);
    thread::spawn(move || {
        let _ = up(&client, &server, &state);
        let _ = server.shutdown(Shutdown::Both);
    });
}

/// Passes on what the client says, record by record.
fn up(mut client: &TcpStream, mut server: &TcpStream, state: &State) -> io::Result<()> {
    client.set_read_timeout(Some(LOOK))?;
    let (mut buffer, mut unread) = (vec![0; 16_384], Vec::new());
    while !state.is_gone() {
        let read = client.read(&mut buffer);
        state.let_go(|piece| server.write_all(piece));
        match read {
            Ok(0) => return Ok(()),
            Ok(count) => unread.extend(buffer.get(..count).unwrap_or_default()),
            Err(error) if crate::tcp::is_timeout(error.kind()) => {}
            Err(error) => return Err(error),
        }
        while let Some((header, _)) = unread.split_first_chunk::<TLS_HEADER>() {
            let length = TLS_HEADER + usize::from(u16::from_be_bytes([header[3], header[4]]));
            if unread.len() < length {
                break;
            }
            let record: Vec<u8> = unread.drain(..length).collect();
            if state.passes(&record) {
                server.write_all(&record)?;
            }
        }
    }
    Ok(())
}
