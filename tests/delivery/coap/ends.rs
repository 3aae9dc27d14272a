//! How observations end, what they show, and how they are counted.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fogmux_tests::coap::{
    self, ACCEPT, CON, CONTENT_FORMAT, FETCH, GET, Line, Message, OBSERVE, PUT, URI_PATH, URI_QUERY,
};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::tcp;

use super::{Observer, PATIENCE, publish};

/// 2.05, 5.03, 4.04 and 4.06.
const CONTENT: u8 = 0x45;
const SERVICE_UNAVAILABLE: u8 = 0xa3;
const NOT_FOUND: u8 = 0x84;
const NOT_ACCEPTABLE: u8 = 0x86;

pub(super) fn hog() -> Result<String> {
    const TOPICS: usize = 600;
    let mut gateway = Gateway::start(&[])?;
    let stream = tcp::connect(gateway.address("coap_tcp")?)?;
    rustix::net::sockopt::set_socket_recv_buffer_size(&stream, 16 << 10)?;
    let mut hog = Line::over(stream)?;
    hog.next(PATIENCE)?.context("no CSM")?;
    hog.send(FETCH, b"h", &[(OBSERVE, b""), (URI_PATH, b"ps"), (URI_QUERY, b"filter=hog/#")], b"")?;
    hog.next(PATIENCE)?.context("no answer")?;
    let mut other = Observer::register(gateway.address("coap")?, "good", None, &[])?;
    // Nobody retains these: what waits for the hog is all that there is of them.
    publish(&gateway, (0..TOPICS).map(|topic| (format!("hog/{topic}"), vec![b'h'; 50_000])), false)?;
    publish(&gateway, std::iter::once(("good".to_owned(), b"newest".to_vec())), false)?;
    let newest = |observer: &Observer| observer.newest.get("").is_some_and(|value| value == b"newest");
    ensure!(other.follow(newest)?, "the other observer is stale: {:?}", other.last);
    let (mut last, mut told) = (0, 0);
    while last != SERVICE_UNAVAILABLE {
        let message = hog.next(PATIENCE)?.with_context(|| format!("silence; the last code was {last:#x}"))?;
        last = message.code;
        told += u64::from(last == CONTENT);
    }
    // Deliveries that did not come count as dropped, and as nothing else, when what still waited has had its turn.
    // One was the other observer's. Publications after the end of the observation have no subscriber.
    let deadline = Instant::now() + PATIENCE;
    loop {
        let delivered = gateway.sum(&["fogmux_bus_delivered_total"])?;
        let dropped = gateway.sum(&["fogmux_bus_dropped_full_total", "fogmux_bus_dropped_gone_total"])?;
        if told + dropped + 1 == delivered {
            break;
        }
        ensure!(
            Instant::now() < deadline,
            "{told} came and {dropped} were dropped, of {delivered} with one of another"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(hog);
    other.deregister()?;
    gateway.settle()?;
    Ok(String::new())
}

fn put(gateway: &Gateway, topic: &str, options: &[(u16, &[u8])], payload: &[u8]) -> Result<()> {
    let socket = coap::endpoint(gateway.address("coap")?)?;
    let answer = coap::exchange(&socket, &coap::request(CON, PUT, 9, b"p", topic, options, payload), b"p")?;
    ensure!(answer.get(1).is_some_and(|code| code >> 5 == 2), "PUT: {}", coap::dotted(&answer));
    Ok(())
}

/// Waits for the error that ends an observation.
fn end_of(observer: &mut Observer) -> Result<Message> {
    let is_error = |observer: &Observer| observer.last.as_ref().is_some_and(|last| last.code >> 5 > 2);
    ensure!(observer.follow(is_error)?, "no end; last {:?}", observer.last);
    observer.last.clone().context("no message")
}

pub(super) fn format() -> Result<String> {
    let mut gateway = Gateway::start(&[])?;
    put(&gateway, "format", &[(CONTENT_FORMAT, &[50])], b"{}")?;
    let mut observer = Observer::register(gateway.address("coap")?, "format", None, &[])?;
    put(&gateway, "format", &[(CONTENT_FORMAT, &[50])], b"{\"a\":1}")?;
    ensure!(
        observer.follow(|observer| observer.newest.get("").is_some_and(|value| value.len() > 2))?,
        "no second value"
    );
    put(&gateway, "format", &[], b"text")?;
    let last = end_of(&mut observer)?;
    ensure!(last.code == NOT_ACCEPTABLE, "{:#x} instead of 4.06", last.code);
    ensure!(last.uint(OBSERVE).is_none(), "an error with Observe");
    gateway.settle()?;
    Ok(String::new())
}

pub(super) fn expiry() -> Result<String> {
    let mut gateway = Gateway::start(&[])?;
    put(&gateway, "expiry", &[(URI_QUERY, b"expiry=2")], b"short")?;
    let mut before = Observer::register(gateway.address("coap")?, "expiry", None, &[])?;
    let mut after = Observer::register(gateway.address("coap")?, "expiry2", None, &[])?;
    let began = Instant::now();
    put(&gateway, "expiry2", &[(URI_QUERY, b"expiry=1")], b"shorter")?;
    // A newer value that holds longer takes the alarm away.
    let mut kept = Observer::register(gateway.address("coap")?, "expiry3", None, &[])?;
    put(&gateway, "expiry3", &[(URI_QUERY, b"expiry=1")], b"1")?;
    put(&gateway, "expiry3", &[], b"2")?;
    for observer in [&mut before, &mut after] {
        let last = end_of(observer)?;
        ensure!(last.code == NOT_FOUND, "{:#x} instead of 4.04", last.code);
    }
    ensure!(began.elapsed() >= Duration::from_millis(900), "too early: {:?}", began.elapsed());
    ensure!(kept.follow(|observer| observer.newest.get("").is_some_and(|value| value == b"2"))?, "no second value");
    put(&gateway, "expiry3", &[], b"3")?;
    ensure!(kept.follow(|observer| observer.newest.get("").is_some_and(|value| value == b"3"))?, "{:?}", kept.last);
    kept.deregister()?;
    gateway.settle()?;
    Ok(String::new())
}

pub(super) fn loose() -> Result<String> {
    let mut gateway = Gateway::start(&[])?;
    let http = gateway.address("http")?;
    for (name, mime, payload, format) in [
        ("plain", "text/plain", "21.5", Some(0)),
        ("json", "application/json; charset=utf-8", "{}", Some(50)),
        ("latin", "text/plain; charset=iso-8859-1", "x", None),
    ] {
        let length = payload.len();
        let request = format!(
            "PUT /topics/loose/{name} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {mime}\r\nContent-Length: {length}\r\n\
             Connection: close\r\n\r\n{payload}"
        );
        ensure!(tcp::ask(http, request.as_bytes())?.starts_with(b"HTTP/1.1 201"), "PUT of {mime}");
        let socket = coap::endpoint(gateway.address("coap")?)?;
        let topic = format!("loose/{name}");
        let get = |id: u16, options: &[(u16, &[u8])]| -> Result<Message> {
            let request = coap::request(CON, GET, id, b"g", &topic, options, b"");
            Message::of_datagram(&coap::exchange(&socket, &request, b"g")?)
        };
        let found = get(1, &[])?.uint(CONTENT_FORMAT);
        ensure!(found == format, "{mime} has Content-Format {found:?}");
        if let Some(format) = format {
            let wanted = [u8::try_from(format)?];
            let accept: &[u8] = if format == 0 { b"" } else { &wanted };
            let code = get(2, &[(ACCEPT, accept)])?.code;
            ensure!(code == 0x45, "{mime} with Accept: {code:#x}");
        }
    }
    gateway.settle()?;
    Ok(String::new())
}

pub(super) fn gauge() -> Result<String> {
    const NAME: &str = "fogmux_door_connections{door=\"coap\"}";
    let mut gateway = Gateway::start(&[])?;
    // Endpoints that only ask have no connection.
    for _ in 0..5 {
        put(&gateway, "gauge", &[], b"x")?;
    }
    let observers: Vec<Observer> =
        (0..3).map(|_| Observer::register(gateway.address("coap")?, "gauge", None, &[])).collect::<Result<_>>()?;
    let line = Line::open(gateway.address("coap_tcp")?)?;
    gateway.wait_metric(NAME, PATIENCE, |value| (value - 4.0).abs() < 0.5)?;
    observers.into_iter().try_for_each(Observer::deregister)?;
    drop(line);
    gateway.settle()?;
    Ok(String::new())
}
