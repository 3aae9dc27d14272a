//! OSCORE requests (RFC 8613): freshness and hidden options.

use super::*;

/// Numbers that need not outlive a test.
struct Volatile;

impl fogmux_oscore::SequenceStore for Volatile {
    fn reserve(&self, reservation: Reservation) {
        reservation.is_durable();
    }
}

/// The two ends of a context: a server's, and the file of a client.
fn oscore_pair() -> (Ring, tempfile::TempDir) {
    let of = |sender: &[u8], recipient: &[u8]| Parameters {
        master_secret: vec![7; 16].into(),
        master_salt: Vec::new(),
        id_context: None,
        sender_id: Id::new(sender).unwrap(),
        recipient_id: Id::new(recipient).unwrap(),
        algorithm: Algorithm::default(),
    };
    let start = Start { next: 0, durable: 0, requests: Requests::Unknown { echo: *b"01234567" } };
    let server = Oscore::new("dev".into(), &of(b"s", b"c"), start, Arc::new(Volatile)).unwrap();
    server.prepare();
    let mut ring = Ring::default();
    ring.add(server).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let text = fogmux_oscore::file::toml::write(None, &of(b"c", b"s"));
    std::fs::write(directory.path().join("publisher-0.toml"), text.as_bytes()).unwrap();
    (ring, directory)
}

#[test]
fn oscore_proves_that_it_is_fresh_and_hides_the_path() {
    let (ring, directory) = oscore_pair();
    run(async {
        let mut hand = Hand::new().await;
        let address = hand.address();
        let path = directory.path().to_owned();
        let asking = tokio::task::spawn_local(async move {
            let experiment = Experiment { security: "oscore".parse().unwrap(), ..experiment() };
            let access = Access { oscore: Some(path), ..access(address) };
            let driver = CoapDriver::new(Door::Coap, &experiment, &access).unwrap();
            let mut client = driver.connect(Role::Publisher, 0).await.unwrap().client;
            let mut heard = Heard::default();
            client.submit(Request::Publish { topic: "t", payload: b"hello" }, 7).unwrap();
            drive(&mut *client, &mut heard, |heard| heard.done.len() == 1).await.unwrap();
            (heard, client.bytes())
        });
        for turn in 0..2 {
            let heard = timeout(Duration::from_secs(5), hand.socket.recv_from(&mut hand.buffer)).await;
            let (length, from) = heard.expect("something").unwrap();
            let outer = Message::decode(&hand.buffer[..length]).unwrap();
            assert!(outer.option(OptionNumber::URI_PATH).is_none());
            let mut inner = Vec::new();
            let (exchange, echo) = match (turn, ring.open_request(Timestamp::ZERO, &outer, &mut inner).unwrap()) {
                (0, Opened::Unproven(exchange, echo)) => (exchange, Some(echo)),
                (1, Opened::Request(exchange)) => (exchange, None),
                (_, other) => panic!("{other:?}"),
            };
            if echo.is_none() {
                // A request whose freshness is not proven is not opened.
                let request = Message::decode(&inner).unwrap();
                assert_eq!((request.code, request.payload()), (Code::PUT, b"hello".as_slice()));
            }
            let code = if echo.is_some() { Code::UNAUTHORIZED } else { Code::CHANGED };
            let (mut plain, mut sealed) = (Vec::new(), Vec::new());
            let encoder = Encoder::new(&mut plain, Type::Acknowledgement, code, outer.message_id, &outer.token);
            match &echo {
                Some(echo) => encoder.option(OptionNumber::ECHO, echo).finish(),
                None => encoder.finish(),
            }
            exchange.seal(&Message::decode(&plain).unwrap(), &mut sealed).unwrap();
            hand.socket.send_to(&sealed, from).await.unwrap();
        }
        let (heard, bytes) = asking.await.unwrap();
        assert_eq!(heard.done.get(&7), Some(&Ok(Vec::new())));
        assert!(bytes.socket_up > bytes.protocol_up, "{bytes:?}");
    });
    let left = std::fs::read_to_string(directory.path().join("publisher-0.toml.sequence")).unwrap();
    assert_eq!(left.trim(), "2", "what was not used is given back");
}
