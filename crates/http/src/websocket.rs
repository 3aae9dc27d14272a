//! WebSocket (RFC 6455) as data: the opening handshake, frames out, and a machine that takes frames in.
//!
//! The machine streams: it hands on what has arrived of a data frame and never holds a message, so a connection costs
//! no more than its read buffer whatever lengths a peer announces.

pub mod handshake;
mod receive;
mod utf8;

pub use receive::{CloseFrame, Incoming, Receiver};

/// Longest payload of a control frame (RFC 6455 §5.5).
pub const CONTROL_BYTES_MAX: usize = 125;
/// Longest frame header (RFC 6455 §5.2): two bytes, eight of length, four of mask.
pub const HEADER_BYTES_MAX: usize = 14;

/// Which end we are: a client masks what it sends, a server must not (RFC 6455 §5.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Took the handshake.
    Server,
    /// Made the handshake.
    Client,
}

/// The frame types (RFC 6455 §11.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Opcode {
    /// More of a message.
    Continuation = 0x0,
    /// A message of text begins.
    Text = 0x1,
    /// A message of bytes begins.
    Binary = 0x2,
    /// The end.
    Close = 0x8,
    /// Are you there?
    Ping = 0x9,
    /// I am.
    Pong = 0xA,
}

impl Opcode {
    fn from_bits(bits: u8) -> Option<Self> {
        match bits {
            0x0 => Some(Self::Continuation),
            0x1 => Some(Self::Text),
            0x2 => Some(Self::Binary),
            0x8 => Some(Self::Close),
            0x9 => Some(Self::Ping),
            0xA => Some(Self::Pong),
            _ => None,
        }
    }

    fn is_control(self) -> bool {
        match self {
            Self::Close | Self::Ping | Self::Pong => true,
            Self::Continuation | Self::Text | Self::Binary => false,
        }
    }
}

/// Close codes that we send (RFC 6455 §7.4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum CloseCode {
    /// The purpose of the connection is fulfilled.
    Normal = 1000,
    /// The gateway shuts down.
    GoingAway = 1001,
    /// The peer broke the protocol.
    ProtocolError = 1002,
    /// A kind of message that is not taken here.
    Unsupported = 1003,
    /// Text that is not UTF-8.
    InvalidPayload = 1007,
    /// A message that is not allowed.
    PolicyViolation = 1008,
    /// A message above the limit.
    TooBig = 1009,
    /// A fault of the gateway.
    InternalError = 1011,
    /// The client may come back later (IANA registry).
    TryAgainLater = 1013,
}

impl CloseCode {
    /// The number.
    #[must_use]
    pub fn code(self) -> u16 {
        // A `repr(u16)` enum.
        self as u16
    }
}

/// A protocol violation of the peer, which ends the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// A reserved bit without an extension (§5.2).
    #[error("a reserved bit is set")]
    Reserved,
    /// An undefined opcode (§5.2).
    #[error("the opcode is unknown")]
    Opcode,
    /// An unmasked frame of a client, or a masked frame of a server (§5.1).
    #[error("masking is wrong")]
    Masking,
    /// A control frame that is fragmented or longer than 125 bytes (§5.5).
    #[error("a control frame is fragmented or too long")]
    Control,
    /// A continuation of nothing, or a new message inside another (§5.4).
    #[error("the fragments are out of order")]
    Fragmentation,
    /// A length with the top bit set, or not in its shortest form (§5.2).
    #[error("the length is malformed")]
    Length,
    /// A close frame of one byte or with a code that must not be sent (§7.4).
    #[error("the close frame is malformed")]
    Close,
    /// Text that is not UTF-8 (§8.1).
    #[error("the text is not UTF-8")]
    Utf8,
    /// A message longer than the limit.
    #[error("the message is longer than {0} bytes")]
    TooBig(u64),
}

impl Violation {
    /// The code to close with.
    #[must_use]
    pub fn close_code(self) -> CloseCode {
        match self {
            Self::Utf8 => CloseCode::InvalidPayload,
            Self::TooBig(_) => CloseCode::TooBig,
            Self::Reserved
            | Self::Opcode
            | Self::Masking
            | Self::Control
            | Self::Fragmentation
            | Self::Length
            | Self::Close => CloseCode::ProtocolError,
        }
    }
}

/// An encoded frame header.
#[derive(Debug, Clone, Copy)]
pub struct Header {
    bytes: [u8; HEADER_BYTES_MAX],
    length: usize,
}

impl Header {
    /// The header of an unfragmented frame (RFC 6455 §5.2). A client gives a fresh unpredictable `mask` (§5.3).
    #[must_use]
    pub fn new(opcode: Opcode, payload_bytes: usize, mask: Option<[u8; 4]>) -> Self {
        let mut header = Self { bytes: [0; HEADER_BYTES_MAX], length: 0 };
        let masked = if mask.is_some() { 0x80 } else { 0 };
        header.push(&[0x80 | opcode as u8]);
        match (u8::try_from(payload_bytes), u16::try_from(payload_bytes)) {
            (Ok(short @ 0..=125), _) => header.push(&[masked | short]),
            (_, Ok(medium)) => {
                header.push(&[masked | 126]);
                header.push(&medium.to_be_bytes());
            }
            _ => {
                header.push(&[masked | 127]);
                header.push(&(payload_bytes as u64).to_be_bytes());
            }
        }
        if let Some(mask) = mask {
            header.push(&mask);
        }
        header
    }

    /// The bytes to send before the payload.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }

    fn push(&mut self, bytes: &[u8]) {
        if let Some(room) = self.bytes.get_mut(self.length..self.length + bytes.len()) {
            room.copy_from_slice(bytes);
            self.length += bytes.len();
        }
    }
}

/// Appends a whole frame.
pub fn push_frame(opcode: Opcode, payload: &[u8], mask: Option<[u8; 4]>, out: &mut Vec<u8>) {
    out.extend_from_slice(Header::new(opcode, payload.len(), mask).as_slice());
    let start = out.len();
    out.extend_from_slice(payload);
    if let (Some(mask), Some(payload)) = (mask, out.get_mut(start..)) {
        apply_mask(payload, mask, 0);
    }
}

/// Appends a close frame; a reason too long for a control frame is cut at a character.
pub fn push_close(code: CloseCode, reason: &str, mask: Option<[u8; 4]>, out: &mut Vec<u8>) {
    let mut payload = Vec::with_capacity(CONTROL_BYTES_MAX);
    payload.extend_from_slice(&code.code().to_be_bytes());
    let end = reason.floor_char_boundary(CONTROL_BYTES_MAX - 2);
    payload.extend_from_slice(reason.get(..end).unwrap_or_default().as_bytes());
    push_frame(Opcode::Close, &payload, mask, out);
}

/// Masks or unmasks in place (RFC 6455 §5.3); `offset` is how many bytes of the frame went before.
fn apply_mask(payload: &mut [u8], mask: [u8; 4], offset: usize) {
    let mut mask = mask;
    mask.rotate_left(offset % 4);
    let [a, b, c, d] = mask;
    let wide = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
    let (chunks, rest) = payload.as_chunks_mut::<8>();
    for chunk in chunks {
        *chunk = (u64::from_ne_bytes(*chunk) ^ wide).to_ne_bytes();
    }
    for (byte, key) in rest.iter_mut().zip(mask.iter().cycle()) {
        *byte ^= key;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s5_7_the_examples_of_the_standard() {
        let mut out = Vec::new();
        push_frame(Opcode::Text, b"Hello", None, &mut out);
        assert_eq!(out, [0x81, 0x05, 0x48, 0x65, 0x6c, 0x6c, 0x6f]);
        out.clear();
        push_frame(Opcode::Text, b"Hello", Some([0x37, 0xfa, 0x21, 0x3d]), &mut out);
        assert_eq!(out, [0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58]);
        assert_eq!(Header::new(Opcode::Binary, 256, None).as_slice(), [0x82, 0x7e, 0x01, 0x00]);
        assert_eq!(Header::new(Opcode::Binary, 65_536, None).as_slice(), [0x82, 0x7f, 0, 0, 0, 0, 0, 1, 0, 0]);
        assert_eq!(Header::new(Opcode::Binary, 126, None).as_slice(), [0x82, 0x7e, 0, 126]);
    }

    #[test]
    fn a_long_reason_is_cut_at_a_character() {
        let mut out = Vec::new();
        push_close(CloseCode::GoingAway, &"ä".repeat(100), None, &mut out);
        assert_eq!(out.len(), 2 + 2 + 122);
        assert!(std::str::from_utf8(&out[4..]).is_ok());
    }
}
