//! RFC 8323 through a socket, clause by clause.

mod admission;
mod events;
mod slow;
mod too_long;

use fogmux_coap::{
    Block, BlockSize, Encoder, OptionNumber, Token,
    stream::{Frame, Framing, signal},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    time::timeout,
};

use super::*;
use crate::{Peer, coap::serve_stream};

/// A connection to the door, as bytes.
struct Wire {
    stream: TcpStream,
    input: Vec<u8>,
}

/// A message that has come.
#[derive(Debug)]
struct Came {
    code: Code,
    token: Vec<u8>,
    body: Vec<u8>,
}

impl Came {
    fn option(&self, number: u16) -> Option<Vec<u8>> {
        let message = fogmux_coap::Message::of_stream(self.code, Token::EMPTY, &self.body).unwrap();
        message.option(OptionNumber::new(number)).map(|option| option.value.to_vec())
    }

    fn payload(&self) -> Vec<u8> {
        fogmux_coap::Message::of_stream(self.code, Token::EMPTY, &self.body).unwrap().payload().to_vec()
    }

    fn text(&self) -> String {
        String::from_utf8(self.payload()).unwrap()
    }
}

impl House {
    /// A new connection; nothing is said yet.
    async fn wire(&self) -> Wire {
        self.wire_of(|from| Peer::plain(from, true)).await
    }

    /// The same, of a peer that has come in some other way.
    async fn wire_of(&self, peer: impl FnOnce(std::net::SocketAddr) -> Peer) -> Wire {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (accepted, from) = listener.accept().await.unwrap();
        tokio::task::spawn_local(serve_stream(Rc::clone(&self.ctx), accepted, peer(from)));
        Wire { stream, input: Vec::new() }
    }

    /// The same with the settings of both ends said.
    async fn settled(&self) -> Wire {
        let mut wire = self.wire().await;
        wire.send(&csm(&[(2, &[0x02, 0x00, 0x00]), (4, &[])])).await;
        assert_eq!(wire.next().await.unwrap().code, signal::CSM);
        wire
    }
}

impl Wire {
    async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    /// The next message; nothing at the end.
    async fn next(&mut self) -> Option<Came> {
        loop {
            if let Some((frame, used)) = Frame::split(&self.input, usize::MAX).unwrap() {
                let came = Came { code: frame.code, token: frame.token.as_slice().to_vec(), body: frame.body.to_vec() };
                self.input.drain(..used);
                return Some(came);
            }
            let mut buffer = [0; 16_384];
            match self.stream.read(&mut buffer).await {
                Ok(0) | Err(_) => return None,
                Ok(bytes) => self.input.extend_from_slice(&buffer[..bytes]),
            }
        }
    }

    /// The Abort that ends the connection, behind whatever comes before.
    async fn abort(&mut self) -> Came {
        loop {
            let came = self.next().await.expect("the connection ends without Abort");
            if came.code == signal::ABORT {
                assert!(self.next().await.is_none(), "something comes behind Abort");
                return came;
            }
        }
    }
}

fn frame(code: Code, token: &[u8], options: &[(u16, &[u8])], payload: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    let mut encoder = Encoder::body(&mut body);
    options.iter().for_each(|(number, value)| encoder.push(OptionNumber::new(*number), value));
    encoder.payload(payload);
    let mut bytes = Vec::new();
    Frame { code, token: Token::new(token).unwrap(), body: &body }.write(Framing::Stream, &mut bytes);
    bytes
}

fn csm(options: &[(u16, &[u8])]) -> Vec<u8> {
    frame(signal::CSM, b"", options, b"")
}

fn request(method: Code, token: &[u8], topic: &str, payload: &[u8]) -> Vec<u8> {
    frame(method, token, &[(11, b"ps"), (11, topic.as_bytes())], payload)
}

#[test]
fn s5_3_csm_is_the_first_message_of_either_end() {
    run(CoapConfig::default(), true, async |house| {
        let mut wire = house.wire().await;
        let settings = wire.next().await.unwrap();
        assert_eq!(settings.code, signal::CSM);
        assert_eq!(settings.option(2), Some(vec![0x01, 0x00, 0x00]), "Max-Message-Size");
        assert_eq!(settings.option(4), Some(vec![]), "Block-Wise-Transfer");
        // Elective options that nobody knows are skipped, and what comes later changes what was said.
        wire.send(&csm(&[(6, b"?")])).await;
        wire.send(&csm(&[(2, &[0x20, 0x00])])).await;
        wire.send(&request(Code::GET, b"t", "a", b"")).await;
        let answer = wire.next().await.unwrap();
        assert_eq!((answer.code, answer.token.as_slice()), (Code::NOT_FOUND, &b"t"[..]));
    });
}

#[test]
fn who_asks_without_csm_is_answered_with_what_everybody_takes() {
    run(CoapConfig::default(), true, async |house| {
        house.keep("large", &[5; 5000]);
        let mut wire = house.wire().await;
        wire.send(&request(Code::GET, b"t", "large", b"")).await;
        assert_eq!(wire.next().await.unwrap().code, signal::CSM);
        let answer = wire.next().await.unwrap();
        assert!(answer.code == Code::CONTENT && answer.body.len() <= signal::MESSAGE_BYTES_BASE);
    });
}

#[test]
fn what_is_no_conversation_is_aborted_and_the_reason_said() {
    let settled = csm(&[]);
    let behind = |bytes: &[u8]| [&settled[..], bytes].concat();
    let signal = |code: u8| frame(Code::from_byte(code), b"", &[], b"");
    let cases: &[(&str, Vec<u8>, &str)] = &[
        ("§5.3 a Ping first", frame(signal::PING, b"", &[], b""), "not CSM"),
        ("§5.3 an Empty message first", vec![0, 0], "not CSM"),
        ("§5.3 a response first", frame(Code::CONTENT, b"", &[], b""), "not CSM"),
        ("§5.3.1 more than the base size before CSM", vec![0xe0, 0xff, 0xff], "Max-Message-Size"),
        ("§3.2 token length 9", behind(&[0x09, 1]), "token lengths"),
        ("§3.2 token length 15", behind(&[0x0f, 1]), "token lengths"),
        ("§5.3.1 a length of 4 GiB", behind(&[0xf0, 255, 255, 255, 255]), "Max-Message-Size"),
        ("§5.3.1 one byte too many", behind(&[0xf0, 0, 0, 0, 0]), "Max-Message-Size"),
        ("§5.2 a critical option in CSM", csm(&[(1, b"x")]), "critical option of CSM"),
        ("§5.2 a critical option in Ping", behind(&frame(signal::PING, b"", &[(3, b"")], b"")), "critical option 3"),
        ("§5.2 a critical option in Release", behind(&frame(signal::RELEASE, b"", &[(9, b"")], b"")), "option 9"),
        ("§5.1 a signal that nobody knows", behind(&signal(0xe6)), "7.06"),
        ("§5.1 7.00", behind(&signal(0xe0)), "7.00"),
        ("RFC 7252 §3 class 1", behind(&signal(0x20)), "reserved"),
        ("RFC 7252 §3 class 3", behind(&signal(0x61)), "reserved"),
        ("RFC 7252 §3 class 6", behind(&signal(0xc1)), "reserved"),
        ("RFC 7252 §3.1 option delta 15", behind(&[0x10, 1, 0xf0]), "option delta"),
        ("RFC 7252 §3 a marker and nothing", behind(&[0x10, 1, 0xff]), "marker"),
        ("RFC 7252 §3.1 an option longer than the message", behind(&[0x20, 1, 0xb5, b'p']), "too early"),
    ];
    for (name, bytes, reason) in cases {
        run(CoapConfig::default(), true, async |house| {
            let mut wire = house.wire().await;
            wire.send(bytes).await;
            let abort = wire.abort().await;
            assert!(abort.text().contains(reason), "{name}: {}", abort.text());
            let bad_option = name.contains("in CSM").then(|| vec![1]);
            assert_eq!(abort.option(2), bad_option, "{name}: Bad-CSM-Option (§5.6)");
        });
    }
}

#[test]
fn s4_and_s5_what_is_answered_and_what_is_not() {
    run(CoapConfig::default(), true, async |house| {
        let mut wire = house.settled().await;
        // §4.3: Empty messages, and responses to nothing, are ignored.
        wire.send(&[0, 0]).await;
        wire.send(&frame(Code::CONTENT, b"?", &[], b"x")).await;
        // §5.4: Pong has the token of Ping, and custody where it was asked for.
        wire.send(&frame(signal::PING, b"one", &[], b"")).await;
        let pong = wire.next().await.unwrap();
        assert_eq!((pong.code, pong.token.as_slice(), pong.option(2)), (signal::PONG, &b"one"[..], None));
        wire.send(&[request(Code::PUT, b"p", "a", b"1"), frame(signal::PING, b"two", &[(2, b"")], b"")].concat()).await;
        assert_eq!(wire.next().await.unwrap().code, Code::CREATED, "custody: what came before is done first");
        let pong = wire.next().await.unwrap();
        assert_eq!((pong.token.as_slice(), pong.option(2)), (&b"two"[..], Some(vec![])));
        // No deduplication: the same bytes twice are two requests.
        let twice = frame(Code::PUT, b"p", &[(5, b""), (11, b"ps"), (11, b"b")], b"1");
        wire.send(&[&twice[..], &twice].concat()).await;
        assert_eq!(wire.next().await.unwrap().code, Code::CREATED);
        assert_eq!(wire.next().await.unwrap().code, Code::PRECONDITION_FAILED);
        // §5.5: what is open is answered, then the connection ends.
        wire.send(&[request(Code::GET, b"g", "a", b""), frame(signal::RELEASE, b"", &[], b"")].concat()).await;
        assert_eq!(wire.next().await.unwrap().payload(), b"1");
        assert!(wire.next().await.is_none());
    });
}

#[test]
fn how_the_bytes_are_cut_changes_nothing() {
    run(CoapConfig::default(), true, async |house| {
        let mut wire = house.wire().await;
        let all = [
            csm(&[(2, &[0x20, 0x00])]),
            request(Code::PUT, b"1", "cut", &[7; 300]),
            vec![0, 0],
            request(Code::GET, b"2", "cut", b""),
            frame(signal::PING, b"3", &[], b""),
        ]
        .concat();
        for byte in all {
            wire.send(&[byte]).await;
            tokio::task::yield_now().await;
        }
        let mut codes = Vec::new();
        for _ in 0..4 {
            codes.push(wire.next().await.unwrap().code);
        }
        assert_eq!(codes, [signal::CSM, Code::CREATED, Code::CONTENT, signal::PONG]);
    });
}

#[test]
fn s6_bert_both_ways() {
    run(CoapConfig::default(), true, async |house| {
        let mut wire = house.settled().await;
        let body: Vec<u8> = (0..200_000_u32).map(|at| (at % 251) as u8).collect();
        let chunk = 60 * 1024;
        let mut number = 0;
        for part in body.chunks(chunk) {
            let more = number * 1024 + part.len() < body.len();
            let block = Block { number: u32::try_from(number).unwrap(), more, size: BlockSize::BERT }.encode();
            let value = block.to_be_bytes();
            let options: [(u16, &[u8]); 3] = [(11, b"ps"), (11, b"bert"), (27, &value[1..])];
            wire.send(&frame(Code::PUT, b"u", &options, part)).await;
            let answer = wire.next().await.unwrap();
            assert_eq!(answer.code, if more { Code::CONTINUE } else { Code::CREATED });
            number += chunk / 1024;
        }
        let mut got = Vec::new();
        loop {
            let block = Block { number: u32::try_from(got.len() / 1024).unwrap(), more: false, size: BlockSize::BERT };
            let value = block.encode().to_be_bytes();
            let options: [(u16, &[u8]); 3] = [(11, b"ps"), (11, b"bert"), (23, &value[1..])];
            wire.send(&frame(Code::GET, b"d", &options, b"")).await;
            let answer = wire.next().await.unwrap();
            let payload = answer.payload();
            assert!(answer.body.len() + 8 <= 0x2_0000);
            got.extend_from_slice(&payload);
            let granted = answer.option(23).unwrap().iter().fold(0, |sum, byte| (sum << 8) | u32::from(*byte));
            let granted = Block::decode_reliable(granted);
            assert!(granted.size.is_bert());
            if !granted.more {
                break;
            }
            assert!(payload.len() > 1024 && payload.len() % 1024 == 0);
        }
        assert_eq!(got, body);
    });
}

#[test]
fn s5_3_1_who_takes_little_gets_blocks() {
    run(CoapConfig::default(), true, async |house| {
        house.keep("large", &[5; 5000]);
        let mut wire = house.wire().await;
        wire.send(&csm(&[])).await;
        wire.send(&request(Code::GET, b"t", "large", b"")).await;
        assert_eq!(wire.next().await.unwrap().code, signal::CSM);
        let answer = wire.next().await.unwrap();
        assert!(answer.body.len() <= signal::MESSAGE_BYTES_BASE);
        assert!(answer.option(23).is_some() && answer.payload().len() >= 512);
    });
}

#[test]
fn s7_4_observations_end_with_the_connection_and_with_a_word() {
    run(CoapConfig::default(), true, async |house| {
        house.keep("seen", b"0");
        let mut wire = house.settled().await;
        let observe: [(u16, &[u8]); 3] = [(6, b""), (11, b"ps"), (11, b"seen")];
        wire.send(&frame(Code::GET, b"o", &observe, b"")).await;
        assert!(wire.next().await.unwrap().option(6).is_some());
        house.publish("seen", b"1", None);
        let told = wire.next().await.unwrap();
        assert_eq!((told.token.as_slice(), told.payload().as_slice()), (&b"o"[..], &b"1"[..]));
        let end: [(u16, &[u8]); 3] = [(6, &[1]), (11, b"ps"), (11, b"seen")];
        wire.send(&frame(Code::GET, b"o", &end, b"")).await;
        assert_eq!(wire.next().await.unwrap().option(6), None);
        house.publish("seen", b"2", None);
        wire.send(&frame(signal::PING, b"p", &[], b"")).await;
        assert_eq!(wire.next().await.unwrap().code, signal::PONG, "nothing more is told");
        // The gateway says when it goes.
        house.drain.send(crate::phase::Phase::Closing).unwrap();
        assert_eq!(wire.next().await.unwrap().code, signal::RELEASE);
        assert!(wire.next().await.is_none());
    });
}

#[test]
fn s5_4_1_a_pong_with_custody_waits_for_the_disk_and_others_do_not() {
    let store = late::Late::default();
    run_on(Box::new(store.clone()), CoapConfig::default(), true, async |house| {
        let (mut wire, mut other) = (house.settled().await, house.settled().await);
        wire.send(&request(Code::PUT, b"1", "a", b"x")).await;
        wire.send(&request(Code::PUT, b"2", "b", b"x")).await;
        wire.send(&frame(signal::PING, b"p", &[(2, &[])], b"")).await;
        wire.send(&frame(signal::PING, b"q", &[], b"")).await;
        assert_eq!(wire.next().await.unwrap().token, b"q");
        other.send(&frame(signal::PING, b"r", &[(2, &[])], b"")).await;
        assert_eq!(other.next().await.unwrap().token, b"r", "nothing is owed to this one");
        store.complete();
        let mut came = Vec::new();
        for _ in 0..3 {
            let next = wire.next().await.unwrap();
            came.push((next.code, next.token.clone()));
        }
        let expected = [(Code::CREATED, b"1"), (Code::CREATED, b"2"), (signal::PONG, b"p")];
        assert_eq!(came, expected.map(|(code, token)| (code, token.to_vec())));
    });
}
