//! Entries of a frame: a part of a record, or records that are forgotten.

use std::ops::RangeInclusive;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::{
    blocks::Spread,
    frame::{HEADER_CONTENT, take},
    record::{Key, RecordId},
};

/// Bytes of a put before the record's own.
pub(crate) const PUT: u32 = 24;
/// Bytes of a forget.
pub(crate) const FORGET: u32 = 16;

const TAG_PUT: u8 = 1;
const TAG_FORGET: u8 = 2;

/// A part of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Put<'a> {
    pub(crate) key: Key,
    /// The user's kind of record.
    pub(crate) kind: u8,
    /// Bytes of the whole record.
    pub(crate) total: u32,
    /// The checksum, which goes with the part wherever it is moved.
    pub(crate) sum: u32,
    pub(crate) bytes: &'a [u8],
}

impl<'a> Put<'a> {
    /// A part with its checksum.
    pub(crate) fn new(key: Key, kind: u8, total: u32, bytes: &'a [u8]) -> Self {
        Self { key, kind, total, sum: sum(key, kind, total, bytes), bytes }
    }

    /// Whether the bytes are those that were put.
    pub(crate) fn is_intact(&self) -> bool {
        self.sum == sum(self.key, self.kind, self.total, self.bytes)
    }

    /// Appends the entry to a frame.
    pub(crate) fn write(&self, frame: &mut Spread) {
        let length = u32::try_from(self.bytes.len()).unwrap_or(u32::MAX);
        let halves = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let tag = u32::from(TAG_PUT) | u32::from(self.kind) << 8;
        let head = [halves(tag, length), self.key.get(), halves(self.sum, self.total)];
        frame.push(head.map(u64::to_le_bytes).as_flattened());
        frame.push(self.bytes);
    }

    /// Reads an entry, and what follows it.
    pub(crate) fn read(mut content: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let from = &mut content;
        let [TAG_PUT, kind, _, _] = take(from)? else { return None };
        let length = u32::from_le_bytes(take(from)?);
        let key = Key::from_u64(u64::from_le_bytes(take(from)?));
        let sum = u32::from_le_bytes(take(from)?);
        let total = u32::from_le_bytes(take(from)?);
        let (bytes, rest) = from.split_at_checked(length as usize)?;
        Some((Self { key, kind, total, sum, bytes }, rest))
    }
}

fn sum(key: Key, kind: u8, total: u32, bytes: &[u8]) -> u32 {
    let seed = key.get() ^ u64::from(total) << 32 ^ u64::from(kind) << 24;
    u32::try_from(xxh3_64_with_seed(bytes, seed) >> 32).unwrap_or_default()
}

/// Consecutive identifiers of records that are forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Forget {
    pub(crate) first: u64,
    pub(crate) count: u32,
}

impl Forget {
    /// Appends the entry to a frame.
    pub(crate) fn write(&self, frame: &mut Spread) {
        frame.push(&[TAG_FORGET, 0, 0, 0]);
        frame.push(&self.count.to_le_bytes());
        frame.push(&self.first.to_le_bytes());
    }

    fn read(mut content: &[u8]) -> Option<(Self, &[u8])> {
        let from = &mut content;
        let [TAG_FORGET, _, _, _] = take(from)? else { return None };
        let count = u32::from_le_bytes(take(from)?);
        let first = u64::from_le_bytes(take(from)?);
        Some((Self { first, count }, from))
    }

    /// The identifiers, as far as there are such. There may be billions, with few records or none among them.
    pub(crate) fn ids(self) -> Option<RangeInclusive<RecordId>> {
        let first = RecordId::new(self.first)?;
        let more = u64::from(self.count.checked_sub(1)?);
        Some(first..=RecordId::new(self.first + more).unwrap_or(RecordId::MAX))
    }
}

/// An entry of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry<'a> {
    Put(Put<'a>),
    Forget(Forget),
}

/// The entries of a frame, each with its position in the frame's content.
#[derive(Clone, Debug)]
pub(crate) struct Entries<'a> {
    rest: &'a [u8],
    position: u32,
}

impl<'a> Entries<'a> {
    /// Reads the content of a frame whose checksum is right.
    pub(crate) fn of(content: &'a [u8]) -> Self {
        Self { rest: content.get(HEADER_CONTENT as usize..).unwrap_or_default(), position: HEADER_CONTENT }
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = (u32, Entry<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let (entry, rest) = match *self.rest.first()? {
            TAG_PUT => Put::read(self.rest).map(|(put, rest)| (Entry::Put(put), rest))?,
            TAG_FORGET => Forget::read(self.rest).map(|(forget, rest)| (Entry::Forget(forget), rest))?,
            _ => return None,
        };
        let position = self.position;
        self.position += u32::try_from(self.rest.len() - rest.len()).unwrap_or_default();
        self.rest = rest;
        Some((position, entry))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forget_is_a_range_of_identifiers_that_there_can_be() {
        let ids = |first, count| Forget { first, count }.ids().map(|ids| (ids.start().get(), ids.end().get()));
        assert_eq!(ids(7, 0), None);
        assert_eq!(ids(7, 1), Some((7, 7)));
        assert_eq!(ids(0, u32::MAX), Some((0, u64::from(u32::MAX) - 1)));
        let max = RecordId::MAX.get();
        assert_eq!(ids(max - 1, 2), Some((max - 1, max)));
        assert_eq!(ids(max, u32::MAX), Some((max, max)));
        assert_eq!((ids(max + 1, 1), ids(u64::MAX - 2, 16)), (None, None));
    }
}
