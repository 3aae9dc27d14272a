//! Multicast DNS: whatever decodes is written and decoded again to the same message. A responder, which hears the input
//! as datagrams of a few hosts or its own messages with changes, sends only what decodes, and comes to rest.
#![no_main]

use std::{net::SocketAddr, time::Duration};

use fogmux_mdns::{
    Message, Responder,
    responder::{LinkId, Offer, PORT, Service},
};
use fogmux_time::Timestamp;
use libfuzzer_sys::fuzz_target;

const LINK: LinkId = LinkId { interface: 2, is_ipv4: true };
/// More than it sends at any one time: three probes or announcements, and an answer.
const AT_ONCE_MAX: usize = 8;

fn offer(last: u8) -> Offer {
    let service = |kind, port| Service { kind: [kind, "_tcp"], qualifier: None, port, txt: vec!["path=/".to_owned()] };
    let addresses = vec![[192, 0, 2, last].into(), [0x20, 1, 0xd, 0xb8, 0, 0, 0, u16::from(last)].into()];
    Offer { addresses, services: vec![service("_mqtt", 1883), service("_http", 8080)] }
}

fn round_trip(bytes: &[u8]) {
    let Ok(message) = Message::decode(bytes) else { return };
    let again = message.encode(usize::MAX).expect("there is room");
    assert_eq!(Message::decode(&again).expect("what we write is right"), message);
}

/// Sends what is due until a time; returns the last message.
fn run(responder: &mut Responder, now: &mut Timestamp, end: Timestamp, own: &mut Vec<u8>) {
    while let Some(at) = responder.next_timeout().filter(|at| *at <= end) {
        *now = (*now).max(at);
        let mut sent = 0;
        while let Some(transmit) = responder.poll_transmit(*now) {
            let message = Message::decode(&transmit.bytes).expect("what we send is right");
            assert!(transmit.bytes.len() <= 1400 && message.flags.is_standard());
            *own = transmit.bytes;
            sent += 1;
        }
        assert!(sent <= AT_ONCE_MAX, "{sent}");
    }
    *now = end;
}

fuzz_target!(|data: &[u8]| {
    round_trip(data);
    let mut responder = Responder::new("pi", "pi-host", 7);
    let mut now = Timestamp::from_millis(1_000_000);
    let mut own = Vec::new();
    responder.set_link(now, LINK, offer(10));
    let mut rest = data;
    while let Some((&[control, time, length], more)) = rest.split_first_chunk::<3>() {
        let (bytes, more) = more.split_at(usize::from(length).min(more.len()));
        rest = more;
        let end = now + Duration::from_millis(u64::from(time) * 29);
        run(&mut responder, &mut now, end, &mut own);
        let mut datagram = bytes.to_vec();
        if control & 0x80 != 0 {
            // Its own message, with these bytes at these places.
            datagram.clone_from(&own);
            for pair in bytes.chunks_exact(2) {
                if let Some(place) = datagram.get_mut(usize::from(pair[0])) {
                    *place = pair[1];
                }
            }
        }
        if control & 0x40 != 0 {
            responder.set_link(now, LINK, offer(control & 1));
        }
        let port = if control & 0x20 == 0 { PORT } else { 40_000 };
        responder.handle(now, LINK, SocketAddr::from(([192, 0, 2, control & 3], port)), &datagram);
        round_trip(&datagram);
    }
    // A minute after the last message there is nothing more to say.
    let end = now + Duration::from_secs(60);
    run(&mut responder, &mut now, end, &mut own);
    assert!(responder.is_established() && responder.next_timeout().is_none());
    responder.shut_down();
    run(&mut responder, &mut now, end, &mut own);
    assert!(responder.next_timeout().is_none());
});
