//! Bytes that may be sent to an address that a session has moved to (RFC 9147 §9, RFC 9146 §6).

use super::{net::Net, peer::Offer, *};

#[test]
fn s9_no_more_goes_to_a_new_address_than_three_times_what_came_from_there() {
    let mut net = Net::psk(Offer { cid: Some(Vec::new()), ..device() });
    assert!(net.shake());
    net.exchange();
    let association = net.inbox.events().find_map(|event| match event {
        Event::Established { association, .. } => Some(association),
        Event::Data { .. } | Event::Moved { .. } | Event::Ended { .. } | Event::Failed { .. } => None,
    });
    let association = association.unwrap();
    net.from = address(7000);
    let datagram = net.client.seal(Content::ApplicationData, &[1; 60]);
    net.arrive(&datagram);
    assert!(
        net.inbox
            .events()
            .any(|event| { event == Event::Moved { peer: address(5000), association, validated: false } })
    );
    let (mut sent, mut outcomes) = (0, Vec::new());
    for size in [400].into_iter().chain([30; 100]) {
        let send = &mut |to, bytes: &[u8]| {
            assert_eq!(to, address(7000));
            sent += bytes.len();
        };
        outcomes.push(net.server.send(net.now, address(5000), association, &vec![2; size], send));
    }
    assert!(sent <= 3 * datagram.len() && sent > 2 * datagram.len(), "{sent} for {}", datagram.len());
    assert_eq!((outcomes[0], outcomes[1], outcomes[100]), (Sent::Withheld, Sent::Yes, Sent::Withheld));
    // Once it is known to receive there, all that is said goes.
    net.server.validate(address(5000), association);
    for _ in 0..100 {
        assert_eq!(net.server.send(net.now, address(5000), association, &[2; 400], &mut |_, _| ()), Sent::Yes);
    }
    // And the next address is another.
    net.from = address(8000);
    let datagram = net.client.seal(Content::ApplicationData, &[1; 60]);
    net.arrive(&datagram);
    assert_eq!(net.server.send(net.now, address(5000), association, &[2; 400], &mut |_, _| ()), Sent::Withheld);
    // At home it is known to receive.
    net.from = address(5000);
    let datagram = net.client.seal(Content::ApplicationData, &[1; 60]);
    net.arrive(&datagram);
    assert_eq!(net.server.send(net.now, address(5000), association, &[2; 400], &mut |_, _| ()), Sent::Yes);
}

#[test]
fn s9_what_validates_a_new_address_fits_at_any_time() {
    let mut net = Net::psk(Offer { cid: Some(Vec::new()), ..device() });
    assert!(net.shake());
    net.exchange();
    let of = |event| if let Event::Established { association, .. } = event { Some(association) } else { None };
    let association = net.inbox.events().find_map(of).unwrap();
    for (number, size) in (1..200).enumerate() {
        net.from = address(7000 + u16::try_from(number).unwrap());
        // The least that a client can say: a CoAP message without token.
        let datagram = net.client.seal(Content::ApplicationData, &[1; 4]);
        net.arrive(&datagram);
        for _ in 0..10 {
            let _ = net.server.send(net.now, address(5000), association, &vec![2; size + 60], &mut |_, _| ());
        }
        assert_eq!(net.server.send(net.now, address(5000), association, &[2; 4], &mut |_, _| ()), Sent::Yes, "{size}");
    }
}

/// The lengths of what went to an address.
fn sent_to(net: &Net, to: SocketAddr) -> usize {
    net.to_client.iter().filter(|(at, _)| *at == to).map(|(_, datagram)| datagram.len()).sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn s9_whatever_is_said_no_more_than_three_times_goes_to_an_address_that_proves_nothing(
        steps in prop::collection::vec(0..7_u8, 1..40),
        end in 0..3_u8,
    ) {
        let mut net = Net::psk(Offer { cid: Some(vec![9; 32]), ..device() });
        prop_assert!(net.shake());
        net.exchange();
        let of = |event| if let Event::Established { association, .. } = event { Some(association) } else { None };
        let association = net.inbox.events().find_map(of).unwrap();
        net.from = address(7000);
        net.to_client.clear();
        let (mut came, mut last) = (0, Vec::new());
        for step in steps {
            let datagram = match step {
                // A KeyUpdate of its own, which is acknowledged, and that asks for one of ours.
                0 | 1 => {
                    net.client.update(net.now, step == 1);
                    net.client.poll().unwrap_or_default()
                }
                // The same record again, and a message that was heard.
                2 => last.clone(),
                3 => net.client.seal(Content::Handshake, &[24, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0]),
                4 => net.client.seal(Content::ApplicationData, b""),
                // Nobody acknowledges.
                5 => {
                    net.now += Duration::from_secs(9);
                    let out = &mut net.to_client;
                    let send = &mut |to, bytes: &[u8]| out.push_back((to, bytes.to_vec()));
                    net.server.handle_timeout(net.now, &mut net.inbox, send);
                    continue;
                }
                _ => {
                    let out = &mut net.to_client;
                    let send = &mut |to, bytes: &[u8]| out.push_back((to, bytes.to_vec()));
                    // As much as may go.
                    while net.server.send(net.now, address(5000), association, b"answer", send) == Sent::Yes
                        && came > 0
                    {}
                    continue;
                }
            };
            came += datagram.len();
            net.arrive(&datagram);
            last = datagram;
            prop_assert!(sent_to(&net, address(7000)) <= 3 * came, "{} for {came}", sent_to(&net, address(7000)));
        }
        if end == 0 {
            let datagram = net.client.seal(Content::Alert, &[1, 0]);
            came += datagram.len();
            net.arrive(&datagram);
        } else if end == 1 {
            let out = &mut net.to_client;
            let send = &mut |to, bytes: &[u8]| out.push_back((to, bytes.to_vec()));
            net.server.close(address(5000), association, &mut net.inbox, send);
        }
        prop_assert!(sent_to(&net, address(7000)) <= 3 * came, "{} for {came}", sent_to(&net, address(7000)));
    }
}

#[test]
fn s9_what_a_new_address_asks_for_goes_there_at_once() {
    let mut net = Net::psk(Offer { cid: Some(Vec::new()), ..device() });
    assert!(net.shake());
    net.exchange();
    net.from = address(7000);
    net.client.update(net.now, true);
    let update = net.client.poll().unwrap();
    net.arrive(&update);
    assert!(net.to_client.iter().any(|(to, _)| *to == address(7000)), "the first record from there is acknowledged");
    net.travel();
    net.exchange();
}
