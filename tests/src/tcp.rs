//! TCP connections with deadlines on everything: an attack that hangs is a test that hangs.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// The longest any single read or write waits.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// How the peer ended the conversation, as far as it could be seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// It closed or reset the connection after these bytes.
    Closed(Vec<u8>),
    /// It kept the connection open for as long as we looked.
    Open(Vec<u8>),
}

impl End {
    /// The bytes before the end.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Closed(bytes) | Self::Open(bytes) => bytes,
        }
    }

    /// Whether the peer let go of the connection.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        matches!(self, Self::Closed(_))
    }
}

/// Connects, without Nagle's delay.
///
/// # Errors
/// When nobody accepts.
pub fn connect(address: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, PATIENCE).with_context(|| format!("connect to {address}"))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// Connects from an address of this machine, such as another of `127.0.0.0/8`.
///
/// # Errors
/// When nobody accepts, or the address is not this machine's.
pub fn connect_from(own: IpAddr, address: SocketAddr) -> Result<TcpStream> {
    let socket = socket2::Socket::new(socket2::Domain::for_address(address), socket2::Type::STREAM, None)?;
    socket.bind(&SocketAddr::new(own, 0).into()).with_context(|| format!("bind {own}"))?;
    connected(socket, address)
}

/// Connects with a receive buffer of so many bytes, or as few as the system has, so that the peer's output soon waits.
///
/// # Errors
/// When nobody accepts.
pub fn connect_narrow(address: SocketAddr, receive_bytes: usize) -> Result<TcpStream> {
    let socket = socket2::Socket::new(socket2::Domain::for_address(address), socket2::Type::STREAM, None)?;
    // Before the connection is made, for its window is agreed on then.
    socket.set_recv_buffer_size(receive_bytes)?;
    connected(socket, address)
}

fn connected(socket: socket2::Socket, address: SocketAddr) -> Result<TcpStream> {
    socket.connect_timeout(&address.into(), PATIENCE).with_context(|| format!("connect to {address}"))?;
    let stream = TcpStream::from(socket);
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// Reads what is there. A signal interrupts a read that has a timeout, even one that stops the process and lets it go
/// on.
///
/// # Errors
/// As [`Read::read`], but for that.
pub fn read(stream: &mut impl Read, buffer: &mut [u8]) -> std::io::Result<usize> {
    loop {
        match stream.read(buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// Sends and reads to the end.
///
/// # Errors
/// When the peer does not close in time.
pub fn ask(address: SocketAddr, request: &[u8]) -> Result<Vec<u8>> {
    let mut stream = connect(address)?;
    stream.write_all(request)?;
    match read_end(&mut stream, PATIENCE)? {
        End::Closed(bytes) => Ok(bytes),
        End::Open(bytes) => bail!("still open after {} bytes", bytes.len()),
    }
}

/// Writes all, or as much as the peer takes; an early end by the peer is no error here.
///
/// # Errors
/// Any error but the end of the connection.
pub fn pour(stream: &mut impl Write, bytes: &[u8]) -> Result<bool> {
    match stream.write_all(bytes).and_then(|()| stream.flush()) {
        Ok(()) => Ok(true),
        Err(error) if is_end(error.kind()) || is_timeout(error.kind()) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Reads until the peer closes or `patience` is over.
///
/// # Errors
/// Any error but the end of the connection or a timeout.
pub fn read_end(stream: &mut TcpStream, patience: Duration) -> Result<End> {
    let deadline = Instant::now() + patience;
    let mut bytes = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(End::Open(bytes));
        }
        stream.set_read_timeout(Some(left))?;
        match read(stream, &mut buffer) {
            Ok(0) => return Ok(End::Closed(bytes)),
            Ok(count) => bytes.extend(buffer.iter().take(count)),
            Err(error) if is_end(error.kind()) => return Ok(End::Closed(bytes)),
            Err(error) if is_timeout(error.kind()) => return Ok(End::Open(bytes)),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Whether an error means that the peer has gone.
#[must_use]
pub fn is_end(kind: ErrorKind) -> bool {
    kind == ErrorKind::ConnectionReset
        || kind == ErrorKind::ConnectionAborted
        || kind == ErrorKind::BrokenPipe
        || kind == ErrorKind::UnexpectedEof
        || kind == ErrorKind::NotConnected
}

/// Whether an error means that nothing happened for as long as we waited.
#[must_use]
pub fn is_timeout(kind: ErrorKind) -> bool {
    kind == ErrorKind::WouldBlock || kind == ErrorKind::TimedOut
}
