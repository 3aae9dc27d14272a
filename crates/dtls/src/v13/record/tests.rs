//! Records of DTLS 1.3: sealed, opened, bent and repeated.

use proptest::prelude::*;
use zeroize::Zeroizing;

use super::*;

fn pair(aead: Aead) -> (Writing, Reading) {
    let secret = Zeroizing::new([7; 32]);
    (Writing::new(aead, secret.clone(), 3), Reading::new(aead, secret, 3))
}

#[test]
fn what_is_sealed_opens_once_and_unchanged_only() {
    for aead in [Aead::Gcm, Aead::Ccm, Aead::Ccm8] {
        for (cid, plain) in [(&[][..], &b"hello"[..]), (&[9; CID], b""), (&[9; CID], b"more than a sample has")] {
            let (mut write, mut read) = pair(aead);
            let mut bytes = Vec::new();
            write.seal(cid, Content::ApplicationData, plain, &mut bytes).unwrap();
            for at in 0..bytes.len() {
                let mut bent = bytes.clone();
                bent[at] ^= 1;
                let mut out = vec![0];
                if let Some((record, _)) = Sealed::split(&bent) {
                    assert_eq!(read.open(&record, &mut out), None, "{aead:?}, byte {at}");
                }
                assert_eq!(out, [0]);
            }
            let (record, rest) = Sealed::split(&bytes).unwrap();
            assert!(rest.is_empty());
            let mut out = vec![0];
            let opened = read.open(&record, &mut out).unwrap();
            assert_eq!((opened.content, opened.newest, &out[1..]), (Content::ApplicationData, true, plain));
            assert_eq!(read.open(&record, &mut out), None, "a second time");
        }
    }
}

#[test]
fn s4_2_1_no_number_is_used_twice_when_they_are_used_up() {
    let (mut write, _) = pair(Aead::Gcm);
    write.sent = SEQUENCE_MAX;
    assert!(write.seal(&[], Content::Alert, &[1, 0], &mut Vec::new()).is_some());
    assert!(write.seal(&[], Content::Alert, &[1, 0], &mut Vec::new()).is_none());
}

#[test]
fn rfc_8449_s4_no_record_holds_more_than_its_reader_takes_whatever_the_epoch() {
    let limit = |bytes: u16| RecordLimit::parse(&bytes.to_be_bytes()).unwrap();
    for aead in [Aead::Gcm, Aead::Ccm, Aead::Ccm8] {
        for (announced, most) in
            [(64, 63), (65, 64), (1 << 14, (1 << 14) - 1), ((1 << 14) + 1, 1 << 14), ((1 << 14) + 2, 1 << 14)]
        {
            let (mut write, mut read) = pair(aead);
            assert_eq!(write.content_max(), 1 << 14);
            write.limit_to(limit(announced));
            for _ in 0..3 {
                for cid in [&[][..], &[9; CID]] {
                    let mut bytes = Vec::new();
                    let plain = vec![7; most + 1];
                    assert_eq!(write.seal(cid, Content::ApplicationData, &plain, &mut bytes), None, "{announced}");
                    assert_eq!(bytes, [], "and nothing was written");
                    write.seal(cid, Content::ApplicationData, &plain[1..], &mut bytes).unwrap();
                    let mut opened = Vec::new();
                    read.open(&Sealed::split(&bytes).unwrap().0, &mut opened).unwrap();
                    assert_eq!(opened.len(), most);
                    // The shortest records are padded, which no limit forbids.
                    bytes.clear();
                    write.seal(cid, Content::Alert, &[], &mut bytes).unwrap();
                    let inner = Sealed::split(&bytes).unwrap().0.body.len() - aead.tag();
                    assert!(inner <= usize::from(announced));
                }
                (write, read) = (write.next(), read.next());
            }
        }
    }
}

proptest! {
    #[test]
    fn s4_2_2_numbers_near_the_newest_are_found_again(newest in 0_u64..1 << 40, step in -60_i64..30_000) {
        let (mut write, mut read) = pair(Aead::Ccm8);
        read.window.note(newest);
        let Some(next) = newest.checked_add_signed(step).filter(|next| *next != newest) else { return Ok(()) };
        write.sent = next;
        let mut bytes = Vec::new();
        write.seal(&[], Content::ApplicationData, b"x", &mut bytes).unwrap();
        let opened = read.open(&Sealed::split(&bytes).unwrap().0, &mut Vec::new()).unwrap();
        prop_assert_eq!((opened.number.sequence, opened.newest), (next, next > newest));
    }

    #[test]
    fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
        let (_, mut read) = pair(Aead::Gcm);
        let mut rest = &bytes[..];
        while let Some((record, after)) = Sealed::split(rest) {
            prop_assert_eq!(read.open(&record, &mut Vec::new()), None);
            rest = after;
        }
    }
}
