//! The CoAP server machine: the input is cut into datagrams, each from one of a few peers after some time. All that
//! goes out decodes, and nothing grows past its bound.
#![no_main]

use std::{net::SocketAddr, time::Duration};

use fogmux_coap::{
    Code, Message, Outbox, Payload, Response, Server, ServerConfig, Timestamp,
    server::{Notification, RelationId},
};
use libfuzzer_sys::fuzz_target;

fn sum(input: &[u8]) -> [u8; 8] {
    input.iter().fold(3_u64, |sum, byte| sum.wrapping_mul(131).wrapping_add(u64::from(*byte))).to_be_bytes()
}

fuzz_target!(|data: &[u8]| {
    let config = ServerConfig {
        body_bytes_max: 4096,
        peers_max: 4,
        exchanges_per_peer_max: 4,
        exchange_bytes_max: 4096,
        uploads_max: 2,
        uploads_per_peer_max: 2,
        upload_bytes_max: 8192,
        downloads_max: 2,
        download_bytes_max: 8192,
        observers_max: 4,
        observers_per_host_max: 3,
        observers_per_peer_max: 2,
        confirm_every: 3,
        ..ServerConfig::default()
    };
    let mut server = Server::<SocketAddr>::new(config, 1, Box::new(sum));
    let mut now = Timestamp::from_millis(1_000_000);
    let mut relations: Vec<RelationId> = Vec::new();
    let mut rest = data;
    let body = [0x2a; 1500];
    while let Some((&[control, time, length], more)) = rest.split_first_chunk::<3>() {
        let (datagram, more) = more.split_at(usize::from(length).min(more.len()));
        rest = more;
        now = now + Duration::from_millis(u64::from(time) * 97);
        let mut out = Outbox::default();
        if server.next_timeout().is_some_and(|due| due <= now) {
            server.handle_timeout(now, &mut out);
        }
        let host = if control & 1 == 0 { [127, 0, 0, 1] } else { [198, 51, 100, 7] };
        let from = SocketAddr::from((host, 40_000 + u16::from(control >> 1 & 7)));
        if let Some(incoming) = server.handle(now, from, datagram, &mut out) {
            let mut ticket = incoming.ticket;
            let bytes = &body[..if control & 0x80 == 0 { 5 } else { 1500 }];
            if control & 0x40 != 0 {
                server.defer(now, &ticket);
            }
            if let Ok(registered) = server.observe(now, &mut ticket) {
                relations.push(registered.relation());
            }
            let response = Response { payload: Payload::Slice(bytes), ..Response::new(Code::CONTENT) };
            server.respond(now, ticket, &response, &mut out);
        }
        for relation in relations.iter().copied().take(8) {
            let response = Response { payload: Payload::Slice(&body[..20]), ..Response::new(Code::CONTENT) };
            let (confirmable, event) = (control & 0x20 != 0, control & 0x80 != 0);
            let notification = Notification { response, confirmable, encoded: None, event };
            let _ = server.notify(now, relation, &notification, &mut out);
        }
        while server.poll_event().is_some() {}
        for (_, datagram) in out.iter() {
            Message::decode(datagram).expect("what we send is right");
        }
        assert!(server.observers() <= 4 && server.peers() <= 4, "{} {}", server.observers(), server.peers());
    }
});
