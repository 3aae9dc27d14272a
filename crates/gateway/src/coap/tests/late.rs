//! Answers that wait for the store, to a client that acknowledges nothing.

use std::sync::Mutex;

use fogmux_bus::{Completer, Completion, Message as Kept, Stored, Topic};
use fogmux_coap::{Encoder, Message, OptionNumber, Token, Type};

use super::*;

/// A store whose writes complete when the test says so.
#[derive(Clone, Default)]
pub(super) struct Late(Arc<Mutex<Vec<Arc<Completer>>>>);

impl Late {
    /// Everything is on the disk.
    pub(super) fn complete(&self) {
        self.0.lock().unwrap().drain(..).for_each(|completer| completer.complete(Ok(())));
    }

    fn completion(&self) -> Completion {
        let completer = Arc::<Completer>::default();
        self.0.lock().unwrap().push(Arc::clone(&completer));
        Completion::Waiting(completer)
    }
}

impl RetainedStore for Late {
    fn put(&self, _: &Arc<Kept>, _: Option<u64>, _: Option<&Arc<Kept>>) -> Completion {
        self.completion()
    }

    fn remove(&self, _: &Topic, _: Option<&Arc<Kept>>) -> Completion {
        self.completion()
    }

    fn pending(&self, _: &str) -> Completion {
        Completion::Ready
    }

    fn load(&self, _: &mut dyn FnMut(Stored)) {}
}

/// The bytes that come until nothing has come for `quiet`.
async fn received(socket: &UdpSocket, quiet: Duration) -> usize {
    let (mut buffer, mut bytes) = (vec![0; 2048], 0);
    while let Ok(length) = tokio::time::timeout(quiet, socket.recv(&mut buffer)).await {
        bytes += length.unwrap();
    }
    bytes
}

#[test]
fn rfc9175_s2_4_a_late_answer_to_an_unproven_address_has_at_most_three_times_the_bytes_of_its_request() {
    let store = Late::default();
    let config = CoapConfig {
        amplification: Amplification::All,
        ack_timeout: Duration::from_millis(30),
        ..CoapConfig::default()
    };
    run_on(Box::new(store.clone()), config, true, async |house| {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        socket.connect(house.address).await.unwrap();
        // A Confirmable PUT of /ps/a with a token of eight bytes, and "x".
        let put = b"\x48\x03\x00\x01tokentok\xb2ps\x01a\xffx";
        socket.send(put).await.unwrap();
        // The acknowledgement comes after half a second.
        let mut bytes = received(&socket, Duration::from_millis(900)).await;
        assert_eq!(bytes, 4, "an Empty acknowledgement");
        store.complete();
        bytes += received(&socket, Duration::from_millis(900)).await;
        assert!(bytes > 4 + 12 && bytes <= 3 * put.len(), "{bytes} bytes for {}", put.len());
    });
}

/// A client on an address of loopback.
async fn host(house: &House, address: &str) -> UdpSocket {
    let socket = UdpSocket::bind((address, 0)).await.unwrap();
    socket.connect(house.address).await.unwrap();
    socket
}

/// A request for /ps/T, where T is two letters, with its number as identifier and token.
fn request(kind: Type, method: Code, number: u16, topic: [u8; 2], more: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let token = Token::new(&number.to_be_bytes()).unwrap();
    let encoder = Encoder::new(&mut bytes, kind, method, number, &token);
    let mut encoder = encoder.option(OptionNumber::URI_PATH, b"ps").option(OptionNumber::URI_PATH, &topic);
    if !more.is_empty() {
        encoder.push(OptionNumber::NO_RESPONSE, more);
    }
    encoder.payload(if method == Code::DELETE { &[] } else { b"x" });
    bytes
}

/// The next response, which is acknowledged if it has to be, and its token.
async fn response(socket: &UdpSocket) -> (Code, u16) {
    let mut buffer = [0; 2048];
    loop {
        let length = socket.recv(&mut buffer).await.unwrap();
        let message = Message::decode(&buffer[..length]).unwrap();
        if message.kind == Type::Confirmable {
            let [high, low] = message.message_id.to_be_bytes();
            socket.send(&[0x60, 0, high, low]).await.unwrap();
        }
        if message.code != Code::EMPTY {
            return (message.code, u16::from_be_bytes(message.token.as_slice().try_into().unwrap()));
        }
    }
}

#[test]
fn rfc7252_s5_2_2_of_many_confirmable_requests_under_way_each_is_answered_or_refused_before_it_is_published() {
    let store = Late::default();
    let config = CoapConfig { exchanges_per_peer_max: 2, ..CoapConfig::default() };
    run_on(Box::new(store.clone()), config, true, async |house| {
        let socket = host(&house, "127.0.0.1").await;
        for number in 0..100_u16 {
            let topic = [b'a' + u8::try_from(number / 10).unwrap(), b'0' + u8::try_from(number % 10).unwrap()];
            socket.send(&request(Type::Confirmable, Code::PUT, number, topic, b"")).await.unwrap();
        }
        let mut answers = std::collections::BTreeMap::new();
        while answers.len() < 100 {
            let few = tokio::time::timeout(Duration::from_secs(2), response(&socket)).await;
            let Ok((code, number)) = few else {
                // Nothing more is refused: what was published has its Empty acknowledgements by now.
                assert!(!store.0.lock().unwrap().is_empty(), "{} of 100 are answered", answers.len());
                store.complete();
                continue;
            };
            assert_eq!(answers.insert(number, code), None, "answered twice");
        }
        let made = answers.values().filter(|code| **code == Code::CREATED).count();
        let refused = answers.values().filter(|code| **code == Code::TOO_MANY_REQUESTS).count();
        assert_eq!((made, refused), (32, 68));
        assert_eq!(house.ctx.bus().retained_size().0, 32);
    });
}

#[test]
fn a_peer_that_publishes_much_while_the_disk_is_slow_is_refused_before_others() {
    let store = Late::default();
    let config = CoapConfig { pending_max: 20, ..CoapConfig::default() };
    run_on(Box::new(store.clone()), config, true, async |house| {
        let (hog, other) = (host(&house, "127.0.0.1").await, host(&house, "127.0.0.2").await);
        for number in 0..40_u16 {
            let topic = [b'a' + u8::try_from(number / 10).unwrap(), b'0' + u8::try_from(number % 10).unwrap()];
            hog.send(&request(Type::NonConfirmable, Code::PUT, number, topic, &[26])).await.unwrap();
        }
        hog.send(&request(Type::Confirmable, Code::PUT, 40, *b"zz", b"")).await.unwrap();
        assert_eq!(response(&hog).await, (Code::TOO_MANY_REQUESTS, 40));
        // Nothing of this is written.
        for (number, method, code) in [(41, Code::POST, Code::CHANGED), (42, Code::DELETE, Code::DELETED)] {
            for socket in [&hog, &other] {
                socket.send(&request(Type::Confirmable, method, number, *b"no", b"")).await.unwrap();
                assert_eq!(response(socket).await, (code, number));
            }
        }
        other.send(&request(Type::Confirmable, Code::PUT, 43, *b"yy", b"")).await.unwrap();
        while house.ctx.bus().latest("yy", house.ctx.now()).is_none() {
            tokio::task::yield_now().await;
        }
        store.complete();
        assert_eq!(response(&other).await, (Code::CREATED, 43));
        let refused = house.ctx.shared.metrics.shares.each_refused().find(|(table, _)| *table == "coap_pending");
        assert_eq!(refused, Some(("coap_pending", 21)));
        hog.send(&request(Type::Confirmable, Code::PUT, 44, *b"zz", b"")).await.unwrap();
        while house.ctx.bus().latest("zz", house.ctx.now()).is_none() {
            tokio::task::yield_now().await;
        }
        store.complete();
        assert_eq!(response(&hog).await, (Code::CREATED, 44), "there is room again");
    });
}
