//! Streams without a reader share their places: those of one address do not end those of another (ADR 0036).

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::Gateway;

use super::post;

const PATIENCE: Duration = Duration::from_secs(10);
/// Places of streams without a reader.
const PLACES: usize = 8;

/// A reader of `parked/#` at an address of its own.
struct Reader {
    stream: TcpStream,
    text: String,
}

impl Reader {
    fn open(server: SocketAddr, from: [u8; 4], last: &str) -> Result<Self> {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
        socket.bind(&SocketAddr::from((from, 0)).into())?;
        socket.connect(&server.into())?;
        let mut stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(PATIENCE))?;
        let head = "GET /subscribe?filter=parked/%23 HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n";
        stream.write_all(format!("{head}{last}\r\n").as_bytes())?;
        let mut reader = Self { stream, text: String::new() };
        reader.until("200 OK")?;
        Ok(reader)
    }

    fn until(&mut self, wanted: &str) -> Result<()> {
        let mut buffer = [0; 4096];
        while !self.text.contains(wanted) {
            let count = self.stream.read(&mut buffer).with_context(|| format!("{wanted} is not in {}", self.text))?;
            ensure!(count > 0, "closed after {}", self.text);
            self.text.push_str(&String::from_utf8_lossy(buffer.get(..count).unwrap_or_default()));
        }
        Ok(())
    }
}

pub(super) fn shares() -> Result<String> {
    let mut gateway = Gateway::start(&[&format!("http.event_streams_parked_max={PLACES}")])?;
    let http = gateway.address("http")?;
    let parked = |count: usize| {
        let reached =
            gateway.wait_metric("fogmux_http_event_streams_parked", PATIENCE, |parked| parked == count as f64);
        let all = gateway.wait_metric("fogmux_http_event_streams", PATIENCE, |all| all == count as f64);
        reached.and(all)
    };
    let mut reader = Reader::open(http, [127, 0, 0, 1], "")?;
    post(http, "/topics/parked/a", "one")?;
    reader.until("\"payload\":\"one\"")?;
    reader.until("\nid: ")?;
    let (_, id) = reader.text.rsplit_once("\nid: ").context("no id")?;
    let last = format!("Last-Event-ID: {}\r\n", id.lines().next().unwrap_or_default());
    drop(reader);
    parked(1)?;
    // One after the other, so that each is parked before the next comes.
    for number in 2..3 * PLACES {
        drop(Reader::open(http, [127, 0, 0, 2], "")?);
        parked(number.min(PLACES))?;
    }
    post(http, "/topics/parked/a", "two")?;
    let mut reader = Reader::open(http, [127, 0, 0, 1], &last)?;
    reader.until("\"payload\":\"two\"")?;
    ensure!(!reader.text.contains("gap"), "streams of another address have ended this one: {}", reader.text);
    let gave_way = gateway.sum(&["fogmux_share_gave_way_total{table=\"event_streams\"}"])?;
    ensure!(gave_way == (2 * PLACES - 1) as u64, "{gave_way} are counted");
    drop(reader);
    gateway.check_alive()?;
    Ok(format!("{gave_way} gave way"))
}
