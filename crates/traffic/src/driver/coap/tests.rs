//! The driver against a small origin over real sockets, and against a hand that answers as it likes.

mod exchange;
mod oscore;
mod stream;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::task::Poll;

use fogmux_coap::message::Type;
use fogmux_coap::server::Room;
use fogmux_coap::stream::{Frame, Framing, Heard as Received, Session, SessionConfig};
use fogmux_coap::{Code, Encoder, Message, OptionNumber, Outbox, Response, Server, ServerConfig, Timestamp};
use fogmux_oscore::{Algorithm, Context as Oscore, Id, Opened, Parameters, Requests, Reservation, Ring, Start};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::runtime::{Builder, LocalOptions};
use tokio::time::{Instant, timeout};

use super::*;
use crate::driver::testing::{outcome, turn};
use crate::driver::{Answer, Arrival, Client, Request, Sink};
use crate::experiment::{CoapAnswer, Operation, Qos, Security};
use crate::origin::{Keys, Origin, OriginConfig};
use crate::outcome::Bytes;

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
        assert!(self.done.insert(tag, outcome(answer)).is_none(), "{tag} was answered twice");
    }

    fn message(&mut self, arrival: Arrival<'_>) {
        self.messages.push(arrival.payload.to_vec());
    }
}

/// Drives a client until `enough`.
async fn drive(client: &mut dyn Client, heard: &mut Heard, enough: impl Fn(&Heard) -> bool) -> Result<(), DriverError> {
    let until = turn(client, heard, |_, heard| enough(heard));
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
fn an_answer_larger_than_any_that_is_expected_is_an_error_of_its_request_alone() {
    run(async {
        let driver = quick(&experiment(), origin(OriginConfig::default()).await);
        let mut client = driver.connect(Role::Publisher, 0).await.unwrap().client;
        let mut heard = Heard::default();
        for (tag, bytes) in [(0, 200_000), (2, 1)] {
            client.submit(Request::Publish { topic: "t", payload: &vec![b'x'; bytes] }, tag).unwrap();
            drive(&mut *client, &mut heard, |heard| heard.done.contains_key(&tag)).await.unwrap();
            client.submit(Request::Get { topic: "t" }, tag + 1).unwrap();
            drive(&mut *client, &mut heard, |heard| heard.done.contains_key(&(tag + 1))).await.unwrap();
        }
        assert!(heard.done.get(&1).is_some_and(Result::is_err), "{:?}", heard.done.get(&1));
        assert_eq!(heard.done.get(&3), Some(&Ok(b"x".to_vec())));
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
