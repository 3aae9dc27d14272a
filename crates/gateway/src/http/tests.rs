//! The door over pipes, with requests written by hand: what every version shares, and the framing of HTTP/1.1.

mod acme;
mod admin;
mod credentials;
mod deadlines;
mod documented;
mod idempotent;
mod idle;
mod long_lived;
mod parallel;
mod store;
mod turns;

use std::{rc::Rc, sync::Arc, time::Duration};

use fogmux_auth::{Authority, Rules};
use fogmux_bus::{
    Bus, BusConfig, Forgetful, Meaning, Payload, Publication, Publisher, RetainedStore, TopicRef, WorkerId,
};
use fogmux_http::websocket::{Opcode, push_frame};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex},
    runtime::{Builder, LocalOptions},
    sync::watch,
};

use super::{HttpConfig, HttpContext, HttpDoor, serve};
use crate::{Clock, Peer, Shared, WorkerContext, runtime::doors::Doors};

struct House {
    ctx: Rc<HttpContext>,
    drain: watch::Sender<crate::phase::Phase>,
}

fn run(config: HttpConfig, test: impl AsyncFnOnce(House)) {
    run_under(config, Rules::default(), test);
}

fn run_under(config: HttpConfig, rules: Rules, test: impl AsyncFnOnce(House)) {
    run_on(Box::new(Forgetful), config, rules, test);
}

fn run_on(store: Box<dyn RetainedStore>, config: HttpConfig, rules: Rules, test: impl AsyncFnOnce(House)) {
    let house = house_on(store, config, rules);
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default()).unwrap();
    runtime.block_on(async {
        tokio::time::timeout(Duration::from_secs(20), test(house)).await.expect("the test hangs");
    });
}

fn house_on(store: Box<dyn RetainedStore>, config: HttpConfig, rules: Rules) -> House {
    let clock = Clock::start();
    let now = clock.now();
    let bus = Bus::new(&BusConfig::default(), store, now, clock.unix_ms(now));
    let (drain, draining) = watch::channel(crate::phase::Phase::Open);
    let shared = Shared::new(bus, Arc::new(Authority::new(rules)), clock, draining);
    let doors = Doors { http: Arc::new(HttpDoor::new(config)), ..Doors::default() };
    House { ctx: doors.on(&WorkerContext::new(Arc::new(shared), WorkerId(0))).http, drain }
}

impl House {
    /// From another door.
    fn publish(&self, topic: &str, payload: &[u8]) {
        self.publish_as(topic, payload, Meaning::Event);
    }

    fn publish_retained(&self, topic: &str, payload: &[u8]) {
        self.publish_as(topic, payload, Meaning::Value);
    }

    fn publish_as(&self, topic: &str, payload: &[u8], meaning: Meaning) {
        let (publisher, now) = (Publisher::internal(), self.ctx.now());
        let topic = TopicRef::new(topic).unwrap();
        let mut publication = Publication::new(topic, Payload::Slice(payload), &publisher, now, self.ctx.unix_ms(now));
        publication.meaning = meaning;
        drop(self.ctx.worker.borrow_mut().publish(&mut [publication]));
    }

    fn connect(&self, anonymous: bool) -> Client {
        self.connect_as(Peer::plain(([127, 0, 0, 1], 9).into(), anonymous))
    }

    fn connect_as(&self, peer: Peer) -> Client {
        let (client, server) = duplex(64 << 10);
        tokio::task::spawn_local(serve(Rc::clone(&self.ctx), server, peer, None));
        Client { stream: client, left: Vec::new() }
    }

    async fn ask(&self, request: &str) -> Response {
        self.connect(true).ask(request).await
    }
}

struct Client {
    stream: DuplexStream,
    left: Vec<u8>,
}

#[derive(Debug)]
struct Response {
    head: String,
    body: Vec<u8>,
}

impl Response {
    fn status(&self) -> u16 {
        self.head.split(' ').nth(1).unwrap().parse().unwrap()
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

impl Client {
    /// Sends a request line with headers, each ended by `|`, and what follows `||` as body.
    async fn send(&mut self, request: &str) {
        let (head, body) = request.split_once("||").unwrap_or((request, ""));
        let mut wire = head.replacen('|', " HTTP/1.1|host: localhost|", 1).replace('|', "\r\n");
        if !head.contains('|') {
            wire.push_str(" HTTP/1.1\r\nhost: localhost");
        }
        if !body.is_empty() {
            wire.push_str(&format!("\r\ncontent-length: {}", body.len()));
        }
        self.stream.write_all(format!("{wire}\r\n\r\n{body}").as_bytes()).await.unwrap();
    }

    async fn ask(&mut self, request: &str) -> Response {
        self.send(request).await;
        let response = self.receive(request.starts_with("HEAD")).await;
        documented::check(request, response.status());
        response
    }

    async fn receive(&mut self, head_only: bool) -> Response {
        let end = self.until(b"\r\n\r\n").await;
        let head = String::from_utf8(self.left.drain(..end).collect()).unwrap();
        let mut response = Response { head, body: Vec::new() };
        let length = response.header("content-length").map_or(0, |length| length.parse().unwrap());
        if !head_only {
            while self.left.len() < length {
                assert!(self.more().await, "the body is cut short");
            }
            response.body = self.left.drain(..length).collect();
        }
        response
    }

    /// Reads until these bytes came; gives where they end.
    async fn until(&mut self, wanted: &[u8]) -> usize {
        loop {
            if let Some(at) = self.left.windows(wanted.len()).position(|window| window == wanted) {
                return at + wanted.len();
            }
            assert!(self.more().await, "closed after {:?}", String::from_utf8_lossy(&self.left));
        }
    }

    async fn more(&mut self) -> bool {
        self.stream.read_buf(&mut self.left).await.unwrap() > 0
    }

    /// The next event of a stream.
    async fn event(&mut self) -> (Option<String>, serde_json::Value) {
        loop {
            let end = self.until(b"\n\n").await;
            let block = String::from_utf8(self.left.drain(..end).collect()).unwrap();
            // Chunk sizes stand on lines of their own and are no field of an event.
            let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name));
            if let Some(data) = field("data: ") {
                let name = field("event: ").or_else(|| field("id: "));
                return (name.map(str::to_owned), serde_json::from_str(data).unwrap());
            }
        }
    }
}

#[test]
fn the_life_of_a_topic() {
    run(HttpConfig::default(), async |house| {
        let mut client = house.connect(true);
        assert_eq!(client.ask("GET /topics/a").await.status(), 404);
        let made = client.ask("PUT /topics/a|content-type: text/x; a=\"b\"||one").await;
        assert_eq!(made.status(), 201);
        let tag = made.header("etag").unwrap().to_owned();
        let got = client.ask("GET /topics/a").await;
        assert_eq!((got.text(), got.header("content-type")), ("one", Some("text/x; a=\"b\"")));
        assert_eq!(got.header("etag"), Some(&*tag));
        let head = client.ask("HEAD /topics/a").await;
        assert_eq!((head.status(), head.header("content-length")), (200, Some("3")));
        assert_eq!(client.ask(&format!("GET /topics/a|if-none-match: {tag}")).await.status(), 304);
        assert_eq!(client.ask("PUT /topics/a|if-none-match: *||two").await.status(), 412);
        assert_eq!(client.ask(&format!("PUT /topics/a|if-match: {tag}||two")).await.status(), 204);
        assert_eq!(client.ask(&format!("PUT /topics/a|if-match: {tag}||three")).await.status(), 412);
        assert_eq!(client.ask("POST /topics/a||four").await.status(), 202);
        assert_eq!(client.ask("POST /topics/a|if-none-match: *||five").await.status(), 412);
        assert_eq!(client.ask(&format!("POST /topics/a|if-match: {}||five", "\"0\"")).await.status(), 412);
        assert_eq!(client.ask("POST /topics/a|if-match: *||five").await.status(), 202);
        assert_eq!(client.ask("GET /topics/a").await.text(), "two");
        assert_eq!(client.ask(&format!("DELETE /topics/a|if-match: {tag}")).await.status(), 412);
        assert_eq!(client.ask("DELETE /topics/a").await.status(), 204);
        let gone = client.ask("GET /topics/a").await;
        assert_eq!((gone.status(), gone.header("content-type")), (404, Some("application/problem+json")));
    });
}

#[test]
fn what_is_refused_and_how() {
    let config = HttpConfig { payload_bytes_max: 10, ..HttpConfig::default() };
    run(config, async |house| {
        let table = [
            ("GET /nowhere", 404),
            ("GET /topics/", 400),
            ("GET /topics/a/%23", 400),
            ("GET /topics/%ff", 400),
            ("GET /topics/a%00", 400),
            ("PATCH /topics/a", 405),
            ("POST /subscribe", 405),
            ("OPTIONS /topics/a", 204),
            ("PUT /topics/a?qos=3||x", 400),
            ("PUT /topics/a?retain=false||x", 400),
            ("PUT /topics/a?reply_to=%23||x", 400),
            ("PUT /topics/a?property.x=%00||x", 400),
            ("PUT /topics/a||12345678901", 413),
            ("PUT /topics/a|content-encoding: gzip||x", 415),
            ("PUT /topics/a|content-range: bytes 0-0/1||x", 400),
            ("PUT /topics/a|expect: 200-ok||x", 417),
            ("PUT /topics/a|origin: http://evil.example||x", 403),
            ("PUT /topics/%24SYS/a||x", 403),
            ("GET /topics/a|authorization: Bearer x", 401),
            ("GET /topics/a|authorization: Basic bm9ib2R5OngK", 401),
            ("GET /subscribe", 400),
            ("GET /subscribe?filter=a%23", 400),
            ("GET /subscribe?filter=a|accept: text/html", 406),
            ("GET /mqtt", 426),
            ("POST /publish|content-type: text/plain||x", 415),
            ("POST /topics/a|idempotency-key: a b||x", 400),
            ("POST /publish", 200),
            ("GET /healthz", 200),
            ("GET /readyz", 200),
            ("GET /openapi.json", 200),
            ("GET /metrics", 200),
            ("GET /", 200),
        ];
        for (request, status) in table {
            let response = house.ask(request).await;
            assert_eq!(response.status(), status, "{request}: {response:?}");
            if status >= 400 {
                let problem: serde_json::Value = serde_json::from_slice(&response.body).unwrap();
                assert_eq!(problem["status"], status, "{request}");
            }
        }
        assert_eq!(house.ask("PATCH /topics/a").await.header("allow"), Some("GET, HEAD, PUT, POST, DELETE, OPTIONS"));
        let mut stranger = house.connect(false);
        let refused = stranger.ask("GET /topics/a").await;
        assert_eq!((refused.status(), refused.header("www-authenticate").is_some()), (401, true));
        assert_eq!(stranger.ask("GET /healthz").await.status(), 200);
    });
}

#[test]
fn rfc9112_s3_2_one_host_and_one_that_may_be_ours() {
    run(HttpConfig::default(), async |house| {
        for (wire, status) in [
            ("GET /healthz HTTP/1.1\r\n\r\n", 400),
            ("GET /healthz HTTP/1.1\r\nhost: a\r\nhost: a\r\n\r\n", 400),
            ("GET /healthz HTTP/1.0\r\n\r\n", 200),
            ("GET /topics/a HTTP/1.1\r\nhost: evil.example\r\n\r\n", 421),
            ("GET http://[::1]:1/topics/a HTTP/1.1\r\nhost: evil.example\r\n\r\n", 404),
            ("GET /topics/a HTTP/1.1\r\nhost: [::1].evil\r\n\r\n", 400),
            ("GET /topics/a HTTP/1.1\r\nhost: 127.0.0.1:8080@evil.example\r\n\r\n", 400),
            ("GET /topics/a HTTP/1.1\r\nhost: localhost\u{e9}\r\n\r\n", 400),
            ("NONSENSE\r\n\r\n", 400),
            ("PUT /topics/a HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n", 400),
        ] {
            let mut client = house.connect(true);
            client.stream.write_all(wire.as_bytes()).await.unwrap();
            assert_eq!(client.receive(false).await.status(), status, "{wire}");
        }
    });
}

#[test]
fn a_stream_is_resumed_and_says_what_it_cannot() {
    run(HttpConfig::default(), async |house| {
        house.ask("PUT /topics/s/kept||k").await;
        let mut reader = house.connect(true);
        reader.send("GET /subscribe?filter=s/%23").await;
        let (_, kept) = reader.event().await;
        assert_eq!((kept["topic"].as_str(), kept["retain"].as_bool()), (Some("s/kept"), Some(true)));
        house.ask("POST /topics/s/live||1").await;
        let (seen, event) = reader.event().await;
        assert_eq!(event["payload"], "1");
        drop(reader);
        house.ask("POST /topics/s/live||2").await;
        let mut reader = house.connect(true);
        reader.send(&format!("GET /subscribe?filter=s/%23|last-event-id: {}", seen.unwrap())).await;
        let (_, event) = reader.event().await;
        assert_eq!(event["payload"], "2");
        let mut other = house.connect(true);
        other.send("GET /subscribe?filter=s/%23|last-event-id: 0000000000000000.1").await;
        let (name, gap) = other.event().await;
        assert_eq!((name.as_deref(), gap["gap"].as_str()), (Some("gap"), Some("expired")));
        assert_eq!(other.event().await.1["payload"], "k", "what is kept follows a gap");
        // Everything accepted before the shutdown is sent before the stream ends.
        house.publish("s/live", b"last");
        house.drain.send_replace(crate::phase::Phase::Emptying);
        assert_eq!(other.event().await.1["payload"], "last");
        other.until(b"0\r\n\r\n").await;
    });
}

#[test]
fn a_long_poll_waits_for_something_else() {
    run(HttpConfig::default(), async |house| {
        let tag = house.ask("PUT /topics/a||1").await.header("etag").unwrap().to_owned();
        let mut poll = house.connect(true);
        poll.send(&format!("GET /topics/a?wait=15|if-none-match: {tag}")).await;
        tokio::task::yield_now().await;
        house.ask("PUT /topics/a||1").await;
        house.ask("POST /topics/a||2").await;
        assert_eq!(poll.receive(false).await.text(), "2");
        assert_eq!(house.ask("GET /topics/a?wait=15").await.text(), "1", "what is kept is worth no wait");
    });
}

#[test]
fn a_batch_and_a_key() {
    run(HttpConfig::default(), async |house| {
        let batch = "POST /publish|idempotency-key: k||{\"topic\":\"b\",\"retain\":true,\"payload\":\"AP8=\",\"encoding\":\"base64\"}\n{\"topic\":\"#\"}\nx";
        let first = house.ask(batch).await;
        let lines: Vec<serde_json::Value> =
            first.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(
            lines.iter().map(|line| line["status"].as_u64()).collect::<Vec<_>>(),
            [Some(202), Some(400), Some(400)]
        );
        assert_eq!(house.ask("GET /topics/b").await.body, [0, 0xff]);
        house.ask("DELETE /topics/b").await;
        assert_eq!(house.ask(batch).await.body, first.body);
        assert_eq!(house.ask("GET /topics/b").await.status(), 404, "it is not done twice");
        assert_eq!(house.ask("POST /publish|idempotency-key: k||{\"topic\":\"c\"}").await.status(), 422);
    });
}

#[test]
fn a_websocket_carries_events() {
    run(HttpConfig::default(), async |house| {
        let mut reader = house.connect(true);
        let handshake = "GET /subscribe?filter=w|connection: upgrade|upgrade: websocket|sec-websocket-version: 13|sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==";
        let switched = reader.ask(handshake).await;
        assert_eq!(switched.status(), 101);
        assert_eq!(switched.header("sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
        house.ask("POST /topics/w||x").await;
        reader.until(b"\"payload\":\"x\"").await;
        let mut frames = Vec::new();
        push_frame(Opcode::Ping, b"there?", Some([1, 2, 3, 4]), &mut frames);
        push_frame(Opcode::Close, &[0x03, 0xe8], Some([1, 2, 3, 4]), &mut frames);
        reader.stream.write_all(&frames).await.unwrap();
        reader.until(b"\x8a\x06there?").await;
        reader.until(b"\x88\x02\x03\xe8").await;
        assert!(!reader.more().await);
        assert_eq!(house.ctx.door.streams.count(), (0, 0), "a reader that says 1000 is done");
    });
}

#[test]
fn how_the_bytes_of_a_request_are_cut_changes_nothing() {
    run(HttpConfig::default(), async |house| {
        let wire = b"PUT /topics/cut HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
        for size in [1, 2, 3, 7, 24, 25, wire.len()] {
            let mut client = house.connect(true);
            for piece in wire.chunks(size) {
                client.stream.write_all(piece).await.unwrap();
                tokio::task::yield_now().await;
            }
            assert!(matches!(client.receive(false).await.status(), 201 | 204));
            assert_eq!(client.ask("GET /topics/cut").await.text(), "abcde");
        }
    });
}
