//! Notifications of resources with long names, which are options of each message.

use fogmux_coap::Location;

use super::*;

/// RFC 7252 §4.6: what a message has at most where nothing is known of the network.
const MESSAGE_BYTES: usize = 1152;

fn name(levels: usize) -> String {
    vec!["x".repeat(200); levels].join("/")
}

/// An observer, which takes messages of so many bytes.
fn observing(bytes_max: Option<usize>) -> Bench {
    let mut bench = Bench::new(ServerConfig::default());
    if let Some(bytes_max) = bytes_max {
        bench.server.limit_messages(&bench.peer, bytes_max);
    }
    bench.ask(Code::GET, &[REGISTER, PATH], &[]);
    bench
}

fn notify(bench: &mut Bench, name: &str, payload: &[u8]) -> (Notified, Vec<Sent>) {
    let location = Some(Location { root: "ps", path: name });
    let response = Response { location, ..bench.content(payload) };
    bench.notify_with(response, true)
}

#[test]
fn s4_6_a_long_name_comes_with_a_smaller_block() {
    for (bytes_max, levels) in [(None, 1), (None, 4), (None, 5), (Some(512), 1), (Some(512), 2)] {
        let mut bench = observing(bytes_max);
        let (told, sent) = notify(&mut bench, &name(levels), &[7; 1000]);
        assert_eq!((told, sent.len()), (Notified::Sent, 1));
        let (message, bytes) = (sent[0].message(), sent[0].bytes.len());
        assert!(bytes <= bytes_max.unwrap_or(MESSAGE_BYTES), "{bytes} bytes of {bytes_max:?} for {levels} levels");
        assert!(message.payload().len() >= 16);
        if message.payload().len() < 1000 {
            let block = sent[0].uint(OptionNumber::BLOCK2).unwrap();
            assert_eq!((block >> 4, message.payload().len()), (0, 16 << (block & 7)), "the first block");
        }
    }
}

#[test]
fn s4_6_a_name_that_fits_no_message_is_not_told_and_ends_no_observation() {
    for (bytes_max, levels) in [(None, 8), (Some(512), 4)] {
        let mut bench = observing(bytes_max);
        let (told, sent) = notify(&mut bench, &name(levels), b"1");
        let bytes: Vec<usize> = sent.iter().map(|sent| sent.bytes.len()).collect();
        for _ in 0..10 {
            bench.wait(Duration::from_secs(60));
        }
        assert_eq!(bench.gone(), None, "after messages of {bytes:?} bytes");
        assert_eq!((told, bytes), (Notified::Sent, vec![]));
        let (told, sent) = bench.notify(b"next", true);
        assert_eq!((told, sent.len()), (Notified::Sent, 1));
    }
}
