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
