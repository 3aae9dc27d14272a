//! A DTLS client over a connected UDP socket.

use std::io;
use std::time::Duration;

use fogmux_dtls::client::{Client, ClientConfig, ClientEvent};
use fogmux_dtls::{Alert, Channel};
use fogmux_net::dtls::platform;
use tokio::net::UdpSocket;
use tokio::time::Instant;

/// Bytes of the largest datagram there is.
const DATAGRAM_MAX: usize = 64 << 10;

/// A session with a server.
#[derive(Debug)]
pub struct Connection {
    socket: UdpSocket,
    client: Client,
    origin: Instant,
    buffer: Vec<u8>,
    channel: Option<Box<Channel>>,
    waiting: Vec<Vec<u8>>,
}

/// Why there is no session.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The server refuses, or what it has sent does not hold.
    #[error("the DTLS handshake failed: {0}")]
    Refused(Alert),
    /// Nothing came in time.
    #[error("nothing answered the DTLS handshake within {} seconds", .0.as_secs())]
    Silence(Duration),
    /// The socket.
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl Connection {
    /// Makes a session over a connected socket.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub async fn connect(socket: UdpSocket, config: ClientConfig, patience: Duration) -> Result<Self, ConnectError> {
        let origin = Instant::now();
        let mut out = Vec::new();
        let send = &mut |datagram: &[u8]| out.push(datagram.to_vec());
        let client = Client::start(config, platform(), Duration::ZERO, send).map_err(ConnectError::Refused)?;
        let buffer = vec![0; DATAGRAM_MAX];
        let mut this = Self { socket, client, origin, buffer, channel: None, waiting: Vec::new() };
        this.write(&out).await?;
        let made = tokio::time::timeout(patience, this.handshake()).await;
        made.unwrap_or(Err(ConnectError::Silence(patience)))?;
        Ok(this)
    }

    /// The negotiated parameters and the server's identity; `None` before the handshake is complete.
    #[must_use]
    pub fn channel(&self) -> Option<&Channel> {
        self.channel.as_deref()
    }

    /// The largest message to the server, in bytes.
    #[must_use]
    pub fn message_bytes_max(&self) -> usize {
        self.client.data_max()
    }

    /// Sends one message.
    ///
    /// # Errors
    /// The socket's, the session is over, or the server takes no record that large (RFC 8449).
    pub async fn send(&mut self, data: &[u8]) -> io::Result<()> {
        let most = self.client.data_max();
        if self.client.is_established() && data.len() > most {
            let text = format!("the server takes messages of {most} bytes at most, and this one has {}", data.len());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let mut out = Vec::new();
        if !self.client.send(data, &mut |datagram| out.push(datagram.to_vec())) {
            return Err(io::ErrorKind::NotConnected.into());
        }
        self.write(&out).await
    }

    /// The next message; `None` when the server has ended the session. Nothing is lost when the future is dropped.
    ///
    /// # Errors
    /// An error of the socket.
    pub async fn receive(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            if !self.waiting.is_empty() {
                return Ok(Some(self.waiting.remove(0)));
            }
            for event in self.step().await? {
                match event {
                    ClientEvent::Data(data) => self.waiting.push(data),
                    ClientEvent::Ended(_) => return Ok(None),
                    ClientEvent::Established(_) => {}
                }
            }
        }
    }

    /// Says goodbye.
    pub async fn close(mut self) {
        let mut out = Vec::new();
        self.client.close(&mut |datagram| out.push(datagram.to_vec()));
        // Whether it is heard makes no difference to us.
        let _ = self.write(&out).await;
    }

    async fn handshake(&mut self) -> Result<(), ConnectError> {
        loop {
            let events = self.step().await?;
            for event in events {
                match event {
                    ClientEvent::Established(channel) => self.channel = Some(channel),
                    ClientEvent::Data(data) => self.waiting.push(data),
                    ClientEvent::Ended(alert) => return Err(ConnectError::Refused(alert)),
                }
            }
            if self.client.is_established() {
                return Ok(());
            }
        }
    }

    /// Waits for a datagram, or does what is due. Nothing is lost when the future is dropped.
    async fn step(&mut self) -> io::Result<Vec<ClientEvent>> {
        let due = self.client.next_timeout().map(|at| self.origin + at);
        tokio::select! {
            events = self.read() => events,
            () = sleep_until(due) => {
                let (now, mut out) = (self.origin.elapsed(), Vec::new());
                self.client.handle_timeout(now, &mut |datagram| out.push(datagram.to_vec()));
                self.write(&out).await?;
                Ok(Vec::new())
            }
        }
    }

    async fn read(&mut self) -> io::Result<Vec<ClientEvent>> {
        let len = self.socket.recv(&mut self.buffer).await?;
        let now = self.origin.elapsed();
        let mut out = Vec::new();
        let datagram = self.buffer.get(..len).unwrap_or_default();
        let events = self.client.handle(now, datagram, &mut |datagram| out.push(datagram.to_vec()));
        self.write(&out).await?;
        Ok(events)
    }

    async fn write(&self, datagrams: &[Vec<u8>]) -> io::Result<()> {
        for datagram in datagrams {
            self.socket.send(datagram).await?;
        }
        Ok(())
    }
}

async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}
