//! Connections without a request, whose clients send PINGs: they are idle for the idle timeout, not less and not more.

use tokio::time::Instant;

use super::*;

/// RFC 9113 §6.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
/// END_STREAM, and ACK of SETTINGS and PING.
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
/// `:status: 200` in the static table (RFC 7541, Appendix A).
const STATUS_200: u8 = 0x88;
/// The last stream of a GOAWAY that takes every request that crosses it (RFC 9113 §6.8).
const ANY_STREAM: u32 = (1 << 31) - 1;

/// The PING behind a GOAWAY, whose answer tells that the client has read that (as h2 sends it).
const SHUTDOWN: [u8; 8] = [0x0b, 0x7b, 0xa2, 0xf0, 0x8b, 0x9b, 0xfe, 0x54];

/// A frame: type, flags, stream and payload.
type Frame = (u8, u8, u32, Vec<u8>);

/// The fields of GOAWAY.
fn last_stream_and_code(payload: &[u8]) -> (u32, u32) {
    let number = |at: usize| u32::from_be_bytes(payload[at..at + 4].try_into().unwrap());
    (number(0), number(4))
}

impl Client {
    async fn begin(house: &House) -> Self {
        let mut client = house.connect(true);
        client.stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        client.write(SETTINGS, 0, 0, &[]).await;
        client
    }

    async fn write(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let mut frame = vec![0, 0, u8::try_from(payload.len()).unwrap(), kind, flags];
        frame.extend(stream.to_be_bytes());
        frame.extend(payload);
        self.stream.write_all(&frame).await.unwrap();
    }

    async fn get(&mut self, stream: u32, path: &str) {
        // `:method: GET` and `:scheme: http` of the static table, literals of `:path` and `:authority`.
        let mut block = vec![0x82, 0x86];
        for (index, value) in [(0x04, path), (0x01, "localhost")] {
            block.extend([index, u8::try_from(value.len()).unwrap()]);
            block.extend(value.bytes());
        }
        self.write(HEADERS, END_HEADERS | END_STREAM, stream, &block).await;
    }

    /// The next frame; none when the connection has ended. PINGs are answered, except the one behind a GOAWAY.
    async fn frame(&mut self) -> Option<Frame> {
        loop {
            let Some(frame) = self.take_frame() else {
                if self.more().await {
                    continue;
                }
                return None;
            };
            match &frame {
                (PING, 0, 0, payload) if *payload != SHUTDOWN => self.write(PING, ACK, 0, payload).await,
                _ => return Some(frame),
            }
        }
    }

    fn take_frame(&mut self) -> Option<Frame> {
        let (&[0, a, b, kind, flags, s, t, u, v], rest) = self.left.split_first_chunk::<9>()? else { return None };
        let length = usize::from(u16::from_be_bytes([a, b]));
        let payload = rest.get(..length)?.to_vec();
        self.left.drain(..9 + length);
        Some((kind, flags, u32::from_be_bytes([s, t, u, v]), payload))
    }

    /// The next frame of this type and stream.
    async fn next_of(&mut self, wanted: u8, stream: u32) -> Option<(u8, Vec<u8>)> {
        loop {
            let (kind, flags, id, payload) = self.frame().await?;
            if (kind, id) == (wanted, stream) {
                return Some((flags, payload));
            }
        }
    }

    async fn answer(&mut self, stream: u32) {
        let (mut flags, block) = self.next_of(HEADERS, stream).await.expect("an answer");
        assert_eq!(block.first(), Some(&STATUS_200));
        while flags & END_STREAM == 0 {
            flags = self.next_of(DATA, stream).await.expect("its body").0;
        }
    }

    /// Reads until GOAWAY: the last stream and the error code.
    async fn goaway(&mut self) -> (u32, u32) {
        let (_, payload) = self.next_of(GOAWAY, 0).await.expect("GOAWAY");
        last_stream_and_code(&payload)
    }
}

/// Runs a test in simulated time, in which the worker runs all the time.
fn run_in_simulated_time(config: HttpConfig, test: impl AsyncFnOnce(House)) {
    let mut builder = Builder::new_current_thread();
    let runtime = builder.enable_all().start_paused(true).build_local(LocalOptions::default()).unwrap();
    runtime.block_on(async {
        let house = house_on(Box::new(Forgetful), config, Rules::default());
        let ctx = Rc::clone(&house.ctx);
        let runs = async {
            loop {
                tokio::time::sleep(Duration::from_millis(500)).await;
                let _ = ctx.now();
            }
        };
        tokio::select! {
            () = test(house) => {}
            never = runs => never,
            () = tokio::time::sleep(Duration::from_secs(3600)) => panic!("the test hangs"),
        }
    });
}

/// Sends a PING every two seconds until the connection gets GOAWAY, and expects each to be answered. Returns the
/// GOAWAY.
async fn ping_until_goaway(client: &mut Client) -> (u32, u32) {
    for number in 0_u64.. {
        client.write(PING, 0, 0, &number.to_be_bytes()).await;
        let due = Instant::now() + Duration::from_secs(2);
        let mut answered = false;
        while let Ok(frame) = tokio::time::timeout_at(due, client.frame()).await {
            match frame.expect("the connection goes on") {
                (PING, ACK, 0, payload) => answered = payload == number.to_be_bytes(),
                (GOAWAY, 0, 0, payload) => {
                    assert!(answered, "PING {number} is answered");
                    return last_stream_and_code(&payload);
                }
                _ => {}
            }
        }
        assert!(answered, "PING {number} is answered");
    }
    unreachable!("numbers end")
}

#[test]
fn pings_of_http2_neither_shorten_nor_prolong_the_time_without_a_stream() {
    let config = HttpConfig::default();
    let (idle, header) = (config.idle_timeout, config.header_timeout);
    assert!(idle > 3 * header);
    run_in_simulated_time(config, async |house| {
        let mut client = Client::begin(&house).await;
        // A long poll: the time begins with its end.
        client.get(1, "/topics/a?wait=20").await;
        client.next_of(HEADERS, 1).await.expect("an answer");
        let began = Instant::now();
        assert_eq!(ping_until_goaway(&mut client).await, (ANY_STREAM, 0));
        let took = began.elapsed();
        assert!(took >= idle && took < idle + Duration::from_secs(1), "GOAWAY after {took:?}");
        // A request that crosses the GOAWAY is answered.
        client.get(3, "/healthz").await;
        client.answer(3).await;
    });
}

#[test]
fn a_client_that_answers_the_ping_behind_goaway_learns_the_last_stream_and_the_connection_ends() {
    run_in_simulated_time(HttpConfig::default(), async |house| {
        let mut client = Client::begin(&house).await;
        client.get(1, "/healthz").await;
        client.answer(1).await;
        assert_eq!(client.goaway().await, (ANY_STREAM, 0));
        client.get(3, "/healthz").await;
        let (_, ping) = client.next_of(PING, 0).await.expect("a PING behind the GOAWAY");
        client.write(PING, ACK, 0, &ping).await;
        let (mut answered, mut last) = (false, None);
        while let Some((kind, _, stream, payload)) = client.frame().await {
            match (kind, stream) {
                (HEADERS, 3) => answered = payload.first() == Some(&STATUS_200),
                (GOAWAY, 0) => last = Some(last_stream_and_code(&payload)),
                _ => {}
            }
        }
        assert!(answered, "a request that crosses the GOAWAY is answered");
        assert_eq!(last, Some((3, 0)));
    });
}

#[test]
fn a_client_that_is_gone_is_cut_soon_after_goaway() {
    let config = HttpConfig::default();
    let idle = config.idle_timeout;
    run_in_simulated_time(config, async |house| {
        let began = Instant::now();
        let mut client = Client::begin(&house).await;
        assert_eq!(client.goaway().await, (ANY_STREAM, 0));
        while client.frame().await.is_some() {}
        let took = began.elapsed();
        assert!(took >= idle && took < idle + Duration::from_secs(10), "cut after {took:?}");
    });
}
