//! Messages on a stream (RFC 8323 §3.2), and one by one in WebSocket messages (§4.2).

use crate::code::Code;
use crate::message::{Fault, HEADER_BYTES, Message};
use crate::token::{TOKEN_BYTES_MAX, Token};

/// The offsets of extended lengths (RFC 8323 §3.2): one byte from 13, two bytes from 269, four bytes from 65805.
const EXTENDED_8: usize = 13;
const EXTENDED_16: usize = 269;
const EXTENDED_32: usize = 65_805;

/// The layer that delimits messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// A length in the message itself (TCP and TLS).
    Stream,
    /// The WebSocket message that carries it.
    WebSocket,
}

/// A message whose options and payload are not parsed yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The code: a method, a response code or a signal.
    pub code: Code,
    /// The token.
    pub token: Token,
    /// Options and payload.
    pub body: &'a [u8],
}

/// Why a stream is no stream of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameFault {
    /// More bytes than were promised to be taken.
    #[error("a message of {0} bytes, more than Max-Message-Size")]
    TooLong(usize),
    /// Token length 9 to 15.
    #[error("token lengths 9 to 15 are reserved")]
    TokenLength,
    /// A WebSocket message that is shorter than its head says.
    #[error("the message ends too early")]
    Truncated,
    /// A WebSocket message with a length of its own.
    #[error("the length field of a message over WebSockets is not 0")]
    Length,
}

impl<'a> Frame<'a> {
    /// The first message of a stream and how many bytes it took; nothing while it is not whole. `max` is the longest
    /// message that is taken: one that says it is longer is refused before it has come.
    ///
    /// # Errors
    /// [`FrameFault`]; nothing behind it can be made sense of.
    pub fn split(bytes: &'a [u8], max: usize) -> Result<Option<(Self, usize)>, FrameFault> {
        let Some((&first, rest)) = bytes.split_first() else { return Ok(None) };
        let token_length = usize::from(first & 0x0f);
        if token_length > TOKEN_BYTES_MAX {
            return Err(FrameFault::TokenLength);
        }
        let Some((length, extension)) = body_length(first >> 4, rest) else { return Ok(None) };
        let head = 1 + extension;
        let whole = length.saturating_add(head + 1 + token_length);
        if whole > max {
            return Err(FrameFault::TooLong(whole));
        }
        let Some(message) = bytes.get(head..whole) else { return Ok(None) };
        Ok(Self::cut(message, token_length).map(|frame| (frame, whole)))
    }

    /// The message in a WebSocket message (RFC 8323 §4.2: its length field is 0, the frame around it says how long).
    ///
    /// # Errors
    /// [`FrameFault`].
    pub fn whole(bytes: &'a [u8]) -> Result<Self, FrameFault> {
        let (&first, message) = bytes.split_first().ok_or(FrameFault::Truncated)?;
        if first >> 4 != 0 {
            return Err(FrameFault::Length);
        }
        let token_length = usize::from(first & 0x0f);
        if token_length > TOKEN_BYTES_MAX {
            return Err(FrameFault::TokenLength);
        }
        Self::cut(message, token_length).ok_or(FrameFault::Truncated)
    }

    /// Splits the part after the length into code, token and body.
    fn cut(message: &'a [u8], token_length: usize) -> Option<Self> {
        let (&code, rest) = message.split_first()?;
        let (token, body) = rest.split_at_checked(token_length)?;
        Some(Self { code: Code::from_byte(code), token: Token::new(token)?, body })
    }

    /// Parses options and payload.
    ///
    /// # Errors
    /// [`Fault`] if they are malformed.
    pub fn message(&self) -> Result<Message<'a>, Fault> {
        Message::of_stream(self.code, self.token, self.body)
    }

    /// Appends it to what goes out.
    pub fn write(&self, framing: Framing, out: &mut Vec<u8>) {
        match framing {
            Framing::Stream => push_length(self.body.len(), self.token.length(), out),
            Framing::WebSocket => out.push(self.token.length()),
        }
        out.push(self.code.as_byte());
        out.extend_from_slice(self.token.as_slice());
        out.extend_from_slice(self.body);
    }

    /// A message that was written as a datagram: only its head is of another form.
    #[must_use]
    pub fn of_datagram(datagram: &'a [u8]) -> Option<Self> {
        let (&[first, code, _, _], rest) = datagram.split_first_chunk::<HEADER_BYTES>()?;
        let (token, body) = rest.split_at_checked(usize::from(first & 0x0f))?;
        Some(Self { code: Code::from_byte(code), token: Token::new(token)?, body })
    }
}

/// The length of options and payload, and how many bytes it is extended by; nothing while those have not come.
fn body_length(nibble: u8, rest: &[u8]) -> Option<(usize, usize)> {
    match nibble {
        13 => rest.first().map(|byte| (EXTENDED_8 + usize::from(*byte), 1)),
        14 => rest.first_chunk().map(|bytes| (EXTENDED_16 + usize::from(u16::from_be_bytes(*bytes)), 2)),
        15 => {
            let number = u32::from_be_bytes(*rest.first_chunk()?);
            Some((usize::try_from(number).unwrap_or(usize::MAX).saturating_add(EXTENDED_32), 4))
        }
        small => Some((usize::from(small), 0)),
    }
}

fn push_length(length: usize, token_length: u8, out: &mut Vec<u8>) {
    let first = |nibble: u8| (nibble << 4) | token_length;
    if length >= EXTENDED_32 {
        // Nothing is made here that is longer than 32 bits can say.
        let rest = u32::try_from(length - EXTENDED_32).unwrap_or(u32::MAX);
        out.push(first(15));
        out.extend_from_slice(&rest.to_be_bytes());
    } else if length >= EXTENDED_16 {
        let rest = u16::try_from(length - EXTENDED_16).unwrap_or(u16::MAX);
        out.push(first(14));
        out.extend_from_slice(&rest.to_be_bytes());
    } else if let Some(rest) = length.checked_sub(EXTENDED_8) {
        out.extend_from_slice(&[first(13), u8::try_from(rest).unwrap_or(u8::MAX)]);
    } else {
        out.push(first(u8::try_from(length).unwrap_or_default()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s3_2_lengths_of_all_sizes_come_back() {
        for length in [0, 1, 12, 13, 14, 268, 269, 270, 65_804, 65_805, 65_806, 200_000] {
            let body = vec![7; length];
            for token in [&b""[..], b"t", b"12345678"] {
                let frame = Frame { code: Code::POST, token: Token::new(token).unwrap(), body: &body };
                let mut bytes = Vec::new();
                frame.write(Framing::Stream, &mut bytes);
                assert_eq!(Frame::split(&bytes, usize::MAX), Ok(Some((frame, bytes.len()))));
                for cut in [0, 1, 2, 3, bytes.len() / 2, bytes.len() - 1].into_iter().filter(|cut| *cut < bytes.len()) {
                    assert_eq!(Frame::split(&bytes[..cut], usize::MAX), Ok(None), "{length} {cut}");
                }
                assert_eq!(Frame::split(&bytes, bytes.len() - 1), Err(FrameFault::TooLong(bytes.len())));
                let mut bytes = Vec::new();
                frame.write(Framing::WebSocket, &mut bytes);
                assert_eq!(Frame::whole(&bytes), Ok(frame));
            }
        }
    }

    #[test]
    fn s3_2_what_is_no_message() {
        for token_length in 9..=15 {
            assert_eq!(Frame::split(&[token_length], 100), Err(FrameFault::TokenLength));
            assert_eq!(Frame::whole(&[token_length, 1]), Err(FrameFault::TokenLength));
        }
        assert_eq!(Frame::split(&[0xf0, 255, 255, 255, 255], 1152), Err(FrameFault::TooLong(0xffff_ffff + 65_805 + 6)));
        assert_eq!(Frame::whole(&[]), Err(FrameFault::Truncated));
        assert_eq!(Frame::whole(&[0x10, 1, 2]), Err(FrameFault::Length));
        assert_eq!(Frame::whole(&[0x02, 1, 2]), Err(FrameFault::Truncated));
    }
}
