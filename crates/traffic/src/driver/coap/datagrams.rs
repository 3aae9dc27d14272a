//! A connected UDP socket, alone or under DTLS 1.2.
//!
//! Datagrams are received into buffers that all clients share, so thousands of clients need little more memory than
//! their sockets and sessions.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use fogmux_dtls::Alert;
use fogmux_dtls::client::{Client as Session, ClientConfig, ClientEvent, Opened};
use fogmux_net::dtls::platform;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, Sleep, sleep, timeout, timeout_at};

use crate::driver::DriverError;

/// Bytes of the largest datagram there is.
const DATAGRAM_MAX: usize = 64 << 10;
/// Bytes of the largest datagram of a handshake: servers cut their flights to the path (RFC 6347 §4.1.1.1).
const HANDSHAKE_DATAGRAM_MAX: usize = 16 << 10;
/// How long a handshake is tried: RFC 6347 §4.2.4.1, six repeats and an answer to the last.
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(90);
/// How long is waited for the server's `close_notify` (RFC 5246 §7.2.1). A socket that is closed before it comes
/// answers it with an ICMP message, which would be one packet too many on the wire.
const CLOSING_PATIENCE: Duration = Duration::from_millis(200);
/// Bytes that a socket may hold for us until its client has its turn.
const RECEIVE_BUFFER: usize = 1 << 20;

/// The delay before writing to a full socket again. The kernel does not notify when it has room: see [`open`].
const FULL: Duration = Duration::from_millis(1);

/// The buffers that all clients of a driver share.
pub(super) struct Buffers {
    /// A received datagram.
    pub(super) datagram: Box<[u8]>,
    /// An outgoing record.
    pub(super) record: Vec<u8>,
    /// The decrypted contents of records.
    pub(super) plain: Vec<u8>,
}

impl Default for Buffers {
    fn default() -> Self {
        Self { datagram: vec![0; DATAGRAM_MAX].into(), record: Vec::new(), plain: Vec::new() }
    }
}

/// A socket and perhaps a session.
pub(super) struct Datagrams {
    socket: AsyncFd<UdpSocket>,
    /// It was full a moment ago.
    full: Option<Pin<Box<Sleep>>>,
    session: Option<Box<Session>>,
    /// When the handshake began, from which the session counts its time.
    began: Instant,
    /// Bytes into the socket.
    pub(super) up: u64,
    /// Bytes out of it.
    pub(super) down: u64,
}

impl Datagrams {
    /// Opens a socket and makes the handshake, if there is one. Returns the cipher suite, too.
    pub(super) async fn connect(remote: SocketAddr, dtls: Option<ClientConfig>) -> Result<(Self, String), DriverError> {
        let socket = open(remote).map_err(|error| failed(&error))?;
        let mut this = Self { socket, full: None, session: None, began: Instant::now(), up: 0, down: 0 };
        let Some(config) = dtls else { return Ok((this, String::new())) };
        let handshake = timeout(HANDSHAKE_PATIENCE, this.handshake(config)).await;
        let silence = || DriverError::Connection("nothing answered the DTLS handshake".to_owned());
        let cipher = handshake.map_err(|_| silence())??;
        Ok((this, cipher))
    }

    async fn handshake(&mut self, config: ClientConfig) -> Result<String, DriverError> {
        let began = self.began;
        let mut out: Vec<Vec<u8>> = Vec::new();
        let first = &mut |datagram: &[u8]| out.push(datagram.to_vec());
        let mut session = Session::start(config, platform(), Duration::ZERO, first).map_err(|alert| refused(&alert))?;
        let mut buffer = vec![0; HANDSHAKE_DATAGRAM_MAX];
        loop {
            for datagram in out.drain(..) {
                send(&self.socket, &datagram).await.map_err(|error| failed(&error))?;
                self.up += length(&datagram);
            }
            let send = &mut |datagram: &[u8]| out.push(datagram.to_vec());
            let again_at = began + session.next_timeout().unwrap_or(HANDSHAKE_PATIENCE);
            let Ok(received) = timeout_at(again_at, receive(&self.socket, &mut buffer)).await else {
                session.handle_timeout(began.elapsed(), send);
                continue;
            };
            let received = received.map_err(|error| failed(&error))?;
            let datagram = buffer.get(..received).unwrap_or_default();
            self.down += length(datagram);
            for event in session.handle(began.elapsed(), datagram, send) {
                match event {
                    ClientEvent::Established(channel) => {
                        self.session = Some(Box::new(session));
                        return Ok(channel.suite.name().to_owned());
                    }
                    ClientEvent::Ended(alert) => return Err(refused(&alert)),
                    ClientEvent::Data(_) => {}
                }
            }
        }
    }

    /// Sends one message.
    pub(super) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        message: &[u8],
        record: &mut Vec<u8>,
    ) -> Poll<Result<(), DriverError>> {
        let datagram = match &mut self.session {
            None => message,
            Some(session) => {
                record.clear();
                if !session.seal(message, record) {
                    let fits = !session.is_established() || message.len() <= session.data_max();
                    return Poll::Ready(Err(if fits { ended() } else { too_long(message, session.data_max()) }));
                }
                record
            }
        };
        loop {
            if let Some(full) = &mut self.full {
                ready!(full.as_mut().poll(cx));
                self.full = None;
            }
            match self.socket.get_ref().send(datagram) {
                Ok(_) => {
                    self.up += length(datagram);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.full = Some(Box::pin(sleep(FULL))),
                Err(error) => return Poll::Ready(Err(failed(&error))),
            }
        }
    }

    /// Waits for the next datagram and says how long it is.
    pub(super) fn poll_receive(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<Result<usize, DriverError>> {
        loop {
            let mut readable = ready!(self.socket.poll_read_ready(cx)).map_err(|error| failed(&error))?;
            match self.socket.get_ref().recv(buffer) {
                Ok(bytes) => {
                    self.down += u64::try_from(bytes).unwrap_or_default();
                    return Poll::Ready(Ok(bytes));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => readable.clear_ready(),
                Err(error) => return Poll::Ready(Err(failed(&error))),
            }
        }
    }

    /// Hands over the messages in a datagram, one by one.
    pub(super) fn each_message(
        &mut self,
        datagram: &[u8],
        plain: &mut Vec<u8>,
        mut handle: impl FnMut(&[u8]),
    ) -> Result<(), DriverError> {
        let Some(session) = &mut self.session else {
            handle(datagram);
            return Ok(());
        };
        let (socket, began, mut rest) = (self.socket.get_ref(), self.began, datagram);
        loop {
            plain.clear();
            // A refusal to renegotiate that does not get out is asked for again.
            let mut send = |record: &[u8]| drop(socket.send(record));
            match session.open(|| began.elapsed(), &mut rest, plain, &mut send) {
                Some(Opened::Data) => handle(plain),
                Some(Opened::Nothing) => {}
                Some(Opened::Ended(_)) => return Err(ended()),
                None => return Ok(()),
            }
        }
    }

    /// Nothing more is expected now: whoever waits for the next datagram is woken by it. Otherwise it would take a read
    /// that finds nothing, for each answer, to make that known to tokio; what has come unexpectedly waits for the next.
    pub(super) fn rest(&self) {
        let nothing = |_: &UdpSocket| Err::<(), _>(io::ErrorKind::WouldBlock.into());
        let _ = self.socket.try_io(Interest::READABLE, nothing);
    }

    /// Says goodbye, where there is somebody to say it to.
    pub(super) async fn close(mut self) {
        let Some(session) = &mut self.session else { return };
        let mut out = Vec::new();
        session.close(&mut |datagram| out.extend_from_slice(datagram));
        if send(&self.socket, &out).await.is_ok() {
            let mut buffer = [0; 64];
            let _ = timeout(CLOSING_PATIENCE, receive(&self.socket, &mut buffer)).await;
        }
    }
}

/// A socket that is watched for what comes, and for nothing else. Were it watched for room as well, as tokio's own is,
/// every datagram that the other end reads would wake us – at the other end's cost, which is what is measured.
fn open(remote: SocketAddr) -> io::Result<AsyncFd<UdpSocket>> {
    let local: SocketAddr =
        if remote.is_ipv4() { (Ipv4Addr::UNSPECIFIED, 0).into() } else { (Ipv6Addr::UNSPECIFIED, 0).into() };
    let socket = UdpSocket::bind(local)?;
    socket.set_nonblocking(true)?;
    // As much as the kernel lets us have; many answers may come in one turn.
    let _ = rustix::net::sockopt::set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER);
    socket.connect(remote)?;
    #[expect(deprecated, reason = "its successor is unsafe; a socket that is owned keeps what both ask for")]
    AsyncFd::with_interest(socket, Interest::READABLE)
}

async fn send(socket: &AsyncFd<UdpSocket>, datagram: &[u8]) -> io::Result<()> {
    loop {
        match socket.get_ref().send(datagram) {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => sleep(FULL).await,
            Err(error) => return Err(error),
        }
    }
}

async fn receive(socket: &AsyncFd<UdpSocket>, buffer: &mut [u8]) -> io::Result<usize> {
    socket.async_io(Interest::READABLE, |socket| socket.recv(buffer)).await
}

fn refused(alert: &Alert) -> DriverError {
    DriverError::Refused(format!("the DTLS handshake failed: {alert}"))
}

fn ended() -> DriverError {
    DriverError::Connection("the server has ended the DTLS session".to_owned())
}

fn too_long(message: &[u8], bytes_max: usize) -> DriverError {
    DriverError::Refused(format!("the server takes no message of {} bytes: {bytes_max} are the most", message.len()))
}

fn failed(error: &io::Error) -> DriverError {
    DriverError::Connection(error.to_string())
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}
