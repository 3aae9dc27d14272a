//! Answers of HTTP/1.1 as they come in (RFC 9112): heads by httparse, bodies by length, in chunks, or to the end.
//!
//! Pure: bytes are put in, parts come out. A part borrows from what was put in; only a head, or the size of a chunk,
//! that arrives in pieces is kept here.

use std::mem;

/// Most header fields of an answer; a peer that sends more is none that we measure.
const FIELDS_MAX: usize = 64;
/// Longest head.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Longest line that begins a chunk, with its extensions, or of a trailer section.
const LINE_BYTES_MAX: usize = 8 << 10;

/// A part of an answer, in the order in which they come: one head, any number of body parts, one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part<'a> {
    /// The final status; interim ones (RFC 9110 §15.2) are passed over.
    Head(u16),
    /// Some of the body.
    Body(&'a [u8]),
    /// All of it is here.
    End,
}

/// The reason why a response is malformed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Malformed {
    /// The error of httparse.
    #[error("an answer's head: {0}")]
    Head(#[from] httparse::Error),
    /// A head or a chunk line exceeds the limit, in bytes.
    #[error("more than {0} bytes of an answer's head or chunk")]
    TooLong(usize),
    /// A length that is no number, or two that differ (RFC 9112 §6.3).
    #[error("an answer's Content-Length")]
    Length,
    /// A transfer coding other than `chunked` (RFC 9112 §6.1): nothing else was asked for.
    #[error("an answer's Transfer-Encoding")]
    Coding,
    /// The size of a chunk, or what should end it.
    #[error("an answer's chunk")]
    Chunk,
}

/// Reads the answers of one connection, one after the other.
#[derive(Debug, Default)]
pub(super) struct Reader {
    state: State,
    /// The beginning of a head or of a line.
    partial: Vec<u8>,
    closes: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Head,
    /// The number of missing bytes; 0 if only the end is to be reported.
    Length(u64),
    ChunkSize,
    Chunk(u64),
    /// The line end after a chunk's data.
    ChunkEnd,
    /// Trailer fields, until an empty line.
    Trailers,
    UntilClose,
}

impl Reader {
    /// Whether the other end closes behind the answer that was read last.
    pub(super) fn closes(&self) -> bool {
        self.closes
    }

    /// Whether the body that is read ends with the connection.
    pub(super) fn until_close(&self) -> bool {
        self.state == State::UntilClose
    }

    /// The next part of `input`, which is shortened by what it took; nothing when all is taken and more is needed.
    pub(super) fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Part<'a>>, Malformed> {
        loop {
            if self.state == State::Length(0) {
                self.state = State::Head;
                return Ok(Some(Part::End));
            }
            if input.is_empty() {
                return Ok(None);
            }
            match self.state {
                State::Head => match self.head(input)? {
                    Some(status) if status < 200 => self.state = State::Head,
                    Some(status) => return Ok(Some(Part::Head(status))),
                    None => return Ok(None),
                },
                State::Length(left) => {
                    let (part, taken) = take(input, left);
                    self.state = State::Length(left - taken);
                    return Ok(Some(Part::Body(part)));
                }
                State::Chunk(0) => self.state = State::ChunkEnd,
                State::Chunk(left) => {
                    let (part, taken) = take(input, left);
                    self.state = State::Chunk(left - taken);
                    return Ok(Some(Part::Body(part)));
                }
                State::UntilClose => return Ok(Some(Part::Body(mem::take(input)))),
                State::ChunkSize | State::ChunkEnd | State::Trailers => {
                    if self.line(input)? {
                        let line = mem::take(&mut self.partial);
                        let ended = self.framing(line.trim_ascii_end())?;
                        self.partial = cleared(line);
                        if ended {
                            return Ok(Some(Part::End));
                        }
                    }
                }
            }
        }
    }

    /// The status of a head, once all of it is here.
    fn head(&mut self, input: &mut &[u8]) -> Result<Option<u16>, Malformed> {
        if self.partial.is_empty() {
            if let Some((head, used)) = Head::parse(input)? {
                *input = input.get(used..).unwrap_or_default();
                return Ok(Some(self.begin(head)));
            }
            self.partial.extend_from_slice(mem::take(input));
        } else {
            let before = self.partial.len();
            self.partial.extend_from_slice(input);
            if let Some((head, used)) = Head::parse(&self.partial)? {
                *input = input.get(used.saturating_sub(before)..).unwrap_or_default();
                self.partial.clear();
                return Ok(Some(self.begin(head)));
            }
            *input = &[];
        }
        if self.partial.len() > HEAD_BYTES_MAX { Err(Malformed::TooLong(HEAD_BYTES_MAX)) } else { Ok(None) }
    }

    fn begin(&mut self, head: Head) -> u16 {
        self.closes = head.closes;
        self.state = head.framing;
        head.status
    }

    /// Whether a whole line is in `partial` now.
    fn line(&mut self, input: &mut &[u8]) -> Result<bool, Malformed> {
        let (line, whole) = match input.iter().position(|byte| *byte == b'\n') {
            Some(end) => (take(input, end as u64 + 1).0, true),
            None => (mem::take(input), false),
        };
        self.partial.extend_from_slice(line);
        if self.partial.len() > LINE_BYTES_MAX { Err(Malformed::TooLong(LINE_BYTES_MAX)) } else { Ok(whole) }
    }

    /// Parses a line between chunks. Returns `true` at the end of the body.
    fn framing(&mut self, line: &[u8]) -> Result<bool, Malformed> {
        self.state = match self.state {
            State::ChunkSize => match chunk_size(line)? {
                0 => State::Trailers,
                size => State::Chunk(size),
            },
            State::ChunkEnd if line.is_empty() => State::ChunkSize,
            State::ChunkEnd => return Err(Malformed::Chunk),
            State::Trailers if line.is_empty() => State::Head,
            state @ (State::Trailers | State::Head | State::Length(_) | State::Chunk(_) | State::UntilClose) => state,
        };
        Ok(self.state == State::Head)
    }
}

/// The relevant parts of a head.
struct Head {
    status: u16,
    framing: State,
    closes: bool,
}

impl Head {
    /// Reads a head and says how long it was; nothing if it is not whole.
    fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, Malformed> {
        let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
        let mut response = httparse::Response::new(&mut fields);
        let httparse::Status::Complete(used) = response.parse(bytes)? else { return Ok(None) };
        let status = response.code.unwrap_or_default();
        // RFC 9112 §9.3: HTTP/1.0 closes unless it says otherwise, and we take it at its version.
        let mut closes = response.version == Some(0);
        let (mut length, mut chunked) = (None, false);
        for field in response.headers.iter() {
            if field.name.eq_ignore_ascii_case("content-length") {
                let said = decimal(field.value).ok_or(Malformed::Length)?;
                if length.replace(said).is_some_and(|before| before != said) {
                    return Err(Malformed::Length);
                }
            } else if field.name.eq_ignore_ascii_case("transfer-encoding") {
                if !field.value.eq_ignore_ascii_case(b"chunked") {
                    return Err(Malformed::Coding);
                }
                chunked = true;
            } else if field.name.eq_ignore_ascii_case("connection") {
                closes |=
                    field.value.split(|byte| *byte == b',').any(|o| o.trim_ascii().eq_ignore_ascii_case(b"close"));
            }
        }
        // RFC 9112 §6.3, in its order; HEAD and CONNECT are never asked.
        let framing = match (status, chunked, length) {
            (100..=199 | 204 | 304, _, _) => State::Length(0),
            (_, true, _) => State::ChunkSize,
            (_, false, Some(length)) => State::Length(length),
            (_, false, None) => State::UntilClose,
        };
        Ok(Some((Self { status, framing, closes }, used)))
    }
}

/// At most `most` bytes off the front, and how many these are.
fn take<'a>(input: &mut &'a [u8], most: u64) -> (&'a [u8], u64) {
    let length = usize::try_from(most).map_or(input.len(), |most| most.min(input.len()));
    let (part, rest) = input.split_at(length);
    *input = rest;
    (part, length as u64)
}

fn cleared(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.clear();
    bytes
}

fn decimal(bytes: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(bytes).ok()?.trim();
    // `parse` would take a sign.
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

/// RFC 9112 §7.1: hexadecimal digits, and extensions that mean nothing to us.
fn chunk_size(line: &[u8]) -> Result<u64, Malformed> {
    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    let text = std::str::from_utf8(digits).map_err(|_| Malformed::Chunk)?;
    if text.starts_with('+') {
        return Err(Malformed::Chunk);
    }
    u64::from_str_radix(text, 16).map_err(|_| Malformed::Chunk)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Statuses and bodies of what comes in pieces of `step` bytes.
    fn read(bytes: &[u8], step: usize) -> Result<Vec<(u16, Vec<u8>, bool)>, Malformed> {
        let mut reader = Reader::default();
        let mut answers = Vec::new();
        let mut ended = true;
        for mut piece in bytes.chunks(step) {
            while let Some(part) = reader.next(&mut piece)? {
                match part {
                    Part::Head(status) => {
                        assert!(ended, "an answer began within another");
                        answers.push((status, Vec::new(), false));
                    }
                    Part::Body(part) => answers.last_mut().unwrap().1.extend_from_slice(part),
                    Part::End => answers.last_mut().unwrap().2 = true,
                }
                ended = part == Part::End;
            }
        }
        Ok(answers)
    }

    #[test]
    fn answers_are_the_same_in_whatever_pieces_they_come() {
        let bytes = b"HTTP/1.1 100 Continue\r\n\r\n\
            HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello\
            HTTP/1.1 204 No Content\r\n\r\n\
            HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\nA\r\n0123456789\r\n0\r\nx-t: 1\r\n\r\n\
            HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n\
            HTTP/1.0 200\r\n\r\nto the end";
        let whole = vec![
            (200, b"hello".to_vec(), true),
            (204, Vec::new(), true),
            (200, b"abc0123456789".to_vec(), true),
            (404, Vec::new(), true),
            (200, b"to the end".to_vec(), false),
        ];
        for step in 1..bytes.len() + 1 {
            assert_eq!(read(bytes, step).unwrap(), whole, "in pieces of {step}");
        }
    }

    #[test]
    fn what_is_malformed_is_refused() {
        let refused = |bytes: &[u8]| read(bytes, bytes.len()).unwrap_err();
        assert!(matches!(refused(b"SPDY/3 200 OK\r\n\r\n"), Malformed::Head(_)));
        assert_eq!(refused(b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n"), Malformed::Length);
        assert_eq!(refused(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n"), Malformed::Length);
        assert_eq!(refused(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n"), Malformed::Coding);
        let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
        assert_eq!(refused(&[&chunked[..], b"+1\r\n"].concat()), Malformed::Chunk);
        assert_eq!(refused(&[&chunked[..], b"1\r\nab\r\n"].concat()), Malformed::Chunk);
        let endless = vec![b'a'; HEAD_BYTES_MAX + 1];
        assert_eq!(refused(&[b"HTTP/1.1 200 OK\r\nx: ", &endless[..]].concat()), Malformed::TooLong(HEAD_BYTES_MAX));
    }

    #[test]
    fn who_closes_says_so() {
        let closes = |head: &[u8]| {
            let mut reader = Reader::default();
            reader.next(&mut &head[..]).unwrap();
            reader.closes()
        };
        assert!(closes(b"HTTP/1.1 200 OK\r\nConnection: keep-alive, Close\r\n\r\n"));
        assert!(!closes(b"HTTP/1.1 200 OK\r\nConnection: keep-alive\r\n\r\n"));
        assert!(closes(b"HTTP/1.0 200 OK\r\n\r\n"));
    }
}
