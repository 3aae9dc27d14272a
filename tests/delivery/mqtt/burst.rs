//! Subscribers that read all the time, at a fair pace, under bursts of publishers at every door: they are not
//! disconnected, and miss nothing that was acknowledged. Subscribers that take nothing stop nobody.

use std::collections::HashSet;
use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use fogmux_tests::coap::{self, CON, POST};
use fogmux_tests::coap_stream::Line;
use fogmux_tests::gateway::Gateway;
use fogmux_tests::suite::Case;
use fogmux_tests::{tcp, tls, xmpp};

use super::client::{Client, Login};
use super::wire::{SMALL_BUFFER, Transport};

pub(crate) const CASES: &[Case] = &[
    Case { name: "a subscriber that reads keeps up with bursts of MQTT publishers, however many", run: mqtt },
    Case { name: "a subscriber that reads keeps up with bursts of large messages", run: large },
    Case { name: "a subscriber that reads keeps up with bursts of HTTP publishers", run: http },
    Case { name: "a subscriber that reads keeps up with bursts of CoAP publishers", run: coap },
    Case { name: "a subscriber that reads keeps up with bursts of XMPP publishers", run: xmpp },
    Case { name: "a CoAP client that does not wait for responses is refused what nobody gets", run: impatient },
    Case { name: "a subscriber that takes nothing stops publishers at no door", run: stopped },
];

const PATIENCE: Duration = Duration::from_secs(30);
const TOPIC: &str = "burst";

/// The door that a publisher publishes at, and how.
#[derive(Clone, Copy, Debug)]
enum Door {
    Mqtt,
    /// `POST /publish`, all messages in one request.
    Batch,
    /// PUT, one request after the other.
    Put,
    CoapUdp,
    CoapTcp,
    Xmpp,
}

/// Publishers at one door, and a reader of so many messages a second.
#[derive(Clone, Copy, Debug)]
struct Burst {
    setting: &'static str,
    door: Door,
    publishers: usize,
    /// Of each.
    messages: usize,
    bytes: usize,
    pace: u32,
}

const fn burst(
    setting: &'static str,
    door: Door,
    publishers: usize,
    messages: usize,
    bytes: usize,
    pace: u32,
) -> Burst {
    Burst { setting, door, publishers, messages, bytes, pace }
}

const FEW: &str = "mqtt.queue_messages_max=500";
const SMALL: &str = "mqtt.queue_bytes_max=\"256KiB\"";
const LARGER: &str = "mqtt.queue_bytes_max=\"4MiB\"";

fn mqtt() -> Result<String> {
    run(&[
        burst(SMALL, Door::Mqtt, 1, 4000, 10, 3000),
        burst(FEW, Door::Mqtt, 3, 1500, 10, 3000),
        burst(SMALL, Door::Mqtt, 97, 60, 200, 3000),
        burst(FEW, Door::Mqtt, 300, 20, 1000, 3000),
    ])
}

fn large() -> Result<String> {
    run(&[burst(LARGER, Door::Mqtt, 3, 4, 1 << 20, 6), burst(LARGER, Door::Mqtt, 97, 2, 64 << 10, 100)])
}

fn http() -> Result<String> {
    run(&[
        burst(SMALL, Door::Batch, 1, 8000, 10, 3000),
        burst(FEW, Door::Put, 97, 40, 10, 2000),
        burst(LARGER, Door::Put, 3, 10, 512 << 10, 10),
    ])
}

fn coap() -> Result<String> {
    run(&[burst(FEW, Door::CoapUdp, 97, 40, 10, 2000), burst(SMALL, Door::CoapTcp, 3, 2000, 10, 3000)])
}

fn xmpp() -> Result<String> {
    run(&[burst(SMALL, Door::Xmpp, 1, 3000, 10, 1500), burst(FEW, Door::Xmpp, 3, 1000, 10, 1500)])
}

/// Runs bursts, each with a gateway of its own.
fn run(bursts: &[Burst]) -> Result<String> {
    for burst in bursts {
        let mut gateway = Gateway::start(&[burst.setting])?;
        one(&gateway, *burst).with_context(|| format!("{burst:?}"))?;
        let cut = gateway.metrics()?.get("fogmux_mqtt_cut_total{reason=\"queue_full\"}").copied();
        ensure!(cut.unwrap_or_default() == 0.0, "{burst:?}: {cut:?} were disconnected");
        gateway.settle()?;
    }
    Ok(String::new())
}

fn one(gateway: &Gateway, burst: Burst) -> Result<()> {
    let done = Arc::new(AtomicBool::new(false));
    let reader = read(gateway, burst, Arc::clone(&done))?;
    let published = publish_all(gateway, burst);
    done.store(true, Relaxed);
    let got = reader.join().map_err(|_| anyhow::anyhow!("panic"))?.context("the subscriber");
    // A subscriber that was disconnected is the reason for whatever else failed.
    let got = got?;
    published?;
    let missing = (0..burst.publishers)
        .flat_map(|publisher| (0..burst.messages).map(move |number| (publisher, number)))
        .filter(|message| !got.contains(message))
        .count();
    ensure!(missing == 0, "{missing} acknowledged messages did not come");
    Ok(())
}

/// A subscriber that reads at its pace until the publishers are done, and then as fast as it can. Gives what it got.
fn read(gateway: &Gateway, burst: Burst, done: Arc<AtomicBool>) -> Result<thread::JoinHandle<Result<Seen>>> {
    let login = Login { buffer: Some(SMALL_BUFFER), ..Login::new("reader", Transport::Tcp) };
    let mut reader = Client::login(gateway, &login)?;
    reader.subscribe(&[TOPIC], 1)?;
    let all = burst.publishers * burst.messages;
    Ok(thread::spawn(move || {
        let (began, mut seen) = (Instant::now(), HashSet::new());
        while seen.len() < all {
            let message = reader.message_or(&format!("message {} of {all}", seen.len()))?;
            let text = message.payload.get(..message.payload.len().min(16)).unwrap_or_default();
            let text = std::str::from_utf8(text)?;
            let mut numbers = text.split('/').map(str::parse::<usize>);
            let (Some(Ok(publisher)), Some(Ok(number))) = (numbers.next(), numbers.next()) else {
                bail!("a message {text}")
            };
            seen.insert((publisher, number));
            let at = began + Duration::from_secs(1) * u32::try_from(seen.len())? / burst.pace;
            if !done.load(Relaxed) {
                thread::sleep(at.saturating_duration_since(Instant::now()));
            }
        }
        Ok(seen)
    }))
}

type Seen = HashSet<(usize, usize)>;

/// Publishes by all publishers at once, until everything is acknowledged.
fn publish_all(gateway: &Gateway, burst: Burst) -> Result<()> {
    thread::scope(|scope| {
        let publish = |publisher| move || publish(gateway, burst, publisher);
        let publishers: Vec<_> = (0..burst.publishers).map(|publisher| scope.spawn(publish(publisher))).collect();
        let join = |publisher: thread::ScopedJoinHandle<'_, Result<()>>| {
            publisher.join().unwrap_or_else(|_| Err(anyhow::anyhow!("panic")))
        };
        publishers.into_iter().try_for_each(join).context("a publisher")
    })
}

fn payload(burst: Burst, publisher: usize, number: usize) -> Vec<u8> {
    let mut payload = format!("{publisher}/{number}/").into_bytes();
    payload.resize(burst.bytes.max(payload.len()), b'x');
    payload
}

fn publish(gateway: &Gateway, burst: Burst, publisher: usize) -> Result<()> {
    let payloads = (0..burst.messages).map(|number| payload(burst, publisher, number));
    match burst.door {
        Door::Mqtt => {
            let mut client = Client::open(gateway, &format!("publisher-{publisher}"), Transport::Tcp)?;
            let payloads: Vec<_> = payloads.collect();
            client.publish_all(payloads.iter().map(|payload| (TOPIC, &**payload)), 1, false, 1000)?;
            Ok(())
        }
        Door::Batch => batch(gateway, payloads),
        Door::Put => put(gateway, payloads),
        Door::CoapUdp => coap_udp(gateway, payloads),
        Door::CoapTcp => coap_tcp(gateway, payloads),
        Door::Xmpp => iqs(gateway, payloads),
    }
}

fn batch(gateway: &Gateway, payloads: impl Iterator<Item = Vec<u8>>) -> Result<()> {
    let line = |payload| {
        let payload = String::from_utf8(payload)?;
        Ok(format!("{{\"topic\":\"{TOPIC}\",\"payload\":\"{payload}\"}}\n"))
    };
    let lines: Vec<String> = payloads.map(line).collect::<Result<_>>()?;
    let head =
        "POST /publish HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/x-ndjson\r\n";
    let body = lines.concat();
    let mut stream = tcp::connect(gateway.address("http")?)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let taken = answer.matches("\"status\":202").count();
    ensure!(taken == lines.len(), "{taken} of {} lines were taken: {:?}", lines.len(), answer.get(..300));
    Ok(())
}

fn put(gateway: &Gateway, payloads: impl Iterator<Item = Vec<u8>>) -> Result<()> {
    let mut stream = tcp::connect(gateway.address("http")?)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    for payload in payloads {
        let head =
            format!("PUT /topics/{TOPIC} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", payload.len());
        stream.write_all(&[head.as_bytes(), &payload].concat())?;
        let (mut answer, mut buffer) = (Vec::new(), [0; 4096]);
        // 201 and 204 have no content.
        while !answer.ends_with(b"\r\n\r\n") {
            let count = stream.read(&mut buffer)?;
            ensure!(count > 0, "the connection has ended");
            answer.extend(buffer.iter().take(count));
        }
        ensure!(answer.starts_with(b"HTTP/1.1 20"), "{}", String::from_utf8_lossy(&answer));
    }
    Ok(())
}

fn coap_udp(gateway: &Gateway, payloads: impl Iterator<Item = Vec<u8>>) -> Result<()> {
    let socket = coap::endpoint(gateway.address("coap")?)?;
    for (id, payload) in (1_u16..).zip(payloads) {
        let token = id.to_be_bytes();
        socket.send(&coap::request(CON, POST, id, &token, TOPIC, &[], &payload))?;
        let began = Instant::now();
        // An empty acknowledgement comes first if the response is late.
        let code = loop {
            let answer = coap::receive(&socket, PATIENCE)?.context("no response")?;
            if answer.get(4..6) == Some(&token) {
                if answer.first().is_some_and(|first| first >> 4 & 3 == CON) {
                    let id = answer.get(2..4).context("a message ID")?;
                    socket.send(&[&[0x60, 0], id].concat())?;
                }
                break coap::dotted(&answer);
            }
            ensure!(began.elapsed() < PATIENCE, "no response");
        };
        ensure!(code == "2.04", "{code}");
    }
    Ok(())
}

fn coap_tcp(gateway: &Gateway, payloads: impl Iterator<Item = Vec<u8>>) -> Result<()> {
    const WINDOW: usize = 500;
    let mut line = Line::open(gateway.address("coap_tcp")?)?;
    let options: [(u16, &[u8]); 2] = [(coap::URI_PATH, b"ps"), (coap::URI_PATH, TOPIC.as_bytes())];
    let mut open = 0;
    let mut payloads = payloads.zip(0_u32..);
    loop {
        while open < WINDOW
            && let Some((payload, number)) = payloads.next()
        {
            line.send(POST, &number.to_be_bytes(), &options, &payload)?;
            open += 1;
        }
        if open == 0 {
            return Ok(());
        }
        let answer = line.next(PATIENCE)?.context("no response")?;
        // Settings and Pongs are 7.xx.
        if answer.code >> 5 < 7 {
            ensure!(answer.code == 0x44, "{:#x}", answer.code);
            open -= 1;
        }
    }
}

fn iqs(gateway: &Gateway, payloads: impl Iterator<Item = Vec<u8>>) -> Result<()> {
    const WINDOW: usize = 100;
    let mut session = xmpp::Session::anonymous(&tls::config(gateway.ca())?, gateway.address("xmpps")?)?;
    let payloads: Vec<_> = payloads.collect();
    let passing = xmpp::form("publish-options", &[("pubsub#persist_items", "0")]);
    for (first, some) in payloads.chunks(WINDOW).enumerate() {
        let iq = |(number, payload): (usize, &Vec<u8>)| {
            let data = String::from_utf8_lossy(payload);
            let id = first * WINDOW + number;
            format!(
                "<iq type='set' id='p{id}' to='pubsub.localhost'><pubsub xmlns='http://jabber.org/protocol/pubsub'>\
                 <publish node='{TOPIC}'><item><data xmlns='urn:fogmux:0'>{data}</data></item></publish>\
                 <publish-options>{passing}</publish-options></pubsub></iq>"
            )
        };
        let iqs: String = some.iter().enumerate().map(iq).collect();
        session.send(&iqs)?;
        session.until_count("type='result'", some.len())?;
    }
    Ok(())
}

/// Requests that are refused with 5.03 reach nobody; the others reach the subscriber, which is not disconnected.
fn impatient() -> Result<String> {
    const REQUESTS: u16 = 3000;
    /// Those sent between two looks at the responses.
    const AT_ONCE: u16 = 50;
    let burst = burst(FEW, Door::CoapUdp, 1, REQUESTS.into(), 10, 300);
    let mut gateway = Gateway::start(&[FEW, "mqtt.max_inflight=100"])?;
    let login = Login { buffer: Some(SMALL_BUFFER), ..Login::new("reader", Transport::Tcp) };
    let mut reader = Client::login(&gateway, &login)?;
    reader.subscribe(&[TOPIC], 1)?;
    let socket = coap::endpoint(gateway.address("coap")?)?;
    let reader = thread::spawn(move || -> Result<Vec<Vec<u8>>> {
        let mut got = Vec::new();
        loop {
            let payload = reader.message_or("a message")?.payload;
            if payload == b"end" {
                return Ok(got);
            }
            got.push(payload);
            thread::sleep(Duration::from_secs(1) / burst.pace);
        }
    });
    let (mut taken, mut refused) = (HashSet::new(), HashSet::new());
    for first in (1..=REQUESTS).step_by(AT_ONCE.into()) {
        for id in first..first + AT_ONCE {
            let request = coap::request(CON, POST, id, &id.to_be_bytes(), TOPIC, &[], &payload(burst, 0, id.into()));
            socket.send(&request)?;
        }
        let last = first + AT_ONCE > REQUESTS;
        while taken.len() + refused.len() < usize::from(if last { REQUESTS } else { first }) {
            let answer = coap::receive(&socket, PATIENCE)?.context("no response")?;
            let Some(token) = answer.get(4..6) else { continue };
            let into = match &*coap::dotted(&answer) {
                "2.04" => &mut taken,
                "5.03" => &mut refused,
                other => bail!("{other}"),
            };
            into.insert(u16::from_be_bytes(token.try_into()?));
            if answer.first().is_some_and(|first| first >> 4 & 3 == CON) {
                socket.send(&[&[0x60, 0], answer.get(2..4).context("a message ID")?].concat())?;
            }
        }
    }
    Client::open(&gateway, "end", Transport::Tcp)?.publish_all([(TOPIC, &b"end"[..])], 1, false, 1)?;
    let got = reader.join().map_err(|_| anyhow::anyhow!("panic"))?.context("the subscriber")?;
    let expected: HashSet<_> = taken.iter().map(|id| payload(burst, 0, usize::from(*id))).collect();
    ensure!(!refused.is_empty() && expected == got.into_iter().collect(), "{} were refused", refused.len());
    gateway.settle()?;
    Ok(format!("{} of {REQUESTS} were refused", refused.len()))
}

/// A subscriber that reads nothing holds publishers up for two seconds at most, and is disconnected.
fn stopped() -> Result<String> {
    for (door, messages) in [(Door::Batch, 5000), (Door::Put, 2500), (Door::CoapTcp, 4000), (Door::Xmpp, 3000)] {
        // With `group` each PUT would wait 20 ms for the disk, because it retains and the next one follows its answer.
        let mut gateway = Gateway::start(&[SMALL, "store.durability=interval"])?;
        let login = Login { buffer: Some(SMALL_BUFFER), ..Login::new("deaf", Transport::Tcp) };
        let mut deaf = Client::login(&gateway, &login)?;
        deaf.subscribe(&[TOPIC], 1)?;
        let began = Instant::now();
        publish_all(&gateway, burst(SMALL, door, 1, messages, 500, 1)).with_context(|| format!("{door:?}"))?;
        let took = began.elapsed();
        ensure!(took < Duration::from_secs(15), "publishing at {door:?} took {took:?}");
        gateway.wait_metric("fogmux_mqtt_cut_total{reason=\"queue_full\"}", PATIENCE, |cut| cut == 1.0)?;
        drop(deaf);
        gateway.settle()?;
    }
    Ok(String::new())
}
