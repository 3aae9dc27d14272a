//! Bytes of clients that are not logged in yet, and of requests that never end, touch nobody's messages.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::mqtt::{self, Connection, V5};
use fogmux_tests::tcp;

const LOGIN_BYTES: &str = "fogmux_mqtt_logins_bytes";
const UPLOAD_BYTES: &str = "fogmux_http_uploads_bytes";
/// Publishers are paused above 8 MiB; memory is nearly gone above 3 MiB. The strangers hold more than either.
const SETTINGS: [&str; 2] = ["bus.memory_high_bytes=8MiB", "mqtt.tight_bytes=2MiB"];
/// Of 64 KB each.
const STRANGERS: usize = 150;
const UNFINISHED_BYTES: usize = 64_500;
/// More than the queues may hold when memory is nearly gone.
const HELD_BYTES: u64 = 5 << 20;
const MESSAGES: usize = 50;

/// A CONNECT that lacks its end.
fn unfinished(bytes: usize) -> Vec<u8> {
    let mut begun = vec![0x10];
    begun.extend(mqtt::varint(bytes + 500));
    begun.extend(mqtt::string(b"MQTT"));
    begun.extend([V5, 2, 0, 60]);
    begun.resize(bytes, 0);
    begun
}

fn strangers(gateway: &Gateway, count: usize) -> Result<Vec<TcpStream>> {
    let begun = unfinished(UNFINISHED_BYTES);
    let open = |_| {
        let mut stream = tcp::connect(gateway.address("mqtt")?)?;
        // One that has given way already may refuse it.
        let _ = stream.write_all(&begun);
        Ok(stream)
    };
    (0..count).map(open).collect()
}

/// Waits until strangers hold more than what queues may. Gateways without the gauge have it in that of the queues.
fn are_held(gateway: &Gateway, gauge: &str) -> Result<()> {
    let deadline = Instant::now() + tcp::PATIENCE;
    while gateway.sum(&[gauge, "fogmux_bus_mailbox_bytes"])? < HELD_BYTES {
        ensure!(Instant::now() < deadline, "{gauge} stays below {HELD_BYTES}");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// A session that outlives its connection by an hour, or with `keeps` false one that begins anew and ends with it.
fn session(gateway: &Gateway, keeps: bool) -> Result<Connection> {
    let mut body = mqtt::string(b"MQTT");
    body.extend([V5, if keeps { 0 } else { 2 }, 0, 0]);
    body.extend(if keeps { &[5, 0x11, 0, 0, 0x0e, 0x10][..] } else { &[0] });
    body.extend(mqtt::string(b"absent"));
    let mut stream = tcp::connect(gateway.address("mqtt")?)?;
    stream.write_all(&mqtt::packet(0x10, &body))?;
    let mut connection = Connection::over(stream, V5);
    ensure!(connection.read()?.0 == 0x20, "no CONNACK");
    Ok(connection)
}

/// Everything that is acknowledged for a session that is away arrives, and at once: nobody waits for memory.
fn absent_session_is_whole(gateway: &Gateway) -> Result<()> {
    let mut publisher = Connection::open(gateway.address("mqtt")?, V5, "publisher")?;
    for number in 0..MESSAGES {
        publisher.stream.write_all(&mqtt::publish(V5, b"alarm", format!("{number:03}").as_bytes(), 1, false, 7))?;
        let (first, body) = publisher.read().with_context(|| format!("no PUBACK for message {number}"))?;
        ensure!(first == 0x40 && body.get(2).is_none_or(|reason| *reason == 0), "{first:#x} {body:?}, not PUBACK");
    }
    let put = b"PUT /topics/other HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx";
    let answer = tcp::ask(gateway.address("http")?, put)?;
    ensure!(answer.starts_with(b"HTTP/1.1 20"), "{}", String::from_utf8_lossy(&answer));
    let mut absent = session(gateway, true)?;
    for number in 0..MESSAGES {
        let (.., message) =
            super::next_publish(&mut absent).with_context(|| format!("message {number} of {MESSAGES}"))?;
        ensure!(message.ends_with(format!("{number:03}").as_bytes()), "{message:?} instead of message {number}");
    }
    Ok(())
}

/// Logins that never end hold more than the mark of the queues.
pub(super) fn logins() -> Result<String> {
    let mut gateway = Gateway::start(&SETTINGS)?;
    session(&gateway, true)?.subscribe(1, &["alarm"], 1)?;
    let held = strangers(&gateway, STRANGERS)?;
    let accepted = "fogmux_door_accepted_total{door=\"mqtt\"}";
    gateway.wait_metric(accepted, tcp::PATIENCE, |accepted| accepted > STRANGERS as f64)?;
    are_held(&gateway, LOGIN_BYTES)?;
    absent_session_is_whole(&gateway)?;
    drop(held);
    drop(session(&gateway, false)?);
    gateway.wait_metric(LOGIN_BYTES, tcp::PATIENCE, |bytes| bytes == 0.0)?;
    gateway.settle()?;
    Ok(String::new())
}

/// Uploads that never end do.
pub(super) fn uploads() -> Result<String> {
    let mut gateway = Gateway::start(&SETTINGS)?;
    session(&gateway, true)?.subscribe(1, &["alarm"], 1)?;
    let mut held = Vec::new();
    for _ in 0..5 {
        let mut stream = tcp::connect(gateway.address("http")?)?;
        let length = 4 << 20;
        write!(
            stream,
            "POST /publish HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n\
             Content-Length: {length}\r\n\r\n"
        )?;
        // The answer to those that come when memory is short may be there before the end.
        let _ = stream.write_all(&vec![b' '; length / 2]);
        held.push(stream);
    }
    are_held(&gateway, UPLOAD_BYTES)?;
    absent_session_is_whole(&gateway)?;
    drop(held);
    drop(session(&gateway, false)?);
    gateway.wait_metric(UPLOAD_BYTES, tcp::PATIENCE, |bytes| bytes == 0.0)?;
    gateway.settle()?;
    Ok(String::new())
}

/// CONNECT of version 5 of 10 KB, most of it a will.
pub(crate) fn large_login() -> Vec<u8> {
    let mut body = mqtt::string(b"MQTT");
    body.extend([V5, 2 | 4, 0, 60, 0]);
    body.extend(mqtt::string(b"large"));
    body.push(0);
    body.extend(mqtt::string(b"will"));
    body.extend(mqtt::string(&[b'w'; 10_000]));
    mqtt::packet(0x10, &body)
}

/// Logins above their bound end, the oldest first, and one that is larger than most gets through meanwhile.
pub(super) fn too_many_logins() -> Result<String> {
    let mut gateway = Gateway::start(&["mqtt.logins_bytes_max=1MiB"])?;
    let mut held = strangers(&gateway, 40)?;
    gateway.wait_metric("fogmux_mqtt_logins_gave_way_total", tcp::PATIENCE, |ended| ended >= 20.0)?;
    let bytes = gateway.sum(&[LOGIN_BYTES])?;
    ensure!(bytes <= 1 << 20, "{bytes} bytes are held");
    // In two parts.
    let login = large_login();
    let (begin, end) = login.split_at(login.len() / 2);
    let mut stream = tcp::connect(gateway.address("mqtt")?)?;
    stream.write_all(begin)?;
    gateway.wait_metric(LOGIN_BYTES, tcp::PATIENCE, |bytes| bytes > 0.0)?;
    held.extend(strangers(&gateway, 1)?);
    stream.write_all(end)?;
    let mut connection = Connection::over(stream.try_clone()?, V5);
    ensure!(connection.read()?.0 == 0x20, "no CONNACK");
    stream.write_all(&mqtt::packet(0xE0, &[]))?;
    let oldest = held.first_mut().context("strangers")?;
    oldest.set_read_timeout(Some(tcp::PATIENCE))?;
    ensure!(!matches!(oldest.read(&mut [0]), Ok(1..)), "the oldest was answered");
    drop((held, connection, stream));
    gateway.wait_metric(LOGIN_BYTES, tcp::PATIENCE, |bytes| bytes == 0.0)?;
    gateway.settle()?;
    Ok(String::new())
}
