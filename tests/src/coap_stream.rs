//! CoAP over TCP and WebSockets by hand (RFC 8323).

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::coap::{Message, message};
use crate::{tcp, websocket};

/// A connection over TCP (RFC 8323) whose settings are said: it takes messages of 128 KiB, in one piece.
#[derive(Debug)]
pub struct Line {
    stream: TcpStream,
    input: Vec<u8>,
    framing: Framing,
}

/// Where a message ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    /// It says its own length (RFC 8323 §3.2).
    Stream,
    /// It is a frame of a WebSocket (RFC 8323 §4.2).
    WebSocket,
}

impl Line {
    /// Opens one.
    ///
    /// # Errors
    /// When nobody accepts.
    pub fn open(server: SocketAddr) -> Result<Self> {
        Self::over(tcp::connect(server)?)
    }

    /// The same on a stream that is open.
    ///
    /// # Errors
    /// When it takes nothing.
    pub fn over(stream: TcpStream) -> Result<Self> {
        Self::begin(stream, Framing::Stream)
    }

    /// The same over a WebSocket on a connection to the HTTP listener.
    ///
    /// # Errors
    /// When the handshake is refused.
    pub fn over_websocket(mut stream: TcpStream) -> Result<Self> {
        websocket::upgrade(&mut stream, "/.well-known/coap", "coap")?;
        Self::begin(stream, Framing::WebSocket)
    }

    fn begin(stream: TcpStream, framing: Framing) -> Result<Self> {
        let mut line = Self { stream, input: Vec::new(), framing };
        // CSM with Max-Message-Size and Block-Wise-Transfer (RFC 8323 §5.3).
        line.send(0xe1, b"", &[(2, &[0x02, 0x00, 0x00]), (4, b"")], b"")?;
        Ok(line)
    }

    /// Sends a message.
    ///
    /// # Errors
    /// When the other end takes nothing.
    pub fn send(&mut self, code: u8, token: &[u8], options: &[(u16, &[u8])], payload: &[u8]) -> Result<()> {
        let datagram = message(0, code, 0, token, options, payload);
        let body = datagram.get(4 + token.len()..).unwrap_or_default();
        let length = u8::try_from(token.len()).unwrap_or_default();
        if self.framing == Framing::WebSocket {
            let whole = [&[length, code][..], token, body].concat();
            return Ok(self.stream.write_all(&websocket::frame(websocket::BINARY, &whole))?);
        }
        let mut frame = match body.len() {
            short @ 0..13 => vec![u8::try_from(short).unwrap_or_default() << 4 | length],
            middle @ 13..269 => vec![0xd0 | length, u8::try_from(middle - 13).unwrap_or_default()],
            long @ 269..65_805 => {
                let [high, low] = u16::try_from(long - 269).unwrap_or_default().to_be_bytes();
                vec![0xe0 | length, high, low]
            }
            longest => [&[0xf0 | length], &u32::try_from(longest - 65_805)?.to_be_bytes()[..]].concat(),
        };
        frame.push(code);
        frame.extend(token);
        frame.extend(body);
        Ok(self.stream.write_all(&frame)?)
    }

    /// Sends a part of a message.
    ///
    /// # Errors
    /// When the other end takes nothing.
    pub fn send_raw(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.stream.write_all(bytes)?)
    }

    /// The next message; None when none comes within `patience`.
    ///
    /// # Errors
    /// When the connection ends.
    pub fn next(&mut self, patience: Duration) -> Result<Option<Message>> {
        self.stream.set_read_timeout(Some(patience))?;
        let mut buffer = vec![0; 64 << 10];
        loop {
            if let Some(message) = self.take()? {
                return Ok(Some(message));
            }
            match tcp::read(&mut self.stream, &mut buffer) {
                Ok(0) => bail!("the connection has ended"),
                Ok(count) => self.input.extend(buffer.iter().take(count)),
                Err(error) if tcp::is_timeout(error.kind()) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Takes the first whole message off the input.
    fn take(&mut self) -> Result<Option<Message>> {
        match self.framing {
            Framing::Stream => {
                let Some((message, used)) = self.split_stream()? else { return Ok(None) };
                self.input.drain(..used);
                Ok(Some(message))
            }
            Framing::WebSocket => {
                let Some((opcode, whole)) = websocket::take_frame(&mut self.input) else { return Ok(None) };
                ensure!(opcode == websocket::BINARY, "a frame with opcode {opcode}");
                let (&[token, code], rest) = whole.split_first_chunk().context("a short message")?;
                Message { code, ..Message::default() }.fill(rest, usize::from(token)).map(Some)
            }
        }
    }

    fn split_stream(&self) -> Result<Option<(Message, usize)>> {
        let Some((first, rest)) = self.input.split_first() else { return Ok(None) };
        let (more, base) = match first >> 4 {
            13 => (1, 13),
            14 => (2, 269),
            15 => (4, 65_805),
            short => (0, usize::from(short)),
        };
        let Some((length, rest)) = rest.split_at_checked(more) else { return Ok(None) };
        let (length, token) = (be(length) + base, usize::from(first & 0x0f));
        let Some((code, rest)) = rest.split_first() else { return Ok(None) };
        let Some(rest) = rest.get(..token + length) else { return Ok(None) };
        let message = Message { code: *code, ..Message::default() }.fill(rest, token)?;
        Ok(Some((message, 2 + more + token + length)))
    }
}

fn be(bytes: &[u8]) -> usize {
    bytes.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte))
}
