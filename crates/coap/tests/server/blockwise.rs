//! RFC 7959.

use fogmux_coap::{Block, BlockSize};

use super::*;

fn block(number: u32, more: bool, exponent: u8) -> Vec<u8> {
    let value = Block { number, more, size: BlockSize::from_exponent(exponent).unwrap() }.encode();
    fogmux_coap::option::UintValue::new(value).as_slice().to_vec()
}

#[test]
fn s2_2_the_reserved_size_is_a_bad_request() {
    let mut bench = Bench::new(ServerConfig::default());
    for option in [OptionNumber::BLOCK1, OptionNumber::BLOCK2] {
        assert_eq!(bench.ask(Code::PUT, &[PATH, (option, &[7])], b"x").code(), Code::BAD_REQUEST);
    }
}

#[test]
fn s2_4_a_download_is_of_one_state_though_it_changes() {
    let mut bench = Bench::new(ServerConfig::default());
    let whole: Vec<u8> = (0..=255).cycle().take(3000).collect();
    bench.state = Some(whole.clone());
    let first = bench.ask(Code::GET, &[PATH], &[]);
    assert_eq!(first.uint(OptionNumber::SIZE2), Some(3000));
    assert_eq!(first.uint(OptionNumber::BLOCK2), Some(0x0e));
    let mut joined = first.message().payload().to_vec();
    bench.state = Some(vec![0; 2000]);
    for number in 1..3 {
        let next = bench.ask(Code::GET, &[PATH, (OptionNumber::BLOCK2, &block(number, false, 6))], &[]);
        assert_eq!(next.message().option(OptionNumber::ETAG).unwrap().value, etag(&whole).as_slice());
        joined.extend_from_slice(next.message().payload());
    }
    assert_eq!(joined, whole);
}

#[test]
fn s2_4_the_client_chooses_smaller_blocks() {
    let mut bench = Bench::new(ServerConfig::default());
    bench.state = Some(vec![5; 100]);
    let first = bench.ask(Code::GET, &[PATH, (OptionNumber::BLOCK2, &block(0, false, 1))], &[]);
    assert_eq!((first.message().payload().len(), first.uint(OptionNumber::BLOCK2)), (32, Some(0b1001)));
    let last = bench.ask(Code::GET, &[PATH, (OptionNumber::BLOCK2, &block(3, false, 1))], &[]);
    assert_eq!((last.message().payload().len(), last.uint(OptionNumber::BLOCK2)), (4, Some(0x31)));
    let behind = bench.ask(Code::GET, &[PATH, (OptionNumber::BLOCK2, &block(4, false, 1))], &[]);
    assert_eq!(behind.code(), Code::BAD_REQUEST);
}

#[test]
fn s2_4_a_peer_that_takes_short_messages_only_gets_smaller_blocks() {
    let whole: Vec<u8> = (0..=255).cycle().take(1000).collect();
    // RFC 8449 §4: no limit is below 64, of which DTLS 1.3 takes one for the type of the content.
    for (most, exponent) in [(63, 0), (64, 0), (80, 1), (1000, 5), (1071, 5), (1072, 6), (1 << 14, 6)] {
        let mut bench = Bench::new(ServerConfig::default());
        bench.state = Some(whole.clone());
        bench.server.limit_messages(&bench.peer, most);
        let (mut joined, mut number) = (Vec::new(), 0);
        loop {
            let wanted = block(number, false, exponent);
            let options = [PATH, (OptionNumber::BLOCK2, &wanted[..])];
            // The first is cut though nobody asks for it.
            let answer = bench.ask(Code::GET, &options[..usize::from(number > 0) + 1], &[]);
            assert!(answer.bytes.len() <= most, "{} of {most} bytes", answer.bytes.len());
            joined.extend_from_slice(answer.message().payload());
            let more = answer.uint(OptionNumber::BLOCK2).is_some_and(|value| value & 8 != 0);
            if !more {
                break;
            }
            assert_eq!(answer.message().payload().len(), 16 << exponent);
            number += 1;
        }
        assert_eq!(joined, whole);
        // An association that follows has limits of its own.
        bench.server.forget(&bench.peer);
        assert_eq!(bench.ask(Code::GET, &[PATH], &[]).message().payload(), whole);
    }
}

#[test]
fn s2_5_an_upload_in_blocks() {
    let mut bench = Bench::new(ServerConfig::default());
    let mut upload = |number, more, part: &[u8]| {
        bench.ask(Code::PUT, &[PATH, (OptionNumber::BLOCK1, &block(number, more, 0))], part)
    };
    let first = upload(0, true, &[1; 16]);
    assert_eq!((first.code(), first.uint(OptionNumber::BLOCK1)), (Code::CONTINUE, Some(8)));
    assert_eq!(upload(1, true, &[2; 16]).code(), Code::CONTINUE);
    let last = upload(2, false, &[3; 5]);
    assert_eq!((last.code(), last.uint(OptionNumber::BLOCK1)), (Code::CHANGED, Some(0x20)));
    assert_eq!(bench.state, Some([vec![1; 16], vec![2; 16], vec![3; 5]].concat()));
}

#[test]
fn s2_5_smaller_blocks_are_asked_for() {
    let config = ServerConfig { block_size: BlockSize::from_exponent(1).unwrap(), ..ServerConfig::default() };
    let mut bench = Bench::new(config);
    let first = bench.ask(Code::PUT, &[PATH, (OptionNumber::BLOCK1, &block(0, true, 2))], &[1; 64]);
    assert_eq!((first.code(), first.uint(OptionNumber::BLOCK1)), (Code::CONTINUE, Some(0b1001)));
    let second = bench.ask(Code::PUT, &[PATH, (OptionNumber::BLOCK1, &block(2, false, 1))], &[2; 10]);
    assert_eq!(second.code(), Code::CHANGED);
    assert_eq!(bench.state.as_ref().map(Vec::len), Some(74));
}

#[test]
fn s2_9_incomplete_too_large_and_expired_uploads() {
    let config = ServerConfig { body_bytes_max: 40, ..ServerConfig::default() };
    let mut bench = Bench::new(config);
    let missing = bench.ask(Code::PUT, &[PATH, (OptionNumber::BLOCK1, &block(1, false, 0))], b"x");
    assert_eq!(missing.code(), Code::REQUEST_ENTITY_INCOMPLETE);
    let announced = bench.ask(
        Code::PUT,
        &[PATH, (OptionNumber::BLOCK1, &block(0, true, 0)), (OptionNumber::SIZE1, &[41])],
        &[0; 16],
    );
    assert_eq!(announced.code(), Code::REQUEST_ENTITY_TOO_LARGE);
    assert_eq!(announced.uint(OptionNumber::SIZE1), Some(40));
    let whole = bench.ask(Code::PUT, &[PATH], &[0; 41]);
    assert_eq!((whole.code(), whole.uint(OptionNumber::SIZE1)), (Code::REQUEST_ENTITY_TOO_LARGE, Some(40)));
    let far = bench.ask(Code::PUT, &[PATH, (OptionNumber::BLOCK1, &block((1 << 20) - 1, false, 6))], b"x");
    assert_eq!(far.code(), Code::REQUEST_ENTITY_TOO_LARGE);
    bench.ask(Code::PUT, &[PATH, (OptionNumber::BLOCK1, &block(0, true, 0))], &[0; 16]);
    bench.wait(Duration::from_secs(61));
    let late = bench.ask(Code::PUT, &[PATH, (OptionNumber::BLOCK1, &block(1, false, 0))], b"x");
    assert_eq!(late.code(), Code::REQUEST_ENTITY_INCOMPLETE);
}

#[test]
fn s2_6_a_large_notification_is_fetched_as_it_was() {
    let mut bench = Bench::new(ServerConfig::default());
    bench.ask(Code::GET, &[REGISTER, PATH], &[]);
    let (_, sent) = bench.notify(&[8; 1500], false);
    assert_eq!((sent[0].uint(OptionNumber::BLOCK2), sent[0].uint(OptionNumber::SIZE2)), (Some(0x0e), Some(1500)));
    let rest = bench.ask(Code::GET, &[PATH, (OptionNumber::BLOCK2, &block(1, false, 6))], &[]);
    assert_eq!(rest.message().payload(), &[8; 476]);
}
