//! Frames in: the receiving half of RFC 6455 §5.

use bytes::{Buf as _, Bytes, BytesMut};

use super::utf8::Utf8;
use super::{CONTROL_BYTES_MAX, Opcode, Role, Violation, apply_mask};

/// A received frame, or a part of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Incoming {
    /// A part of a text message, unmasked and valid UTF-8.
    Text {
        /// The bytes of this part.
        bytes: Bytes,
        /// Whether it is the last one.
        end: bool,
    },
    /// Part of a message of bytes, unmasked; `end` ends the message.
    Binary {
        /// The bytes of this part.
        bytes: Bytes,
        /// Whether it is the last one.
        end: bool,
    },
    /// To be answered with a pong of the same payload (§5.5.2).
    Ping(Bytes),
    /// Pong: an answer to a Ping, or unsolicited (§5.5.3).
    Pong(Bytes),
    /// Close: to be answered with a Close, then the connection ends (§5.5.1).
    Close(Option<CloseFrame>),
}

/// The body of a Close frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CloseFrame {
    /// The status code (§7.4).
    pub code: u16,
    /// The human-readable reason.
    pub reason: Box<str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Binary,
}

/// A data frame that has begun.
#[derive(Debug, Clone, Copy)]
struct Open {
    kind: Kind,
    remaining: u64,
    mask: Option<[u8; 4]>,
    taken: usize,
    last: bool,
}

/// The machine. One for each connection; it holds a few dozen bytes and no payload.
#[derive(Debug)]
pub struct Receiver {
    role: Role,
    message_bytes_max: u64,
    /// The message whose fragments are awaited (§5.4).
    message: Option<Kind>,
    message_bytes: u64,
    utf8: Utf8,
    open: Option<Open>,
}

struct Head {
    fin: bool,
    opcode: Opcode,
    payload_bytes: u64,
    mask: Option<[u8; 4]>,
    bytes: usize,
}

impl Receiver {
    /// For the end that `role` names. Messages longer than `message_bytes_max` are violations.
    #[must_use]
    pub fn new(role: Role, message_bytes_max: u64) -> Self {
        Self { role, message_bytes_max, message: None, message_bytes: 0, utf8: Utf8::default(), open: None }
    }

    /// Takes the next thing out of `buffer`. `None`: more bytes are needed; what is left in the buffer then is less
    /// than a control frame.
    pub fn receive(&mut self, buffer: &mut BytesMut) -> Result<Option<Incoming>, Violation> {
        loop {
            if let Some(open) = self.open {
                return self.continue_data(open, buffer);
            }
            let Some(head) = self.head(buffer)? else { return Ok(None) };
            if head.opcode.is_control() {
                return control(&head, buffer);
            }
            buffer.advance(head.bytes);
            self.open = Some(self.begin_data(&head)?);
        }
    }

    fn head(&self, buffer: &[u8]) -> Result<Option<Head>, Violation> {
        let Some(([first, second], rest)) = buffer.split_first_chunk::<2>() else { return Ok(None) };
        if first & 0x70 != 0 {
            return Err(Violation::Reserved);
        }
        let fin = first & 0x80 != 0;
        let opcode = Opcode::from_bits(first & 0x0f).ok_or(Violation::Opcode)?;
        // §5.1: a server closes on an unmasked frame, a client on a masked one.
        let masked = second & 0x80 != 0;
        if masked != (self.role == Role::Server) {
            return Err(Violation::Masking);
        }
        let short = second & 0x7f;
        if opcode.is_control() && (!fin || usize::from(short) > CONTROL_BYTES_MAX) {
            return Err(Violation::Control);
        }
        let Some((payload_bytes, rest)) = length(short, rest)? else { return Ok(None) };
        let (mask, rest) = if masked {
            let Some((mask, rest)) = rest.split_first_chunk::<4>() else { return Ok(None) };
            (Some(*mask), rest)
        } else {
            (None, rest)
        };
        Ok(Some(Head { fin, opcode, payload_bytes, mask, bytes: buffer.len() - rest.len() }))
    }

    fn begin_data(&mut self, head: &Head) -> Result<Open, Violation> {
        let kind = match (head.opcode, self.message) {
            (Opcode::Continuation, Some(kind)) => kind,
            (Opcode::Text, None) => Kind::Text,
            (Opcode::Binary, None) => Kind::Binary,
            // A control frame never gets here.
            (Opcode::Continuation | Opcode::Close | Opcode::Ping | Opcode::Pong, None)
            | (Opcode::Text | Opcode::Binary | Opcode::Close | Opcode::Ping | Opcode::Pong, Some(_)) => {
                return Err(Violation::Fragmentation);
            }
        };
        self.message_bytes = self.message_bytes.saturating_add(head.payload_bytes);
        if self.message_bytes > self.message_bytes_max {
            return Err(Violation::TooBig(self.message_bytes_max));
        }
        self.message = Some(kind);
        Ok(Open { kind, remaining: head.payload_bytes, mask: head.mask, taken: 0, last: head.fin })
    }

    fn continue_data(&mut self, mut open: Open, buffer: &mut BytesMut) -> Result<Option<Incoming>, Violation> {
        if buffer.is_empty() && open.remaining > 0 {
            return Ok(None);
        }
        let size = usize::try_from(open.remaining).unwrap_or(usize::MAX).min(buffer.len());
        let mut part = buffer.split_to(size);
        if let Some(mask) = open.mask {
            apply_mask(&mut part, mask, open.taken);
        }
        open.taken = (open.taken + size) % 4;
        open.remaining -= size as u64;
        let end = open.last && open.remaining == 0;
        if open.kind == Kind::Text && (!self.utf8.push(&part) || (end && !self.utf8.is_complete())) {
            return Err(Violation::Utf8);
        }
        self.open = (open.remaining > 0).then_some(open);
        if end {
            self.message = None;
            self.message_bytes = 0;
        }
        let bytes = part.freeze();
        Ok(Some(match open.kind {
            Kind::Text => Incoming::Text { bytes, end },
            Kind::Binary => Incoming::Binary { bytes, end },
        }))
    }
}

/// §5.2: seven bits, or sixteen, or sixty-three; the shortest form that fits.
fn length(short: u8, rest: &[u8]) -> Result<Option<(u64, &[u8])>, Violation> {
    match short {
        126 => {
            let Some((bytes, rest)) = rest.split_first_chunk::<2>() else { return Ok(None) };
            let length = u16::from_be_bytes(*bytes);
            if length < 126 { Err(Violation::Length) } else { Ok(Some((u64::from(length), rest))) }
        }
        127 => {
            let Some((bytes, rest)) = rest.split_first_chunk::<8>() else { return Ok(None) };
            let length = u64::from_be_bytes(*bytes);
            if length < 65_536 || length >> 63 != 0 { Err(Violation::Length) } else { Ok(Some((length, rest))) }
        }
        short => Ok(Some((u64::from(short), rest))),
    }
}

fn control(head: &Head, buffer: &mut BytesMut) -> Result<Option<Incoming>, Violation> {
    let size = usize::try_from(head.payload_bytes).map_err(|_| Violation::Control)?;
    if buffer.len() < head.bytes + size {
        return Ok(None);
    }
    buffer.advance(head.bytes);
    let mut payload = buffer.split_to(size);
    if let Some(mask) = head.mask {
        apply_mask(&mut payload, mask, 0);
    }
    let payload = payload.freeze();
    match head.opcode {
        Opcode::Ping => Ok(Some(Incoming::Ping(payload))),
        Opcode::Pong => Ok(Some(Incoming::Pong(payload))),
        Opcode::Close => close(&payload).map(|frame| Some(Incoming::Close(frame))),
        Opcode::Continuation | Opcode::Text | Opcode::Binary => Err(Violation::Opcode),
    }
}

/// §5.5.1: nothing, or a code and UTF-8; §7.4.1, §7.4.2: which codes may be sent.
fn close(payload: &[u8]) -> Result<Option<CloseFrame>, Violation> {
    if payload.is_empty() {
        return Ok(None);
    }
    let Some((code, reason)) = payload.split_first_chunk::<2>() else { return Err(Violation::Close) };
    let code = u16::from_be_bytes(*code);
    if !matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999) {
        return Err(Violation::Close);
    }
    let reason = std::str::from_utf8(reason).map_err(|_| Violation::Utf8)?;
    Ok(Some(CloseFrame { code, reason: reason.into() }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{CloseCode, push_close, push_frame};
    use super::*;

    const MASK: Option<[u8; 4]> = Some([1, 2, 3, 4]);

    fn all(receiver: &mut Receiver, bytes: &[u8]) -> Result<Vec<Incoming>, Violation> {
        let mut buffer = BytesMut::from(bytes);
        let mut out = Vec::new();
        while let Some(incoming) = receiver.receive(&mut buffer)? {
            out.push(incoming);
        }
        Ok(out)
    }

    fn server(bytes: &[u8]) -> Result<Vec<Incoming>, Violation> {
        all(&mut Receiver::new(Role::Server, 1000), bytes)
    }

    #[test]
    fn s5_4_a_ping_may_come_between_fragments() {
        let mut bytes = Vec::new();
        push_frame(Opcode::Text, b"ab", MASK, &mut bytes);
        bytes[0] &= 0x7f;
        push_frame(Opcode::Ping, b"?", MASK, &mut bytes);
        push_frame(Opcode::Continuation, b"c", MASK, &mut bytes);
        assert_eq!(
            server(&bytes).unwrap(),
            [
                Incoming::Text { bytes: Bytes::from_static(b"ab"), end: false },
                Incoming::Ping(Bytes::from_static(b"?")),
                Incoming::Text { bytes: Bytes::from_static(b"c"), end: true },
            ]
        );
    }

    #[test]
    fn violations_are_named() {
        let table: [(&[u8], Violation); 13] = [
            (&[0xc1, 0x80, 0, 0, 0, 0], Violation::Reserved),
            (&[0x83, 0x80, 0, 0, 0, 0], Violation::Opcode),
            (&[0x81, 0x00], Violation::Masking),
            (&[0x09, 0x80, 0, 0, 0, 0], Violation::Control),
            (&[0x89, 0xfe, 0, 126], Violation::Control),
            (&[0x80, 0x80, 0, 0, 0, 0], Violation::Fragmentation),
            (&[0x01, 0x80, 0, 0, 0, 0, 0x81, 0x80, 0, 0, 0, 0], Violation::Fragmentation),
            (&[0x82, 0xfe, 0, 1], Violation::Length),
            (&[0x82, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0], Violation::Length),
            (&[0x88, 0x81, 0, 0, 0, 0, 3], Violation::Close),
            (&[0x88, 0x82, 0, 0, 0, 0, 0x03, 0xed], Violation::Close),
            (&[0x81, 0x81, 0, 0, 0, 0, 0xff], Violation::Utf8),
            (&[0x82, 0xfe, 0x10, 0, 0, 0, 0, 0], Violation::TooBig(1000)),
        ];
        for (bytes, violation) in table {
            assert_eq!(server(bytes), Err(violation), "{bytes:x?}");
        }
    }

    #[test]
    fn a_close_says_why() {
        let mut bytes = Vec::new();
        push_close(CloseCode::GoingAway, "bye", MASK, &mut bytes);
        let frame = CloseFrame { code: 1001, reason: "bye".into() };
        assert_eq!(server(&bytes).unwrap(), [Incoming::Close(Some(frame))]);
    }

    proptest! {
        #[test]
        fn how_the_bytes_are_cut_changes_nothing(
            messages in prop::collection::vec((any::<bool>(), any::<String>(), any::<[u8; 4]>()), 0..6),
            sizes in prop::collection::vec(1_usize..9, 1..20),
        ) {
            let mut bytes = Vec::new();
            for (text, payload, mask) in &messages {
                let opcode = if *text { Opcode::Text } else { Opcode::Binary };
                push_frame(opcode, payload.as_bytes(), Some(*mask), &mut bytes);
            }
            let mut receiver = Receiver::new(Role::Server, u64::MAX);
            let mut buffer = BytesMut::new();
            let mut seen = vec![(false, Vec::new())];
            let mut rest = &bytes[..];
            for size in sizes.into_iter().cycle() {
                let (piece, after) = rest.split_at(size.min(rest.len()));
                buffer.extend_from_slice(piece);
                while let Some(incoming) = receiver.receive(&mut buffer).unwrap() {
                    let (text, bytes, end) = match incoming {
                        Incoming::Text { bytes, end } => (true, bytes, end),
                        Incoming::Binary { bytes, end } => (false, bytes, end),
                        other @ (Incoming::Ping(_) | Incoming::Pong(_) | Incoming::Close(_)) => panic!("{other:?}"),
                    };
                    let last = seen.last_mut().unwrap();
                    last.0 = text;
                    last.1.extend_from_slice(&bytes);
                    if end { seen.push((false, Vec::new())); }
                }
                rest = after;
                if rest.is_empty() { break; }
            }
            seen.pop();
            let sent: Vec<_> = messages.into_iter().map(|(text, payload, _)| (text, payload.into_bytes())).collect();
            prop_assert_eq!(seen, sent);
        }

        #[test]
        fn any_bytes_are_answered(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = server(&bytes);
            let _ = all(&mut Receiver::new(Role::Client, 1000), &bytes);
        }
    }
}
