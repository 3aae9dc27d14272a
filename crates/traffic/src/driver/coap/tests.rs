//! The driver against a small origin over real sockets, and against a hand that answers as it likes.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use fogmux_coap::message::Type;
use fogmux_coap::server::Room;
use fogmux_coap::stream::{Frame, Framing, Heard as Received, Session, SessionConfig};
use fogmux_coap::{Code, Encoder, Message, OptionNumber, Outbox, Response, Server, ServerConfig};
use fogmux_oscore::{Algorithm, Context as Oscore, Id, Opened, Parameters, Requests, Reservation, Ring, Start};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::runtime::{Builder, LocalOptions};

use super::*;
use crate::experiment::{CoapAnswer, Operation, Qos, Security};
use crate::origin::{Keys, Origin, OriginConfig};

const LOOPBACK: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
const KEY: &[u8] = b"a key of 16 byte";

/// The answers to requests, by tag, and the messages received.
#[derive(Default)]
struct Heard {
    done: BTreeMap<u64, Result<Vec<u8>, String>>,
    messages: Vec<Vec<u8>>,
}

impl Sink for Heard {
    fn done(&mut self, tag: u64, answer: Answer<'_>) {
        let answer = match answer {
            Answer::Success(payload) => Ok(payload.to_vec()),
            Answer::Refused(why) => Err(why.to_owned()),
            Answer::Lost => Err("lost".to_owned()),
        };
        assert!(self.done.insert(tag, answer).is_none(), "{tag} was answered twice");
    }

    fn message(&mut self, payload: &[u8]) {
        self.messages.push(payload.to_vec());
    }
}

/// Drives a client until `enough`.
async fn drive(client: &mut dyn Client, heard: &mut Heard, enough: impl Fn(&Heard) -> bool) -> Result<(), DriverError> {
    let until = std::future::poll_fn(|cx| {
        while !enough(heard) {
            match client.poll_turn(cx, heard) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(Ok(()))
    });
    timeout(Duration::from_secs(20), until).await.expect("in time")
}

fn experiment() -> Experiment {
    Experiment { door: Door::Coap, operation: Operation::Put, qos: Qos::AtLeastOnce, ..Experiment::default() }
}

fn access(address: SocketAddr) -> Access {
    Access {
        host: address.ip().to_string(),
        port: address.port(),
        name: "localhost".to_owned(),
        psk: Some(("dev".to_owned(), KEY.to_vec().into())),
        ..Access::default()
    }
}

/// A driver that waits for no second before it repeats.
fn quick(experiment: &Experiment, address: SocketAddr) -> CoapDriver {
    let driver = CoapDriver::new(experiment.door, experiment, &access(address)).unwrap();
    let ack_timeout = Duration::from_millis(50);
    let transmission = Transmission { ack_timeout, ack_random_percent: 100, max_retransmit: 3, ..driver.transmission };
    CoapDriver { transmission, ..driver }
}

fn run(test: impl Future<Output = ()>) {
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default()).unwrap();
    runtime.block_on(test);
}

async fn origin(config: OriginConfig) -> SocketAddr {
    let origin = Origin::bind(LOOPBACK, config).await.unwrap();
    let address = origin.address().unwrap();
    tokio::task::spawn_local(origin.serve());
    address
}

/// Publishes, asks and follows, small and large.
async fn everything(experiment: &Experiment, config: OriginConfig) -> (Bytes, Bytes, String) {
    let driver = quick(experiment, origin(config).await);
    let Connected { client: mut reader, cipher, .. } = driver.connect(Role::Subscriber, 0).await.unwrap();
    let mut writer = driver.connect(Role::Publisher, 0).await.unwrap().client;
    let (mut read, mut wrote) = (Heard::default(), Heard::default());
    reader.submit(Request::Subscribe { topic: "a/b" }, 1).unwrap();
    drive(&mut *reader, &mut read, |heard| heard.done.len() == 1).await.unwrap();
    assert_eq!(read.done.get(&1), Some(&Ok(Vec::new())));

    let large: Vec<u8> = (0..50_000_u32).map(|at| at.to_be_bytes()[3]).collect();
    for (tag, payload) in [(1, b"one".as_slice()), (2, b"two"), (3, &large)] {
        writer.submit(Request::Publish { topic: "a/b", payload }, tag).unwrap();
        let count = usize::try_from(tag).unwrap();
        drive(&mut *writer, &mut wrote, |heard| heard.done.len() == count).await.unwrap();
        drive(&mut *reader, &mut read, |heard| heard.messages.len() == count).await.unwrap();
    }
    assert_eq!(wrote.done.values().filter(|answer| answer.is_ok()).count(), 3);
    assert!(read.messages.iter().map(Vec::as_slice).eq([b"one".as_slice(), b"two", &large]));

    for tag in 10..30 {
        reader.submit(Request::Get { topic: "a/b" }, tag).unwrap();
    }
    reader.submit(Request::Get { topic: "nothing" }, 30).unwrap();
    drive(&mut *reader, &mut read, |heard| heard.done.len() == 22).await.unwrap();
    assert!((10..30).all(|tag| read.done.get(&tag) == Some(&Ok(large.clone()))));
    assert_eq!(read.done.get(&30), Some(&Err("4.04".to_owned())));
    let bytes = (writer.bytes(), reader.bytes());
    writer.close().await;
    reader.close().await;
    (bytes.0, bytes.1, cipher)
}

#[test]
fn over_udp_every_byte_of_the_protocol_is_one_of_the_socket() {
    run(async {
        let (up, down, cipher) = everything(&experiment(), OriginConfig::default()).await;
        assert_eq!(cipher, "");
        assert_eq!((up.payload_up, down.payload_down), (50_006, 21 * 50_000 + 6));
        assert_eq!((up.socket_up, up.socket_down), (up.protocol_up, up.protocol_down));
        assert_eq!((down.socket_up, down.socket_down), (down.protocol_up, down.protocol_down));
        assert!(up.protocol_up > up.payload_up && down.protocol_down > down.payload_down);
    });
}

#[test]
fn what_follows_an_answer_goes_out_at_once_and_its_own_answer_wakes() {
    run(async {
        // Two seconds until a request is repeated: a wake that is missed shows.
        let address = origin(OriginConfig::default()).await;
        let driver = CoapDriver::new(Door::Coap, &experiment(), &access(address)).unwrap();
        let mut client = driver.connect(Role::Publisher, 0).await.unwrap().client;
        let (mut heard, mut flushed) = (Heard::default(), 0);
        client.submit(Request::Publish { topic: "t", payload: b"x" }, 0).unwrap();
        let until = std::future::poll_fn(|cx| {
            let mut turned = client.poll_turn(cx, &mut heard);
            if heard.done.len() == 100 {
                return Poll::Ready(());
            }
            if heard.done.len() > flushed {
                flushed += 1;
                client.submit(Request::Publish { topic: "t", payload: b"x" }, flushed as u64).unwrap();
                turned = client.poll_flush(cx, &mut heard);
                assert!(turned.is_pending(), "{turned:?}");
            }
            match turned {
                Poll::Ready(turned) => {
                    turned.unwrap();
                    cx.waker().wake_by_ref();
                }
                Poll::Pending => {}
            }
            Poll::Pending
        });
        timeout(Duration::from_secs(5), until).await.expect("every answer wakes");
        assert!(heard.done.values().all(Result::is_ok));
    });
}

#[test]
fn separate_answers_and_confirmable_notifications_are_acknowledged() {
    run(async {
        let config =
            OriginConfig { answer: CoapAnswer::Separate, confirm_notifications: true, ..OriginConfig::default() };
        let separate = Experiment { coap_answer: CoapAnswer::Separate, ..experiment() };
        everything(&separate, config).await;
    });
}

#[test]
fn non_confirmable_requests_wait_for_their_answers() {
    run(async {
        let unconfirmed = Experiment { coap_answer: CoapAnswer::NonConfirmable, ..experiment() };
        everything(&unconfirmed, OriginConfig::default()).await;
    });
}

#[test]
fn dtls_by_a_key_adds_to_the_bytes_of_the_socket() {
    run(async {
        let security: Security = "psk".parse().unwrap();
        let config = OriginConfig { dtls: Some(Keys::psk("dev", KEY)), ..OriginConfig::default() };
        let (up, _, cipher) = everything(&Experiment { security, ..experiment() }, config).await;
        assert_eq!(cipher, "TLS_PSK_WITH_AES_128_CCM_8");
        // A header of 13 bytes, a nonce and a tag of 8 for each record.
        assert!(up.socket_up > up.protocol_up + 29 * 50, "{up:?}");
    });
}

#[test]
fn a_key_that_is_wrong_is_refused() {
    run(async {
        let config = OriginConfig { dtls: Some(Keys::psk("dev", b"another")), ..OriginConfig::default() };
        let security = "psk".parse().unwrap();
        let driver = quick(&Experiment { security, ..experiment() }, origin(config).await);
        let refused = timeout(Duration::from_secs(1), driver.connect(Role::Publisher, 0)).await;
        // RFC 4279 §2: the server may say so, or drop what it cannot read; ours tells nobody who is wrong.
        assert!(!matches!(refused, Ok(Ok(_))));
    });
}

#[test]
fn what_nobody_waits_for_is_done_when_it_is_sent() {
    run(async {
        let silent = UdpSocket::bind(LOOPBACK).await.unwrap();
        let experiment = Experiment { operation: Operation::Deliver, qos: Qos::AtMostOnce, ..experiment() };
        let driver = quick(&experiment, silent.local_addr().unwrap());
        let mut client = driver.connect(Role::Publisher, 0).await.unwrap().client;
        let mut heard = Heard::default();
        for tag in 0..100 {
            client.submit(Request::Publish { topic: "t", payload: b"x" }, tag).unwrap();
        }
        drive(&mut *client, &mut heard, |heard| heard.done.len() == 100).await.unwrap();
        let mut buffer = [0; 64];
        let length = silent.recv(&mut buffer).await.unwrap();
        let message = Message::decode(&buffer[..length]).unwrap();
        assert_eq!((message.kind, message.code), (Type::NonConfirmable, Code::POST));
    });
}

/// A server that does as a test tells it.
struct Hand {
    socket: UdpSocket,
    buffer: Vec<u8>,
}

impl Hand {
    async fn new() -> Self {
        Self { socket: UdpSocket::bind(LOOPBACK).await.unwrap(), buffer: vec![0; 2048] }
    }

    fn address(&self) -> SocketAddr {
        self.socket.local_addr().unwrap()
    }

    /// The next message: kind, code, ID and token.
    async fn hear(&mut self) -> (Type, Code, u16, fogmux_coap::Token, SocketAddr) {
        let heard = timeout(Duration::from_secs(5), self.socket.recv_from(&mut self.buffer)).await;
        let (length, from) = heard.expect("something").unwrap();
        let message = Message::decode(&self.buffer[..length]).unwrap();
        (message.kind, message.code, message.message_id, message.token, from)
    }

    async fn say(&self, to: SocketAddr, write: impl FnOnce(&mut Vec<u8>)) {
        let mut out = Vec::new();
        write(&mut out);
        self.socket.send_to(&out, to).await.unwrap();
    }
}

/// A client with one GET under way, in a task of its own; what came of it.
fn ask(address: SocketAddr, experiment: Experiment, request: Request<'static>) -> tokio::task::JoinHandle<Heard> {
    tokio::task::spawn_local(async move {
        let driver = quick(&experiment, address);
        let mut client = driver.connect(Role::Publisher, 0).await.unwrap().client;
        let mut heard = Heard::default();
        client.submit(request, 7).unwrap();
        drive(&mut *client, &mut heard, |heard| heard.done.len() == 1).await.unwrap();
        heard
    })
}

#[test]
fn s4_2_a_confirmable_is_sent_as_often_as_it_may_be_and_is_lost_then() {
    run(async {
        let mut hand = Hand::new().await;
        let began = Instant::now();
        let asking = ask(hand.address(), experiment(), Request::Get { topic: "t" });
        let (kind, code, first, ..) = hand.hear().await;
        assert_eq!((kind, code), (Type::Confirmable, Code::GET));
        for _ in 0..3 {
            assert_eq!(hand.hear().await.2, first);
        }
        assert_eq!(asking.await.unwrap().done.get(&7), Some(&Err("lost".to_owned())));
        // 50 + 100 + 200 + 400 ms.
        let took = began.elapsed();
        assert!((750..5_000).contains(&took.as_millis()), "{took:?}");
    });
}

#[test]
fn s4_2_a_reset_ends_a_request() {
    run(async {
        let mut hand = Hand::new().await;
        let asking = ask(hand.address(), experiment(), Request::Get { topic: "t" });
        let (_, _, id, _, from) = hand.hear().await;
        hand.say(from, |out| fogmux_coap::encode::empty(out, Type::Reset, id)).await;
        assert_eq!(asking.await.unwrap().done.get(&7), Some(&Err("Reset".to_owned())));
    });
}

#[test]
fn s5_2_2_an_acknowledged_request_is_not_sent_again_and_its_answer_is_acknowledged_each_time() {
    run(async {
        let mut hand = Hand::new().await;
        let asking = ask(hand.address(), experiment(), Request::Subscribe { topic: "t" });
        let (_, _, id, token, from) = hand.hear().await;
        hand.say(from, |out| fogmux_coap::encode::empty(out, Type::Acknowledgement, id)).await;
        assert!(timeout(Duration::from_millis(200), hand.hear()).await.is_err());
        let answer = |out: &mut Vec<u8>| {
            Encoder::new(out, Type::Confirmable, Code::CONTENT, 9, &token).uint(OptionNumber::OBSERVE, 5).finish();
        };
        hand.say(from, answer).await;
        assert_eq!(asking.await.unwrap().done.get(&7), Some(&Ok(Vec::new())));
    });
}

#[test]
fn s4_2_what_nobody_asked_for_is_rejected_and_a_repeat_is_acknowledged_again() {
    run(async {
        let mut hand = Hand::new().await;
        let address = hand.address();
        let experiment = experiment();
        let following = tokio::task::spawn_local(async move {
            let driver = quick(&experiment, address);
            let mut client = driver.connect(Role::Subscriber, 0).await.unwrap().client;
            let mut heard = Heard::default();
            client.submit(Request::Subscribe { topic: "t" }, 7).unwrap();
            drive(&mut *client, &mut heard, |heard| heard.messages.len() == 2).await.unwrap();
            client.close().await;
            heard.messages
        });
        let (_, _, id, token, from) = hand.hear().await;
        let notify = |kind, id, sequence, payload: &'static [u8]| {
            move |out: &mut Vec<u8>| {
                let encoder = Encoder::new(out, kind, Code::CONTENT, id, &token);
                encoder.uint(OptionNumber::OBSERVE, sequence).payload(payload);
            }
        };
        hand.say(from, notify(Type::Acknowledgement, id, 1, b"")).await;
        for expected in [Type::Acknowledgement; 2] {
            hand.say(from, notify(Type::Confirmable, 100, 2, b"two")).await;
            let (kind, _, id, ..) = hand.hear().await;
            assert_eq!((kind, id), (expected, 100));
        }
        let stranger = fogmux_coap::Token::new(b"strange").unwrap();
        hand.say(from, |out| Encoder::new(out, Type::Confirmable, Code::CONTENT, 101, &stranger).finish()).await;
        let (kind, _, id, ..) = hand.hear().await;
        assert_eq!((kind, id), (Type::Reset, 101));
        // RFC 7641 §3.4: an older state that comes later is no news.
        hand.say(from, notify(Type::NonConfirmable, 102, 1, b"one")).await;
        hand.say(from, notify(Type::NonConfirmable, 103, 3, b"three")).await;
        // RFC 7641 §3.6: the end is asked for with the same token.
        let (kind, code, id, again, _) = hand.hear().await;
        assert_eq!((kind, code, again), (Type::Confirmable, Code::GET, token));
        let ended = |out: &mut Vec<u8>| Encoder::new(out, Type::Acknowledgement, Code::CONTENT, id, &token).finish();
        hand.say(from, ended).await;
        assert_eq!(following.await.unwrap(), [b"two".to_vec(), b"three".to_vec()]);
    });
}

#[test]
fn rfc_9175_an_echo_is_sent_back_once() {
    run(async {
        let mut hand = Hand::new().await;
        let asking = ask(hand.address(), experiment(), Request::Get { topic: "t" });
        let (_, _, first, _, from) = hand.hear().await;
        for turn in 0..2 {
            let length = hand.buffer.len();
            let message = Message::decode(hand.buffer.get(..length).unwrap()).unwrap_or_else(|_| unreachable!());
            let (id, token) = (message.message_id, message.token);
            assert_eq!(turn == 0, id == first);
            assert_eq!(message.option(OptionNumber::ECHO).is_some(), turn == 1);
            let demand = |out: &mut Vec<u8>| {
                let encoder = Encoder::new(out, Type::Acknowledgement, Code::UNAUTHORIZED, id, &token);
                encoder.option(OptionNumber::ECHO, b"freshness").finish();
            };
            hand.say(from, demand).await;
            if turn == 0 {
                hand.hear().await;
            }
        }
        assert_eq!(asking.await.unwrap().done.get(&7), Some(&Err("4.01".to_owned())));
    });
}

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
        let (began, path) = (Instant::now(), directory.path().to_owned());
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
        assert!(began.elapsed() < Duration::from_secs(5));
    });
    let left = std::fs::read_to_string(directory.path().join("publisher-0.toml.sequence")).unwrap();
    assert_eq!(left.trim(), "2", "what was not used is given back");
}

/// Keeps one value, over one connection (RFC 8323).
async fn serve_stream(mut socket: TcpStream) {
    let config = SessionConfig {
        message_bytes_max: 8 << 10,
        settings_timeout: Duration::from_secs(5),
        message_timeout: Duration::from_secs(5),
        idle_timeout: Duration::from_secs(5),
        pong_timeout: Duration::from_secs(5),
    };
    let (peer, now) = (socket.peer_addr().unwrap(), Timestamp::ZERO);
    let config_of_server = ServerConfig { reliable: true, ..ServerConfig::default() };
    let mut server = Server::new(config_of_server, 1, Box::new(|_: &[u8]| [0; 8]));
    let (mut bytes, mut input) = (Vec::new(), Vec::new());
    let (mut value, mut tag) = (Vec::new(), 0);
    let mut session = Session::open(config, Framing::Stream, now, &mut bytes);
    socket.write_all(&bytes).await.unwrap();
    loop {
        let mut buffer = [0; 4096];
        let read = socket.read(&mut buffer).await.unwrap_or_default();
        if read == 0 {
            return;
        }
        input.extend_from_slice(&buffer[..read]);
        let (mut out, room, mut taken) = (Outbox::default(), Room::default(), 0);
        while let Some((heard, used)) = session.take(now, &input[taken..]).unwrap() {
            match heard {
                Received::Settings(limits) => server.connect(now, peer, limits, 4 << 10),
                Received::Message(message) => {
                    let Some(incoming) = server.handle_stream(now, peer, message, &room, &mut out) else {
                        taken += used;
                        continue;
                    };
                    if incoming.request.method == Code::PUT {
                        (value, tag) = (incoming.request.body.as_slice().to_vec(), tag + 1);
                        server.respond(now, incoming.ticket, &Response::new(Code::CHANGED), &mut out);
                    } else {
                        let payload = fogmux_coap::response::Payload::Slice(&value);
                        let etag = Some(fogmux_coap::ETag::from_u64(tag));
                        let response = Response { etag, payload, ..Response::new(Code::CONTENT) };
                        server.respond(now, incoming.ticket, &response, &mut out);
                    }
                }
                Received::Ping { .. } | Received::Nothing | Received::Released(_) | Received::Aborted(_) => {
                    panic!("this client says nothing of the kind");
                }
            }
            taken += used;
        }
        input.drain(..taken);
        bytes.clear();
        for (_, datagram) in out.iter() {
            Frame::of_datagram(datagram).unwrap().write(Framing::Stream, &mut bytes);
        }
        socket.write_all(&bytes).await.unwrap();
    }
}

#[test]
fn over_tcp_several_blocks_go_in_one_message_both_ways() {
    run(async {
        let listener = TcpListener::bind(LOOPBACK).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::task::spawn_local(async move { serve_stream(listener.accept().await.unwrap().0).await });
        let experiment = Experiment { door: Door::CoapTcp, ..experiment() };
        let driver = driver(Door::CoapTcp, &experiment, &access(address)).unwrap();
        let mut client = driver.connect(Role::Publisher, 0).await.unwrap().client;
        let mut heard = Heard::default();
        let large: Vec<u8> = (0..100_000_u32).map(|at| at.to_be_bytes()[2]).collect();
        client.submit(Request::Publish { topic: "t", payload: &large }, 1).unwrap();
        drive(&mut *client, &mut heard, |heard| heard.done.len() == 1).await.unwrap();
        // 8 KiB less options: seven blocks in a message, fourteen messages.
        assert!(client.bytes().protocol_up < 100_000 + 14 * 30, "{:?}", client.bytes());
        client.submit(Request::Get { topic: "t" }, 2).unwrap();
        client.submit(Request::Get { topic: "t" }, 3).unwrap();
        drive(&mut *client, &mut heard, |heard| heard.done.len() == 3).await.unwrap();
        assert_eq!(heard.done.get(&1), Some(&Ok(Vec::new())));
        assert_eq!(heard.done.get(&2), Some(&Ok(large.clone())));
        assert_eq!(heard.done.get(&3), Some(&Ok(large)));
        client.close().await;
    });
}
