//! Records as bytes.

use bytes::Bytes;
use fogmux_bus::{
    Qos,
    durable::{Manner, Record, RecordError, RecordId, Sequence},
};
use proptest::{collection::vec, prelude::*};

use crate::any::record;

fn decode(kind: u8, bytes: Vec<u8>) -> Result<Record, RecordError> {
    Record::decode(kind, Bytes::from(bytes))
}

proptest! {
    #[test]
    fn what_was_encoded_comes_back(record in record()) {
        prop_assert!(Record::is_kind(record.kind()));
        prop_assert_eq!(decode(record.kind(), record.encode()), Ok(record));
    }

    #[test]
    fn any_bytes_give_a_record_or_an_error(kind in any::<u8>(), bytes in vec(any::<u8>(), 0..200)) {
        if let Ok(record) = decode(kind, bytes) {
            prop_assert_eq!(decode(kind, record.encode()), Ok(record));
        }
    }

    #[test]
    fn a_changed_byte_does_no_harm(record in record(), at in any::<prop::sample::Index>(), value in any::<u8>()) {
        let mut bytes = record.encode();
        let at = at.index(bytes.len());
        bytes[at] = value;
        if let Ok(changed) = decode(record.kind(), bytes) {
            prop_assert_eq!(decode(record.kind(), changed.encode()), Ok(changed));
        }
    }

    // A delivery ends with a list: whole identifiers may go without a trace. The journal's checksums are for that.
    #[test]
    fn a_record_cut_anywhere_is_refused(record in record(), cut in any::<prop::sample::Index>()) {
        let bytes = record.encode();
        let cut = cut.index(bytes.len());
        let is_list = matches!(record, Record::Delivery { .. }) && cut >= 30 && (cut - 30) % 4 == 0;
        prop_assert_eq!(decode(record.kind(), bytes[..cut].to_vec()).is_ok(), is_list);
    }

    #[test]
    fn identifiers_go_round_and_none_is_zero(number in 0_u64..u64::MAX - 65_535) {
        let id = Sequence(number).packet_id();
        prop_assert_eq!(u64::from(id.get()), number % 65_535 + 1);
        prop_assert_eq!(Sequence(number + 65_535).packet_id(), id);
        prop_assert_ne!(Sequence(number).next().packet_id(), id);
    }
}

#[test]
fn the_bytes_are_those_of_the_decision_record() {
    let manner = Manner { qos: Qos::ExactlyOnce, retain: true, share: 7, ids: [9].into_iter().collect() };
    let record = Record::Delivery { session: RecordId(1), message: RecordId(2), sequence: Sequence(3), manner };
    let numbers = [[1, 0, 0, 0, 0, 0, 0, 0], [2, 0, 0, 0, 0, 0, 0, 0], [3, 0, 0, 0, 0, 0, 0, 0]].concat();
    let expected = [&[1][..], &numbers, &[2 | 8], &[7, 0, 0, 0], &[9, 0, 0, 0]].concat();
    assert_eq!((record.kind(), record.encode()), (35, expected));
    let released = Record::Released(RecordId(256), Sequence(1)).encode();
    assert_eq!(released, [1, 0, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn what_is_wrong_is_named() {
    assert_eq!(decode(31, vec![1]), Err(RecordError::Kind(31)));
    assert_eq!(decode(39, vec![1]), Err(RecordError::Kind(39)));
    assert_eq!(decode(36, vec![]), Err(RecordError::Truncated));
    assert_eq!(decode(36, vec![2; 17]), Err(RecordError::Version(2)));
    assert_eq!(decode(36, [vec![1], vec![0; 17]].concat()), Err(RecordError::Trailing(1)));
    assert_eq!(decode(37, [vec![1], vec![0; 10]].concat()), Err(RecordError::Impossible("packet identifier")));
    // QoS 0 is never stored.
    assert_eq!(decode(35, [vec![1], vec![0; 29]].concat()), Err(RecordError::Impossible("QoS")));
    assert_eq!(decode(34, [vec![1], vec![0; 12]].concat()), Err(RecordError::Missing("topic")));
    let lies = [vec![1], vec![0; 12], vec![2, 255, 255, 255, 255]].concat();
    assert_eq!(decode(34, lies), Err(RecordError::Truncated));
}

#[test]
fn a_field_of_a_later_release_is_skipped() {
    let message = crate::restored::message(1);
    let record = Record::Message(message);
    let bytes = [record.encode(), vec![200, 3, 0, 0, 0, 1, 2, 3]].concat();
    assert_eq!(decode(record.kind(), bytes), Ok(record));
}
