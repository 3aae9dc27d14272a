//! Edge cases of the standards: protocol levels, packet sizes, credentials, deadlines, WebSocket paths.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::mqtt::{self, Connection, V4, V5, packet, string};
use fogmux_tests::tcp::{self, End};

use super::peer::{Reader, answer, connect};

/// 3.1.1 [MQTT-3.1.2-2]: an unknown level gets return code 1 in a CONNACK of four bytes; those of bridges are known.
pub(super) fn levels() -> Result<String> {
    let mut gateway = Gateway::start(&[])?;
    let address = gateway.address("mqtt")?;
    let id = string(b"level");
    let known: [(&[u8], u8, &[u8]); 5] =
        [(b"MQIsdp", 3, b""), (b"MQTT", 4, b""), (b"MQTT", 5, b"\0"), (b"MQIsdp", 0x83, b""), (b"MQTT", 0x84, b"")];
    for (name, level, properties) in known {
        let end = answer(address, &connect(name, level, 2, &[properties, &id].concat()))?;
        ensure!(matches!(end.bytes(), [0x20, _, 0, 0, ..]) && !end.is_closed(), "level {level:#x}: {end:02x?}");
    }
    for level in [0, 1, 2, 3, 6, 7, 0x7F, 0x80, 0x83, 0x85, 0x86, 0xFF] {
        let end = answer(address, &connect(b"MQTT", level, 2, &[&b"\0"[..], &id].concat()))?;
        ensure!(end == End::Closed(vec![0x20, 2, 0, 1]), "MQTT of level {level:#x}: {end:02x?}");
    }
    for level in [0, 1, 2, 4, 5, 6, 0x80, 0x84, 0xFF] {
        let end = answer(address, &connect(b"MQIsdp", level, 2, &id))?;
        ensure!(end == End::Closed(vec![0x20, 2, 0, 1]), "MQIsdp of level {level:#x}: {end:02x?}");
    }
    // No Local and Retain As Published, which a bridge cannot say in these versions.
    for (name, level) in [(&b"MQIsdp"[..], 0x83), (b"MQTT", 0x84)] {
        let mut bridge = Connection::over(tcp::connect(address)?, V4);
        bridge.stream.write_all(&connect(name, level, 2, &string(b"bridge")))?;
        ensure!(bridge.read()? == (0x20, vec![0, 0]), "level {level:#x}");
        bridge.subscribe(1, &["t/#"], 0)?;
        bridge.publish("t/own", b"x")?;
        let mut other = Connection::open(address, V4, "other")?;
        other.stream.write_all(&mqtt::publish(V4, b"t/other", b"x", 0, true, 0))?;
        let (first, body) = bridge.read()?;
        ensure!(first == 0x31 && body.ends_with(b"t/otherx"), "level {level:#x}: {first:#x} {body:?}");
        other.stream.write_all(&mqtt::publish(V4, b"t/other", b"", 0, true, 0))?;
    }
    gateway.settle()?;
    Ok(String::new())
}

/// PUBLISH of QoS 1 to a topic; whether it was acknowledged.
fn may_write(address: SocketAddr, client: &str, topic: &str) -> Result<bool> {
    let mut connection = Connection::open(address, V5, client)?;
    connection.stream.write_all(&mqtt::publish(V5, topic.as_bytes(), b"1", 1, true, 7))?;
    let (first, body) = connection.read()?;
    ensure!(first == 0x40, "{first:#x} {body:?}");
    Ok(body.get(2).is_none_or(|reason| *reason < 0x80))
}

const ACL: &str = "[[allow]]\nanonymous = true\nboth = \"#\"\n\
                   [[allow]]\nanonymous = true\nwrite = [\"$SYS/broker/connection/%c/state\", \"$SYS/#\"]\n";

pub(super) fn own_state() -> Result<String> {
    let closed = "[[allow]]\nanonymous = true\nboth = \"#\"\n";
    for (rules, own) in [(None, true), (Some(ACL), true), (Some(closed), false)] {
        let files: Vec<(&str, &str)> = rules.map(|text| ("acl.toml", text)).into_iter().collect();
        let gateway = Gateway::start_furnished(&[], &files)?;
        let address = gateway.address("mqtt")?;
        ensure!(may_write(address, "fog", "$SYS/broker/connection/fog/state")? == own, "its own, by {rules:?}");
        let anothers = may_write(address, "fog", "$SYS/broker/connection/other/state")?;
        // A rule that names all of `$SYS` names these topics, too.
        ensure!(anothers == (rules == Some(ACL)), "another's, by {rules:?}");
        for topic in ["$SYS/broker/uptime", "$SYS/broker/connection/fog", "$SYS/broker/connection/fog/state/x", "$SYS"]
        {
            ensure!(!may_write(address, "fog", topic)?, "{topic}, by {rules:?}");
        }
        ensure!(may_write(address, "fog", "a")?, "a, by {rules:?}");
    }
    Ok(String::new())
}

/// CONNECT of version 5 with a Maximum Packet Size.
fn small(bytes: u32, client: &str, user: Option<&str>) -> Vec<u8> {
    let mut body = string(b"MQTT");
    body.extend([5, if user.is_some() { 0x82 } else { 2 }, 0, 60, 5, 0x27]);
    body.extend(bytes.to_be_bytes());
    body.extend(string(client.as_bytes()));
    body.extend(user.map(|user| string(user.as_bytes())).unwrap_or_default());
    packet(0x10, &body)
}

/// [MQTT-3.1.2-24]: nothing larger than the client's Maximum Packet Size is sent, whatever it is.
pub(super) fn small_packets() -> Result<String> {
    let mut gateway = Gateway::start(&["listeners.mqtts.anonymous=false"])?;
    let address = gateway.address("mqtt")?;
    let (mut shortest, mut opened) = (None, 0);
    for bytes in 1..=80 {
        for client in ["", "a-client"] {
            let max = usize::try_from(bytes)?;
            let end = answer_first(address, &small(bytes, client, None))?;
            ensure!(end.len() <= max, "CONNACK of {} bytes for {max}: {end:02x?}", end.len());
            match end.get(3) {
                // Nothing fits, not even a refusal.
                None => ensure!(max < 5, "silence for {max}"),
                Some(0) => {
                    opened += 1;
                    shortest.get_or_insert(bytes);
                }
                Some(reason) => ensure!(*reason == 0x83, "{max}: {end:02x?}"),
            }
        }
    }
    let shortest = shortest.context("nobody was let in")?;
    ensure!(shortest <= 13 && opened > 100, "from {shortest} bytes on, {opened}");
    // A refusal leaves its text out.
    for (bytes, client) in [(5, "x".repeat(300)), (40, "x".repeat(300)), (1000, "x".repeat(300))] {
        let end = answer_first(address, &small(bytes, &client, None))?;
        ensure!(end.len() <= usize::try_from(bytes)? && end.get(3) == Some(&0x85), "{bytes}: {end:02x?}");
        ensure!((end.len() > 5) == (bytes == 1000), "{bytes}: {end:02x?}");
    }
    // Codes cannot be left out: the answer that would be too large ends the connection, with 0x95.
    for (filters, fits) in [(25, true), (24, true), (26, false), (300, false)] {
        let names: Vec<String> = (0..filters).map(|number| format!("f/{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        for unsubscribe in [false, true] {
            let mut connection = Connection::over(tcp::connect(address)?, V5);
            connection.stream.write_all(&small(30, "few", None))?;
            ensure!(connection.read()?.1.get(1) == Some(&0), "no CONNACK");
            connection.stream.write_all(&subscriptions(&names, unsubscribe))?;
            let (first, body) = connection.read()?;
            let wanted = if fits { 0x90 + u8::from(unsubscribe) * 0x20 } else { 0xE0 };
            ensure!(first == wanted && body.len() + 2 <= 30, "{filters} filters: {first:#x} {body:02x?}");
            ensure!(fits || body.first() == Some(&0x95), "{filters} filters: {body:02x?}");
        }
    }
    gateway.settle()?;
    Ok(format!("(from {shortest} bytes on)"))
}

fn subscriptions(names: &[&str], unsubscribe: bool) -> Vec<u8> {
    if !unsubscribe {
        return mqtt::subscribe(V5, 1, names, 0);
    }
    let mut body = vec![0, 1, 0];
    body.extend(names.iter().flat_map(|name| string(name.as_bytes())));
    packet(0xA2, &body)
}

/// The first packet of an answer, or nothing when the connection ends without one.
fn answer_first(address: SocketAddr, bytes: &[u8]) -> Result<Vec<u8>> {
    let mut stream = tcp::connect(address)?;
    stream.write_all(bytes)?;
    let mut head = [0; 2];
    if stream.read_exact(&mut head).is_err() {
        return Ok(Vec::new());
    }
    let mut packet = head.to_vec();
    // None of these answers has 128 bytes.
    let mut body = vec![0; usize::from(head[1])];
    stream.read_exact(&mut body)?;
    packet.extend(body);
    Ok(packet)
}

/// CONNECT with a user name and no password.
fn named(version: u8, user: &str) -> Vec<u8> {
    let properties: &[u8] = if version == V5 { b"\0" } else { b"" };
    connect(b"MQTT", version, 0x82, &[properties, &string(b"named"), &string(user.as_bytes())].concat())
}

pub(super) fn user_names() -> Result<String> {
    let open = Gateway::start(&[])?;
    let closed = Gateway::start(&["listeners.mqtt.anonymous=false"])?;
    let asking = Gateway::start(&["listeners.mqtt.anonymous=false", "mqtt.allow_user_without_password=true"])?;
    for version in [V4, V5] {
        let code = |gateway: &Gateway, user: &str| -> Result<Option<u8>> {
            Ok(answer_first(gateway.address("mqtt")?, &named(version, user))?.get(3).copied())
        };
        // Where anybody may come in, a name says nothing: as with Mosquitto and `allow_anonymous`.
        ensure!(code(&open, "sensor-17")? == Some(0), "version {version}: {:?}", code(&open, "sensor-17")?);
        let refused = code(&closed, "sensor-17")?;
        ensure!(refused == Some(if version == V5 { 0x87 } else { 5 }), "version {version}: {refused:?}");
        // As a credential it is looked at, and is nobody's.
        let wrong = code(&asking, "sensor-17")?;
        ensure!(wrong == Some(if version == V5 { 0x86 } else { 4 }), "version {version}: {wrong:?}");
    }
    Ok(String::new())
}

/// How late something was, beyond `due` after `begin`; an error if it was early.
fn lateness(begin: Instant, due: Duration, what: &str) -> Result<Duration> {
    let took = begin.elapsed();
    ensure!(took + Duration::from_millis(5) >= due, "{what} after {took:?}, before {due:?}");
    Ok(took.saturating_sub(due))
}

/// Deadlines at eight phases of a second are met within 100 ms; half of them within 250 here, on a busy machine.
pub(super) fn deadlines() -> Result<String> {
    let mut gateway = Gateway::start(&[])?;
    let address = gateway.address("mqtt")?;
    let keep_alive = phases(|phase| {
        let mut stream = tcp::connect(address)?;
        let mut hello = connect(b"MQTT", V4, 2, &string(format!("silent-{phase}").as_bytes()));
        if let Some(seconds) = hello.get_mut(11) {
            *seconds = 1;
        }
        let begin = Instant::now();
        stream.write_all(&hello)?;
        tcp::read_end(&mut stream, Duration::from_secs(10))?;
        lateness(begin, Duration::from_millis(1500), "the keep alive of one second")
    })?;
    // [MQTT-3.1.3-9], §3.1.3.2.2: a will that is delayed by a second, and a session that lasts no longer than that.
    let wills = phases(|phase| {
        let topic = format!("will/{phase}");
        let mut reader = Reader::open(address, &format!("heir-{phase}"), &[&topic])?;
        let mut stream = tcp::connect(address)?;
        let delay: u32 = if phase % 2 == 0 { 1 } else { 60 };
        let expiry: u32 = if phase % 2 == 0 { 60 } else { 1 };
        let properties = [&[5, 0x11], &expiry.to_be_bytes()[..]].concat();
        let will = [&[5, 0x18], &delay.to_be_bytes()[..], &string(topic.as_bytes()), &string(b"gone")].concat();
        let id = string(format!("leaver-{phase}").as_bytes());
        stream.write_all(&connect(b"MQTT", V5, 0x06, &[properties, id, will].concat()))?;
        let mut connack = [0; 4];
        stream.read_exact(&mut connack)?;
        let begin = Instant::now();
        drop(stream);
        reader.until_value(&topic, "gone")?;
        lateness(begin, Duration::from_secs(1), "the will")
    })?;
    for (what, mut late) in [("keep alive", keep_alive), ("wills", wills)] {
        late.sort();
        let median = late.get(late.len() / 2).copied().unwrap_or_default();
        ensure!(median <= Duration::from_millis(250), "{what} late by {late:?}");
    }
    gateway.signal(rustix::process::Signal::TERM)?;
    gateway.wait_exit(Duration::from_secs(20))?;
    Ok(String::new())
}

/// Runs something at eight phases of a second, all at once.
fn phases(run: impl Fn(u32) -> Result<Duration> + Sync) -> Result<Vec<Duration>> {
    std::thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = (0..8_u32)
            .map(|phase| {
                scope.spawn(move || {
                    std::thread::sleep(Duration::from_millis(125) * phase);
                    run(phase)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().map_err(|_| anyhow::anyhow!("a panic"))?).collect()
    })
}

/// The status of a WebSocket handshake.
fn handshake(address: SocketAddr, path: &str, more: &str) -> Result<(String, String)> {
    let mut stream = tcp::connect(address)?;
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{more}\r\n"
    );
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    let mut byte = [0];
    while !answer.ends_with(b"\r\n\r\n") && stream.read(&mut byte)? == 1 {
        answer.extend(byte);
    }
    let answer = String::from_utf8_lossy(&answer).to_lowercase();
    let status = answer.split(' ').nth(1).unwrap_or_default().to_owned();
    if status != "101" {
        return Ok((status, answer));
    }
    // A masked frame with CONNECT in it (RFC 6455 §5.3), and CONNACK in one that is not.
    let hello = mqtt::connect(V4, "by-websocket");
    let mut frame = vec![0x82, 0x80 | u8::try_from(hello.len())?, 0, 0, 0, 0];
    frame.extend(hello);
    stream.write_all(&frame)?;
    let mut connack = [0; 6];
    stream.read_exact(&mut connack)?;
    ensure!(connack == [0x82, 4, 0x20, 2, 0, 0], "{connack:02x?}");
    Ok((status, answer))
}

pub(super) fn websocket_paths() -> Result<String> {
    let mut gateway = Gateway::start(&[])?;
    let address = gateway.address("http")?;
    for path in ["/mqtt", "/mqtt/", "/"] {
        for protocol in ["mqtt", "mqttv3.1", "mqttv3.1, mqtt"] {
            let named = format!("Sec-WebSocket-Protocol: {protocol}\r\n");
            let (status, answer) = handshake(address, path, &named)?;
            ensure!(status == "101" && answer.contains("sec-websocket-protocol: mqtt"), "{path} {protocol}: {answer}");
            // Pages of other origins are kept out, whatever the path.
            let foreign = named + "Origin: https://evil.example\r\n";
            let (status, answer) = handshake(address, path, &foreign)?;
            ensure!(status == "403", "{path} {protocol} from elsewhere: {answer}");
        }
        let (status, answer) = handshake(address, path, "Sec-WebSocket-Protocol: chat\r\n")?;
        ensure!(status != "101", "{path} chat: {answer}");
    }
    // Without a subprotocol `/` is a page.
    ensure!(handshake(address, "/mqtt/", "")?.0 == "101" && handshake(address, "/", "")?.0 != "101");
    gateway.settle()?;
    Ok(String::new())
}
