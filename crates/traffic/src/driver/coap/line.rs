//! CoAP over TCP and TLS (RFC 8323): one connection, its settings agreed on.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use fogmux_client::counted::{Counted, Counter};
use fogmux_client::stream::Stream;
use fogmux_coap::server::StreamLimits;
use fogmux_coap::stream::{Abort, Due, Frame, Framing, Heard, Session, SessionConfig, signal};
use fogmux_coap::{BlockSize, Message, Timestamp};
use tokio::io::{AsyncRead as _, AsyncWrite as _, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::driver::DriverError;

/// Bytes of a body in one message (BERT): other messages have their turn in between.
const CHUNK_BYTES_MAX: usize = 64 << 10;
/// Bytes that may wait to be written before nothing more is put behind them.
const OUTPUT_BYTES_MAX: usize = 1 << 20;
/// How long saying goodbye may take.
const CLOSING_PATIENCE: Duration = Duration::from_millis(200);

/// A TCP or TLS stream whose bytes on the socket are counted.
pub(super) type Socket = Stream<Counted<TcpStream>>;

/// A connection.
pub(super) struct Line {
    socket: Socket,
    counter: Arc<Counter>,
    session: Session,
    input: Vec<u8>,
    output: Vec<u8>,
    written: usize,
}

impl Line {
    /// Waits for the other end's settings: what it takes (RFC 8323 §5.3).
    pub(super) async fn open(socket: Socket, counter: Arc<Counter>) -> Result<Self, DriverError> {
        let mut output = Vec::new();
        let session = Session::open(SessionConfig::CLIENT, Framing::Stream, Timestamp::ZERO, &mut output);
        let mut line = Self { socket, counter, session, input: Vec::new(), output, written: 0 };
        let mut buffer = vec![0; 4 << 10];
        let settled = std::future::poll_fn(|cx| {
            while !line.session.is_settled() {
                if let Poll::Ready(written) = line.poll_flush(cx) {
                    written?;
                }
                ready!(line.poll_receive(cx, &mut buffer))?;
                line.each_message(Timestamp::ZERO, |_, _| {})?;
            }
            Poll::Ready(Ok(()))
        });
        let silence = || DriverError::Connection("the server has not sent its settings (RFC 8323 §5.3)".to_owned());
        timeout(SessionConfig::CLIENT.settings_timeout, settled).await.map_err(|_| silence())??;
        Ok(line)
    }

    /// The block size for the other end, and the bytes of a body in one message.
    pub(super) fn blocks(&self) -> (BlockSize, usize) {
        StreamLimits::blocks(self.session.limits(), CHUNK_BYTES_MAX)
    }

    /// Bytes into the socket and out of it.
    pub(super) fn bytes(&self) -> (u64, u64) {
        (self.counter.up(), self.counter.down())
    }

    /// Whether there is room for another message.
    pub(super) fn has_room(&self) -> bool {
        self.output.len() < OUTPUT_BYTES_MAX
    }

    /// Puts a message behind what waits.
    pub(super) fn push(&mut self, datagram: &[u8]) {
        if let Some(frame) = Frame::of_datagram(datagram) {
            frame.write(Framing::Stream, &mut self.output);
        }
    }

    /// Writes what waits; ready when nothing waits any more.
    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), DriverError>> {
        while let Some(rest) = self.output.get(self.written..).filter(|rest| !rest.is_empty()) {
            let written = ready!(Pin::new(&mut self.socket).poll_write(cx, rest)).map_err(|error| failed(&error))?;
            if written == 0 {
                return Poll::Ready(Err(failed(&io::ErrorKind::WriteZero.into())));
            }
            self.written += written;
        }
        if self.written > 0 {
            self.output.clear();
            self.written = 0;
            ready!(Pin::new(&mut self.socket).poll_flush(cx)).map_err(|error| failed(&error))?;
        }
        Poll::Ready(Ok(()))
    }

    /// Waits for bytes.
    pub(super) fn poll_receive(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<Result<(), DriverError>> {
        let mut buffer = ReadBuf::new(buffer);
        ready!(Pin::new(&mut self.socket).poll_read(cx, &mut buffer)).map_err(|error| failed(&error))?;
        if buffer.filled().is_empty() {
            return Poll::Ready(Err(DriverError::Connection("the server has closed the connection".to_owned())));
        }
        self.input.extend_from_slice(buffer.filled());
        Poll::Ready(Ok(()))
    }

    /// Hands over the messages that are whole, each with the bytes it took.
    pub(super) fn each_message(
        &mut self,
        now: Timestamp,
        mut handle: impl FnMut(&Message<'_>, usize),
    ) -> Result<(), DriverError> {
        let mut taken = 0;
        while let Some(rest) = self.input.get(taken..).filter(|rest| !rest.is_empty()) {
            let heard = self.session.take(now, rest).map_err(|abort| broken(&abort))?;
            let Some((heard, bytes)) = heard else { break };
            taken += bytes;
            match heard {
                Heard::Message(message) => handle(&message, bytes),
                Heard::Ping { token, custody } => {
                    signal::push_pong(&token, custody, Framing::Stream, &mut self.output);
                }
                Heard::Settings(_) | Heard::Nothing => {}
                Heard::Released(_) => return Err(DriverError::Connection("the server wants to go".to_owned())),
                Heard::Aborted(why) => return Err(DriverError::Protocol(format!("aborted by the server: {why}"))),
            }
        }
        self.input.drain(..taken);
        Ok(())
    }

    /// When [`Line::handle_timeout`] is due.
    pub(super) fn next_timeout(&self) -> Timestamp {
        self.session.next_timeout()
    }

    /// Asks whether somebody is still there, or finds that nobody is.
    pub(super) fn handle_timeout(&mut self, now: Timestamp) -> Result<(), DriverError> {
        match self.session.handle_timeout(now, &mut self.output) {
            Due::Nothing | Due::Pinged => Ok(()),
            Due::Over(abort) => Err(broken(&abort)),
        }
    }

    /// Says goodbye.
    pub(super) async fn close(mut self) {
        // Whether it is heard makes no difference to us.
        let _ = timeout(CLOSING_PATIENCE, self.socket.shutdown()).await;
    }
}

fn broken(abort: &Abort) -> DriverError {
    DriverError::Protocol(abort.to_string())
}

fn failed(error: &io::Error) -> DriverError {
    DriverError::Connection(error.to_string())
}
