//! Acknowledgements (RFC 9147 §7): the numbers of records.

use super::record::Number;
use crate::wire::{self, Reader};

/// Numbers that are remembered for one acknowledgement; of more, the newest.
pub(super) const NUMBERS_MAX: usize = 32;

/// What an acknowledgement holds.
pub(super) fn body(numbers: &[Number]) -> Vec<u8> {
    let mut list = Vec::with_capacity(16 * numbers.len());
    for number in numbers {
        list.extend_from_slice(&number.epoch.to_be_bytes());
        list.extend_from_slice(&number.sequence.to_be_bytes());
    }
    let mut body = Vec::with_capacity(2 + list.len());
    wire::put_vector16(&mut body, &list);
    body
}

/// The numbers in an acknowledgement; none of one that is not well formed.
pub(super) fn numbers(body: &[u8]) -> impl Iterator<Item = Number> + use<'_> {
    let mut reader = Reader(body);
    let mut list = Reader(reader.vector16().filter(|_| reader.is_empty()).unwrap_or_default());
    std::iter::from_fn(move || Some(Number { epoch: list.u64()?, sequence: list.u64()? }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let some = [Number { epoch: 2, sequence: 5 }, Number { epoch: 3, sequence: 1 << 40 }];
        assert_eq!(numbers(&body(&some)).collect::<Vec<_>>(), some);
        assert_eq!(numbers(&body(&[])).count(), 0);
        assert_eq!(numbers(&[0, 5, 1, 2]).count(), 0, "cut off");
    }
}
