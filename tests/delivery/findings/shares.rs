//! Rooms that all clients fill together: one of them cannot keep the others out (ADR 0036).

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpStream, UdpSocket};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::mqtt::{self, Connection, V5};
use fogmux_tests::users::{self, Login};
use fogmux_tests::{coap, dtls, tcp, tls, xmpp};

use super::{KEY, PATIENCE};

/// Eve may do nothing but what would harm nobody.
const RULES: &str = "[[allow]]\nuser = \"ada\"\nboth = [\"plant/#\"]\n\n[[allow]]\nuser = \"eve\"\nwrite = [\"eve\"]\n";
/// Addresses of two networks.
const NEAR: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 5, 1));
const FAR: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 9, 1));

fn gateway(settings: &[&str]) -> Result<Gateway> {
    let files = [("users.toml", &*users::file(&["ada", "eve"])), ("acl.toml", RULES)];
    Gateway::start_furnished(settings, &files)
}

fn gave_way(gateway: &Gateway, table: &str) -> Result<()> {
    let name = format!("fogmux_share_gave_way_total{{table=\"{table}\"}}");
    gateway.wait_metric(&name, PATIENCE, |count| count > 0.0)?;
    Ok(())
}

/// The beginning of a POST.
fn post(user: &str, target: &str, more: &str, length: usize) -> String {
    let authorization = users::authorization(user);
    format!("POST {target} HTTP/1.1\r\nHost: localhost\r\n{authorization}{more}Content-Length: {length}\r\n\r\n")
}

pub(super) fn http() -> Result<String> {
    const BODY: usize = 200_000;
    let mut gateway = gateway(&["http.uploads_bytes_max=1MiB", "http.batch_bytes_max=256KiB"])?;
    let http = gateway.address("http")?;
    let mut held = Vec::new();
    for _ in 0..20 {
        let mut stream = tcp::connect(http)?;
        stream.write_all(post("eve", "/publish", "Content-Type: application/x-ndjson\r\n", BODY).as_bytes())?;
        // One that is refused may be closed already.
        let _ = stream.write_all(&vec![b' '; BODY - 1]);
        held.push(stream);
    }
    gateway.wait_metric("fogmux_http_uploads_bytes", PATIENCE, |bytes| bytes > 1_500_000.0)?;
    for bytes in [1, 2_000, 2_049, 70_000, 300_000] {
        let status = users::http(http, "ada", "PUT", "/topics/plant/a", &vec![b'x'; bytes])?;
        ensure!(matches!(status, 201 | 204), "a PUT of {bytes} bytes is answered {status}");
    }
    gave_way(&gateway, "http_uploads")?;
    drop(held);
    gateway.wait_metric("fogmux_http_uploads_bytes", PATIENCE, |bytes| bytes == 0.0)?;
    gateway.settle()?;
    Ok(String::new())
}

pub(super) fn xmpp() -> Result<String> {
    const STREAMS: usize = 12;
    const BEGUN: usize = 30_000;
    let mut gateway = gateway(&["xmpp.open_stanzas_bytes_max=256KiB", "xmpp.stanza_bytes_max=128KiB"])?;
    let config = tls::config(gateway.ca())?;
    let log_in = |user: &str, resource: &str| {
        xmpp::Session::plain_password(
            tcp::connect(gateway.address("xmpps")?)?,
            &config,
            &users::sasl_plain(user),
            resource,
        )
    };
    let publish = |size: usize| {
        format!(
            "<iq type='set' id='big' to='pubsub.localhost'><pubsub xmlns='http://jabber.org/protocol/pubsub'>\
             <publish node='plant/a'><item><data xmlns='urn:fogmux:0' encoding='utf8'>{}</data></item></publish>\
             </pubsub></iq>",
            "y".repeat(size)
        )
    };
    let mut ada = log_in("ada", "pump")?;
    let begun = publish(100_000);
    let begun = begun.get(..BEGUN).context("short")?;
    let mut held = Vec::new();
    for number in 0..STREAMS {
        let mut eve = log_in("eve", &format!("r{number}"))?;
        let _ = eve.send(begun);
        held.push(eve);
    }
    let read = "fogmux_door_read_bytes_total{door=\"xmpp\"}";
    gateway.wait_metric(read, PATIENCE, |bytes| bytes > (STREAMS * BEGUN) as f64)?;
    let (before, stanza) = (gateway.metrics()?.get(read).copied().unwrap_or_default(), publish(100_000));
    let (begin, end) = stanza.split_at(stanza.len() / 2);
    ada.send(begin)?;
    gateway.wait_metric(read, PATIENCE, |bytes| bytes >= before + begin.len() as f64)?;
    let _ = ada.send(end);
    let answer = ada.until("</iq>").context("the stanza of another user ended")?;
    ensure!(answer.contains("type='result'"), "{answer}");
    gave_way(&gateway, "xmpp_stanzas")?;
    drop((held, ada));
    gateway.wait_metric("fogmux_xmpp_unfinished_bytes", PATIENCE, |bytes| bytes == 0.0)?;
    gateway.settle()?;
    Ok(String::new())
}

pub(super) fn mqtt() -> Result<String> {
    const BYTES: usize = 120_000;
    let mut gateway = gateway(&["mqtt.unfinished_bytes_max=2MiB"])?;
    let address = gateway.address("mqtt")?;
    let log_in = |user: &str, client: &str| -> Result<Connection> {
        let (connection, _, reason) = Login { clean: true, expiry: 0, ..Login::of(user, client) }.connect(address)?;
        ensure!(reason == 0, "CONNACK {reason:#x}");
        Ok(connection)
    };
    let mut camera = log_in("ada", "camera")?;
    let picture = mqtt::publish(V5, b"plant/camera", &vec![b'p'; BYTES], 1, false, 7);
    let (begin, end) = picture.split_at(BYTES / 3);
    camera.stream.write_all(begin)?;
    let begun = mqtt::publish(V5, b"q", &vec![b'z'; 1_000_000], 0, false, 0);
    let mut held = Vec::new();
    for number in 0..12 {
        let mut eve = log_in("eve", &format!("e{number}"))?;
        let _ = eve.stream.write_all(begun.get(..700_000).context("short")?);
        held.push(eve);
    }
    // A link of 25 kB a second.
    for part in end.chunks(BYTES / 48) {
        camera.stream.write_all(part).context("the packet of another user was cut")?;
        std::thread::sleep(Duration::from_millis(100));
    }
    let (first, body) = camera.read().context("the packet of another user was cut")?;
    ensure!(first == 0x40, "{first:#x} {body:?} instead of PUBACK");
    gave_way(&gateway, "mqtt_packets")?;
    drop((held, camera));
    gateway.wait_metric("fogmux_mqtt_unfinished_bytes", PATIENCE, |bytes| bytes == 0.0)?;
    gateway.settle()?;
    Ok(String::new())
}

pub(super) fn logins() -> Result<String> {
    let mut gateway = Gateway::start(&["mqtt.logins_bytes_max=1MiB"])?;
    let address = gateway.address("mqtt")?;
    let login = crate::bus::strangers::large_login();
    let (begin, end) = login.split_at(login.len() / 2);
    let mut stream = tcp::connect_from(NEAR, address)?;
    stream.write_all(begin)?;
    gateway.wait_metric("fogmux_mqtt_logins_bytes", PATIENCE, |bytes| bytes > 0.0)?;
    let mut unfinished = vec![0x10];
    unfinished.extend(mqtt::varint(65_000));
    unfinished.extend(mqtt::string(b"MQTT"));
    unfinished.extend([V5, 2, 0, 60]);
    unfinished.resize(64_500, 0);
    let open = |_| -> Result<TcpStream> {
        let mut stream = tcp::connect_from(FAR, address)?;
        let _ = stream.write_all(&unfinished);
        Ok(stream)
    };
    let held: Vec<TcpStream> = (0..40).map(open).collect::<Result<_>>()?;
    gateway.wait_metric("fogmux_mqtt_logins_gave_way_total", PATIENCE, |ended| ended >= 20.0)?;
    let _ = stream.write_all(end);
    let mut connection = Connection::over(stream, V5);
    let (first, _) = connection.read().context("a login of another network ended")?;
    ensure!(first == 0x20, "{first:#x} instead of CONNACK");
    drop((held, connection));
    gateway.wait_metric("fogmux_mqtt_logins_bytes", PATIENCE, |bytes| bytes == 0.0)?;
    gateway.settle()?;
    Ok(String::new())
}

/// An endpoint of an address.
fn endpoint(gateway: &Gateway, own: IpAddr) -> Result<UdpSocket> {
    let socket = UdpSocket::bind((own, 0))?;
    socket.connect(gateway.address("coap")?)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    Ok(socket)
}

pub(super) fn uploads() -> Result<String> {
    let mut gateway = Gateway::start(&["workers.count=1", "coap.uploads_max=8"])?;
    let device = endpoint(&gateway, NEAR)?;
    let block = |socket: &UdpSocket, number: u8, more: bool| -> Result<String> {
        let option = [number << 4 | u8::from(more) << 3];
        let id = 100 + u16::from(number);
        let put = coap::request(0, 3, id, b"t", "plant/a", &[(coap::BLOCK1, &option)], &[b'x'; 16]);
        Ok(coap::dotted(&coap::exchange(socket, &put, b"t")?))
    };
    for number in 0..10 {
        let code = block(&device, number, true)?;
        ensure!(code == "2.31", "block {number} is answered {code}");
        for _ in 0..40 {
            let code = block(&endpoint(&gateway, FAR)?, 0, true)?;
            ensure!(matches!(&*code, "2.31" | "4.29"), "{code}");
        }
    }
    let code = block(&device, 10, false)?;
    ensure!(matches!(&*code, "2.01" | "2.04"), "the last block is answered {code}");
    gave_way(&gateway, "coap_uploads")?;
    gateway.check_alive()?;
    Ok(String::new())
}

pub(super) fn lists() -> Result<String> {
    const TOPICS: usize = 2_000;
    let mut gateway = Gateway::start(&["workers.count=1"])?;
    let mut publisher = Connection::open(gateway.address("mqtt")?, V5, "p")?;
    let all = (0..TOPICS).flat_map(|n| mqtt::publish(V5, format!("big/{n}").as_bytes(), b"x", 0, true, 0));
    publisher.stream.write_all(&all.collect::<Vec<u8>>())?;
    publisher.stream.write_all(&mqtt::publish(V5, b"last", b"x", 1, false, 1))?;
    ensure!(publisher.read()?.0 == 0x40, "no PUBACK");
    let path: [(u16, &[u8]); 3] = [(coap::URI_PATH, b".well-known"), (coap::URI_PATH, b"core"), (15, b"rt=none")];
    let get = |id: u16, token: &[u8]| coap::message(1, 1, id, token, &path, b"");
    let (device, flood) = (endpoint(&gateway, NEAR)?, endpoint(&gateway, FAR)?);
    for round in 0..3 {
        for number in 0..40 {
            flood.send(&get(1 + round * 40 + number, b"f"))?;
        }
        let code = coap::dotted(&coap::exchange(&device, &get(1 + round, b"d"), b"d")?);
        ensure!(code == "2.05", "the list of another client is answered {code}");
        let answered = std::iter::from_fn(|| coap::receive(&flood, Duration::from_millis(200)).ok().flatten());
        ensure!(answered.count() > 0, "the flood was not answered");
    }
    let name = "fogmux_share_refused_total{table=\"coap_lists\"}";
    gateway.wait_metric(name, PATIENCE, |count| count > 0.0)?;
    drop(publisher);
    gateway.settle()?;
    Ok(String::new())
}

pub(super) fn keys() -> Result<String> {
    const KEYS: usize = 10_100;
    let mut gateway = gateway(&[])?;
    let http = gateway.address("http")?;
    let order = || {
        let fields = format!("{}Idempotency-Key: \"order\"\r\n", users::authorization("ada"));
        users::http_with(http, &fields, "POST", "/topics/plant/dose", b"1 ml")
    };
    let (mut pump, _, reason) =
        Login { clean: true, expiry: 0, ..Login::of("ada", "pump") }.connect(gateway.address("mqtt")?)?;
    ensure!(reason == 0, "CONNACK {reason:#x}");
    pump.subscribe(1, &["plant/dose"], 0)?;
    ensure!((order()?, order()?) == (202, 202), "the POST");
    let mut eve = tcp::connect(http)?;
    for batch in 0..KEYS / 100 {
        let of = |n: usize| post("eve", "/topics/eve", &format!("Idempotency-Key: {batch}-{n}\r\n"), 1) + "x";
        eve.write_all((0..100).map(of).collect::<String>().as_bytes())?;
        let (mut answers, mut buffer): (Vec<u8>, _) = (Vec::new(), [0; 16_384]);
        while answers.windows(9).filter(|part| part == b"HTTP/1.1 ").count() < 100 {
            let count = eve.read(&mut buffer)?;
            ensure!(count > 0, "closed");
            answers.extend(buffer.get(..count).unwrap_or_default());
        }
    }
    ensure!(order()? == 202, "the POST once more");
    let status = users::http(http, "ada", "POST", "/topics/plant/dose", b"last")?;
    ensure!(status == 202, "another POST: {status}");
    for payload in [&b"1 ml"[..], b"last"] {
        let (_, message) = pump.read()?;
        ensure!(message.ends_with(payload), "a POST was done twice: {}", String::from_utf8_lossy(&message));
    }
    gave_way(&gateway, "idempotency_keys")?;
    drop((pump, eve));
    gateway.settle()?;
    Ok(String::new())
}

/// The log names the user whose session gives way, and not only an address.
pub(super) fn evicted() -> Result<String> {
    let settings = ["workers.count=1", "coap.dtls.sessions_max=2"];
    let keys = users::key_file("sensor", KEY) + "user = \"plant\"\n" + &users::key_file("other", KEY);
    let mut gateway = Gateway::start_furnished(&settings, &[("psk.toml", &keys)])?;
    let coaps = gateway.address("coaps")?;
    let open = |identity: &'static str, number: u32| -> Result<dtls::Session> {
        dtls::Session::open(&dtls::psk(identity, KEY)?, dtls::endpoint(coaps, number)?)
    };
    // The first of a principal with two gives way to that of another.
    let [_evicted, second, other] = [open("sensor", 0)?, open("sensor", 200)?, open("other", 400)?];
    gateway.wait_log("the table of DTLS sessions is full", PATIENCE)?;
    let log = gateway.whole_log();
    let line = log.lines().find(|line| line.contains("the table of DTLS sessions is full")).context("no line")?;
    ensure!(line.contains(" principal=\"plant\"") && line.contains(" peer=127."), "not the principal: {line}");
    [second, other].into_iter().try_for_each(dtls::Session::close)?;
    gateway.settle()?;
    Ok(String::new())
}
