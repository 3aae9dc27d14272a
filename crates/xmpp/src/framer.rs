//! Cuts a stream into its header, its stanzas and its end, whatever the pieces it arrives in.
//!
//! It reads each byte once, holds no bytes itself, and refuses what is too long, too deep or of a kind that XMPP
//! forbids (RFC 6120 §11.1) as soon as that shows. What it passes on is not checked further: that is `parse`'s work.

use crate::chars::is_space;
use crate::error::{StreamCondition, StreamError};
use crate::limits::Limits;

const CDATA: &[u8] = b"<![CDATA[";
const DECLARATION: &[u8] = b"<?xml";

/// One unit of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame<'b> {
    /// The start tag of the stream element.
    Header(&'b [u8]),
    /// A whole child of the stream element.
    Stanza(&'b [u8]),
    /// The stream element has ended.
    End,
}

/// The outcome of a look at the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Framed<'b> {
    /// How many bytes the caller drops from the front of the buffer.
    pub used: usize,
    /// The next unit; none means that more bytes are needed, and that what is left must stand at the front next time.
    pub frame: Option<Frame<'b>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Before the header, where an XML declaration may stand.
    Prolog,
    /// In the XML declaration.
    Declaration,
    /// In character data, or between stanzas.
    Text,
    /// After a `<`.
    Angle,
    /// In a start tag.
    StartTag,
    /// In an attribute value.
    Quoted(u8),
    /// In an end tag.
    EndTag,
    /// After `<!`, so many bytes of [`CDATA`] seen.
    Bang(usize),
    /// In a CDATA section.
    Cdata,
    /// After the end of the stream.
    Ended,
}

/// The result of a scan.
enum Unit<'b> {
    Frame(Frame<'b>),
    /// The XML declaration.
    Dropped,
    More,
}

/// The position in one stream.
#[derive(Debug)]
pub struct Framer {
    state: State,
    depth: usize,
    depth_max: usize,
    /// How much of the buffer has been looked at.
    seen: usize,
    frame_bytes_max: usize,
}

impl Framer {
    /// Begins before the header, with the limit that holds before authentication.
    #[must_use]
    pub fn new(limits: &Limits) -> Self {
        Self {
            state: State::Prolog,
            depth: 0,
            depth_max: limits.depth_max,
            seen: 0,
            frame_bytes_max: limits.stanza_bytes_before_authentication_max,
        }
    }

    /// The stream is opened anew (RFC 6120 §4.3.3).
    pub fn restart(&mut self) {
        self.state = State::Prolog;
        self.depth = 0;
        self.seen = 0;
    }

    /// From now on a stanza may have so many bytes.
    pub fn set_frame_bytes_max(&mut self, bytes: usize) {
        self.frame_bytes_max = bytes;
    }

    /// Finds the next unit in `buffer`.
    ///
    /// # Errors
    /// The stream error to send, if the peer violated the protocol or a limit.
    pub fn next<'b>(&mut self, buffer: &'b [u8]) -> Result<Framed<'b>, StreamError> {
        let mut used = 0;
        loop {
            let rest = buffer.get(used..).unwrap_or_default();
            let space = self.skip_space(rest);
            used += space;
            let unit = self.scan(rest.get(space..).unwrap_or_default())?;
            if !matches!(unit, Unit::More) {
                used += std::mem::take(&mut self.seen);
            }
            match unit {
                Unit::Frame(frame) => return Ok(Framed { used, frame: Some(frame) }),
                Unit::More => return Ok(Framed { used, frame: None }),
                Unit::Dropped => {}
            }
        }
    }

    /// Looks at `bytes`, which begin where the unit begins.
    fn scan<'b>(&mut self, bytes: &'b [u8]) -> Result<Unit<'b>, StreamError> {
        loop {
            let before = (self.state, self.depth);
            let stepped = self.step(bytes);
            if self.seen > self.frame_bytes_max {
                return Err(StreamError::new(StreamCondition::PolicyViolation, "stanza too big"));
            }
            if !stepped {
                return Ok(Unit::More);
            }
            if let Some(unit) = self.complete(before, bytes)? {
                return Ok(unit);
            }
        }
    }

    /// Drops white space between stanzas, with which clients keep connections alive (RFC 6120 §4.6.1).
    fn skip_space(&self, buffer: &[u8]) -> usize {
        if self.state == State::Ended {
            return buffer.len();
        }
        let between = self.seen == 0 && matches!(self.state, State::Prolog | State::Text) && self.depth <= 1;
        if between { buffer.iter().take_while(|b| is_space(**b)).count() } else { 0 }
    }

    /// Goes on to the next change of state; false when the bytes do not reach so far.
    fn step(&mut self, frame: &[u8]) -> bool {
        let rest = frame.get(self.seen..).unwrap_or_default();
        let found = match self.state {
            State::Prolog | State::Angle | State::Bang(_) => (!rest.is_empty()).then_some(0),
            State::Text => memchr::memchr(b'<', rest).or_else(|| self.stray_text(rest)),
            State::StartTag => memchr::memchr3(b'>', b'"', b'\'', rest),
            State::Quoted(quote) => memchr::memchr(quote, rest),
            State::Declaration | State::EndTag | State::Cdata => memchr::memchr(b'>', rest),
            State::Ended => None,
        };
        match found {
            Some(at) => {
                self.seen += at + 1;
                true
            }
            None => {
                self.seen = frame.len();
                false
            }
        }
    }

    /// Text between stanzas, which is an error: stop at its first byte.
    fn stray_text(&self, rest: &[u8]) -> Option<usize> {
        (self.depth <= 1 && !rest.is_empty()).then_some(0)
    }

    /// Takes the byte that `step` stopped at.
    fn complete<'b>(
        &mut self,
        (state, depth): (State, usize),
        bytes: &'b [u8],
    ) -> Result<Option<Unit<'b>>, StreamError> {
        let frame = bytes.get(..self.seen).unwrap_or_default();
        let Some((&byte, head)) = frame.split_last() else { return Ok(None) };
        let mut opened = false;
        let mut closed = false;
        self.state = match state {
            State::Prolog if byte == b'<' => State::Angle,
            State::Text if byte == b'<' && (depth > 1 || head.is_empty()) => State::Angle,
            State::Prolog | State::Text => return Err(malformed("text between stanzas")),
            State::Angle => Self::after_angle(byte, depth)?,
            State::Declaration => {
                declaration(head)?;
                self.state = State::Text;
                return Ok(Some(Unit::Dropped));
            }
            State::StartTag if byte == b'>' => {
                opened = true;
                closed = head.last() == Some(&b'/');
                State::Text
            }
            State::StartTag => State::Quoted(byte),
            State::Quoted(_) => State::StartTag,
            State::EndTag => {
                closed = true;
                State::Text
            }
            State::Bang(matched) => bang(matched, byte)?,
            State::Cdata if head.ends_with(b"]]") => State::Text,
            State::Cdata => State::Cdata,
            State::Ended => State::Ended,
        };
        Ok(self.count(opened, closed, frame)?.map(Unit::Frame))
    }

    fn count<'b>(&mut self, opened: bool, closed: bool, frame: &'b [u8]) -> Result<Option<Frame<'b>>, StreamError> {
        if opened {
            self.depth += 1;
            if self.depth > self.depth_max {
                return Err(StreamError::new(StreamCondition::PolicyViolation, "elements nested too deep"));
            }
        }
        if closed {
            self.depth = self.depth.checked_sub(1).ok_or(malformed("end tag without a start tag"))?;
        }
        Ok(match (opened, closed, self.depth) {
            (true, false, 1) => Some(Frame::Header(frame)),
            (_, true, 1) => Some(Frame::Stanza(frame)),
            (_, true, 0) => {
                self.state = State::Ended;
                if opened {
                    return Err(StreamError::new(StreamCondition::BadFormat, "an empty stream element"));
                }
                Some(Frame::End)
            }
            _ => None,
        })
    }

    /// RFC 6120 §11.1: no comments, processing instructions or document type declarations.
    fn after_angle(byte: u8, depth: usize) -> Result<State, StreamError> {
        match byte {
            b'/' => Ok(State::EndTag),
            b'?' if depth == 0 => Ok(State::Declaration),
            b'?' => Err(restricted("processing instruction")),
            b'!' if depth > 1 => Ok(State::Bang("<!".len())),
            b'!' => Err(restricted("comment or declaration")),
            _ => Ok(State::StartTag),
        }
    }
}

/// The XML declaration is dropped (RFC 6120 §11.5); anything else that looks like it is an instruction.
fn declaration(head: &[u8]) -> Result<(), StreamError> {
    let named = head.strip_prefix(DECLARATION).and_then(<[u8]>::first).is_some_and(|b| is_space(*b));
    if !named || !head.ends_with(b"?") {
        return Err(restricted("processing instruction"));
    }
    let foreign = [&b"UTF-16"[..], b"utf-16", b"ISO-8859", b"iso-8859"];
    if foreign.iter().any(|name| memchr::memmem::find(head, name).is_some()) {
        return Err(StreamError::new(StreamCondition::UnsupportedEncoding, "UTF-8 only"));
    }
    Ok(())
}

fn bang(matched: usize, byte: u8) -> Result<State, StreamError> {
    match CDATA.get(matched) {
        Some(expected) if *expected == byte && matched + 1 == CDATA.len() => Ok(State::Cdata),
        Some(expected) if *expected == byte => Ok(State::Bang(matched + 1)),
        _ => Err(restricted("comment or declaration")),
    }
}

const fn restricted(detail: &'static str) -> StreamError {
    StreamError::new(StreamCondition::RestrictedXml, detail)
}

const fn malformed(detail: &'static str) -> StreamError {
    StreamError::new(StreamCondition::NotWellFormed, detail)
}
