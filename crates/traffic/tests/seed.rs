//! Lost frames and the seed: the same seed loses the same frames where the link says so. Needs root and iproute2, as
//! `tests/link` does.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::net::UdpSocket;
use std::thread;
use std::time::Duration;

use fogmux_traffic::link::{CLIENT, Conditions, GATEWAY, Laid};

/// As many as a socket has room for that nobody reads.
const SENT: u16 = 200;

/// The numbers of the datagrams that came through, of a row towards the gateway; and the seed that the link names.
fn came(conditions: &str, seed: u64) -> (Vec<u16>, Option<u64>) {
    let laid = Laid::lay(&conditions.parse::<Conditions>().unwrap(), seed).unwrap();
    let entered = laid.enter_gateway().unwrap();
    let gateway = thread::scope(|scope| scope.spawn(|| UdpSocket::bind((GATEWAY, 5683)).unwrap()).join().unwrap());
    drop(entered);
    let entered = laid.enter_client().unwrap();
    let client = UdpSocket::bind((CLIENT, 0)).unwrap();
    drop(entered);
    client.connect((GATEWAY, 5683)).unwrap();
    gateway.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    (0..SENT).for_each(|number| assert_eq!(client.send(&number.to_be_bytes()).unwrap(), 2));
    let mut buffer = [0; 2];
    let mut numbers = Vec::new();
    while gateway.recv(&mut buffer).is_ok() {
        numbers.push(u16::from_be_bytes(buffer));
    }
    (numbers, laid.seed())
}

#[test]
#[ignore = "needs root: lays network namespaces; `cargo xtask test unit` runs it as root"]
fn the_same_seed_loses_the_same_frames() {
    for conditions in ["seeded,loss=20%", "loss=20%,delay=1ms,jitter=1ms"] {
        let (first, seed) = came(conditions, 5);
        assert_eq!(seed, Some(5), "{conditions}");
        // Binomial: 160 ± 5.7; five of them.
        assert!((132..189).contains(&first.len()), "{conditions}: {} of {SENT}", first.len());
        assert_eq!(came(conditions, 5).0, first, "{conditions}");
        assert_ne!(came(conditions, 6).0, first, "{conditions}");
    }
}

#[test]
#[ignore = "needs root: lays network namespaces; `cargo xtask test unit` runs it as root"]
fn a_link_that_the_kernel_draws_for_says_so() {
    // nftables takes no seed.
    assert_eq!(came("loss=20%", 5).1, None);
    // Nothing is drawn.
    assert_eq!(came("seeded,delay=1ms", 5), ((0..SENT).collect::<Vec<_>>(), None));
}
