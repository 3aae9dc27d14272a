//! Options: their numbers, their values and what this implementation knows about each (RFC 7252 §5.4, §5.10).

use std::fmt;

use coap_numbers::option as registry;

/// The number of an option; its bits say how an endpoint that does not know it must behave (RFC 7252 §5.4.6).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OptionNumber(u16);

macro_rules! options {
    ($($(#[$doc:meta])* $name:ident)*) => {
        impl OptionNumber {
            $($(#[$doc])* pub const $name: Self = Self(registry::$name);)*
        }
    };
}

options! {
    /// 1 (RFC 7252 §5.10.8.1)
    IF_MATCH
    /// 3 (RFC 7252 §5.10.1)
    URI_HOST
    /// 4 (RFC 7252 §5.10.6)
    ETAG
    /// 5 (RFC 7252 §5.10.8.2)
    IF_NONE_MATCH
    /// 6 (RFC 7641 §2)
    OBSERVE
    /// 7 (RFC 7252 §5.10.1)
    URI_PORT
    /// 8 (RFC 7252 §5.10.7)
    LOCATION_PATH
    /// 9 (RFC 8613 §2)
    OSCORE
    /// 11 (RFC 7252 §5.10.1)
    URI_PATH
    /// 12 (RFC 7252 §5.10.3)
    CONTENT_FORMAT
    /// 14 (RFC 7252 §5.10.5)
    MAX_AGE
    /// 15 (RFC 7252 §5.10.1)
    URI_QUERY
    /// 16 (RFC 8768 §3)
    HOP_LIMIT
    /// 17 (RFC 7252 §5.10.4)
    ACCEPT
    /// 20 (RFC 7252 §5.10.7)
    LOCATION_QUERY
    /// 23 (RFC 7959 §2.1)
    BLOCK2
    /// 27 (RFC 7959 §2.1)
    BLOCK1
    /// 28 (RFC 7959 §4)
    SIZE2
    /// 35 (RFC 7252 §5.10.2)
    PROXY_URI
    /// 39 (RFC 7252 §5.10.2)
    PROXY_SCHEME
    /// 60 (RFC 7959 §4)
    SIZE1
    /// 252 (RFC 9175 §2)
    ECHO
    /// 258 (RFC 7967 §2)
    NO_RESPONSE
    /// 292 (RFC 9175 §3)
    REQUEST_TAG
}

impl OptionNumber {
    /// The option of this number.
    #[must_use]
    pub const fn new(number: u16) -> Self {
        Self(number)
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }

    /// Whether one who does not know this option must refuse the message (RFC 7252 §5.4.1).
    #[must_use]
    pub const fn is_critical(self) -> bool {
        self.0 & 1 == 1
    }

    /// Whether the option is not part of the cache key (`NoCacheKey`, RFC 7252 §5.4.2, §5.6).
    #[must_use]
    pub const fn is_no_cache_key(self) -> bool {
        self.0 & 0x1e == 0x1c
    }

    /// The definition of this option in requests, if it is known: its permitted lengths and whether it may repeat
    /// (RFC 7252 table 4, RFC 7641 §2, RFC 7959 table 1, RFC 7967 table 1, RFC 8768 table 1, RFC 9175 tables 1 and 2).
    #[must_use]
    pub const fn definition(self) -> Option<Definition> {
        let (lengths, repeatable) = match self {
            Self::IF_MATCH => ((0, 8), true),
            Self::URI_HOST | Self::PROXY_SCHEME => ((1, 255), false),
            Self::ETAG => ((1, 8), true),
            Self::IF_NONE_MATCH => ((0, 0), false),
            Self::OSCORE => ((0, 255), false),
            Self::OBSERVE | Self::BLOCK1 | Self::BLOCK2 => ((0, 3), false),
            Self::URI_PORT | Self::CONTENT_FORMAT | Self::ACCEPT => ((0, 2), false),
            Self::LOCATION_PATH | Self::URI_PATH | Self::URI_QUERY | Self::LOCATION_QUERY => ((0, 255), true),
            Self::MAX_AGE | Self::SIZE1 | Self::SIZE2 => ((0, 4), false),
            Self::HOP_LIMIT => ((1, 1), false),
            Self::PROXY_URI => ((1, 1034), false),
            Self::ECHO => ((1, 40), false),
            Self::NO_RESPONSE => ((0, 1), false),
            Self::REQUEST_TAG => ((0, 8), true),
            _ => return None,
        };
        Some(Definition { lengths, repeatable })
    }
}

impl fmt::Display for OptionNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match registry::to_name(self.0) {
            Some(name) => f.write_str(name),
            None => write!(f, "option {}", self.0),
        }
    }
}

impl fmt::Debug for OptionNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The shape that a known option must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Definition {
    lengths: (usize, usize),
    repeatable: bool,
}

impl Definition {
    /// Whether a value of `length` bytes is right; another is to be treated as an unknown option (RFC 7252 §5.4.3).
    #[must_use]
    pub const fn admits(&self, length: usize) -> bool {
        self.lengths.0 <= length && length <= self.lengths.1
    }

    /// Whether it may occur more than once; each further one is to be treated as unknown (RFC 7252 §5.4.5).
    #[must_use]
    pub const fn is_repeatable(&self) -> bool {
        self.repeatable
    }
}

/// One option of a message, its value borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opt<'a> {
    /// Which option.
    pub number: OptionNumber,
    /// Its value.
    pub value: &'a [u8],
}

impl<'a> Opt<'a> {
    /// The value as an unsigned integer; leading zeros are allowed (RFC 7252 §3.2). `None` beyond 32 bits.
    #[must_use]
    pub fn uint(&self) -> Option<u32> {
        if self.value.len() > 4 {
            return None;
        }
        Some(self.value.iter().fold(0, |sum, byte| (sum << 8) | u32::from(*byte)))
    }

    /// The value as a string; `None` when it is not UTF-8, which RFC 7252 §3.2 demands of strings.
    #[must_use]
    pub fn text(&self) -> Option<&'a str> {
        std::str::from_utf8(self.value).ok()
    }
}

/// The bytes of an unsigned integer as an option value: without leading zeros, nothing for zero (RFC 7252 §3.2).
#[derive(Clone, Copy, Debug)]
pub struct UintValue {
    bytes: [u8; 4],
    length: usize,
}

impl UintValue {
    /// Of this number.
    #[must_use]
    pub const fn new(number: u32) -> Self {
        // Whole bytes of zeros; a number that is zero has no other bytes to move.
        let zeros = number.leading_zeros() & !7;
        let bytes = number.wrapping_shl(zeros).to_be_bytes();
        Self { bytes, length: 4 - (zeros / 8) as usize }
    }

    /// Nought to four bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or(&[])
    }

    /// Room for the first byte of an option, and the same bytes with zeros behind them.
    pub(crate) const fn with_room(self) -> [u8; 5] {
        let [a, b, c, d] = self.bytes;
        [0, a, b, c, d]
    }

    pub(crate) const fn length(self) -> usize {
        self.length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s3_2_integers_have_no_leading_zeros() {
        let cases: [(u32, &[u8]); 5] =
            [(0, &[]), (1, &[1]), (256, &[1, 0]), (0x01_0000, &[1, 0, 0]), (u32::MAX, &[255, 255, 255, 255])];
        for (number, bytes) in cases {
            assert_eq!(UintValue::new(number).as_slice(), bytes);
            assert_eq!(Opt { number: OptionNumber::MAX_AGE, value: bytes }.uint(), Some(number));
        }
        assert_eq!(Opt { number: OptionNumber::MAX_AGE, value: &[0, 0, 7] }.uint(), Some(7));
        assert_eq!(Opt { number: OptionNumber::MAX_AGE, value: &[0; 5] }.uint(), None);
    }

    #[test]
    fn s5_4_6_bits_of_the_number() {
        assert!(OptionNumber::URI_PATH.is_critical());
        assert!(!OptionNumber::OBSERVE.is_critical());
        assert!(OptionNumber::SIZE1.is_no_cache_key());
        assert!(OptionNumber::NO_RESPONSE.definition().is_some_and(|d| d.admits(1) && !d.is_repeatable()));
        assert_eq!(OptionNumber::new(9999).definition(), None);
    }
}
