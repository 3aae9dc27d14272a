//! The CoAP client machine against a server that says anything: requests of every kind are under way, the input is cut
//! into datagrams with our own identifiers and tokens written over theirs, so that they are heard.
#![no_main]

use std::time::Duration;

use bytes::Bytes;
use fogmux_coap::{
    Code, Message, Outbox, Timestamp,
    client::{Call, Client, ClientConfig},
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let config = ClientConfig { body_bytes_max: 8192, ..ClientConfig::default() };
    let mut client = Client::new(config, 7);
    let mut now = Timestamp::from_millis(1_000_000);
    let mut out = Outbox::default();
    client.request(now, Call { observe: true, ..Call::new(Code::GET, "/ps/a") }, &mut out);
    client.request(now, Call { payload: Bytes::from(vec![7; 3000]), ..Call::new(Code::PUT, "/ps/b") }, &mut out);
    let mut rest = data;
    while let Some((&[control, time, length], more)) = rest.split_first_chunk::<3>() {
        let (datagram, more) = more.split_at(usize::from(length).min(more.len()));
        rest = more;
        now = now + Duration::from_millis(u64::from(time) * 97);
        let mut datagram = datagram.to_vec();
        let sent: Vec<Vec<u8>> = out.iter().map(|(_, sent)| sent.to_vec()).collect();
        if let Some(sent) = sent.get(usize::from(control & 3)) {
            // Message ID, and the token where there is as much.
            if control & 0x80 == 0 && datagram.len() >= 4 {
                datagram[2..4].copy_from_slice(&sent[2..4]);
            }
            let token = 4..4 + usize::from(sent[0] & 0xf);
            if control & 0x40 == 0 && datagram.len() >= token.end {
                datagram[0] = datagram[0] & 0xf0 | sent[0] & 0xf;
                datagram[token.clone()].copy_from_slice(&sent[token]);
            }
        }
        client.handle(now, &datagram, &mut out);
        if client.next_timeout().is_some_and(|due| due <= now) {
            client.handle_timeout(now, &mut out);
        }
        while client.poll_event().is_some() {}
        out.iter().for_each(|(_, sent)| assert!(Message::decode(sent).is_ok(), "what we send is right"));
        if out.len() > 16 {
            out = Outbox::default();
        }
    }
});
