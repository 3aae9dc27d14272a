//! MQTT clients of the simulation: publishers with a window, subscribers that read at their own pace.

use std::{
    future::poll_fn,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
    time::Duration,
};

use fogmux_mqtt::{
    Client, ClientLimits, Connect, Event, Outgoing, PacketId, Properties, Property, PropertyBuffer, Qos,
    SubscriptionOptions, Version,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::sleep,
};

use super::{
    ledger::{Fate, Ledger, Promise, Reader},
    pipe::End,
    random::Random,
    world::{Door, World},
};

/// An event from the gateway, without a borrow of the buffer.
enum Arrived {
    Connected,
    Subscribed(bool),
    Message { topic: String, payload: Vec<u8> },
    Published { id: PacketId, success: bool },
    Pong,
    Nothing,
    Closed,
}

/// A connection of a client that reads and writes at the same time, as every real client does.
struct Wire {
    end: End,
    client: Client,
    input: Vec<u8>,
    output: Vec<u8>,
}

/// Whether the session outlives the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Session {
    Clean,
    Lasting,
}

fn qos(level: u8) -> Qos {
    [Qos::AtMostOnce, Qos::AtLeastOnce, Qos::ExactlyOnce][usize::from(level)]
}

impl Wire {
    /// Connects with a clean session; `None` when the connection ends before CONNACK.
    async fn open(world: &World, name: &str, random: &Random) -> Option<Self> {
        Self::open_session(world, name, random, Session::Clean).await
    }

    async fn open_session(world: &World, name: &str, random: &Random, session: Session) -> Option<Self> {
        let version = *random.pick(&[Version::V311, Version::V5]);
        let mut list = PropertyBuffer::new();
        if session == Session::Lasting && version.is_v5() {
            list.push(Property::SessionExpiryInterval(3600)).unwrap();
        }
        let connect = Connect {
            version,
            bridge: false,
            clean_start: session == Session::Clean,
            keep_alive: 0,
            client_id: name,
            will: None,
            user: None,
            password: None,
            properties: list.properties(),
        };
        // Before version 5 there is no Receive Maximum.
        let receive_maximum = if version.is_v5() { *random.pick(&[1, 3, 1000]) } else { u16::MAX };
        let limits = ClientLimits { receive_maximum, ..ClientLimits::default() };
        let mut output = Vec::new();
        let client = Client::connect(&connect, limits, &mut output).unwrap();
        let mut wire = Self { end: world.connect(Door::Mqtt), client, input: Vec::new(), output };
        if matches!(wire.next().await, Arrived::Connected) {
            return Some(wire);
        }
        sleep(Duration::from_millis(50)).await;
        None
    }

    /// Writes what is to be written, and reads when nothing has come yet.
    fn poll_io(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        while !self.output.is_empty() {
            match Pin::new(&mut self.end).poll_write(cx, &self.output) {
                Poll::Ready(Ok(count)) => drop(self.output.drain(..count)),
                Poll::Ready(Err(_)) => return Poll::Ready(false),
                Poll::Pending => break,
            }
        }
        let mut bytes = [0; 8192];
        let mut buffer = ReadBuf::new(&mut bytes);
        match Pin::new(&mut self.end).poll_read(cx, &mut buffer) {
            Poll::Ready(Ok(())) if buffer.filled().is_empty() => Poll::Ready(false),
            Poll::Ready(Ok(())) => {
                self.input.extend_from_slice(buffer.filled());
                Poll::Ready(true)
            }
            Poll::Ready(Err(_)) => Poll::Ready(false),
            Poll::Pending => Poll::Pending,
        }
    }

    async fn next(&mut self) -> Arrived {
        loop {
            match self.client.handle(&self.input, &mut self.output) {
                Ok(Some((event, used))) => {
                    let arrived = owned(&event);
                    self.input.drain(..used);
                    return arrived;
                }
                Ok(None) => {}
                Err(error) => panic!("the gateway broke the protocol: {error}"),
            }
            if !poll_fn(|cx| self.poll_io(cx)).await {
                return Arrived::Closed;
            }
        }
    }
}

fn owned(event: &Event<'_>) -> Arrived {
    match event {
        Event::Connected { .. } => Arrived::Connected,
        Event::Subscribed { codes, .. } => Arrived::Subscribed(codes.iter().all(|code| !code.is_error())),
        Event::Message(incoming) => {
            Arrived::Message { topic: incoming.topic.as_str().to_owned(), payload: incoming.payload.to_vec() }
        }
        Event::Published { packet_id, reason } => Arrived::Published { id: *packet_id, success: !reason.is_error() },
        Event::Pong => Arrived::Pong,
        Event::Nothing | Event::Unsubscribed { .. } | Event::Authentication { .. } => Arrived::Nothing,
        Event::Refused { .. } | Event::Disconnected { .. } => Arrived::Closed,
    }
}

/// Publishes `count` messages over one or more connections; the last connection ends in order.
pub(super) async fn publish(world: Rc<World>, ledger: Rc<Ledger>, random: Random, number: usize, count: usize) {
    let mut left = count;
    while left > 0 {
        let Some(mut wire) = Wire::open(&world, &format!("publisher-{number}"), &random).await else { continue };
        let here = if random.percent(70) { left } else { 1 + random.below(left) };
        let whole = publish_some(&mut wire, &ledger, &random, number, here).await;
        left -= here;
        if !whole || random.percent(20) {
            wire.end.reset();
        }
    }
}

/// Publishes and waits for every acknowledgement. A PINGRESP means that earlier messages of QoS 0 have been taken, too.
/// Returns `false` when the connection ended before.
async fn publish_some(wire: &mut Wire, ledger: &Ledger, random: &Random, number: usize, count: usize) -> bool {
    let window = *random.pick(&[1, 3, 50]);
    let (mut waiting, mut unacknowledged, mut sent, mut pinged) = (Vec::new(), Vec::new(), 0, false);
    loop {
        while sent < count && waiting.len() < window {
            if random.percent(10) {
                sleep(Duration::from_millis(random.below(100) as u64)).await;
            }
            let level = u8::try_from(random.below(3)).unwrap();
            let id = ledger.publish(number, level, usize::MAX, random);
            let message = ledger.message(id);
            let outgoing = Outgoing {
                topic: &message.topic,
                payload: &message.payload,
                qos: qos(level),
                retain: message.retain,
                ..Outgoing::default()
            };
            match wire.client.publish(&outgoing, &mut wire.output).unwrap() {
                Some(packet) => waiting.push((packet, id)),
                None => unacknowledged.push(id),
            }
            sent += 1;
        }
        if sent == count && waiting.is_empty() && !pinged {
            wire.client.ping(&mut wire.output);
            pinged = true;
        }
        match wire.next().await {
            Arrived::Published { id, success } => {
                let at = waiting.iter().position(|(packet, _)| *packet == id).expect("an acknowledgement of nothing");
                let (_, message) = waiting.remove(at);
                ledger.settle(message, if success { Fate::Accepted } else { Fate::Refused });
            }
            // At a shutdown pings are answered and publications are not taken.
            Arrived::Pong if ledger.is_closing() => return false,
            Arrived::Pong => {
                unacknowledged.into_iter().for_each(|message| ledger.settle(message, Fate::Accepted));
                return true;
            }
            Arrived::Closed => return false,
            Arrived::Connected | Arrived::Subscribed(_) | Arrived::Message { .. } | Arrived::Nothing => {}
        }
    }
}

/// Subscribes repeatedly, reads with pauses, and stays to the end.
pub(super) async fn subscribe(world: Rc<World>, ledger: Rc<Ledger>, random: Random, number: usize) {
    let lives = 1 + random.below(3);
    for life in 0..lives {
        let name = format!("subscriber-{number}.{life}");
        let Some(mut wire) = Wire::open(&world, &name, &random).await else { continue };
        let max_qos = u8::try_from(random.below(3)).unwrap();
        let filter = super::ledger::filter(&random);
        let entry = [(filter.as_str(), SubscriptionOptions::qos(qos(max_qos)))];
        wire.client.subscribe(&entry, Properties::NONE, &mut wire.output).unwrap();
        let reader = match grant(&mut wire).await {
            Some(early) => {
                let reader = ledger.subscribe(name, filter, max_qos, Promise::All);
                early.iter().for_each(|(topic, payload)| ledger.receive(&reader, topic, payload));
                reader
            }
            None => return ledger.cut(format!("{name} was not granted {filter}")),
        };
        let last = life + 1 == lives;
        let until = if last { usize::MAX } else { random.below(60) };
        read(&mut wire, &ledger, &random, &reader, until).await;
        if last {
            return ledger.end(&reader);
        }
        reader.live.set(false);
        if random.percent(50) {
            wire.end.reset();
        }
    }
}

/// Waits for SUBACK. Returns the messages before it, or `None` when the subscription was refused.
async fn grant(wire: &mut Wire) -> Option<Vec<(String, Vec<u8>)>> {
    let mut early = Vec::new();
    loop {
        match wire.next().await {
            Arrived::Subscribed(true) => return Some(early),
            Arrived::Subscribed(false) | Arrived::Closed => return None,
            Arrived::Message { topic, payload } => early.push((topic, payload)),
            Arrived::Connected | Arrived::Published { .. } | Arrived::Pong | Arrived::Nothing => {}
        }
    }
}

/// Connects and disconnects with one session, which gathers messages of QoS 1 and 2 meanwhile, and stays to the end.
pub(super) async fn subscribe_lasting(world: Rc<World>, ledger: Rc<Ledger>, random: Random, number: usize) {
    let name = format!("session-{number}");
    let max_qos = 1 + u8::try_from(random.below(2)).unwrap();
    let filter = super::ledger::filter(&random);
    let mut known = None;
    for left in (0..1 + random.below(4)).rev() {
        let Some(mut wire) = Wire::open_session(&world, &name, &random, Session::Lasting).await else { continue };
        // Many clients subscribe again at each connection.
        let entry = [(filter.as_str(), SubscriptionOptions::qos(qos(max_qos)))];
        wire.client.subscribe(&entry, Properties::NONE, &mut wire.output).unwrap();
        let Some(early) = grant(&mut wire).await else {
            return ledger.cut(format!("{name} was not granted {filter}"));
        };
        let reader =
            known.get_or_insert_with(|| ledger.subscribe(name.clone(), filter.clone(), max_qos, Promise::AllConfirmed));
        early.iter().for_each(|(topic, payload)| ledger.receive(reader, topic, payload));
        reader.away.set(false);
        let until = if left == 0 { usize::MAX } else { reader.count() + random.below(40) };
        read(&mut wire, &ledger, &random, reader, until).await;
        if left == 0 {
            return ledger.end(reader);
        }
        reader.away.set(true);
        if random.percent(50) {
            wire.end.reset();
        } else {
            drop(wire);
        }
        sleep(Duration::from_millis(random.below(2000) as u64)).await;
    }
}

/// The members of a shared subscription (MQTT 5.0 §4.8.2): one stays to the end, others come and go. Each message goes
/// to one of them.
pub(super) async fn share(world: Rc<World>, ledger: Rc<Ledger>, random: Random, number: usize) {
    let filter = super::ledger::filter(&random);
    let max_qos = 1 + u8::try_from(random.below(2)).unwrap();
    let member = |name: String| {
        let (world, random, filter) = (Rc::clone(&world), random.fork(), format!("$share/g{number}/{filter}"));
        async move {
            let mut wire = Wire::open(&world, &name, &random).await?;
            let entry = [(filter.as_str(), SubscriptionOptions::qos(qos(max_qos)))];
            wire.client.subscribe(&entry, Properties::NONE, &mut wire.output).unwrap();
            let early = grant(&mut wire).await?;
            Some((wire, early, random))
        }
    };
    let Some((mut wire, early, stays)) = member(format!("share-{number}")).await else { return };
    let reader = ledger.subscribe(format!("share-{number}"), filter.clone(), max_qos, Promise::Shared);
    early.iter().for_each(|(topic, payload)| ledger.receive(&reader, topic, payload));
    let others = async {
        for life in 0..random.below(4) {
            let Some((mut wire, early, random)) = member(format!("share-{number}.{life}")).await else { return };
            let before = reader.count();
            early.iter().for_each(|(topic, payload)| ledger.receive(&reader, topic, payload));
            let until = before + random.below(30);
            let some = read(&mut wire, &ledger, &random, &reader, until);
            // A member without messages leaves, too.
            let _ = tokio::time::timeout(Duration::from_secs(2), some).await;
            if random.percent(50) {
                wire.end.reset();
            }
        }
    };
    tokio::join!(others, read(&mut wire, &ledger, &stays, &reader, usize::MAX));
    ledger.end(&reader);
}

/// Reads `count` messages, with pauses during which nothing at all is read.
async fn read(wire: &mut Wire, ledger: &Ledger, random: &Random, reader: &Reader, count: usize) {
    let pauses = *random.pick(&[0, 2, 30]);
    while reader.count() < count {
        if random.percent(pauses) && !ledger.is_closing() {
            sleep(Duration::from_millis(1 + random.below(400) as u64)).await;
        }
        match wire.next().await {
            Arrived::Message { topic, payload } => ledger.receive(reader, &topic, &payload),
            Arrived::Closed => return,
            Arrived::Connected
            | Arrived::Subscribed(_)
            | Arrived::Published { .. }
            | Arrived::Pong
            | Arrived::Nothing => {}
        }
    }
}

/// Subscribes to everything and never reads, or reads and never acknowledges: others must not notice.
pub(super) async fn hinder(world: Rc<World>, random: Random, number: usize) {
    let Some(mut wire) = Wire::open(&world, &format!("hindrance-{number}"), &random).await else { return };
    let entry = [("#", SubscriptionOptions::qos(qos(u8::try_from(random.below(3)).unwrap())))];
    wire.client.subscribe(&entry, Properties::NONE, &mut wire.output).unwrap();
    while !matches!(wire.next().await, Arrived::Subscribed(_) | Arrived::Closed) {}
    if random.percent(50) {
        sleep(Duration::from_secs(10_000)).await;
    }
    loop {
        // The client's acknowledgements are dropped.
        wire.output.clear();
        if matches!(wire.next().await, Arrived::Closed) {
            return;
        }
    }
}
