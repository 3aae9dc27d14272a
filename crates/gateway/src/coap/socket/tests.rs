//! Sockets of the loopback interface.

use std::{future::poll_fn, time::Duration};

use super::*;

fn pair() -> (Socket, UdpSocket) {
    pair_at("127.0.0.1:0", "127.0.0.1".parse().unwrap())
}

/// A socket bound to `ours`, and one that takes only what comes from `asked`.
fn pair_at(ours: &str, asked: std::net::IpAddr) -> (Socket, UdpSocket) {
    let ours = UdpSocket::bind(ours).unwrap();
    let theirs = UdpSocket::bind((asked, 0)).unwrap();
    theirs.connect((asked, ours.local_addr().unwrap().port())).unwrap();
    theirs.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    (Socket::new(ours).unwrap(), theirs)
}

async fn receive(socket: &mut Socket) -> Vec<Vec<u8>> {
    let received = poll_fn(|cx| socket.poll_receive(cx));
    tokio::time::timeout(Duration::from_secs(5), received).await.unwrap().unwrap();
    socket.datagrams().map(|(_, datagram)| datagram.to_vec()).collect()
}

#[tokio::test]
async fn after_few_datagrams_and_after_many_the_next_is_announced() {
    let (mut socket, theirs) = pair();
    for count in [1, 2, FEW, FEW + 1, BATCH_SIZE, BATCH_SIZE + 1, 3, 1, 1] {
        let sent: Vec<_> = (0..count).map(|number| number.to_string().into_bytes()).collect();
        for datagram in &sent {
            theirs.send(datagram).unwrap();
        }
        let mut received = Vec::new();
        while received.len() < count {
            received.extend(receive(&mut socket).await);
        }
        assert_eq!(received, sent);
    }
}

#[tokio::test]
async fn one_that_comes_between_reading_and_sleeping_is_announced() {
    let (mut socket, theirs) = pair();
    for _ in 0..1000 {
        theirs.send(b"first").unwrap();
        assert_eq!(receive(&mut socket).await, [b"first"]);
        theirs.send(b"second").unwrap();
        assert_eq!(receive(&mut socket).await, [b"second"]);
    }
}

#[tokio::test]
async fn one_and_many_are_sent_in_their_order() {
    let (mut socket, theirs) = pair();
    let path = Path { remote: theirs.local_addr().unwrap(), local: None, association: 0 };
    for count in [1, 2, BATCH_SIZE, BATCH_SIZE * 3 + 1] {
        let mut out = Outbox::default();
        (0..count).for_each(|number| out.push(path, number.to_string().as_bytes()));
        let bytes = poll_fn(|cx| socket.poll_send(cx, &mut out)).await;
        assert!(out.is_empty());
        let mut seen = 0;
        for number in 0..count {
            let mut buffer = [0; 16];
            let length = theirs.recv(&mut buffer).unwrap();
            assert_eq!(buffer[..length], *number.to_string().as_bytes());
            seen += length as u64;
        }
        assert_eq!(bytes, seen);
    }
}

#[tokio::test]
async fn a_socket_of_all_addresses_answers_from_the_one_that_was_asked() {
    let other_v4 = "127.0.0.77".parse().unwrap();
    let pairs = [("0.0.0.0:0", other_v4), ("[::]:0", other_v4), ("[::]:0", "::1".parse().unwrap())];
    for (ours, asked) in pairs {
        let (mut socket, theirs) = pair_at(ours, asked);
        theirs.send(b"who?").unwrap();
        assert_eq!(receive(&mut socket).await, [b"who?"]);
        let path = socket.datagrams().next().unwrap().0;
        assert_eq!(path.local.map(|local| local.to_canonical()), Some(asked));
        for count in [1, BATCH_SIZE * 2 + 3] {
            let mut out = Outbox::default();
            (0..count).for_each(|number| out.push(path, number.to_string().as_bytes()));
            poll_fn(|cx| socket.poll_send(cx, &mut out)).await;
            for number in 0..count {
                let mut buffer = [0; 16];
                let length = theirs.recv(&mut buffer).unwrap();
                assert_eq!(buffer[..length], *number.to_string().as_bytes(), "{ours} for {asked}");
            }
        }
    }
}

#[tokio::test]
async fn those_who_asked_different_addresses_are_answered_from_these() {
    let (mut socket, first) = pair_at("0.0.0.0:0", "127.0.0.77".parse().unwrap());
    let port = first.peer_addr().unwrap().port();
    let second = UdpSocket::bind("127.0.0.78:0").unwrap();
    second.connect(("127.0.0.78", port)).unwrap();
    second.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut out = Outbox::default();
    for (asker, text) in [(&first, "1"), (&second, "2"), (&first, "3")] {
        asker.send(text.as_bytes()).unwrap();
        receive(&mut socket).await;
        let path = socket.datagrams().next().unwrap().0;
        out.push(path, text.as_bytes());
    }
    poll_fn(|cx| socket.poll_send(cx, &mut out)).await;
    for (asker, text) in [(&first, "1"), (&second, "2"), (&first, "3")] {
        let mut buffer = [0; 16];
        let length = asker.recv(&mut buffer).unwrap();
        assert_eq!(buffer[..length], *text.as_bytes());
    }
}

#[tokio::test]
async fn room_is_waited_for_only_while_there_is_none() {
    let (mut socket, _theirs) = pair();
    poll_fn(|cx| socket.poll_room(cx)).await.unwrap();
    assert!(socket.full.is_none());
}
