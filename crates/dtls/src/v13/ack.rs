//! Acknowledgements (RFC 9147 §7): the numbers of records.

use super::record::Number;
use crate::{
    Alert,
    wire::{self, Reader},
};

/// Numbers that are remembered for one acknowledgement; of more, the newest.
pub(super) const NUMBERS_MAX: usize = 32;
/// Bytes of the number of a record: its epoch, and its place in it.
const NUMBER: usize = 16;

/// What an acknowledgement holds.
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
    use super::*;

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
