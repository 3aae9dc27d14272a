//! The door over a loopback socket, with the client role of `fogmux-coap` on the other end.

#![allow(clippy::indexing_slicing, reason = "a test that meets the unexpected panics")]

mod crowds;
mod late;
mod outcomes;
mod streams;

use std::{rc::Rc, sync::Arc, time::Duration};

use bytes::Bytes;
use fogmux_auth::{Authority, Rules};
use fogmux_bus::{
    Bus, BusConfig, Forgetful, Meaning, Payload, Publication, Publisher, RetainedStore, TopicRef, WorkerId,
};
use fogmux_coap::{
    Call, Client, ClientConfig, ClientEvent, Code, Outbox,
    client::{Answer, CallId},
};
use tokio::{
    net::UdpSocket,
    runtime::{Builder, LocalOptions},
    sync::watch,
};

use super::{Amplification, CoapConfig, CoapContext, CoapDoor, Listener, serve};
use crate::{Clock, Shared, WorkerContext, runtime::doors::Doors};

/// A worker with its door.
pub(super) struct House {
    pub(super) ctx: Rc<CoapContext>,
    drain: watch::Sender<crate::phase::Phase>,
    pub(super) address: std::net::SocketAddr,
}

async fn house_on(store: Box<dyn RetainedStore>, config: CoapConfig, anonymous: bool) -> House {
    let clock = Clock::start();
    let now = clock.now();
    let bus = Bus::new(&BusConfig::default(), store, now, clock.unix_ms(now));
    let (drain, draining) = watch::channel(crate::phase::Phase::Open);
    let shared = Shared::new(bus, Arc::new(Authority::new(Rules::default())), clock, draining);
    let doors = Doors { coap: Arc::new(CoapDoor::new(config)), ..Doors::default() };
    let ctx = doors.on(&WorkerContext::new(Arc::new(shared), WorkerId(0))).coap;
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let listener = Listener { by: None, anonymous, sources: fogmux_auth::SourceSet::ALL };
    tokio::task::spawn_local(serve(Rc::clone(&ctx), socket, listener));
    House { ctx, drain, address }
}

pub(super) fn run(config: CoapConfig, anonymous: bool, test: impl AsyncFnOnce(House)) {
    run_on(Box::new(Forgetful), config, anonymous, test);
}

fn run_on(store: Box<dyn RetainedStore>, config: CoapConfig, anonymous: bool, test: impl AsyncFnOnce(House)) {
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default()).unwrap();
    runtime.block_on(async {
        let all = async { test(house_on(store, config, anonymous).await).await };
        tokio::time::timeout(Duration::from_secs(20), all).await.expect("the test hangs");
    });
}

/// A client's end.
struct Device {
    ctx: Rc<CoapContext>,
    socket: UdpSocket,
    client: Client,
    out: Outbox<()>,
}

impl House {
    async fn device(&self) -> Device {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        socket.connect(self.address).await.unwrap();
        let client = Client::new(ClientConfig::default(), 99);
        Device { ctx: Rc::clone(&self.ctx), socket, client, out: Outbox::default() }
    }

    /// From another door.
    fn publish(&self, topic: &str, payload: &[u8], content_type: Option<&str>) {
        self.publish_as(topic, payload, content_type, false);
    }

    /// The same, kept.
    pub(super) fn keep(&self, topic: &str, payload: &[u8]) {
        self.publish_as(topic, payload, None, true);
    }

    fn publish_as(&self, topic: &str, payload: &[u8], content_type: Option<&str>, retain: bool) {
        let (publisher, now) = (Publisher::internal(), self.ctx.now());
        let mut publication = Publication::new(
            TopicRef::new(topic).unwrap(),
            Payload::Slice(payload),
            &publisher,
            now,
            self.ctx.unix_ms(now),
        );
        publication.content_type = content_type;
        publication.meaning = Meaning::of_flag(retain, payload);
        let _ = self.ctx.worker.borrow_mut().publish(&mut [publication]);
    }
}

impl Device {
    async fn flush(&mut self) {
        for (_, datagram) in self.out.iter() {
            self.socket.send(datagram).await.unwrap();
        }
        self.out.clear();
    }

    fn now(&self) -> fogmux_coap::Timestamp {
        super::core::machine_time(self.ctx.now())
    }

    async fn start(&mut self, call: Call) -> CallId {
        let now = self.now();
        let id = self.client.request(now, call, &mut self.out).unwrap();
        self.flush().await;
        id
    }

    async fn event(&mut self) -> ClientEvent {
        let mut buffer = vec![0; 65_536];
        loop {
            if let Some(event) = self.client.poll_event() {
                return event;
            }
            let length = self.socket.recv(&mut buffer).await.unwrap();
            let now = self.now();
            self.client.handle(now, &buffer[..length], &mut self.out);
            self.flush().await;
        }
    }

    async fn ask(&mut self, call: Call) -> Answer {
        self.start(call).await;
        match self.event().await {
            ClientEvent::Answered { answer, .. } => answer,
            other @ (ClientEvent::Notified { .. } | ClientEvent::Failed { .. }) => panic!("{other:?}"),
        }
    }

    async fn notification(&mut self) -> Answer {
        match self.event().await {
            ClientEvent::Notified { answer, .. } => answer,
            other @ (ClientEvent::Answered { .. } | ClientEvent::Failed { .. }) => panic!("{other:?}"),
        }
    }
}

fn put(path: &str, payload: &[u8]) -> Call {
    Call { payload: Bytes::copy_from_slice(payload), ..Call::new(Code::PUT, path) }
}

pub(super) fn get(path: &str) -> Call {
    Call::new(Code::GET, path)
}

fn query(text: &str) -> Vec<String> {
    vec![text.to_owned()]
}

#[test]
fn put_get_delete() {
    run(CoapConfig::default(), true, async |house| {
        let mut device = house.device().await;
        assert_eq!(device.ask(get("/ps/a/b")).await.code, Code::NOT_FOUND);
        let first = Call { content_format: Some(50), ..put("/ps/a/b", b"{}") };
        assert_eq!(device.ask(first.clone()).await.code, Code::CREATED);
        assert_eq!(device.ask(first).await.code, Code::CHANGED);
        let kept = house.ctx.bus().latest("a/b", house.ctx.now()).unwrap();
        assert_eq!((&kept.payload[..], kept.content_type.as_deref()), (&b"{}"[..], Some("application/json")));
        let answer = device.ask(get("/ps/a/b")).await;
        assert_eq!((answer.code, &answer.payload[..], answer.content_format), (Code::CONTENT, &b"{}"[..], Some(50)));
        let unchanged = Call { etags: answer.etag.into_iter().collect(), ..get("/ps/a/b") };
        assert_eq!(device.ask(unchanged).await.code, Code::VALID);
        assert_eq!(device.ask(Call::new(Code::DELETE, "/ps/a/b")).await.code, Code::DELETED);
        assert_eq!(device.ask(get("/ps/a/b")).await.code, Code::NOT_FOUND);
    });
}

#[test]
fn post_keeps_only_when_told_and_everything_else_is_refused_by_name() {
    run(CoapConfig { payload_bytes_max: 2000, ..CoapConfig::default() }, true, async |house| {
        let mut device = house.device().await;
        let post = Call { payload: Bytes::from_static(b"x"), ..Call::new(Code::POST, "/ps/a") };
        assert_eq!(device.ask(post.clone()).await.code, Code::CHANGED);
        assert_eq!(device.ask(get("/ps/a")).await.code, Code::NOT_FOUND);
        assert_eq!(device.ask(Call { queries: query("retain=true"), ..post.clone() }).await.code, Code::CREATED);
        for (call, code) in [
            (Call { queries: query("retain=false"), ..put("/ps/a", b"x") }, Code::BAD_REQUEST),
            (Call { queries: query("qos=3"), ..put("/ps/a", b"x") }, Code::BAD_REQUEST),
            (put("/ps/a/+", b"x"), Code::BAD_REQUEST),
            (put("/ps/$SYS/a", b"x"), Code::FORBIDDEN),
            (put("/ps", b"x"), Code::METHOD_NOT_ALLOWED),
            (put("/other", b"x"), Code::NOT_FOUND),
            (Call { content_format: Some(65_001), ..put("/ps/a", b"x") }, Code::UNSUPPORTED_CONTENT_FORMAT),
            (Call { if_none_match: true, ..put("/ps/a", b"x") }, Code::PRECONDITION_FAILED),
            (Call { if_none_match: true, ..post }, Code::PRECONDITION_FAILED),
            (put("/ps/a", &[0; 2001]), Code::REQUEST_ENTITY_TOO_LARGE),
            (Call::new(Code::PATCH, "/ps/a"), Code::METHOD_NOT_ALLOWED),
        ] {
            let what = format!("{call:?}");
            assert_eq!(device.ask(call).await.code, code, "{what}");
        }
    });
}

#[test]
fn large_bodies_go_both_ways_in_blocks() {
    run(CoapConfig::default(), true, async |house| {
        let mut device = house.device().await;
        let body: Vec<u8> = (0..=255).cycle().take(100_000).collect();
        assert_eq!(device.ask(put("/ps/large", &body)).await.code, Code::CREATED);
        assert_eq!(device.ask(get("/ps/large")).await.payload, body);
    });
}

#[test]
fn an_observer_sees_what_other_doors_publish_and_a_last_4_04() {
    run(CoapConfig::default(), true, async |house| {
        let mut device = house.device().await;
        device.start(Call { observe: true, ..get("/ps/a") }).await;
        let event = device.event().await;
        let ClientEvent::Answered { answer, observed: true, .. } = event else { panic!("{event:?}") };
        assert!(answer.payload.is_empty());
        for value in [b"1", b"2", b"3"] {
            house.publish("a", value, Some("text/plain; charset=utf-8"));
            let notification = device.notification().await;
            assert_eq!((&notification.payload[..], notification.content_format), (&value[..], Some(0)));
        }
        let mut other = house.device().await;
        other.ask(Call { content_format: Some(0), ..put("/ps/a", b"kept") }).await;
        assert_eq!(&device.notification().await.payload[..], b"kept");
        other.ask(Call::new(Code::DELETE, "/ps/a")).await;
        assert_eq!(device.notification().await.code, Code::NOT_FOUND);
        house.publish("a", b"4", None);
        assert_eq!(house.ctx.bus().subscriptions(), 0);
    });
}

#[test]
fn an_observer_of_a_filter_gets_kept_values_and_each_names_its_topic() {
    run(CoapConfig::default(), true, async |house| {
        let mut device = house.device().await;
        for topic in ["f/1", "f/2", "g/1"] {
            device.ask(put(&format!("/ps/{topic}"), topic.as_bytes())).await;
        }
        let call = Call { observe: true, queries: query("filter=f/+"), ..Call::new(Code::FETCH, "/ps") };
        let id = device.start(call).await;
        assert!(matches!(device.event().await, ClientEvent::Answered { observed: true, .. }));
        for topic in ["f/1", "f/2"] {
            let notification = device.notification().await;
            assert_eq!(notification.location.join("/"), format!("ps/{topic}"));
            assert_eq!(&notification.payload[..], topic.as_bytes());
        }
        house.publish("f/3", b"new", None);
        assert_eq!(device.notification().await.location, ["ps", "f", "3"]);
        let now = device.now();
        device.client.cancel(now, id, &mut device.out);
        device.flush().await;
        while house.ctx.bus().subscriptions() > 0 {
            tokio::task::yield_now().await;
        }
    });
}

#[test]
fn large_notifications_are_fetched_whole_though_nobody_keeps_them() {
    let body = |first: u8| -> Vec<u8> { (first..=255).chain(0..=255).cycle().take(5_000).collect() };
    run(CoapConfig::default(), true, async |house| {
        let mut device = house.device().await;
        device.start(Call { observe: true, queries: query("qos=1"), ..get("/ps/a") }).await;
        assert!(matches!(device.event().await, ClientEvent::Answered { observed: true, .. }));
        house.publish("a", &body(1), None);
        assert_eq!(device.notification().await.payload, body(1));

        let mut device = house.device().await;
        device.start(Call { observe: true, queries: query("filter=l/#"), ..Call::new(Code::FETCH, "/ps") }).await;
        assert!(matches!(device.event().await, ClientEvent::Answered { observed: true, .. }));
        house.publish("l/1", &body(2), None);
        house.publish("l/2", &body(3), None);
        house.publish("l/3", b"short", None);
        let mut seen = Vec::new();
        for _ in 0..3 {
            let notification = device.notification().await;
            seen.push((notification.location.join("/"), notification.payload.to_vec()));
        }
        seen.sort();
        let expected = [("ps/l/1", body(2)), ("ps/l/2", body(3)), ("ps/l/3", b"short".to_vec())];
        assert_eq!(seen, expected.map(|(topic, payload)| (topic.to_owned(), payload)));
    });
}

#[test]
fn links_are_filtered() {
    run(CoapConfig::default(), true, async |house| {
        let mut device = house.device().await;
        for number in 0..60 {
            device.ask(put(&format!("/ps/l/{number}"), b"x")).await;
        }
        let all = device.ask(get("/.well-known/core")).await;
        assert_eq!((all.code, all.content_format), (Code::CONTENT, Some(40)));
        assert_eq!(all.payload.iter().filter(|byte| **byte == b'<').count(), 61);
        let one = device.ask(Call { queries: query("href=/ps/l/7"), ..get("/.well-known/core") }).await;
        assert_eq!(&one.payload[..], br#"</ps/l/7>;rt="fogmux.topic";if="fogmux.ps";sz=1;obs"#);
    });
}

#[test]
fn without_anonymous_everybody_is_refused() {
    run(CoapConfig::default(), false, async |house| {
        let mut device = house.device().await;
        assert_eq!(device.ask(get("/ps/a")).await.code, Code::UNAUTHORIZED);
        assert_eq!(device.ask(put("/ps/a", b"x")).await.code, Code::UNAUTHORIZED);
    });
}

#[test]
fn an_echo_is_sent_back_where_addresses_must_be_proven() {
    let config = CoapConfig { amplification: Amplification::All, ..CoapConfig::default() };
    run(config, true, async |house| {
        let mut device = house.device().await;
        device.ask(put("/ps/a", &[7; 900])).await;
        assert_eq!(device.ask(get("/ps/a")).await.payload.len(), 900);
    });
}

#[test]
fn observers_hear_when_the_gateway_goes() {
    run(CoapConfig::default(), true, async |house| {
        let mut device = house.device().await;
        device.start(Call { observe: true, ..get("/ps/a") }).await;
        device.event().await;
        house.drain.send_replace(crate::phase::Phase::Closing);
        let last = device.notification().await;
        assert_eq!((last.code, last.max_age), (Code::SERVICE_UNAVAILABLE, Some(10)));
    });
}

/// Anonymous clients, and what they may read.
fn rules(acl: &str) -> Rules {
    let acl = fogmux_auth::Acl::parse(std::path::Path::new("acl.toml"), acl).unwrap();
    Rules::new(fogmux_auth::Users::default(), Some(acl), fogmux_auth::AnonymousPolicy::Loopback)
}

#[test]
fn rfc_7641_s4_2_who_may_not_read_any_more_is_told_so() {
    const ALL: &str = "[[allow]]\nanonymous = true\nboth = [\"#\"]\n";
    const SOME: &str = "[[allow]]\nanonymous = true\nboth = [\"open/#\"]\n";
    run(CoapConfig::default(), true, async |house| {
        house.ctx.authority().replace(rules(ALL));
        house.keep("closed/x", b"1");
        house.keep("open/x", b"1");
        let (mut loser, mut keeper, mut filter) = (house.device().await, house.device().await, house.device().await);
        let follow = |path: &str| Call { observe: true, ..Call::new(Code::GET, path) };
        assert_eq!(loser.ask(follow("ps/closed/x")).await.code, Code::CONTENT);
        assert_eq!(keeper.ask(follow("ps/open/x")).await.code, Code::CONTENT);
        let mut fetch = Call { observe: true, ..Call::new(Code::FETCH, "ps") };
        fetch.queries.push("filter=closed/#".to_owned());
        assert_eq!(filter.ask(fetch).await.code, Code::CONTENT);
        assert_eq!(filter.notification().await.code, Code::CONTENT);
        house.ctx.authority().replace(rules(SOME));
        // The next request makes the door check the rules again.
        keeper.ask(Call::new(Code::GET, "ps/open/x")).await;
        assert_eq!(loser.notification().await.code, Code::FORBIDDEN);
        assert_eq!(filter.notification().await.code, Code::FORBIDDEN);
        house.keep("open/x", b"2");
        assert_eq!(keeper.notification().await.payload.as_ref(), b"2");
        // And when nobody may come in without credentials any more.
        let closed = fogmux_auth::Acl::parse(std::path::Path::new("acl.toml"), ALL).unwrap();
        let nobody = Rules::new(fogmux_auth::Users::default(), Some(closed), fogmux_auth::AnonymousPolicy::Never);
        house.ctx.authority().replace(nobody);
        assert_eq!(loser.ask(Call::new(Code::GET, "ps/open/x")).await.code, Code::UNAUTHORIZED);
        assert_eq!(keeper.notification().await.code, Code::UNAUTHORIZED);
    });
}
