//! Messages of DNS (RFC 1035 §4) with what multicast DNS changes in them (RFC 6762 §18): the highest bit of a class
//! asks for a unicast answer in a question, and flushes caches in a record.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::name::Name;

/// The class of the Internet.
pub const CLASS_IN: u16 = 1;
/// Every class, in questions.
pub const CLASS_ANY: u16 = 255;

/// The type of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind(pub u16);

impl Kind {
    /// An IPv4 address.
    pub const A: Self = Self(1);
    /// A pointer to a name.
    pub const PTR: Self = Self(12);
    /// Text.
    pub const TXT: Self = Self(16);
    /// An IPv6 address.
    pub const AAAA: Self = Self(28);
    /// The host and port of a service (RFC 2782).
    pub const SRV: Self = Self(33);
    /// The types that a name has, and so those that it has not (RFC 4034 §4).
    pub const NSEC: Self = Self(47);
    /// Every type, in questions.
    pub const ANY: Self = Self(255);
}

/// The second word of the header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u16);

impl Flags {
    /// A query.
    pub const QUERY: Self = Self(0);
    /// An authoritative response (RFC 6762 §18.4).
    pub const RESPONSE: Self = Self(0x8400);
    /// The bit that says that more known answers follow, or that a unicast answer is cut (RFC 6762 §18.5).
    pub const TRUNCATED: Self = Self(0x0200);

    /// Whether it is a response.
    #[must_use]
    pub const fn is_response(self) -> bool {
        self.0 & 0x8000 != 0
    }

    /// Whether the truncation bit is set.
    #[must_use]
    pub const fn is_truncated(self) -> bool {
        self.0 & Self::TRUNCATED.0 != 0
    }

    /// Whether the message is a standard query or its response, without an error: others are ignored
    /// (RFC 6762 §18.3, §18.11).
    #[must_use]
    pub const fn is_standard(self) -> bool {
        self.0 & 0x780f == 0
    }
}

/// A message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// The identifier, which counts in legacy queries only (RFC 6762 §18.1).
    pub id: u16,
    /// The kind of message.
    pub flags: Flags,
    /// The questions.
    pub questions: Vec<Question>,
    /// Answers; in a query those that are known already (RFC 6762 §7.1).
    pub answers: Vec<Record>,
    /// In a probe the records that its sender would have (RFC 6762 §8.2).
    pub authorities: Vec<Record>,
    /// Records that will be asked for next.
    pub additionals: Vec<Record>,
}

/// A question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The name.
    pub name: Name,
    /// The type, or [`Kind::ANY`].
    pub kind: Kind,
    /// The class, without its highest bit.
    pub class: u16,
    /// Whether a unicast answer is preferred (RFC 6762 §5.4).
    pub unicast: bool,
}

/// A resource record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The name.
    pub name: Name,
    /// The class, without its highest bit.
    pub class: u16,
    /// Whether caches forget other records of its name and type (RFC 6762 §10.2).
    pub flush: bool,
    /// How long it may be kept, in seconds; zero of one that is no longer true.
    pub ttl: u32,
    /// Its data.
    pub data: Data,
}

/// The data of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    /// An IPv4 address.
    A(Ipv4Addr),
    /// An IPv6 address.
    Aaaa(Ipv6Addr),
    /// A pointer to a name.
    Ptr(Name),
    /// The host and port of a service.
    Srv {
        /// Lower ones are tried first.
        priority: u16,
        /// The share among those of one priority.
        weight: u16,
        /// The port.
        port: u16,
        /// The host.
        target: Name,
    },
    /// Strings, each after its length in one byte.
    Txt(Vec<u8>),
    /// The types that the name has.
    Nsec {
        /// In multicast DNS the name itself (RFC 6762 §6.1).
        next: Name,
        /// The bit maps (RFC 4034 §4.1.2).
        types: Vec<u8>,
    },
    /// Data of another type.
    Other {
        /// The type.
        kind: Kind,
        /// The bytes as they came.
        bytes: Vec<u8>,
    },
}

impl Data {
    /// The type.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::A(_) => Kind::A,
            Self::Aaaa(_) => Kind::AAAA,
            Self::Ptr(_) => Kind::PTR,
            Self::Srv { .. } => Kind::SRV,
            Self::Txt(_) => Kind::TXT,
            Self::Nsec { .. } => Kind::NSEC,
            Self::Other { kind, .. } => *kind,
        }
    }

    /// Makes text of `key=value` strings (RFC 6763 §6). A string of more than 255 bytes is left out.
    #[must_use]
    pub fn txt<'a>(strings: impl IntoIterator<Item = &'a str>) -> Self {
        let mut bytes = Vec::new();
        for string in strings {
            if let Ok(length) = u8::try_from(string.len()) {
                bytes.push(length);
                bytes.extend_from_slice(string.as_bytes());
            }
        }
        // RFC 6763 §6.1: never without a string.
        if bytes.is_empty() {
            bytes.push(0);
        }
        Self::Txt(bytes)
    }

    /// Makes the list of the types that a name has, all below 256 (RFC 6762 §6.1).
    #[must_use]
    pub fn nsec(name: &Name, kinds: &[Kind]) -> Self {
        let mut map = Vec::new();
        for kind in kinds {
            let at = usize::from(kind.0 / 8);
            if map.len() <= at {
                map.resize(at + 1, 0_u8);
            }
            if let Some(byte) = map.get_mut(at) {
                *byte |= 0x80 >> (kind.0 % 8);
            }
        }
        let length = u8::try_from(map.len()).unwrap_or(u8::MAX);
        Self::Nsec { next: name.clone(), types: [&[0, length], &*map].concat() }
    }

    /// The data on the wire without compression, by which records are compared (RFC 6762 §8.2).
    #[must_use]
    pub fn to_wire(&self) -> Vec<u8> {
        match self {
            Self::A(address) => address.octets().to_vec(),
            Self::Aaaa(address) => address.octets().to_vec(),
            Self::Ptr(name) => name.as_wire().to_vec(),
            Self::Srv { priority, weight, port, target } => {
                let numbers = [*priority, *weight, *port].map(u16::to_be_bytes).concat();
                [&*numbers, target.as_wire()].concat()
            }
            Self::Txt(bytes) | Self::Other { bytes, .. } => bytes.clone(),
            Self::Nsec { next, types } => [next.as_wire(), types].concat(),
        }
    }
}
