//! Conditions that the relay alone lays: corruption, duplicates, reordering, bursts, Wi-Fi.

use std::net::UdpSocket;
use std::thread;
use std::time::Duration;

use fogmux_traffic::link::Means;

use super::{laid, receive, transfer, udp};

/// Sends numbered datagrams one by one and gives the numbers that came, in order.
fn numbers_of(from: &UdpSocket, to: &UdpSocket, count: u16) -> Vec<u16> {
    let mut came = Vec::new();
    let mut take = || {
        let mut buffer = [0; 64];
        while let Ok(length) = receive(to, &mut buffer) {
            assert_eq!(length, 2);
            came.push(u16::from_be_bytes([buffer[0], buffer[1]]));
        }
    };
    to.set_nonblocking(true).unwrap();
    for number in 0..count {
        from.send(&number.to_be_bytes()).unwrap();
        thread::sleep(Duration::from_micros(200));
        take();
    }
    to.set_nonblocking(false).unwrap();
    to.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    take();
    came
}

#[test]
#[ignore = "needs root: lays network namespaces; `cargo xtask test unit` runs it as root"]
fn corrupt_frames_are_refused_by_their_checksums() {
    let laid = laid("corrupt_up=30%");
    let (client, gateway) = udp(&laid);
    let came = numbers_of(&client, &gateway, 2_000);
    // Hardly any inverted bit is one that no checksum covers.
    assert!((1_280..1_520).contains(&came.len()), "{} of 1 400", came.len());
    assert!(came.is_sorted() && came.iter().all(|number| *number < 2_000), "none came changed");
    assert_eq!(numbers_of(&gateway, &client, 100).len(), 100, "the other direction is left alone");
}

#[test]
#[ignore = "needs root: lays network namespaces; `cargo xtask test unit` runs it as root"]
fn duplicates_come_twice_and_reordered_frames_early() {
    let laid = laid("duplicate_down=20%,delay_up=5ms,reorder_up=10%");
    let (client, gateway) = udp(&laid);
    let doubled = numbers_of(&gateway, &client, 2_000);
    assert!((2_300..2_500).contains(&doubled.len()) && doubled.is_sorted(), "{} of 2 400", doubled.len());
    let reordered = numbers_of(&client, &gateway, 2_000);
    let early = reordered.windows(2).filter(|pair| pair[0] > pair[1]).count();
    assert!(reordered.len() == 2_000 && (120..260).contains(&early), "{early} of 180");
}

#[test]
#[ignore = "needs root: lays network namespaces; `cargo xtask test unit` runs it as root"]
fn bursts_lose_neighbours() {
    let laid = laid("ge_up=2%:20%");
    assert_eq!((laid.means(), laid.seed()), (Means::Relay, Some(1)));
    let (client, gateway) = udp(&laid);
    let came = numbers_of(&client, &gateway, 4_000);
    // 2 % / (2 % + 20 %) of the time, in runs of five frames: 364 ± 115 (three deviations).
    let gaps = came.windows(2).filter(|pair| pair[1] - pair[0] > 1).count();
    let lost = 4_000 - came.len();
    assert!((200..540).contains(&lost) && lost > 3 * gaps, "{lost} in {gaps} runs");
}

#[test]
#[ignore = "needs root: lays network namespaces; `cargo xtask test unit` runs it as root"]
fn a_wifi_shares_its_air() {
    let laid = laid("air_client=6mbit");
    let bytes = 200_000;
    let took = transfer(&laid, bytes).as_secs_f64();
    let rate = 2.0 * bytes as f64 * 8.0 / took / 1e6;
    eprintln!("{}: {rate:.2} Mbit/s at 6 in the air", laid.means());
    // 1 448 of 1 558 bytes are payload; access and acknowledgements take the rest.
    assert!((3.0..5.6).contains(&rate), "{rate}");
}
