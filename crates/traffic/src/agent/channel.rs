//! Messages on a stream: four bytes of length, most significant first, and as much JSON.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// An experiment is a kilobyte.
pub(super) const REQUEST_BYTES_MAX: usize = 64 << 10;
/// Some thousand OSCORE contexts of a few hundred bytes.
pub(super) const REPLY_BYTES_MAX: usize = 4 << 20;

/// From when on a silent connection is asked whether it is there (RFC 9293 §3.8.4), how often, and until when.
const KEEP_ALIVE_AFTER: Duration = Duration::from_secs(15);
const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(5);
const KEEP_ALIVE_MAX: u32 = 3;

/// Sends one message.
pub(super) fn send(out: &mut impl Write, message: &impl Serialize, bytes_max: usize) -> io::Result<()> {
    let text = serde_json::to_vec(message)?;
    let length = u32::try_from(text.len()).ok().filter(|_| text.len() <= bytes_max).ok_or_else(too_large)?;
    let mut frame = Vec::with_capacity(text.len() + size_of_val(&length));
    frame.extend_from_slice(&length.to_be_bytes());
    frame.extend_from_slice(&text);
    out.write_all(&frame)?;
    out.flush()
}

/// Waits for one; nothing when the other end has gone.
pub(super) fn receive<T: DeserializeOwned>(input: &mut impl Read, bytes_max: usize) -> io::Result<Option<T>> {
    let mut length = [0; 4];
    match input.read_exact(&mut length) {
        // Rudely or in good order: either way there is nothing to be done for it any more.
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
    if length > bytes_max {
        return Err(too_large());
    }
    let mut text = vec![0; length];
    input.read_exact(&mut text)?;
    Ok(Some(serde_json::from_slice(&text)?))
}

fn too_large() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "a message larger than any that makes sense")
}

/// Small messages at once, and an end when the other host is gone without a word.
pub(super) fn prepare(stream: &TcpStream) -> io::Result<()> {
    use rustix::net::sockopt;
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEP_ALIVE_AFTER)?;
    sockopt::set_tcp_keepintvl(stream, KEEP_ALIVE_EVERY)?;
    sockopt::set_tcp_keepcnt(stream, KEEP_ALIVE_MAX)?;
    Ok(())
}

/// A stream that has until a moment, however little each read brings.
pub(super) struct Until<'s>(pub(super) &'s TcpStream, pub(super) Instant);

impl Until<'_> {
    fn left(&self) -> io::Result<Duration> {
        let left = self.1.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
    }
}

impl Read for Until<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.set_read_timeout(Some(self.left()?))?;
        self.0.read(buffer)
    }
}

impl Write for Until<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.set_write_timeout(Some(self.left()?))?;
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_out_as_they_went_in_and_large_ones_not_at_all() {
        let mut stream = Vec::new();
        send(&mut stream, &"one", 100).unwrap();
        send(&mut stream, &"two", 100).unwrap();
        assert!(send(&mut stream, &"x".repeat(100), 100).is_err());
        let mut stream = stream.as_slice();
        assert_eq!(receive::<String>(&mut stream, 100).unwrap().as_deref(), Some("one"));
        assert_eq!(receive::<String>(&mut stream, 100).unwrap().as_deref(), Some("two"));
        assert_eq!(receive::<String>(&mut stream, 100).unwrap(), None);
        // Memory is not taken on the word of a length.
        assert!(receive::<String>(&mut &b"\xff\xff\xff\xff"[..], 100).is_err());
        assert!(receive::<String>(&mut &b"\0\0\0\x02{}"[..], 100).is_err());
    }
}
