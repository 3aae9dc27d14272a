//! Bytes that go to an address to which a session of DTLS 1.2 has moved (RFC 9146 §6).

use super::{
    super::*,
    keys::psk_keys,
    net::{Net, address, endpoint},
};
use crate::{client::ClientConfig, wire::ContentType};

#[test]
fn s6_no_more_than_three_times_goes_to_an_address_that_proves_nothing() {
    // A Finished of no bytes, which asks for our last flight; a ClientHello, which is refused; the end.
    let (finished, hello) = ([20, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0], [1, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0]);
    for rounds in 0..4 {
        for end in [None, Some(&[1, 0][..]), Some(&[1][..])] {
            let suites = vec![Suite::PskAes128Ccm8];
            let config = ClientConfig { suites, identifiers: true, ..ClientConfig::psk(b"device", b"secret") };
            let mut net = Net::new(endpoint(psk_keys(), EndpointConfig::default()).identified_by(5), config);
            assert!(net.shake());
            net.exchange();
            let association = net.association();
            net.port = 7000;
            let records = (0..rounds).flat_map(|_| [&finished[..], &hello[..]]);
            let records = records.map(|inner| (ContentType::Handshake, inner));
            let all = records.chain(end.map(|inner| (ContentType::Alert, inner)));
            let mut came = 0;
            for (content, inner) in all.collect::<Vec<_>>() {
                let mut record = Vec::new();
                net.client.session_of_12().unwrap().seal(content, inner, &mut record).unwrap();
                came += record.len();
                net.arrive(true, &record);
                // And data, as much as may go.
                let out = &mut net.to_client;
                let send = &mut |_, bytes: &[u8]| out.push_back(bytes.to_vec());
                while net.server.send(net.now, address(5000), association, b"data", send) == Sent::Yes {}
                let sent: usize = net.to_client.iter().map(Vec::len).sum();
                assert!(sent <= 3 * came, "{sent} bytes for {came}");
            }
            assert_eq!(net.server.slot_at(&address(7000)).is_some(), end.is_none() && rounds > 0, "it has moved");
            assert!(rounds == 0 || !net.to_client.is_empty(), "what is asked for goes there within that");
        }
    }
}
