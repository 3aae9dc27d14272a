//! WebSockets by hand (RFC 6455), as a client opens, sends and receives them: handshake, frames, and a stream of bytes.

use std::io::{Error, Read, Result as IoResult, Write};

use anyhow::{Result, ensure};

/// A message of text.
pub const TEXT: u8 = 1;
/// A message of bytes.
pub const BINARY: u8 = 2;
/// The end of the connection.
pub const CLOSE: u8 = 8;
/// Are you there?
pub const PING: u8 = 9;
/// I am.
pub const PONG: u8 = 10;

/// A whole message in one frame, masked with zeros.
#[must_use]
pub fn frame(opcode: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![0x80 | opcode];
    match (u8::try_from(payload.len()), u16::try_from(payload.len())) {
        (Ok(length @ 0..=125), _) => out.push(0x80 | length),
        (_, Ok(length)) => {
            out.push(0x80 | 126);
            out.extend(length.to_be_bytes());
        }
        _ => {
            out.push(0x80 | 127);
            out.extend((payload.len() as u64).to_be_bytes());
        }
    }
    out.extend([0; 4]);
    out.extend_from_slice(payload);
    out
}

/// Takes the first whole frame of a server off `bytes`: opcode and payload.
#[must_use]
pub fn take_frame(bytes: &mut Vec<u8>) -> Option<(u8, Vec<u8>)> {
    let (&[first, second], rest) = bytes.split_first_chunk::<2>()?;
    let (length, header) = match second {
        126 => {
            let (length, _) = rest.split_first_chunk::<2>()?;
            (usize::from(u16::from_be_bytes(*length)), 4)
        }
        127 => {
            let (length, _) = rest.split_first_chunk::<8>()?;
            (usize::try_from(u64::from_be_bytes(*length)).ok()?, 10)
        }
        length => (usize::from(length), 2),
    };
    let payload = bytes.get(header..header + length)?.to_vec();
    bytes.drain(..header + length);
    Some((first & 0x0f, payload))
}

/// Opens a WebSocket on an HTTP/1.1 connection (RFC 6455 §4.1).
///
/// # Errors
/// When the handshake is refused.
pub fn upgrade(stream: &mut (impl Read + Write), path: &str, subprotocol: &str) -> Result<()> {
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
         Sec-WebSocket-Protocol: {subprotocol}\r\n\r\n"
    )?;
    stream.flush()?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.extend(byte);
    }
    ensure!(head.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&head));
    Ok(())
}

/// A WebSocket of binary frames as a stream of bytes. It reads no more of the connection than is asked for.
#[derive(Debug)]
pub struct ByteStream<S> {
    stream: S,
    /// Bytes of the data frame under way that are still to be read.
    left: usize,
}

impl<S: Read + Write> ByteStream<S> {
    /// Over a connection on which the WebSocket is open.
    pub const fn over(stream: S) -> Self {
        Self { stream, left: 0 }
    }

    /// Reads frame headers up to that of a data frame; a close frame is the end.
    fn header(&mut self) -> IoResult<bool> {
        loop {
            let mut head = [0; 2];
            self.stream.read_exact(&mut head)?;
            let [first, second] = head;
            let length = match second & 0x7f {
                126 => {
                    let mut more = [0; 2];
                    self.stream.read_exact(&mut more)?;
                    u64::from(u16::from_be_bytes(more))
                }
                127 => {
                    let mut more = [0; 8];
                    self.stream.read_exact(&mut more)?;
                    u64::from_be_bytes(more)
                }
                short => u64::from(short),
            };
            self.left = usize::try_from(length).map_err(Error::other)?;
            match first & 0x0f {
                0 | BINARY if self.left > 0 => return Ok(true),
                0 | BINARY => {}
                CLOSE => return Ok(false),
                _ => drop(std::io::copy(&mut Read::by_ref(&mut self.stream).take(length), &mut std::io::sink())?),
            }
        }
    }
}

impl<S: Read + Write> Read for ByteStream<S> {
    fn read(&mut self, buffer: &mut [u8]) -> IoResult<usize> {
        if self.left == 0 && !self.header()? {
            return Ok(0);
        }
        let room = buffer.len().min(self.left);
        let count = self.stream.read(buffer.get_mut(..room).unwrap_or_default())?;
        self.left -= count;
        Ok(count)
    }
}

impl<S: Read + Write> Write for ByteStream<S> {
    fn write(&mut self, bytes: &[u8]) -> IoResult<usize> {
        self.stream.write_all(&frame(BINARY, bytes))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> IoResult<()> {
        self.stream.flush()
    }
}
