//! CoAP clients of the simulation over reliable transport (RFC 8323): PUT and POST, and observers of one topic.

use std::{rc::Rc, time::Duration};

use fogmux_coap::{
    Class, Code, Encoder, Message, OptionNumber, Token,
    stream::{Frame, Framing, signal},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::sleep,
};

use super::{
    ledger::{Fate, Ledger, Promise, Reader},
    pipe::End,
    random::Random,
    world::{Door, World},
};

/// Below the gateway's Max-Message-Size of 64 KiB: nothing has to be cut into blocks.
const MESSAGE_BYTES_MAX: usize = 60_000;
const OBSERVE: u16 = 6;
const URI_PATH: u16 = 11;

/// A connection after the exchange of CSM.
struct Wire {
    end: End,
    input: Vec<u8>,
}

/// A message that has come.
struct Came {
    code: Code,
    payload: Vec<u8>,
}

impl Wire {
    async fn open(world: &World) -> Option<Self> {
        let mut wire = Self { end: world.connect(Door::CoapTcp), input: Vec::new() };
        // Max-Message-Size of 2 MiB (RFC 8323 §5.3.1): nothing is cut into blocks.
        wire.send(signal::CSM, &[], &[(2, &[0x20, 0, 0])], b"").await.then_some(wire)
    }

    async fn send(&mut self, code: Code, token: &[u8], options: &[(u16, &[u8])], payload: &[u8]) -> bool {
        let mut body = Vec::new();
        let mut encoder = Encoder::body(&mut body);
        options.iter().for_each(|(number, value)| encoder.push(OptionNumber::new(*number), value));
        encoder.payload(payload);
        let mut bytes = Vec::new();
        Frame { code, token: Token::new(token).unwrap(), body: &body }.write(Framing::Stream, &mut bytes);
        self.end.write_all(&bytes).await.is_ok()
    }

    async fn next(&mut self) -> Option<Came> {
        loop {
            if let Some((frame, used)) = Frame::split(&self.input, usize::MAX).unwrap() {
                let message = Message::of_stream(frame.code, Token::EMPTY, frame.body).unwrap();
                let came = Came { code: frame.code, payload: message.payload().to_vec() };
                let token = frame.token;
                self.input.drain(..used);
                // RFC 8323 §5.4: a Ping is answered with a Pong of the same token.
                if came.code == signal::PING {
                    self.send(signal::PONG, token.as_slice(), &[], b"").await;
                }
                if came.code.class() != Class::Signal {
                    return Some(came);
                }
                continue;
            }
            let mut bytes = [0; 8192];
            match self.end.read(&mut bytes).await {
                Ok(0) | Err(_) => return None,
                Ok(count) => self.input.extend_from_slice(&bytes[..count]),
            }
        }
    }
}

fn path(topic: &str) -> Vec<(u16, &[u8])> {
    std::iter::once("ps").chain(topic.split('/')).map(|level| (URI_PATH, level.as_bytes())).collect()
}

/// Publishes `count` messages, one after the other.
pub(super) async fn publish(world: Rc<World>, ledger: Rc<Ledger>, random: Random, number: usize, count: usize) {
    let Some(mut wire) = Wire::open(&world).await else { return };
    for _ in 0..count {
        if random.percent(20) {
            sleep(Duration::from_millis(random.below(100) as u64)).await;
        }
        let id = ledger.publish(number, 1, MESSAGE_BYTES_MAX, &random);
        let message = ledger.message(id);
        let method = match message.retain {
            true if message.payload.is_empty() => Code::DELETE,
            true => Code::PUT,
            false => Code::POST,
        };
        let sent = wire.send(method, b"p", &path(&message.topic), &message.payload).await;
        match if sent { wire.next().await } else { None } {
            Some(came) if came.code.class() == Class::Success => ledger.settle(id, Fate::Accepted),
            Some(came) if came.code.class() == Class::ServerError => ledger.settle(id, Fate::Refused),
            Some(came) => ledger.fault(format!("{method:?} was answered with {:?}", came.code)),
            None => return ledger.cut(format!("CoAP publisher {number} was cut")),
        }
    }
}

/// Observes one value topic to the end of the simulation.
pub(super) async fn observe(world: Rc<World>, ledger: Rc<Ledger>, random: Random, number: usize) {
    let topic = super::ledger::topic(&random, true);
    let Some(mut wire) = Wire::open(&world).await else { return };
    let mut options = vec![(OBSERVE, b"".as_slice())];
    options.extend(path(&topic));
    wire.send(Code::GET, b"o", &options, b"").await;
    let reader = ledger.subscribe(format!("observer-{number}"), topic.clone(), 2, Promise::Latest);
    read(&mut wire, &ledger, &random, &reader, &topic).await;
    ledger.end(&reader);
}

async fn read(wire: &mut Wire, ledger: &Ledger, random: &Random, reader: &Reader, topic: &str) {
    let pauses = *random.pick(&[0, 2, 30]);
    loop {
        if random.percent(pauses) && !ledger.is_closing() {
            sleep(Duration::from_millis(1 + random.below(400) as u64)).await;
        }
        let Some(came) = wire.next().await else { return };
        match came.code.class() {
            // An empty answer begins an observation of a topic without a value.
            Class::Success if came.payload.is_empty() => {}
            Class::Success => ledger.receive_first(reader, topic, &came.payload),
            // A final 4.04: the value was cleared. A 5.03: more than may wait has come. The observation is over.
            class @ (Class::ClientError | Class::ServerError) => {
                if class == Class::ClientError {
                    ledger.receive(reader, topic, b"");
                }
                sleep(Duration::from_millis(100)).await;
                let mut options = vec![(OBSERVE, b"".as_slice())];
                options.extend(path(topic));
                wire.send(Code::GET, b"o", &options, b"").await;
            }
            class @ (Class::Empty | Class::Request | Class::Signal | Class::Reserved) => {
                ledger.fault(format!("{} got an answer of class {class:?}", reader.name));
            }
        }
    }
}
