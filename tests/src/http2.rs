//! HTTP/2 frames by hand (RFC 9113 §4.1), over cleartext with prior knowledge.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};

use anyhow::{Result, ensure};

use crate::tcp;

/// Frame types (§6).
pub const DATA: u8 = 0;
/// HEADERS.
pub const HEADERS: u8 = 1;
/// RST_STREAM.
pub const RST_STREAM: u8 = 3;
/// SETTINGS.
pub const SETTINGS: u8 = 4;
/// PING.
pub const PING: u8 = 6;
/// GOAWAY.
pub const GOAWAY: u8 = 7;
/// WINDOW_UPDATE.
pub const WINDOW_UPDATE: u8 = 8;
/// CONTINUATION.
pub const CONTINUATION: u8 = 9;

/// END_STREAM and END_HEADERS.
pub const END_STREAM: u8 = 1;
/// The header block ends here.
pub const END_HEADERS: u8 = 4;

/// A frame.
#[must_use]
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or_default().to_be_bytes();
    let mut out: Vec<u8> = length.into_iter().skip(1).collect();
    out.extend([kind, flags]);
    out.extend(stream.to_be_bytes());
    out.extend(payload);
    out
}

/// Takes the first whole frame off `bytes`: type, flags, stream and payload.
#[must_use]
pub fn take_frame(bytes: &mut Vec<u8>) -> Option<(u8, u8, u32, Vec<u8>)> {
    let (&[a, b, c, kind, flags, s, t, u, v], rest) = bytes.split_first_chunk::<9>()?;
    let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
    let payload = rest.get(..length)?.to_vec();
    bytes.drain(..9 + length);
    Some((kind, flags, u32::from_be_bytes([s, t, u, v]), payload))
}

/// A header field as a literal without indexing, with a new name (RFC 7541 §6.2.2).
#[must_use]
pub fn literal(name: &str, value: &str) -> Vec<u8> {
    let mut out = vec![0];
    for text in [name, value] {
        integer(text.len(), &mut out);
        out.extend(text.bytes());
    }
    out
}

/// An integer with a prefix of seven bits, the first of them 0 (RFC 7541 §5.1).
fn integer(value: usize, out: &mut Vec<u8>) {
    const PREFIX: usize = 0x7f;
    if value < PREFIX {
        out.push(u8::try_from(value).unwrap_or_default());
        return;
    }
    out.push(0x7f);
    let mut rest = value - PREFIX;
    while rest >= 0x80 {
        out.push(u8::try_from(rest % 0x80).unwrap_or_default() | 0x80);
        rest /= 0x80;
    }
    out.push(u8::try_from(rest).unwrap_or_default());
}

/// A header block for `GET <path>`: `:method` and `:scheme` from the static table, the rest as literals (RFC 7541 §6).
#[must_use]
pub fn get(path: &str) -> Vec<u8> {
    request(0x82, path)
}

/// The same for `POST <path>`.
#[must_use]
pub fn post(path: &str) -> Vec<u8> {
    request(0x83, path)
}

fn request(method: u8, path: &str) -> Vec<u8> {
    let mut block = vec![method, 0x86];
    for (index, value) in [(0x04, path), (0x01, "localhost")] {
        block.push(index);
        integer(value.len(), &mut block);
        block.extend(value.bytes());
    }
    block
}

/// Connects and sends the preface with empty settings (§3.4).
///
/// # Errors
/// When nobody accepts.
pub fn connect(address: SocketAddr) -> Result<TcpStream> {
    let mut stream = tcp::connect(address)?;
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")?;
    stream.write_all(&frame(SETTINGS, 0, 0, &[]))?;
    Ok(stream)
}

/// A connection whose streams get a window for answers only by WINDOW_UPDATE (§6.9.2).
#[derive(Debug)]
pub struct Windowless {
    /// The connection.
    pub stream: TcpStream,
    read: Vec<u8>,
    next: u32,
}

impl Windowless {
    /// Connects with a SETTINGS_INITIAL_WINDOW_SIZE of 0 (§6.5.2).
    ///
    /// # Errors
    /// When nobody accepts.
    pub fn connect(address: SocketAddr) -> Result<Self> {
        let mut stream = connect(address)?;
        stream.write_all(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]))?;
        Ok(Self { stream, read: Vec::new(), next: 1 })
    }

    /// Sends a request. Returns its stream.
    ///
    /// # Errors
    /// When the connection has ended.
    pub fn send(&mut self, block: &[u8], body: &[u8]) -> Result<u32> {
        const FRAME_BYTES_MAX: usize = 16 << 10;
        let id = self.next;
        self.next += 2;
        let last = |is_last| if is_last { END_STREAM } else { 0 };
        let mut out = frame(HEADERS, END_HEADERS | last(body.is_empty()), id, block);
        let count = body.len().div_ceil(FRAME_BYTES_MAX);
        for (index, piece) in body.chunks(FRAME_BYTES_MAX).enumerate() {
            out.extend(frame(DATA, last(index + 1 == count), id, piece));
        }
        self.stream.write_all(&out)?;
        Ok(id)
    }

    /// The next frame: type, flags, stream and payload.
    ///
    /// # Errors
    /// When none comes in time.
    pub fn next_frame(&mut self) -> Result<(u8, u8, u32, Vec<u8>)> {
        loop {
            if let Some(frame) = take_frame(&mut self.read) {
                return Ok(frame);
            }
            let mut buffer = [0; 16 << 10];
            let count = tcp::read(&mut self.stream, &mut buffer)?;
            ensure!(count > 0, "the connection ended");
            self.read.extend(buffer.iter().take(count));
        }
    }

    /// Reads until the stream is answered or reset. Returns the type of that frame.
    ///
    /// # Errors
    /// When neither comes in time.
    pub fn answered(&mut self, stream: u32) -> Result<u8> {
        self.until(stream, &[HEADERS, RST_STREAM]).map(|(kind, _)| kind)
    }

    /// Reads until a frame of one of these types comes on the stream. Returns its type and flags.
    ///
    /// # Errors
    /// When none comes in time.
    pub fn until(&mut self, stream: u32, kinds: &[u8]) -> Result<(u8, u8)> {
        loop {
            let (kind, flags, id, _) = self.next_frame()?;
            if id == stream && kinds.contains(&kind) {
                return Ok((kind, flags));
            }
        }
    }

    /// Lets a stream, or with 0 the connection, send so many bytes more.
    ///
    /// # Errors
    /// When the connection has ended.
    pub fn open(&mut self, stream: u32, bytes: u32) -> Result<()> {
        Ok(self.stream.write_all(&frame(WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes()))?)
    }
}

/// The error code of the first GOAWAY among the frames (§6.8).
#[must_use]
pub fn goaway(mut bytes: &[u8]) -> Option<u32> {
    while let Some((&[a, b, c, kind, _flags, _, _, _, _], rest)) = bytes.split_first_chunk::<9>() {
        let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        let payload = rest.get(..length)?;
        if kind == GOAWAY {
            return payload.get(4..8).and_then(|code| code.try_into().ok()).map(u32::from_be_bytes);
        }
        bytes = rest.get(length..)?;
    }
    None
}
