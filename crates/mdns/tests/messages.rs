//! The codec: any bytes are read without harm, and what is written is read again as it was.

use fogmux_mdns::{CLASS_IN, Data, DecodeError, Flags, Kind, Message, Name, Question, Record};
use proptest::collection::vec;
use proptest::prelude::*;

fn name() -> impl Strategy<Value = Name> {
    // Few labels, so that names have parts in common.
    let label = prop_oneof![Just("local"), Just("_tcp"), Just("Pi"), Just("pi"), Just("a.b"), Just("é")];
    vec(label, 0..5).prop_filter_map("too long", |labels| Name::new(labels.iter().map(|label| label.as_bytes())))
}

fn data() -> impl Strategy<Value = Data> {
    prop_oneof![
        any::<[u8; 4]>().prop_map(|octets| Data::A(octets.into())),
        any::<[u8; 16]>().prop_map(|octets| Data::Aaaa(octets.into())),
        name().prop_map(Data::Ptr),
        (any::<(u16, u16, u16)>(), name()).prop_map(|((priority, weight, port), target)| Data::Srv {
            priority,
            weight,
            port,
            target
        }),
        vec(any::<u8>(), 0..40).prop_map(Data::Txt),
        (name(), vec(any::<u8>(), 0..8)).prop_map(|(next, types)| Data::Nsec { next, types }),
        (256_u16..300, vec(any::<u8>(), 0..40)).prop_map(|(kind, bytes)| Data::Other { kind: Kind(kind), bytes }),
    ]
}

fn record() -> impl Strategy<Value = Record> {
    (name(), 0_u16..0x8000, any::<bool>(), any::<u32>(), data()).prop_map(|(name, class, flush, ttl, data)| Record {
        name,
        class,
        flush,
        ttl,
        data,
    })
}

fn message() -> impl Strategy<Value = Message> {
    let question = (name(), any::<u16>(), 0_u16..0x8000, any::<bool>())
        .prop_map(|(name, kind, class, unicast)| Question { name, kind: Kind(kind), class, unicast });
    let records = || vec(record(), 0..6);
    (any::<u16>(), any::<u16>(), vec(question, 0..6), records(), records(), records()).prop_map(
        |(id, flags, questions, answers, authorities, additionals)| Message {
            id,
            flags: Flags(flags),
            questions,
            answers,
            authorities,
            additionals,
        },
    )
}

proptest! {
    #[test]
    fn what_is_written_is_read_again_byte_for_byte(message in message()) {
        let bytes = message.encode(usize::MAX).unwrap();
        let again = Message::decode(&bytes).unwrap();
        prop_assert_eq!(&again, &message);
        // Names are equal whatever their case; their letters are kept nevertheless.
        prop_assert_eq!(format!("{again:?}"), format!("{message:?}"));
    }

    #[test]
    fn any_bytes_are_read_without_harm_and_what_was_read_can_be_written(bytes in vec(any::<u8>(), 0..600)) {
        if let Ok(message) = Message::decode(&bytes) {
            let again = message.encode(usize::MAX).unwrap();
            prop_assert_eq!(Message::decode(&again).unwrap(), message);
        }
    }

    #[test]
    fn a_message_that_is_cut_or_changed_is_read_without_harm(
        message in message(), cut in 0_usize..2000, at in 0_usize..2000, byte: u8,
    ) {
        let mut bytes = message.encode(usize::MAX).unwrap();
        if cut < bytes.len() {
            prop_assert_eq!(Message::decode(&bytes[..cut]).unwrap_err(), DecodeError::Truncated);
        }
        if let Some(place) = bytes.get_mut(at) {
            *place = byte;
        }
        drop(Message::decode(&bytes));
    }

    #[test]
    fn no_message_is_longer_than_it_may_be(message in message(), bytes_max in 12_usize..400) {
        let whole = message.encode(usize::MAX).unwrap().len();
        let bounded = message.encode(bytes_max);
        prop_assert_eq!(bounded.is_some(), whole <= bytes_max);
    }
}

/// An answer to a browser as another implementation compresses it, names in the data of SRV records too.
#[test]
fn s18_14_compressed_data_of_services_is_read() {
    let mut bytes = vec![0, 0, 0x84, 0, 0, 0, 0, 2, 0, 0, 0, 0];
    // At 12: _mqtt._tcp.local PTR pi._mqtt._tcp.local, the instance at 40 and "local" at 23.
    bytes.extend_from_slice(b"\x05_mqtt\x04_tcp\x05local\0\0\x0c\0\x01\0\0\x11\x94\0\x05\x02pi\xc0\x0c");
    bytes.extend_from_slice(b"\xc0\x28\0\x21\x80\x01\0\0\0\x78\0\x0b\0\0\0\0\x07\x5b\x02pi\xc0\x17");
    let message = Message::decode(&bytes).unwrap();
    let name = |labels: &[&str]| Name::new(labels.iter().map(|label| label.as_bytes())).unwrap();
    let kind = name(&["_mqtt", "_tcp", "local"]);
    let instance = kind.under(&["pi"]).unwrap();
    assert_eq!(
        message.answers,
        [
            Record { name: kind, class: CLASS_IN, flush: false, ttl: 4500, data: Data::Ptr(instance.clone()) },
            Record {
                name: instance,
                class: CLASS_IN,
                flush: true,
                ttl: 120,
                data: Data::Srv { priority: 0, weight: 0, port: 1883, target: name(&["pi", "local"]) },
            },
        ]
    );
}

#[test]
fn data_of_a_wrong_length_is_refused() {
    for (kind, data) in [
        (1, &b"\x01\x02\x03"[..]),
        (1, b"\x01\x02\x03\x04\x05"),
        (28, b"\x01\x02\x03\x04"),
        (12, b"\x00\x00"),
        (33, b"\0\0\0\0\0\0\0\0"),
    ] {
        let mut bytes = vec![0, 0, 0x84, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0];
        bytes.extend_from_slice(&[0, kind, 0, 1, 0, 0, 0, 1, 0, u8::try_from(data.len()).unwrap()]);
        bytes.extend_from_slice(data);
        bytes.extend_from_slice(b"more after it");
        assert_eq!(Message::decode(&bytes).unwrap_err(), DecodeError::DataLength, "{kind} {data:x?}");
    }
}

#[test]
fn s6_1_the_types_of_a_name_are_a_bit_map() {
    let name = Name::new([&b"local"[..]]).unwrap();
    let Data::Nsec { types, .. } = Data::nsec(&name, &[Kind::A, Kind::AAAA]) else { panic!() };
    assert_eq!(types, [0, 4, 0x40, 0, 0, 0x08]);
}
