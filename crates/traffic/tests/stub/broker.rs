//! A small MQTT 3.1.1 broker with faults on purpose. It has a codec of its own, so that no error of ours hides itself.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Packet types (MQTT §2.1.2), in the upper half of the first byte.
const CONNECT: u8 = 1;
const PUBLISH: u8 = 3;
const SUBSCRIBE: u8 = 8;
const PINGREQ: u8 = 12;
const DISCONNECT: u8 = 14;
/// The first byte of a PUBLISH at QoS 0, and with the flag of a retained message (MQTT §3.3.1).
const TRANSIENT: u8 = 0x30;
const RETAINED: u8 = 0x31;

/// The fault of a broker.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fault {
    /// Nothing.
    None,
    /// Every n-th message is not forwarded.
    Drops(u64),
    /// Every n-th message is forwarded twice.
    Doubles(u64),
    /// Every n-th message is forwarded after the next one.
    Swaps(u64),
    /// The last byte of every n-th message is another one.
    Alters(u64),
    /// The last byte of every n-th message is missing.
    Cuts(u64),
    /// The first byte of every n-th message is one that no stamp has.
    Damages(u64),
    /// Every n-th message is forwarded without a payload.
    Empties(u64),
    /// Every n-th message comes twice, the first time with other bytes than anybody has sent.
    Invents(u64),
    /// Messages are forwarded to the subscribers of the other topic, of two.
    Misroutes,
    /// Every n-th message is forwarded under another topic.
    Misnames(u64),
    /// Nothing is forwarded from the n-th message on.
    Swallows(u64),
    /// No message is acknowledged from the n-th on.
    Unacknowledged(u64),
    /// Every n-th message is acknowledged twice.
    Reacknowledges(u64),
    /// Each message takes so long, and those behind it wait.
    Takes(Duration),
    /// Each CONNECT is answered so late.
    Greets(Duration),
    /// The CONNECT of the n-th connection is answered n times as late.
    GreetsInTurn(Duration),
    /// Nothing is done from then on, counted from the first message, for so long.
    Stalls(Duration, Duration),
    /// So many connections are accepted, and every later one is closed at once.
    AcceptsOnly(usize),
    /// Every connection is closed so long after the first was accepted, and no other is accepted.
    Dies(Duration),
    /// The connection that was accepted first is closed after so long.
    ClosesOne(Duration),
}

/// A running broker, on a port that the system has chosen. Its threads end with the connections.
pub(crate) struct Broker {
    pub(crate) address: SocketAddr,
}

struct State {
    fault: Fault,
    /// Subscribers by topic.
    subscribers: HashMap<Vec<u8>, Vec<TcpStream>>,
    messages: u64,
    /// Retained messages by topic.
    retained: HashMap<Vec<u8>, Vec<u8>>,
    first_message: Option<Instant>,
    /// A message that waits for the next one.
    swapped: Option<(Vec<u8>, Vec<u8>)>,
}

impl Broker {
    pub(crate) fn start(fault: Fault) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || accept(&listener, fault));
        Self { address }
    }
}

fn accept(listener: &TcpListener, fault: Fault) {
    let (subscribers, retained) = (HashMap::new(), HashMap::new());
    let (first_message, swapped) = (None, None);
    let state = Arc::new(Mutex::new(State { fault, subscribers, messages: 0, retained, first_message, swapped }));
    let all: Arc<Mutex<Vec<TcpStream>>> = Arc::default();
    let is_dead = Arc::new(Mutex::new(false));
    for stream in listener.incoming() {
        let Ok(stream) = stream else { return };
        if *lock(&is_dead) {
            return;
        }
        stream.set_nodelay(true).unwrap();
        if matches!(fault, Fault::AcceptsOnly(most) if lock(&all).len() >= most) {
            continue;
        }
        lock(&all).push(stream.try_clone().unwrap());
        if lock(&all).len() == 1 {
            let (all, is_dead) = (Arc::clone(&all), Arc::clone(&is_dead));
            thread::spawn(move || end(fault, &all, &is_dead));
        }
        let (state, number) = (Arc::clone(&state), u32::try_from(lock(&all).len()).unwrap());
        thread::spawn(move || serve(stream, number, &state));
    }
}

/// Closes what the fault closes, when it does.
fn end(fault: Fault, all: &Mutex<Vec<TcpStream>>, is_dead: &Mutex<bool>) {
    let (after, closed) = match fault {
        Fault::Dies(after) => (after, usize::MAX),
        Fault::ClosesOne(after) => (after, 1),
        Fault::None | Fault::Drops(_) | Fault::Doubles(_) | Fault::Swaps(_) | Fault::Alters(_) | Fault::Cuts(_) => {
            return;
        }
        Fault::Damages(_) | Fault::Empties(_) | Fault::Invents(_) | Fault::Misroutes | Fault::Misnames(_) => return,
        Fault::Swallows(_) | Fault::Unacknowledged(_) | Fault::Reacknowledges(_) => return,
        Fault::GreetsInTurn(_) | Fault::Takes(_) | Fault::Greets(_) | Fault::Stalls(..) | Fault::AcceptsOnly(_) => {
            return;
        }
    };
    thread::sleep(after);
    *lock(is_dead) = closed == usize::MAX;
    for stream in lock(all).iter().take(closed) {
        let _ = stream.shutdown(Shutdown::Both);
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One connection, until it ends.
fn serve(mut stream: TcpStream, number: u32, state: &Mutex<State>) {
    while let Ok((first, body)) = packet(&mut stream) {
        let done = match first >> 4 {
            CONNECT => {
                let fault = lock(state).fault;
                if let Fault::Greets(late) = fault {
                    thread::sleep(late);
                }
                if let Fault::GreetsInTurn(late) = fault {
                    thread::sleep(late * number);
                }
                stream.write_all(&[0x20, 2, 0, 0])
            }
            SUBSCRIBE => {
                let (id, topic) = (body[..2].to_vec(), text(&body[2..]).0.to_vec());
                let mut state = lock(state);
                let retained = state.retained.get(&topic).cloned();
                let retained = retained.map(|payload| message(RETAINED, &topic, &state.altered(&payload)));
                state.subscribers.entry(topic).or_default().push(stream.try_clone().unwrap());
                stream.write_all(&[&[0x90, 3], &id[..], &[0], &retained.unwrap_or_default()].concat())
            }
            PUBLISH => {
                let (topic, rest) = text(&body);
                let qos = first >> 1 & 3;
                let (id, payload) = rest.split_at(if qos > 0 { 2 } else { 0 });
                if first & RETAINED == RETAINED {
                    lock(state).retained.insert(topic.to_vec(), payload.to_vec());
                }
                let acknowledgements = lock(state).forward(topic, payload);
                let acknowledgements = if qos > 0 { acknowledgements } else { 0 };
                stream.write_all(&[&[0x40, 2], id].concat().repeat(acknowledgements))
            }
            DISCONNECT => stream.shutdown(Shutdown::Both),
            PINGREQ => stream.write_all(&[0xd0, 0]),
            _ => Ok(()),
        };
        if done.is_err() {
            return;
        }
    }
}

impl State {
    /// Forwards a message at QoS 0, and says how often it is acknowledged. All publishers wait for it, as with a broker
    /// of one thread.
    fn forward(&mut self, topic: &[u8], payload: &[u8]) -> usize {
        let since = self.first_message.get_or_insert_with(Instant::now).elapsed();
        let number = self.messages;
        let is_nth = |n: u64| number % n == n - 1;
        let times = match self.fault {
            Fault::Drops(n) => u8::from(!is_nth(n)),
            Fault::Doubles(n) => 1 + u8::from(is_nth(n)),
            Fault::Swaps(n) if is_nth(n) => {
                self.swapped = Some((topic.to_vec(), payload.to_vec()));
                0
            }
            Fault::Takes(long) => {
                thread::sleep(long);
                1
            }
            Fault::Stalls(from, long) => {
                let is_stalled = since >= from;
                thread::sleep(if is_stalled { (from + long).saturating_sub(since) } else { Duration::ZERO });
                1
            }
            Fault::Swallows(n) => u8::from(number < n - 1),
            Fault::Invents(n) if is_nth(n) => {
                self.send(topic, topic, &vec![0xff; payload.len()]);
                1
            }
            Fault::None | Fault::Swaps(_) | Fault::Alters(_) | Fault::Cuts(_) | Fault::Invents(_) => 1,
            Fault::Damages(_) | Fault::Empties(_) | Fault::Misroutes | Fault::Misnames(_) => 1,
            Fault::Unacknowledged(_) | Fault::Reacknowledges(_) => 1,
            Fault::GreetsInTurn(_)
            | Fault::Greets(_)
            | Fault::Dies(_)
            | Fault::ClosesOne(_)
            | Fault::AcceptsOnly(_) => 1,
        };
        let payload = self.altered(payload);
        self.messages += 1;
        let to = if self.fault == Fault::Misroutes { other(topic) } else { topic.to_vec() };
        let is_misnamed = matches!(self.fault, Fault::Misnames(n) if is_nth(n));
        let name = if is_misnamed { other(&to) } else { to.clone() };
        (0..times).for_each(|_| self.send(&to, &name, &payload));
        if times > 0
            && let Some((topic, payload)) = self.swapped.take()
        {
            self.send(&topic, &topic, &payload);
        }
        let is_acknowledged = !matches!(self.fault, Fault::Unacknowledged(n) if number >= n - 1);
        let again = matches!(self.fault, Fault::Reacknowledges(n) if is_nth(n));
        usize::from(is_acknowledged) + usize::from(again)
    }

    /// A payload as it is forwarded.
    fn altered(&self, payload: &[u8]) -> Vec<u8> {
        let mut payload = payload.to_vec();
        let is_nth = |n: u64| self.messages % n == n - 1;
        match (self.fault, payload.first_mut()) {
            (Fault::Damages(n), Some(first)) if is_nth(n) => *first |= 0x80,
            (Fault::Empties(n), _) if is_nth(n) => payload.clear(),
            _ => {}
        }
        match (self.fault, payload.last_mut()) {
            (Fault::Alters(n), Some(last)) if is_nth(n) => *last ^= 1,
            (Fault::Cuts(n), Some(_)) if is_nth(n) => drop(payload.pop()),
            _ => {}
        }
        payload
    }

    /// To the subscribers of this topic, under that name.
    fn send(&mut self, topic: &[u8], name: &[u8], payload: &[u8]) {
        let message = message(TRANSIENT, name, payload);
        for subscriber in self.subscribers.get_mut(topic).into_iter().flatten() {
            let _ = subscriber.write_all(&message);
        }
    }
}

/// Of the topics 0 and 1, the other.
fn other(topic: &[u8]) -> Vec<u8> {
    let mut topic = topic.to_vec();
    topic.iter_mut().filter(|byte| matches!(byte, b'0' | b'1')).for_each(|byte| *byte ^= 1);
    topic
}

/// A PUBLISH at QoS 0.
fn message(first: u8, topic: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut message = vec![first];
    length(2 + topic.len() + payload.len(), &mut message);
    message.extend(u16::try_from(topic.len()).unwrap().to_be_bytes());
    message.extend(topic);
    message.extend(payload);
    message
}

/// First byte and body of a packet.
fn packet(stream: &mut TcpStream) -> io::Result<(u8, Vec<u8>)> {
    let mut byte = || {
        let mut byte = [0];
        stream.read_exact(&mut byte).map(|()| byte[0])
    };
    let first = byte()?;
    let mut length = 0usize;
    for place in 0..4 {
        let part = byte()?;
        length |= usize::from(part & 0x7f) << (7 * place);
        if part & 0x80 == 0 {
            break;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    Ok((first, body))
}

/// A variable byte integer (MQTT §2.2.3).
fn length(mut bytes: usize, to: &mut Vec<u8>) {
    loop {
        let part = u8::try_from(bytes % 128).unwrap();
        bytes /= 128;
        to.push(if bytes > 0 { part | 0x80 } else { part });
        if bytes == 0 {
            return;
        }
    }
}

/// A string with its length before it, and what follows.
fn text(bytes: &[u8]) -> (&[u8], &[u8]) {
    bytes[2..].split_at(usize::from(u16::from_be_bytes([bytes[0], bytes[1]])))
}
