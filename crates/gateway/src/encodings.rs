//! Encodings of messages that a worker makes once for all subscribers of a door, and keeps for a while.

use std::{fmt, ops::Range};

use fogmux_bus::MessageId;

/// Encodings that are kept. A publisher is read eight times 64 KiB, more than a thousand stanzas, before its
/// subscribers take the first; each of them takes all.
const KEPT: usize = 2048;
/// Bytes of encodings above which all are forgotten.
const BYTES_MAX: usize = 512 << 10;

/// Everything that an encoding depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Key {
    /// The message. One that the store gave back has the identifier 0, and its encoding is not kept.
    pub(crate) message: MessageId,
    /// The rest, as the door counts it.
    pub(crate) form: u64,
}

/// The encodings of one door and worker.
#[derive(Default)]
pub(crate) struct Encodings {
    /// By the message's identifier, modulo [`KEPT`].
    kept: Vec<Kept>,
    bytes: Vec<u8>,
    /// One was asked for since the last [`rest`](Self::rest).
    used: bool,
}

#[derive(Clone, Default)]
struct Kept {
    key: Key,
    at: Range<usize>,
}

impl Encodings {
    /// Appends an encoding, which `encode` writes if it is not there. Returns whether it is more than nothing.
    pub(crate) fn append(&mut self, out: &mut Vec<u8>, key: Key, encode: impl FnOnce(&mut Vec<u8>)) -> bool {
        let start = out.len();
        if key.message.0 == 0 {
            encode(out);
            return out.len() > start;
        }
        self.used = true;
        if self.kept.is_empty() || self.bytes.len() > BYTES_MAX {
            self.clear();
            self.kept.resize(KEPT, Kept::default());
        }
        let slot = usize::try_from(key.message.0).unwrap_or(usize::MAX) % KEPT;
        let Some(kept) = self.kept.get_mut(slot) else { return false };
        if kept.key != key {
            let start = self.bytes.len();
            encode(&mut self.bytes);
            *kept = Kept { key, at: start..self.bytes.len() };
        }
        out.extend_from_slice(self.bytes.get(kept.at.clone()).unwrap_or_default());
        out.len() > start
    }

    /// Gives the memory back if no encoding was asked for since the last call. Each door of each worker would otherwise
    /// hold a megabyte for ever after its first busy second.
    pub(crate) fn rest(&mut self) {
        if !std::mem::take(&mut self.used) {
            *self = Self::default();
        }
    }

    /// The bytes of all encodings that were made.
    #[cfg(test)]
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes.len()
    }

    fn clear(&mut self) {
        self.kept.clear();
        self.bytes.clear();
        self.bytes.shrink_to(2 * BYTES_MAX);
    }
}

impl fmt::Debug for Encodings {
    /// Leaves the payloads out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encodings").field("bytes", &self.bytes.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_message_is_encoded_once_for_all_subscribers_and_anew_for_another_form() {
        let (mut encodings, made) = (Encodings::default(), Cell::new(0));
        let mut append = |message: u64, form: u64| {
            let mut out = b"head ".to_vec();
            let some = encodings.append(&mut out, Key { message: MessageId(message), form }, |out| {
                made.set(made.get() + 1);
                out.extend_from_slice(format!("{message}/{form}").as_bytes());
            });
            assert!(some);
            assert_eq!(out, format!("head {message}/{form}").as_bytes());
        };
        for _subscriber in 0..10 {
            (1..=1000).for_each(|message| append(message, 7));
        }
        assert_eq!(made.get(), 1000);
        append(1, 8);
        assert_eq!(made.get(), 1001);
        // The store's messages all have the same identifier.
        append(0, 7);
        append(0, 7);
        assert_eq!(made.get(), 1003);
    }

    #[test]
    fn encodings_that_nobody_asks_for_take_no_memory() {
        let mut encodings = Encodings::default();
        let append = |encodings: &mut Encodings| {
            let key = Key { message: MessageId(1), form: 0 };
            encodings.append(&mut Vec::new(), key, |out| out.extend_from_slice(&[1; 4096]));
        };
        append(&mut encodings);
        encodings.rest();
        assert_eq!(encodings.bytes(), 4096, "it was asked for");
        encodings.rest();
        assert_eq!((encodings.bytes.capacity(), encodings.kept.capacity()), (0, 0));
        append(&mut encodings);
        assert_eq!(encodings.bytes(), 4096);
    }

    #[test]
    fn an_encoding_may_be_nothing_and_memory_is_bounded() {
        let mut encodings = Encodings::default();
        let key = |message| Key { message: MessageId(message), form: 0 };
        for _ in 0..2 {
            assert!(!encodings.append(&mut Vec::new(), key(1), |_| ()));
        }
        for message in 2..10_000 {
            let mut out = Vec::new();
            assert!(encodings.append(&mut out, key(message), |out| out.extend_from_slice(&[1; 4096])));
            assert_eq!(out, [1; 4096]);
            assert!(encodings.bytes.len() <= BYTES_MAX + 4096);
        }
    }
}
