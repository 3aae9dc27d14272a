//! Reads messages. Names in the data of pointers, services and NSEC records are read with it, as they may be compressed
//! (RFC 6762 §18.14). No count in a message is believed: memory is taken for what is there.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::message::{Data, Flags, Kind, Message, Question, Record};
use crate::name::Name;

/// The highest bit of a class.
pub(crate) const CLASS_TOP_BIT: u16 = 0x8000;

/// Why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// They end too early.
    #[error("the message ends too early")]
    Truncated,
    /// A label is of a type that does not exist.
    #[error("a label of an unknown type")]
    Label,
    /// A pointer in a name leads forward.
    #[error("a pointer that does not lead back")]
    Pointer,
    /// A name has more than 255 bytes.
    #[error("a name of more than 255 bytes")]
    NameTooLong,
    /// The data of a record is not as long as its type wants.
    #[error("data of a wrong length")]
    DataLength,
}

impl Message {
    /// Reads a message. Bytes after it are ignored.
    ///
    /// # Errors
    /// [`DecodeError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader { bytes, at: 0 };
        let (id, flags) = (reader.u16()?, Flags(reader.u16()?));
        let counts = [reader.u16()?, reader.u16()?, reader.u16()?, reader.u16()?];
        let [questions, answers, authorities, additionals] = counts;
        Ok(Self {
            id,
            flags,
            questions: (0..questions).map(|_| reader.question()).collect::<Result<_, _>>()?,
            answers: (0..answers).map(|_| reader.record()).collect::<Result<_, _>>()?,
            authorities: (0..authorities).map(|_| reader.record()).collect::<Result<_, _>>()?,
            additionals: (0..additionals).map(|_| reader.record()).collect::<Result<_, _>>()?,
        })
    }
}

/// A place in a message.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], DecodeError> {
        let taken = self.bytes.get(self.at..self.at + count).ok_or(DecodeError::Truncated)?;
        self.at += count;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        self.take(N)?.try_into().map_err(|_| DecodeError::Truncated)
    }

    fn u16(&mut self) -> Result<u16, DecodeError> {
        self.array().map(u16::from_be_bytes)
    }

    fn name(&mut self) -> Result<Name, DecodeError> {
        let (name, end) = Name::read(self.bytes, self.at)?;
        self.at = end;
        Ok(name)
    }

    fn question(&mut self) -> Result<Question, DecodeError> {
        let (name, kind, class) = (self.name()?, Kind(self.u16()?), self.u16()?);
        Ok(Question { name, kind, class: class & !CLASS_TOP_BIT, unicast: class & CLASS_TOP_BIT != 0 })
    }

    fn record(&mut self) -> Result<Record, DecodeError> {
        let (name, kind, class) = (self.name()?, Kind(self.u16()?), self.u16()?);
        let ttl = u32::from_be_bytes(self.array()?);
        let length = usize::from(self.u16()?);
        let end = self.at + length;
        let data = self.data(kind, end)?;
        if self.at != end {
            return Err(DecodeError::DataLength);
        }
        Ok(Record { name, class: class & !CLASS_TOP_BIT, flush: class & CLASS_TOP_BIT != 0, ttl, data })
    }

    /// Reads data that ends there, if it is right.
    fn data(&mut self, kind: Kind, end: usize) -> Result<Data, DecodeError> {
        if end > self.bytes.len() {
            return Err(DecodeError::Truncated);
        }
        Ok(match kind {
            Kind::A => Data::A(Ipv4Addr::from(self.array::<4>()?)),
            Kind::AAAA => Data::Aaaa(Ipv6Addr::from(self.array::<16>()?)),
            Kind::PTR => Data::Ptr(self.name()?),
            Kind::SRV => {
                Data::Srv { priority: self.u16()?, weight: self.u16()?, port: self.u16()?, target: self.name()? }
            }
            Kind::TXT => Data::Txt(self.rest(end)?),
            Kind::NSEC => Data::Nsec { next: self.name()?, types: self.rest(end)? },
            kind => Data::Other { kind, bytes: self.rest(end)? },
        })
    }

    fn rest(&mut self, end: usize) -> Result<Vec<u8>, DecodeError> {
        let length = end.checked_sub(self.at).ok_or(DecodeError::DataLength)?;
        self.take(length).map(<[u8]>::to_vec)
    }
}
