//! Acknowledgements (RFC 9147 §7): the numbers of records.

use super::record::{Content, Number, Writing};
use crate::{
    Alert,
    wire::{self, Reader},
};

/// Numbers that are remembered for one acknowledgement; of more, the newest.
pub(super) const NUMBERS_MAX: usize = 32;
/// Bytes of the number of a record: its epoch, and its place in it.
const NUMBER: usize = 16;

/// Appends acknowledgements of records: one, or as many as the limit of the peer makes of it (RFC 8449 §4).
pub(super) fn put(write: &mut Writing, cid: &[u8], numbers: &[Number], out: &mut Vec<u8>) {
    let most = write.content_max().saturating_sub(2) / NUMBER;
    for part in numbers.chunks(most.max(1)) {
        // Without a number left nothing more can be said.
        let _ = write.seal(cid, Content::Ack, &body(part), out);
    }
}

/// Returns the body of an acknowledgement.
pub(super) fn body(numbers: &[Number]) -> Vec<u8> {
    let mut list = Vec::with_capacity(NUMBER * numbers.len());
    for number in numbers {
        list.extend_from_slice(&number.epoch.to_be_bytes());
        list.extend_from_slice(&number.sequence.to_be_bytes());
    }
    let mut body = Vec::with_capacity(2 + list.len());
    wire::put_vector16(&mut body, &list);
    body
}

/// The numbers in an acknowledgement.
///
/// # Errors
/// `decode_error`: it is not well formed.
pub(super) fn numbers(body: &[u8]) -> Result<impl Iterator<Item = Number> + use<'_>, Alert> {
    let mut reader = Reader(body);
    let list = reader.vector16().filter(|list| reader.is_empty() && list.len().is_multiple_of(NUMBER));
    let mut list = Reader(list.ok_or(Alert::DecodeError)?);
    Ok(std::iter::from_fn(move || Some(Number { epoch: list.u64()?, sequence: list.u64()? })))
}

#[cfg(test)]
mod tests {
    use zeroize::Zeroizing;

    use super::*;
    use crate::{
        limit::RecordLimit,
        suite::Aead,
        v13::record::{Reading, Sealed},
    };

    #[test]
    fn rfc_8449_s4_acknowledgements_of_many_records_keep_to_the_limit() {
        let numbers = [(); NUMBERS_MAX].map(|()| Number { epoch: 2, sequence: 7 });
        for (announced, records) in [(64_u16, 11), (66, 11), (67, 8), (515, 1), (514, 2), ((1 << 14) + 1, 1)] {
            let mut write = Writing::new(Aead::Gcm, Zeroizing::new([1; 32]), 2);
            write.limit_to(RecordLimit::parse(&announced.to_be_bytes()).unwrap());
            let mut read = Reading::new(Aead::Gcm, Zeroizing::new([1; 32]), 2);
            let mut out = Vec::new();
            put(&mut write, &[], &numbers, &mut out);
            let (mut rest, mut sizes, mut named) = (&out[..], Vec::new(), 0);
            while let Some((record, after)) = Sealed::split(rest) {
                rest = after;
                let mut plain = Vec::new();
                assert_eq!(read.open(&record, &mut plain).unwrap().content, Content::Ack);
                sizes.push(plain.len() + 1);
                named += super::numbers(&plain).unwrap().count();
            }
            assert!(sizes.iter().all(|size| *size <= usize::from(announced)), "{announced}: {sizes:?}");
            assert_eq!((sizes.len(), named), (records, NUMBERS_MAX), "{announced}");
        }
        let mut out = Vec::new();
        put(&mut Writing::new(Aead::Gcm, Zeroizing::new([1; 32]), 2), &[], &[], &mut out);
        assert_eq!(out, [], "of nothing there is nothing to be said");
    }

    #[test]
    fn what_is_written_is_read() {
        let some = [Number { epoch: 2, sequence: 5 }, Number { epoch: 3, sequence: 1 << 40 }];
        assert_eq!(numbers(&body(&some)).unwrap().collect::<Vec<_>>(), some);
        assert_eq!(numbers(&body(&[])).unwrap().count(), 0);
        for malformed in [&[][..], &[0], &[0, 5, 1, 2], &[0, 1, 2], &[0, 0, 1]] {
            assert_eq!(numbers(malformed).map(Iterator::count), Err(Alert::DecodeError), "{malformed:?}");
        }
    }
}
