//! The door over in-memory streams, with the client role of `fogmux-mqtt` on the other end.

#![allow(clippy::indexing_slicing, clippy::wildcard_enum_match_arm, reason = "a test that meets the unexpected panics")]

mod credentials;
mod durable;
mod ends;
mod exactly_once;
mod filters;
mod held_back;
mod leaving;
mod memory;
mod messages;
mod sessions;
mod store;

use std::{net::SocketAddr, rc::Rc, sync::Arc, time::Duration};

use fogmux_auth::{Authority, Rules};
use fogmux_bus::{Bus, BusConfig, Forgetful, RetainedStore, WorkerId};
use fogmux_mqtt::{
    Client, ClientLimits, Connect, Event, Outgoing, Packet, Properties, Property, PropertyBuffer, PublishProperties,
    Qos, ReasonCode, RetainHandling, SubscriptionOptions, Version,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream},
    runtime::{Builder, LocalOptions},
    sync::watch,
};

use super::{MqttConfig, MqttContext, MqttDoor, serve};
use crate::{Clock, Peer, Shared, WorkerContext, runtime::doors::Doors};

/// A worker with its door, and what begins a drain.
struct House {
    ctx: Rc<MqttContext>,
    drain: watch::Sender<crate::phase::Phase>,
}

fn house_on(store: Box<dyn RetainedStore>, config: MqttConfig, rules: Rules) -> House {
    let clock = Clock::start();
    let now = clock.now();
    let bus = Bus::new(&BusConfig::default(), store, now, clock.unix_ms(now));
    let (drain, draining) = watch::channel(crate::phase::Phase::Open);
    let shared = Shared::new(bus, Arc::new(Authority::new(rules)), clock, draining);
    let doors = Doors { mqtt: Arc::new(MqttDoor::new(config)), ..Doors::default() };
    doors.mqtt.restore(&shared);
    let ctx = doors.on(&WorkerContext::new(Arc::new(shared), WorkerId(0))).mqtt;
    tokio::task::spawn_local(super::housekeeping(Rc::clone(&ctx)));
    House { ctx, drain }
}

fn run(config: MqttConfig, test: impl AsyncFnOnce(House)) {
    run_under(config, Rules::default(), test);
}

fn run_under(config: MqttConfig, rules: Rules, test: impl AsyncFnOnce(House)) {
    run_on(Box::new(Forgetful), config, rules, test);
}

fn run_on(store: Box<dyn RetainedStore>, config: MqttConfig, rules: Rules, test: impl AsyncFnOnce(House)) {
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default()).unwrap();
    runtime.block_on(async {
        let all = async { test(house_on(store, config, rules)).await };
        tokio::time::timeout(Duration::from_secs(20), all).await.expect("the test hangs");
    });
}

/// A client's end of a connection.
struct Wire {
    stream: DuplexStream,
    client: Client,
    buffer: Vec<u8>,
    session_present: bool,
}

#[derive(Debug, PartialEq)]
struct Message {
    topic: String,
    payload: Vec<u8>,
    qos: Qos,
    retain: bool,
    ids: Vec<u32>,
}

impl House {
    fn open(&self) -> DuplexStream {
        self.open_as(Peer::plain(SocketAddr::from(([127, 0, 0, 1], 1)), true))
    }

    fn open_as(&self, peer: Peer) -> DuplexStream {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        tokio::task::spawn_local(serve(Rc::clone(&self.ctx), theirs, peer));
        ours
    }

    async fn connect(&self, connect: &Connect<'_>) -> Wire {
        self.try_connect(self.open(), connect).await.unwrap()
    }

    async fn try_connect(&self, stream: DuplexStream, connect: &Connect<'_>) -> Result<Wire, ReasonCode> {
        self.try_connect_within(ClientLimits::default(), stream, connect).await
    }

    async fn try_connect_within(
        &self,
        limits: ClientLimits,
        stream: DuplexStream,
        connect: &Connect<'_>,
    ) -> Result<Wire, ReasonCode> {
        let mut out = Vec::new();
        let client = Client::connect(connect, limits, &mut out).unwrap();
        let mut wire = Wire { stream, client, buffer: Vec::new(), session_present: false };
        wire.stream.write_all(&out).await.unwrap();
        let accepted = wire
            .next(|event| match event {
                Event::Connected { session_present, .. } => Ok(*session_present),
                Event::Refused { reason, .. } => Err(*reason),
                other => panic!("{other:?}"),
            })
            .await;
        wire.session_present = accepted?;
        Ok(wire)
    }

    async fn client(&self, version: Version, id: &str) -> Wire {
        self.connect(&connect(version, id)).await
    }
}

fn connect(version: Version, id: &str) -> Connect<'_> {
    Connect {
        version,
        bridge: false,
        clean_start: true,
        keep_alive: 60,
        client_id: id,
        will: None,
        user: None,
        password: None,
        properties: Properties::NONE,
    }
}

fn message<'a>(topic: &'a str, payload: &'a [u8], qos: Qos) -> Outgoing<'a> {
    Outgoing { topic, payload, qos, ..Outgoing::default() }
}

impl Wire {
    /// The next event that says something.
    async fn next<T>(&mut self, look: impl Fn(&Event<'_>) -> T) -> T {
        loop {
            let mut out = Vec::new();
            let handled = self.client.handle(&self.buffer, &mut out).unwrap();
            let found = handled.map(|(event, used)| ((event != Event::Nothing).then(|| look(&event)), used));
            self.stream.write_all(&out).await.unwrap();
            match found {
                Some((found, used)) => {
                    self.buffer.drain(..used);
                    if let Some(found) = found {
                        return found;
                    }
                }
                None => {
                    let mut more = [0; 4096];
                    let read = self.stream.read(&mut more).await.unwrap();
                    assert!(read > 0, "closed");
                    self.buffer.extend_from_slice(&more[..read]);
                }
            }
        }
    }

    async fn subscribe_with(&mut self, filter: &str, options: SubscriptionOptions, list: Properties<'_>) -> ReasonCode {
        let mut out = Vec::new();
        self.client.subscribe(&[(filter, options)], list, &mut out).unwrap();
        self.stream.write_all(&out).await.unwrap();
        self.next(|event| match event {
            Event::Subscribed { codes, .. } => codes.iter().next().unwrap(),
            other => panic!("{other:?}"),
        })
        .await
    }

    async fn subscribe(&mut self, filter: &str, qos: Qos) {
        let granted = self.subscribe_with(filter, SubscriptionOptions::qos(qos), Properties::NONE).await;
        assert_eq!(granted.0, qos.bits());
    }

    async fn send(&mut self, message: &Outgoing<'_>) {
        let mut out = Vec::new();
        self.client.publish(message, &mut out).unwrap();
        self.stream.write_all(&out).await.unwrap();
    }

    /// Publishes and waits for the end of the exchange.
    async fn publish(&mut self, message: &Outgoing<'_>) -> ReasonCode {
        self.send(message).await;
        if message.qos == Qos::AtMostOnce {
            return ReasonCode::SUCCESS;
        }
        self.next(|event| match event {
            Event::Published { reason, .. } => *reason,
            other => panic!("{other:?}"),
        })
        .await
    }

    async fn message(&mut self) -> Message {
        self.next(|event| match event {
            Event::Message(incoming) => Message {
                topic: incoming.topic.as_str().to_owned(),
                payload: incoming.payload.to_vec(),
                qos: incoming.qos,
                retain: incoming.retain,
                ids: incoming.properties.subscription_ids().collect(),
            },
            other => panic!("{other:?}"),
        })
        .await
    }

    /// Nothing is on its way: a PINGREQ is answered next.
    async fn nothing(&mut self) {
        let mut out = Vec::new();
        self.client.ping(&mut out);
        self.stream.write_all(&out).await.unwrap();
        let pong = self.next(|event| format!("{event:?}")).await;
        assert_eq!(pong, "Pong");
    }

    async fn disconnected(&mut self) -> ReasonCode {
        self.next(|event| match event {
            Event::Disconnected { reason, .. } => *reason,
            other => panic!("{other:?}"),
        })
        .await
    }

    async fn closed(mut self) {
        let mut rest = Vec::new();
        self.stream.read_to_end(&mut rest).await.unwrap();
    }

    async fn disconnect(mut self, reason: ReasonCode) {
        let mut out = Vec::new();
        self.client.disconnect(reason, &mut out);
        self.stream.write_all(&out).await.unwrap();
        self.closed().await;
    }
}

const ALL_QOS: [Qos; 3] = [Qos::AtMostOnce, Qos::AtLeastOnce, Qos::ExactlyOnce];
