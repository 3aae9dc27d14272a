//! The client against a socket that answers as a test tells it.

use fogmux_coap::{Encoder, Message, OptionNumber, Type};
use fogmux_oscore::file::toml;
use fogmux_oscore::{Algorithm, Context, Id, Opened, Parameters, Requests, Reservation, Ring, SequenceStore, Start};

use super::*;

/// Sends a message with the token of the registration.
async fn send(server: &UdpSocket, to: SocketAddr, request: &[u8], kind: Type, code: Code, observe: Option<u8>) {
    let request = Message::decode(request).unwrap();
    let message_id = request.message_id.wrapping_add(u16::from(kind != Type::Acknowledgement));
    let mut datagram = Vec::new();
    let mut encoder = Encoder::new(&mut datagram, kind, code, message_id, &request.token);
    observe.iter().for_each(|number| encoder.push(OptionNumber::OBSERVE, &[*number]));
    encoder.payload(&[]);
    server.send_to(&datagram, to).await.unwrap();
}

#[tokio::test]
async fn an_error_ends_the_subscription() {
    let server = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let url: Url = format!("coap://{}/sensors/#", server.local_addr().unwrap()).parse().unwrap();
    let options = Options::default();
    let gateway = async {
        let mut buffer = [0; 1500];
        let (length, client) = server.recv_from(&mut buffer).await.unwrap();
        send(&server, client, &buffer[..length], Type::Acknowledgement, Code::CONTENT, Some(1)).await;
        send(&server, client, &buffer[..length], Type::Confirmable, Code::SERVICE_UNAVAILABLE, None).await;
    };
    let client = async { subscribe(&url, &options).await.ok().unwrap().next().await };
    let both = async { tokio::join!(client, gateway).0 };
    let next = tokio::time::timeout(Duration::from_secs(60), both).await.expect("it waits for ever");
    assert!(matches!(next, Err(ClientError::Unavailable(_))), "{:?}", next.err());
}

#[tokio::test]
async fn after_5_03_with_max_age_the_observation_is_registered_again() {
    let server = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let url: Url = format!("coap://{}/sensors/#", server.local_addr().unwrap()).parse().unwrap();
    let options = Options::default();
    let gateway = async {
        let registrations = [Code::CONTENT, Code::SERVICE_UNAVAILABLE, Code::CONTENT];
        let (mut buffer, mut at) = ([0; 1500], Vec::new());
        for answer in registrations {
            let (request, client) = loop {
                let (length, client) = server.recv_from(&mut buffer).await.unwrap();
                if Message::decode(&buffer[..length]).unwrap().code == Code::FETCH {
                    break (buffer[..length].to_vec(), client);
                }
            };
            at.push(Instant::now());
            let request = Message::decode(&request).unwrap();
            assert_eq!(request.option(OptionNumber::OBSERVE).and_then(|option| option.uint()), Some(0));
            let reply = |kind, code, observe: Option<u8>, max_age: Option<u8>, name: &str| {
                let message_id = request.message_id.wrapping_add(u16::from(kind != Type::Acknowledgement));
                let mut datagram = Vec::new();
                let mut encoder = Encoder::new(&mut datagram, kind, code, message_id, &request.token);
                observe.iter().for_each(|number| encoder.push(OptionNumber::OBSERVE, &[*number]));
                if !name.is_empty() {
                    encoder.push(OptionNumber::LOCATION_PATH, b"ps");
                    encoder.push(OptionNumber::LOCATION_PATH, name.as_bytes());
                }
                max_age.iter().for_each(|seconds| encoder.push(OptionNumber::MAX_AGE, &[*seconds]));
                encoder.payload(name.as_bytes());
                datagram
            };
            let refused = answer == Code::SERVICE_UNAVAILABLE;
            let observe = (!refused).then_some(1);
            // Zero seconds are a second, too.
            let first = reply(Type::Acknowledgement, answer, observe, refused.then_some(0), "");
            server.send_to(&first, client).await.unwrap();
            if at.len() == 1 {
                let end = reply(Type::Confirmable, Code::SERVICE_UNAVAILABLE, None, Some(1), "");
                server.send_to(&end, client).await.unwrap();
            } else if !refused {
                server.send_to(&reply(Type::Confirmable, answer, Some(2), None, "a"), client).await.unwrap();
            }
        }
        at
    };
    let client = async { subscribe(&url, &options).await.ok().unwrap().next().await };
    let both = async { tokio::join!(client, gateway) };
    let (next, at) = tokio::time::timeout(Duration::from_secs(60), both).await.expect("it waits for ever");
    assert_eq!(next.unwrap().topic, "a");
    assert!(at.windows(2).all(|pair| pair[1] - pair[0] >= RETRY_MIN), "{at:?}");
}

/// Numbers that need not outlive a test.
struct Volatile;

impl SequenceStore for Volatile {
    fn reserve(&self, reservation: Reservation) {
        reservation.is_durable();
    }
}

/// The server's end of a context, and the directory of the client's `context.toml`.
fn context() -> (Ring, tempfile::TempDir) {
    let of = |sender: &[u8], recipient: &[u8]| Parameters {
        master_secret: vec![7; 16].into(),
        master_salt: Vec::new(),
        id_context: None,
        sender_id: Id::new(sender).unwrap(),
        recipient_id: Id::new(recipient).unwrap(),
        algorithm: Algorithm::default(),
    };
    let start = Start { next: 0, durable: 0, requests: Requests::SeenBelow(0) };
    let mut ring = Ring::default();
    ring.add(Context::new("dev".into(), &of(b"s", b"c"), start, Arc::new(Volatile)).unwrap()).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let text = toml::write(None, &of(b"c", b"s"));
    std::fs::write(directory.path().join("context.toml"), text.as_bytes()).unwrap();
    (ring, directory)
}

/// Asks for `/ps/a` under the context; the server answers with what `answer` makes of the request.
async fn ask_protected(
    directory: &tempfile::TempDir,
    answer: impl Fn(&Message<'_>) -> Vec<u8>,
) -> Result<(bool, Answer), ClientError> {
    let server = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let url: Url = format!("coap://{}/a", server.local_addr().unwrap()).parse().unwrap();
    let reserved = Reserved::read(&directory.path().join("context.toml"), 1000).unwrap();
    let protection = RequestProtection(Arc::clone(reserved.context()));
    let mut exchange = Exchange {
        link: Exchange::link(&url, &Options::default()).await.unwrap(),
        client: Client::with(ClientConfig::default(), 7, Some(protection)),
        out: Outbox::default(),
        started: Instant::now(),
        oscore: Some(reserved),
        confirmable_above: None,
        warned: 0,
    };
    let serve = async {
        let mut buffer = [0; 1500];
        let (length, client) = server.recv_from(&mut buffer).await.unwrap();
        let request = Message::decode(&buffer[..length]).unwrap();
        assert!(request.option(OptionNumber::URI_PATH).is_none());
        server.send_to(&answer(&request), client).await.unwrap();
    };
    let ask = async {
        exchange.ask(call(Code::GET, "a").unwrap()).await?;
        exchange.answer().await
    };
    let both = async { tokio::join!(ask, serve).0 };
    tokio::time::timeout(Duration::from_secs(60), both).await.expect("it waits for ever")
}

#[tokio::test]
async fn a_protected_answer_is_opened_and_unused_numbers_are_given_back() {
    let (ring, directory) = context();
    let answered = ask_protected(&directory, |request| {
        let (mut inner, mut plain, mut sealed) = (Vec::new(), Vec::new(), Vec::new());
        let Ok(Opened::Request(exchange)) = ring.open_request(Timestamp::ZERO, request, &mut inner) else {
            panic!("not opened");
        };
        let (id, token) = (request.message_id, request.token);
        Encoder::new(&mut plain, Type::Acknowledgement, Code::CONTENT, id, &token).payload(b"21.5");
        exchange.seal(&Message::decode(&plain).unwrap(), &mut sealed).unwrap();
        sealed
    });
    assert_eq!(answered.await.unwrap().1.payload, b"21.5".as_slice());
    let left = std::fs::read_to_string(directory.path().join("context.toml.sequence")).unwrap();
    assert_eq!(left.trim(), "1");
}

#[tokio::test]
async fn an_error_without_protection_is_told() {
    let (_, directory) = context();
    let refused = ask_protected(&directory, |request| {
        let mut out = Vec::new();
        let (id, token) = (request.message_id, request.token);
        let encoder = Encoder::new(&mut out, Type::Acknowledgement, Code::UNAUTHORIZED, id, &token);
        encoder.payload(b"Security context not found");
        out
    });
    let said = "4.01 without protection: Security context not found";
    assert!(matches!(refused.await, Err(ClientError::Refused(text)) if text == said));
}
