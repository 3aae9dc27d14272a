//! Transports that live as long as their protocol does: event streams and WebSockets, over HTTP/1.1 and HTTP/2, on a
//! clock that jumps.

use h2::{RecvStream, SendStream, client::SendRequest, ext::Protocol};
use http::{Method, Request, Version};
use tokio::{
    io::{ReadHalf, WriteHalf, split},
    task::spawn_local,
    time::{Instant, timeout_at},
};

use super::*;

/// Longer than any timer of the door: the idle deadline is 75 s. A silent CoAP connection is asked after 300 s.
const LIFE_SECONDS: u64 = 200;
/// Seconds between two messages of a client that is busy.
const BUSY_SECONDS: u64 = 5;
/// The mask of all frames.
const MASK: Option<[u8; 4]> = Some([1, 2, 3, 4]);
/// CONNECT of MQTT 3.1.1 without keep alive.
const CONNECT: &[u8] = b"\x10\x0d\0\x04MQTT\x04\x02\0\0\0\x01a";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Carried {
    /// Server-sent events.
    Stream,
    /// Events in a WebSocket.
    Events,
    Mqtt,
    Coap,
}

impl Carried {
    const ALL: [Self; 4] = [Self::Stream, Self::Events, Self::Mqtt, Self::Coap];

    const fn path(self) -> &'static str {
        match self {
            Self::Stream | Self::Events => "/subscribe?filter=alive",
            Self::Mqtt => "/mqtt",
            Self::Coap => "/.well-known/coap",
        }
    }

    const fn subprotocol(self) -> Option<&'static str> {
        match self {
            Self::Stream | Self::Events => None,
            Self::Mqtt => Some("mqtt"),
            Self::Coap => Some("coap"),
        }
    }

    /// Opens the connection inside the WebSocket.
    async fn begin(self, client: &mut Client) {
        let (first, answer): (&[u8], &[u8]) = match self {
            Self::Stream | Self::Events => return,
            Self::Mqtt => (CONNECT, b"\x20\x02\0\0"),
            // RFC 8323 §5.3: CSM; the gateway's own has options.
            Self::Coap => (b"\0\xe1", b"\xe1"),
        };
        let mut frames = Vec::new();
        push_frame(Opcode::Binary, first, MASK, &mut frames);
        client.stream.write_all(&frames).await.unwrap();
        client.until(answer).await;
        client.left.clear();
    }

    /// Has something come that shows that the transport works; `number` is in it, if it is an event.
    async fn converse(self, house: &House, client: &mut Client, number: u64) {
        let mut frames = Vec::new();
        let expected: Vec<u8> = match self {
            Self::Stream | Self::Events => {
                house.publish("alive", number.to_string().as_bytes());
                format!("\"payload\":\"{number}\"").into()
            }
            Self::Mqtt => {
                // PINGREQ and PINGRESP.
                push_frame(Opcode::Binary, b"\xc0\0", MASK, &mut frames);
                b"\x82\x02\xd0\0".into()
            }
            Self::Coap => {
                // RFC 8323 §5.4: Ping and Pong.
                push_frame(Opcode::Binary, b"\0\xe2", MASK, &mut frames);
                b"\x82\x02\0\xe3".into()
            }
        };
        client.stream.write_all(&frames).await.unwrap();
        client.until(&expected).await;
        answer_pings(self, client).await;
        let end = client.until(&expected).await;
        client.left.drain(..end);
    }
}

#[test]
fn rfc8441_every_long_lived_transport_outlives_every_timer_busy_or_silent() {
    for version in [Version::HTTP_11, Version::HTTP_2] {
        for carried in Carried::ALL {
            for busy in [true, false] {
                let runtime = Builder::new_current_thread()
                    .enable_all()
                    .start_paused(true)
                    .build_local(LocalOptions::default())
                    .unwrap();
                runtime.block_on(live(version, carried, busy));
            }
        }
    }
}

async fn live(version: Version, carried: Carried, busy: bool) {
    let house = house_on(Box::new(Forgetful), HttpConfig::default(), Rules::default());
    let mut client =
        if version == Version::HTTP_11 { over_one(&house, carried).await } else { over_two(&house, carried).await };
    carried.begin(&mut client).await;
    for second in 0..LIFE_SECONDS {
        if busy && second % BUSY_SECONDS == 0 {
            carried.converse(&house, &mut client, second).await;
        }
        let until = Instant::now() + Duration::from_secs(1);
        while let Ok(more) = timeout_at(until, client.more()).await {
            assert!(more, "{version:?} {carried:?}, busy: {busy}: closed after {second} s");
            answer_pings(carried, &mut client).await;
        }
        // A worker looks at the clock every second, else it takes itself to have been stopped.
        let _ = house.ctx.now();
    }
    carried.converse(&house, &mut client, LIFE_SECONDS).await;
}

/// Answers the pings of the WebSocket, or of CoAP inside it, that have come, as every client does.
async fn answer_pings(carried: Carried, client: &mut Client) {
    let (ping, opcode, pong): (&[u8], _, &[u8]) = match carried {
        Carried::Stream => return,
        Carried::Events | Carried::Mqtt => (b"\x89\0", Opcode::Pong, b""),
        Carried::Coap => (b"\x82\x02\0\xe2", Opcode::Binary, b"\0\xe3"),
    };
    while let Some(at) = client.left.windows(ping.len()).position(|window| window == ping) {
        client.left.drain(at..at + ping.len());
        let mut frames = Vec::new();
        push_frame(opcode, pong, MASK, &mut frames);
        client.stream.write_all(&frames).await.unwrap();
    }
}

async fn over_one(house: &House, carried: Carried) -> Client {
    let mut client = house.connect(true);
    let mut request = format!("GET {}", carried.path());
    if carried != Carried::Stream {
        request.push_str("|connection: upgrade|upgrade: websocket|sec-websocket-version: 13");
        request.push_str("|sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==");
    }
    if let Some(protocol) = carried.subprotocol() {
        request.push_str("|sec-websocket-protocol: ");
        request.push_str(protocol);
    }
    client.send(&request).await;
    let end = client.until(b"\r\n\r\n").await;
    client.left.drain(..end);
    client
}

/// The stream of the connection as a connection of its own.
async fn over_two(house: &House, carried: Carried) -> Client {
    let (h2, connection) = h2::client::handshake(house.connect(true).stream).await.unwrap();
    spawn_local(connection);
    let mut h2 = h2.ready().await.unwrap();
    while !h2.is_extended_connect_protocol_enabled() {
        tokio::task::yield_now().await;
    }
    let mut request = Request::builder()
        .version(Version::HTTP_2)
        .uri(format!("http://localhost{}", carried.path()))
        .method(if carried == Carried::Stream { Method::GET } else { Method::CONNECT })
        .header("sec-websocket-version", "13");
    if let Some(protocol) = carried.subprotocol() {
        request = request.header("sec-websocket-protocol", protocol);
    }
    let mut request = request.body(()).unwrap();
    if carried != Carried::Stream {
        request.extensions_mut().insert(Protocol::from_static("websocket"));
    }
    let (response, send) = h2.send_request(request, carried == Carried::Stream).unwrap();
    let response = response.await.unwrap();
    assert_eq!(response.status(), 200, "{carried:?}");
    let (ours, theirs) = duplex(64 << 10);
    let (from, to) = split(theirs);
    spawn_local(receive(h2, response.into_body(), to));
    if carried != Carried::Stream {
        spawn_local(transmit(from, send));
    }
    Client { stream: ours, left: Vec::new() }
}

/// Passes on what comes on a stream; holds the connection until that ends.
async fn receive(_h2: SendRequest<bytes::Bytes>, mut stream: RecvStream, mut to: WriteHalf<DuplexStream>) {
    while let Some(Ok(data)) = stream.data().await {
        stream.flow_control().release_capacity(data.len()).unwrap();
        to.write_all(&data).await.unwrap();
    }
    let _ = to.shutdown().await;
}

async fn transmit(mut from: ReadHalf<DuplexStream>, mut stream: SendStream<bytes::Bytes>) {
    let mut buffer = bytes::BytesMut::new();
    while from.read_buf(&mut buffer).await.is_ok_and(|count| count > 0) {
        if stream.send_data(buffer.split().freeze(), false).is_err() {
            return;
        }
    }
}
