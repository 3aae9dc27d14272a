//! A message as it came in (RFC 7252 §3): a view on the datagram that copies nothing.
//!
//! Everything is checked once, by [`Message::decode`]; what is refused says what the standard wants done with it.

use crate::code::{Class, Code};
use crate::option::{Opt, OptionNumber};
use crate::token::{TOKEN_BYTES_MAX, Token};

/// The size of the header in bytes, before token and options.
pub const HEADER_BYTES: usize = 4;

/// The payload marker, which separates options from the payload (RFC 7252 §3).
pub const PAYLOAD_MARKER: u8 = 0xff;

/// Version 1, in the upper two bits of the first byte.
const VERSION: u8 = 1;

/// The type of a message (RFC 7252 §4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// Confirmable: wants an acknowledgement or a reset.
    Confirmable,
    /// Non-confirmable.
    NonConfirmable,
    /// Acknowledgement.
    Acknowledgement,
    /// Reset: "I cannot make anything of this".
    Reset,
}

impl Type {
    const fn from_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::Confirmable,
            1 => Self::NonConfirmable,
            2 => Self::Acknowledgement,
            _ => Self::Reset,
        }
    }

    pub(crate) const fn bits(self) -> u8 {
        match self {
            Self::Confirmable => 0,
            Self::NonConfirmable => 1,
            Self::Acknowledgement => 2,
            Self::Reset => 3,
        }
    }
}

/// A well-formed message, borrowed from the datagram it came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// Confirmable or not, acknowledgement or reset.
    pub kind: Type,
    /// Method or response code.
    pub code: Code,
    /// Matches acknowledgements and finds duplicates (RFC 7252 §4.4).
    pub message_id: u16,
    /// Matches responses to requests.
    pub token: Token,
    options: &'a [u8],
    payload: &'a [u8],
}

impl<'a> Message<'a> {
    /// Reads a datagram.
    ///
    /// # Errors
    /// [`Malformed`] when it is no message of RFC 7252; [`Malformed::remedy`] says what the peer is to hear.
    pub fn decode(datagram: &'a [u8]) -> Result<Self, Malformed> {
        let (header, rest) = Header::split(datagram)?;
        let malformed = |fault| Malformed { fault, header: Some(header) };
        if header.code.class() == Class::Empty && (header.token_length > 0 || !rest.is_empty()) {
            // RFC 7252 §4.1: "Bytes MUST NOT be present after the Message ID field" of an Empty message.
            return Err(malformed(Fault::EmptyWithContent));
        }
        if usize::from(header.token_length) > TOKEN_BYTES_MAX {
            return Err(malformed(Fault::TokenLength));
        }
        let (token, rest) = rest.split_at_checked(header.token_length.into()).ok_or(malformed(Fault::Truncated))?;
        let (options, payload) = split_payload(rest).map_err(malformed)?;
        header.check_kind().map_err(malformed)?;
        Ok(Self {
            kind: header.kind,
            code: header.code,
            message_id: header.message_id,
            token: Token::new(token).unwrap_or_default(),
            options,
            payload,
        })
    }

    /// The same with another payload: one that was put together from blocks.
    #[must_use]
    pub const fn with_payload<'b>(self, payload: &'b [u8]) -> Message<'b>
    where
        'a: 'b,
    {
        Message { payload, ..self }
    }

    /// A message of a reliable transport: code and token from its head, `body` is options and payload (RFC 8323 §3.2).
    /// It counts as Confirmable, for its sender wants it to arrive.
    ///
    /// # Errors
    /// [`Fault`] when options and payload are none.
    pub fn of_stream(code: Code, token: Token, body: &'a [u8]) -> Result<Self, Fault> {
        let (options, payload) = split_payload(body)?;
        Ok(Self { kind: Type::Confirmable, code, message_id: 0, token, options, payload })
    }

    /// The options, in the order of their numbers.
    #[must_use]
    pub const fn options(&self) -> Options<'a> {
        Options { rest: self.options, number: 0 }
    }

    /// The first option of this number.
    #[must_use]
    pub fn option(&self, number: OptionNumber) -> Option<Opt<'a>> {
        self.options().take_while(|option| option.number <= number).find(|option| option.number == number)
    }

    /// The payload; empty when there is none.
    #[must_use]
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// The options of a message that has been checked.
#[derive(Clone, Debug)]
pub struct Options<'a> {
    rest: &'a [u8],
    number: u16,
}

impl<'a> Iterator for Options<'a> {
    type Item = Opt<'a>;

    fn next(&mut self) -> Option<Opt<'a>> {
        if self.rest.is_empty() {
            return None;
        }
        // `decode` has walked these bytes already, so an error cannot come; if it did, the options would just end.
        let (delta, value, rest) = split_option(self.rest).ok()?;
        self.number = self.number.checked_add(delta)?;
        self.rest = rest;
        Some(Opt { number: OptionNumber::new(self.number), value })
    }
}

/// The first four bytes; known even of most messages that are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Header {
    kind: Type,
    code: Code,
    message_id: u16,
    token_length: u8,
}

impl Header {
    fn split(datagram: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let (&[first, code, id_high, id_low], rest) =
            datagram.split_first_chunk::<HEADER_BYTES>().ok_or(Malformed { fault: Fault::Truncated, header: None })?;
        if first >> 6 != VERSION {
            return Err(Malformed { fault: Fault::Version, header: None });
        }
        let header = Self {
            kind: Type::from_bits(first >> 4),
            code: Code::from_byte(code),
            message_id: u16::from_be_bytes([id_high, id_low]),
            token_length: first & 0x0f,
        };
        Ok((header, rest))
    }

    /// Which codes a type may carry (RFC 7252 table 1 and §4.2, §4.3).
    fn check_kind(&self) -> Result<(), Fault> {
        let allowed = match (self.kind, self.code.class()) {
            (_, Class::Reserved | Class::Signal) => false,
            (Type::Confirmable | Type::Acknowledgement, Class::Empty) => true,
            (Type::Confirmable | Type::NonConfirmable, Class::Request) => true,
            (Type::NonConfirmable, Class::Empty) | (Type::Acknowledgement, Class::Request) => false,
            (Type::Reset, class) => class == Class::Empty,
            (
                Type::Confirmable | Type::NonConfirmable | Type::Acknowledgement,
                Class::Success | Class::ClientError | Class::ServerError,
            ) => true,
        };
        if allowed { Ok(()) } else { Err(Fault::CodeForType) }
    }
}

/// Why a datagram is no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Shorter than its own lengths say.
    #[error("the message ends too early (RFC 7252 §3)")]
    Truncated,
    /// Not version 1.
    #[error("the version is not 1 (RFC 7252 §3)")]
    Version,
    /// Token length 9 to 15.
    #[error("token lengths 9 to 15 are reserved (RFC 7252 §3)")]
    TokenLength,
    /// Code 0.00 with anything behind the message identifier.
    #[error("an Empty message has content (RFC 7252 §4.1)")]
    EmptyWithContent,
    /// A payload marker and then nothing.
    #[error("a payload marker without payload (RFC 7252 §3)")]
    MarkerWithoutPayload,
    /// Delta or length 15 in an option.
    #[error("an option delta or length of 15 is reserved (RFC 7252 §3.1)")]
    OptionNibble,
    /// Deltas that add up to more than 65535.
    #[error("an option number beyond 65535 (RFC 7252 §3.1)")]
    OptionOverflow,
    /// A reserved code class, or a code that this type may not carry.
    #[error("this type of message does not carry this code (RFC 7252 §4.2, §4.3)")]
    CodeForType,
}

/// A malformed datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{fault}")]
pub struct Malformed {
    /// The format error.
    pub fault: Fault,
    header: Option<Header>,
}

/// The reaction to a malformed datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Reject with a Reset that carries this message identifier (RFC 7252 §4.2).
    Reset(u16),
    /// Drop silently.
    Ignore,
}

impl Malformed {
    /// RFC 7252 §3 (unknown versions are ignored), §4.2 (a Confirmable is rejected with Reset), §4.3 (a
    /// Non-confirmable may be; we stay silent, so that nobody can be flooded through us).
    #[must_use]
    pub const fn remedy(&self) -> Remedy {
        match self.header {
            Some(Header { kind: Type::Confirmable, message_id, .. }) => Remedy::Reset(message_id),
            Some(_) | None => Remedy::Ignore,
        }
    }
}

/// Walks the options; what stands behind the marker is the payload.
fn split_payload(bytes: &[u8]) -> Result<(&[u8], &[u8]), Fault> {
    let mut rest = bytes;
    let mut number: u16 = 0;
    loop {
        match rest.split_first() {
            None => return Ok((bytes, &[])),
            Some((&PAYLOAD_MARKER, [])) => return Err(Fault::MarkerWithoutPayload),
            Some((&PAYLOAD_MARKER, payload)) => {
                let options = bytes.get(..bytes.len() - rest.len()).unwrap_or(&[]);
                return Ok((options, payload));
            }
            Some(_) => {
                let (delta, _, after) = split_option(rest)?;
                number = number.checked_add(delta).ok_or(Fault::OptionOverflow)?;
                rest = after;
            }
        }
    }
}

/// One option: its delta, its value, and what follows.
fn split_option(bytes: &[u8]) -> Result<(u16, &[u8], &[u8]), Fault> {
    let (&first, rest) = bytes.split_first().ok_or(Fault::Truncated)?;
    let (delta, rest) = extended(first >> 4, rest)?;
    let (length, rest) = extended(first & 0x0f, rest)?;
    let delta = u16::try_from(delta).map_err(|_| Fault::OptionOverflow)?;
    let length = usize::try_from(length).map_err(|_| Fault::Truncated)?;
    let (value, rest) = rest.split_at_checked(length).ok_or(Fault::Truncated)?;
    Ok((delta, value, rest))
}

/// A delta or length of four bits, extended by one byte from 13 or by two from 269 (RFC 7252 §3.1).
fn extended(nibble: u8, rest: &[u8]) -> Result<(u32, &[u8]), Fault> {
    match nibble {
        0..=12 => Ok((nibble.into(), rest)),
        13 => {
            let (&byte, rest) = rest.split_first().ok_or(Fault::Truncated)?;
            Ok((u32::from(byte) + 13, rest))
        }
        14 => {
            let (&bytes, rest) = rest.split_first_chunk::<2>().ok_or(Fault::Truncated)?;
            Ok((u32::from(u16::from_be_bytes(bytes)) + 269, rest))
        }
        _ => Err(Fault::OptionNibble),
    }
}
