//! The value of the OSCORE option (RFC 8613 §6.1): the header of the COSE object, compressed.

use crate::cbor::Sink;
use crate::id::Id;
use crate::partial_iv::PartialIv;

/// Flag bits (RFC 8613 §6.1).
const PARTIAL_IV_LENGTH: u8 = 0b0000_0111;
const KID: u8 = 0b0000_1000;
const KID_CONTEXT: u8 = 0b0001_0000;
const RESERVED: u8 = 0b1110_0000;

/// A decoded OSCORE option (RFC 8613 §6.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OscoreOption<'a> {
    /// The sender's sequence number; required in requests.
    pub partial_iv: Option<PartialIv>,
    /// The sender's ID; required in requests.
    pub kid: Option<&'a [u8]>,
    /// The ID Context, if the sender included it.
    pub kid_context: Option<&'a [u8]>,
}

/// A value that is no compressed COSE object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// One of the three upper flag bits.
    #[error("a reserved flag bit is set")]
    ReservedFlag,
    /// A Partial IV of six or seven bytes.
    #[error("a Partial IV of a reserved length")]
    PartialIvLength,
    /// Shorter than its lengths say.
    #[error("it ends too early")]
    Truncated,
    /// Bytes behind the last field, when that is not a 'kid'.
    #[error("there are bytes behind the last field")]
    Trailing,
    /// A flag byte of nothing; the empty value says that (RFC 8613 §2).
    #[error("flags that say nothing are to be left out")]
    EmptyFlags,
}

impl<'a> OscoreOption<'a> {
    /// Reads a value.
    ///
    /// # Errors
    /// [`Malformed`], which a server answers with 4.02 (RFC 8613 §8.2).
    pub fn decode(value: &'a [u8]) -> Result<Self, Malformed> {
        let Some((&flags, rest)) = value.split_first() else { return Ok(Self::default()) };
        if flags & RESERVED != 0 {
            return Err(Malformed::ReservedFlag);
        }
        if flags == 0 {
            return Err(Malformed::EmptyFlags);
        }
        let length = usize::from(flags & PARTIAL_IV_LENGTH);
        if length > 5 {
            return Err(Malformed::PartialIvLength);
        }
        let (partial_iv, rest) = rest.split_at_checked(length).ok_or(Malformed::Truncated)?;
        let (kid_context, rest) = if flags & KID_CONTEXT == 0 {
            (None, rest)
        } else {
            let (&length, rest) = rest.split_first().ok_or(Malformed::Truncated)?;
            let (kid_context, rest) = rest.split_at_checked(length.into()).ok_or(Malformed::Truncated)?;
            (Some(kid_context), rest)
        };
        let kid = (flags & KID != 0).then_some(rest);
        if kid.is_none() && !rest.is_empty() {
            return Err(Malformed::Trailing);
        }
        Ok(Self { partial_iv: PartialIv::decode(partial_iv), kid, kid_context })
    }

    /// Appends the value: nothing when there is nothing to say (RFC 8613 §2). A 'kid context' of more than 255 bytes
    /// cannot be said and is left out.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.write(out);
    }

    pub(crate) fn write(&self, out: &mut impl Sink) {
        let kid_context = self.kid_context.and_then(|bytes| Some((u8::try_from(bytes.len()).ok()?, bytes)));
        let flags = self.partial_iv.map_or(0, |partial_iv| partial_iv.length())
            | self.kid.map_or(0, |_| KID)
            | kid_context.map_or(0, |_| KID_CONTEXT);
        if flags == 0 {
            return;
        }
        out.put(&[flags]);
        if let Some(partial_iv) = &self.partial_iv {
            out.put(partial_iv.as_slice());
        }
        if let Some((length, bytes)) = kid_context {
            out.put(&[length]);
            out.put(bytes);
        }
        out.put(self.kid.unwrap_or(&[]));
    }

    /// The 'kid' as an ID. `None` when it is longer than an ID can be, so that nobody has it.
    #[must_use]
    pub fn kid(&self) -> Option<Id> {
        Id::new(self.kid?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(value: &[u8]) -> OscoreOption<'_> {
        let option = OscoreOption::decode(value).unwrap();
        let mut out = Vec::new();
        option.encode(&mut out);
        assert_eq!(out, value);
        option
    }

    #[test]
    fn s6_3_examples() {
        assert_eq!(round_trip(&[0x09, 0x05, 0x25]).kid, Some(&[0x25_u8][..]));
        assert_eq!(round_trip(&[0x09, 0x00]).kid, Some(&[][..]));
        let with_context = round_trip(&[0x19, 0x05, 0x08, 0x44, 0x61, 0x6c, 0x65, 0x6b, 0x00, 0x01, 0x02]);
        assert_eq!(with_context.kid_context.map(<[u8]>::len), Some(8));
        assert_eq!(with_context.kid, Some(&[][..]));
        assert_eq!(round_trip(&[]), OscoreOption::default());
        assert_eq!(round_trip(&[0x01, 0x07]).partial_iv, PartialIv::of(7));
    }

    #[test]
    fn s6_1_what_is_malformed() {
        assert_eq!(OscoreOption::decode(&[0x20]), Err(Malformed::ReservedFlag));
        assert_eq!(OscoreOption::decode(&[0x89, 0]), Err(Malformed::ReservedFlag));
        assert_eq!(OscoreOption::decode(&[0x0e, 0, 0, 0, 0, 0, 0]), Err(Malformed::PartialIvLength));
        assert_eq!(OscoreOption::decode(&[0x0a, 0]), Err(Malformed::Truncated));
        assert_eq!(OscoreOption::decode(&[0x19, 0, 9, 1]), Err(Malformed::Truncated));
        assert_eq!(OscoreOption::decode(&[0x19, 0]), Err(Malformed::Truncated));
        assert_eq!(OscoreOption::decode(&[0x01, 0, 9]), Err(Malformed::Trailing));
        assert_eq!(OscoreOption::decode(&[0x00]), Err(Malformed::EmptyFlags));
    }
}
