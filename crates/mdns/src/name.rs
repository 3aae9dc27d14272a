//! Domain names (RFC 1035 §3.1): labels of any bytes, UTF-8 by convention (RFC 6762 §16). They are equal whatever the
//! case of their ASCII letters.

use std::fmt::{self, Display, Formatter};

use crate::decode::DecodeError;

/// The longest name on the wire, with the lengths of its labels and the root (RFC 1035 §2.3.4).
const NAME_BYTES_MAX: usize = 255;

/// The longest label.
pub(crate) const LABEL_BYTES_MAX: usize = 63;

/// The two highest bits of a length: both set in a pointer, neither in a label (RFC 1035 §4.1.4).
const POINTER: u8 = 0xc0;

/// A domain name.
#[derive(Clone)]
pub struct Name {
    /// Each label after its length, then the root's length of zero.
    wire: Box<[u8]>,
}

impl Name {
    /// Makes a name of labels. `None` if one is empty or longer than 63 bytes, or the name is longer than 255.
    #[must_use]
    pub fn new<'a>(labels: impl IntoIterator<Item = &'a [u8]>) -> Option<Self> {
        let mut wire = Vec::new();
        for label in labels {
            if label.is_empty() || label.len() > LABEL_BYTES_MAX {
                return None;
            }
            wire.push(u8::try_from(label.len()).ok()?);
            wire.extend_from_slice(label);
        }
        wire.push(0);
        (wire.len() <= NAME_BYTES_MAX).then(|| Self { wire: wire.into() })
    }

    /// Makes a name of labels before this one; `None` as with [`Name::new`].
    #[must_use]
    pub fn under(&self, labels: &[&str]) -> Option<Self> {
        Self::new(labels.iter().map(|label| label.as_bytes()).chain(self.labels()))
    }

    /// The name on the wire, without compression.
    #[must_use]
    pub const fn as_wire(&self) -> &[u8] {
        &self.wire
    }

    /// Its labels, without the root.
    pub fn labels(&self) -> impl Iterator<Item = &[u8]> {
        self.suffixes().filter_map(|suffix| {
            let (length, rest) = suffix.split_first()?;
            rest.get(..usize::from(*length))
        })
    }

    /// The name and each of its parents, without the root, on the wire.
    pub(crate) fn suffixes(&self) -> impl Iterator<Item = &[u8]> {
        let below = |suffix: &&[u8]| suffix.first().filter(|length| **length > 0).map(|_| ());
        let first = Some(&*self.wire).filter(|suffix| below(suffix).is_some());
        std::iter::successors(first, move |suffix| {
            let next = suffix.get(usize::from(*suffix.first()?) + 1..)?;
            below(&next).map(|()| next)
        })
    }

    /// Reads the name at a place of a message, and returns where it ends. A pointer leads to a place before all that
    /// the name was read from, so there is no loop (RFC 1035 §4.1.4: "a prior occurrence").
    pub(crate) fn read(message: &[u8], start: usize) -> Result<(Self, usize), DecodeError> {
        let mut wire = Vec::new();
        let (mut at, mut earliest, mut end) = (start, start, None);
        loop {
            let length = *message.get(at).ok_or(DecodeError::Truncated)?;
            if length & POINTER == POINTER {
                let low = *message.get(at + 1).ok_or(DecodeError::Truncated)?;
                let target = usize::from(u16::from_be_bytes([length & !POINTER, low]));
                if target >= earliest {
                    return Err(DecodeError::Pointer);
                }
                end.get_or_insert(at + 2);
                (at, earliest) = (target, target);
                continue;
            }
            if length & POINTER != 0 {
                return Err(DecodeError::Label);
            }
            let next = at + 1 + usize::from(length);
            let label = message.get(at..next).ok_or(DecodeError::Truncated)?;
            if wire.len() + label.len() > NAME_BYTES_MAX {
                return Err(DecodeError::NameTooLong);
            }
            wire.extend_from_slice(label);
            at = next;
            if length == 0 {
                return Ok((Self { wire: wire.into() }, end.unwrap_or(at)));
            }
        }
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        // The length of a label is never an ASCII letter.
        self.wire.eq_ignore_ascii_case(&other.wire)
    }
}

impl Eq for Name {}

impl Display for Name {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for label in self.labels() {
            for chunk in label.utf8_chunks() {
                for character in chunk.valid().chars() {
                    let escape = if matches!(character, '.' | '\\') { "\\" } else { "" };
                    write!(f, "{escape}{}", if character.is_control() { '\u{fffd}' } else { character })?;
                }
                if !chunk.invalid().is_empty() {
                    f.write_str("\u{fffd}")?;
                }
            }
            f.write_str(".")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(labels: &[&str]) -> Name {
        Name::new(labels.iter().map(|label| label.as_bytes())).unwrap()
    }

    #[test]
    fn names_are_equal_whatever_the_case_of_ascii_letters() {
        assert_eq!(name(&["Pi", "local"]), name(&["pI", "LOCAL"]));
        assert_ne!(name(&["é", "local"]), name(&["É", "local"]));
        assert_ne!(name(&["pi", "local"]), name(&["pi"]));
        assert_ne!(name(&["a", "b"]), name(&["a\u{1}b"]));
    }

    #[test]
    fn labels_and_names_have_bounds() {
        let label = [b'x'; 64];
        assert!(Name::new([&label[..63]]).is_some());
        assert!(Name::new([&label[..]]).is_none());
        assert!(Name::new([&b""[..]]).is_none());
        assert!(Name::new([&label[..63], &label[..63], &label[..63], &label[..61]]).is_some());
        assert!(Name::new([&label[..63], &label[..63], &label[..63], &label[..62]]).is_none());
    }

    #[test]
    fn a_pointer_that_leads_forward_or_to_itself_is_refused() {
        for (bytes, start, expected) in [
            (&[0xc0, 0x00][..], 0, DecodeError::Pointer),
            (&[0xc0, 0x02, 0x00], 0, DecodeError::Pointer),
            // It leads back to a label before it, again and again.
            (&[1, b'a', 0xc0, 0x00], 0, DecodeError::Pointer),
            (&[0xc0, 0x02, 0xc0, 0x00], 2, DecodeError::Pointer),
            (&[0x40, 0x00], 0, DecodeError::Label),
            (&[0x80, 0x00], 0, DecodeError::Label),
            (&[3, b'a'], 0, DecodeError::Truncated),
            (&[0xc0], 0, DecodeError::Truncated),
            (&[], 0, DecodeError::Truncated),
        ] {
            assert_eq!(Name::read(bytes, start).unwrap_err(), expected, "{bytes:x?}");
        }
        let (read, end) = Name::read(&[1, b'a', 0, 1, b'b', 0xc0, 0x00, 9], 3).unwrap();
        assert_eq!((read, end), (name(&["b", "a"]), 7));
    }

    #[test]
    fn a_chain_of_pointers_makes_no_name_longer_than_255_bytes() {
        let mut bytes = vec![0];
        let mut at = 0_u16;
        // Each is a label of 63 bytes before the previous one.
        for _ in 0..4 {
            let next = u16::try_from(bytes.len()).unwrap();
            bytes.push(63);
            bytes.extend_from_slice(&[b'x'; 63]);
            bytes.extend_from_slice(&(at | 0xc000).to_be_bytes());
            at = next;
        }
        assert_eq!(Name::read(&bytes, usize::from(at)).unwrap_err(), DecodeError::NameTooLong);
        assert!(Name::read(&bytes, usize::from(at) - 66).is_ok());
    }

    #[test]
    fn what_is_shown_has_no_control_characters() {
        assert_eq!(name(&["a.b\\c\u{7}", "local"]).to_string(), "a\\.b\\\\c\u{fffd}.local.");
        assert_eq!(Name::new([&[0xff_u8][..]]).unwrap().to_string(), "\u{fffd}.");
    }
}
