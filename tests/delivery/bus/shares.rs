//! One client does not stop the others by the memory or work it causes: sessions and clients that take nothing, filters
//! that match nothing, filters of many levels, wills.

use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fogmux_tests::coap;
use fogmux_tests::gateway::Gateway;
use fogmux_tests::mqtt::{self, Connection, V4, V5};
use fogmux_tests::tcp;

const MAILBOX_BYTES: &str = "fogmux_bus_mailbox_bytes";
/// Publishers are paused above 8 MiB; memory is nearly gone above 3 MiB.
const LITTLE_MEMORY: [&str; 2] = ["bus.memory_high_bytes=8MiB", "mqtt.tight_bytes=2MiB"];
/// Clients with a message of 1 MiB each.
const HOLDERS: usize = 12;
const LARGE: usize = 1 << 20;
const TOPICS: usize = 20_000;

/// CONNECT with flags, 5.0 properties and what follows the client identifier.
fn login(gateway: &Gateway, client: &str, flags: u8, properties: &[u8], more: &[u8]) -> Result<(TcpStream, u8)> {
    let mut body = mqtt::string(b"MQTT");
    body.extend([V5, flags, 0, 0]);
    body.extend(mqtt::varint(properties.len()));
    body.extend(properties);
    body.extend(mqtt::string(client.as_bytes()));
    body.extend(more);
    let mut stream = tcp::connect(gateway.address("mqtt")?)?;
    stream.write_all(&mqtt::packet(0x10, &body))?;
    let mut connection = Connection::over(stream.try_clone()?, V5);
    let (first, body) = connection.read()?;
    ensure!(first == 0x20, "{first:#x} instead of CONNACK");
    Ok((stream, body.get(1).copied().context("a CONNACK without a reason")?))
}

/// A session that outlives its connection by an hour.
fn lasting(gateway: &Gateway, client: &str) -> Result<Connection> {
    let (stream, reason) = login(gateway, client, 0, &[0x11, 0, 0, 0x0e, 0x10], &[])?;
    ensure!(reason == 0, "CONNACK {reason:#x}");
    Ok(Connection::over(stream, V5))
}

/// Publishes with QoS 1 and waits for PUBACK.
fn assured(publisher: &mut Connection, topic: &str, payload: &[u8]) -> Result<()> {
    publisher.stream.write_all(&mqtt::publish(V5, topic.as_bytes(), payload, 1, false, 7))?;
    let (first, _) = publisher.read().with_context(|| format!("no PUBACK for a message on {topic}"))?;
    ensure!(first == 0x40, "{first:#x} instead of PUBACK");
    Ok(())
}

/// A client of another peer publishes, at two doors.
fn others_publish(gateway: &Gateway) -> Result<()> {
    let mut other = Connection::open(gateway.address("mqtt")?, V5, "other")?;
    for _ in 0..5 {
        assured(&mut other, "other", b"x")?;
    }
    let put = b"PUT /topics/other HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx";
    let deadline = Instant::now() + tcp::PATIENCE;
    loop {
        // HTTP says at once that memory is gone, until some has been given back.
        let answer = tcp::ask(gateway.address("http")?, put)?;
        if answer.starts_with(b"HTTP/1.1 20") {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{}", String::from_utf8_lossy(&answer));
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A session that holds little keeps it.
fn small_session(gateway: &Gateway) -> Result<()> {
    lasting(gateway, "small")?.subscribe(1, &["small"], 1).map(drop)?;
    let mut publisher = Connection::open(gateway.address("mqtt")?, V5, "small-publisher")?;
    (0..10).try_for_each(|_| assured(&mut publisher, "small", b"kept"))
}

fn small_session_is_whole(gateway: &Gateway) -> Result<()> {
    let mut small = lasting(gateway, "small")?;
    for number in 0..10 {
        super::next_publish(&mut small).with_context(|| format!("message {number} of a small session"))?;
    }
    Ok(())
}

/// Sessions without a connection hold all memory there is, by one large message.
pub(super) fn absent_sessions() -> Result<String> {
    let gateway = Gateway::start(&LITTLE_MEMORY)?;
    for number in 0..HOLDERS {
        lasting(&gateway, &format!("absent-{number}"))?.subscribe(1, &["large"], 1)?;
    }
    small_session(&gateway)?;
    let mut publisher = Connection::open(gateway.address("mqtt")?, V5, "large-publisher")?;
    for _ in 0..3 {
        assured(&mut publisher, "large", &vec![b'x'; LARGE])?;
    }
    others_publish(&gateway)?;
    let held = gateway.wait_metric(MAILBOX_BYTES, tcp::PATIENCE, |bytes| bytes <= f64::from(3 << 20))?;
    small_session_is_whole(&gateway)?;
    gateway.check_conservation()?;
    Ok(format!("{held} bytes are held"))
}

/// Clients that read and never acknowledge do.
pub(super) fn silent_readers() -> Result<String> {
    let gateway = Gateway::start(&LITTLE_MEMORY)?;
    let mut readers = Vec::new();
    for number in 0..HOLDERS {
        let mut reader = lasting(&gateway, &format!("silent-{number}"))?;
        reader.subscribe(1, &["large"], 1)?;
        readers.push(reader);
    }
    small_session(&gateway)?;
    let mut publisher = Connection::open(gateway.address("mqtt")?, V5, "large-publisher")?;
    assured(&mut publisher, "large", &vec![b'x'; LARGE])?;
    for reader in &mut readers {
        super::next_publish(reader)?;
    }
    others_publish(&gateway)?;
    let held = gateway.wait_metric(MAILBOX_BYTES, tcp::PATIENCE, |bytes| bytes <= f64::from(3 << 20))?;
    small_session_is_whole(&gateway)?;
    Ok(format!("{held} bytes are held"))
}

/// Retained messages on `d/<number>/v`.
fn retain(gateway: &Gateway, count: usize) -> Result<()> {
    let mut publisher = Connection::open(gateway.address("mqtt")?, V5, "retainer")?;
    for number in 0..count {
        let topic = format!("d/{number}/v");
        publisher.stream.write_all(&mqtt::publish(V5, topic.as_bytes(), b"x", 0, true, 0))?;
    }
    gateway.wait_metric("fogmux_bus_retained_messages", tcp::PATIENCE * 3, |kept| kept >= count as f64).map(drop)
}

/// A client with hundreds of filters that match none of the retained topics: another has its answers in between.
pub(super) fn filters_without_match() -> Result<String> {
    const FILTERS: usize = 400;
    let mut gateway = Gateway::start(&["workers.count=1", "mqtt.sys_interval=0s"])?;
    retain(&gateway, TOPICS)?;
    let mut neighbour = Connection::open(gateway.address("mqtt")?, V4, "neighbour")?;
    let mut asker = Connection::open(gateway.address("mqtt")?, V4, "asker")?;
    let filters: Vec<String> = (0..FILTERS).map(|number| format!("+/+/none-{number}")).collect();
    let mut names: Vec<&str> = filters.iter().map(String::as_str).collect();
    // Comes when all others have been looked through.
    names.push("d/0/v");
    asker.stream.write_all(&mqtt::subscribe(V4, 1, &names, 0))?;
    let ended = std::thread::spawn(move || super::next_publish(&mut asker).map(|_| asker));
    let mut answers = 0;
    while !ended.is_finished() {
        neighbour.stream.write_all(&[0xc0, 0])?;
        ensure!(neighbour.read()?.0 == 0xd0, "no PINGRESP");
        answers += 1;
    }
    let asker = ended.join().map_err(|_| anyhow::anyhow!("the reader panicked"))??;
    // 400 times 20 000 are eight million looks. One answer for every 100 000 is little.
    ensure!(
        answers >= FILTERS * TOPICS / 100_000,
        "only {answers} answers while {FILTERS} filters were looked through"
    );
    drop((asker, neighbour));
    gateway.settle()?;
    Ok(format!("{answers} answers"))
}

fn list(socket: &UdpSocket, number: u16, filter: &str) -> Result<()> {
    let query = format!("filter={filter}");
    let options: [(u16, &[u8]); 2] = [(coap::URI_PATH, b"ps"), (coap::URI_QUERY, query.as_bytes())];
    socket.send(&coap::message(coap::NON, coap::GET, number, &number.to_be_bytes(), &options, b""))?;
    Ok(())
}

/// Lists over CoAP that match nothing: a flood of them is told to come again, and a list is had after that.
pub(super) fn lists_without_match() -> Result<String> {
    let gateway = Gateway::start(&["workers.count=1"])?;
    retain(&gateway, TOPICS)?;
    let socket = coap::endpoint(gateway.address("coap")?)?;
    let mut refused = 0;
    for number in 0..400_u16 {
        list(&socket, number, &format!("+/+/none-{number}"))?;
        if number % 20 != 19 {
            continue;
        }
        for _ in 0..20 {
            let answer = coap::receive(&socket, tcp::PATIENCE)?.context("no answer to a list")?;
            refused += usize::from(coap::dotted(&answer) == "5.03");
        }
    }
    ensure!(refused > 0, "400 lists over {TOPICS} topics were made one after the other");
    let deadline = Instant::now() + tcp::PATIENCE;
    for number in 1000.. {
        list(&socket, number, "+/+/v")?;
        let answer = coap::receive(&socket, tcp::PATIENCE)?.context("no answer to a list")?;
        if coap::dotted(&answer) == "2.05" {
            return Ok(format!("{refused} of 400 lists refused"));
        }
        ensure!(Instant::now() < deadline, "{}", coap::dotted(&answer));
        std::thread::sleep(Duration::from_millis(100));
    }
    anyhow::bail!("no list")
}

/// Filters of many levels and of many bytes are bounded by what they take up, and leave nothing.
pub(super) fn large_filters() -> Result<String> {
    let mut gateway = Gateway::start(&[])?;
    let idle = gateway.resident_bytes()?;
    let (deep, long) = ("/x".repeat(190), "y".repeat(60_000));
    let mut told = Vec::new();
    for (name, tail, count, at_once) in [("deep", deep, 4000, 100), ("long", long, 1000, 10)] {
        let mut client = Connection::open(gateway.address("mqtt")?, V5, name)?;
        let mut granted = 0;
        for (id, first) in (1..).zip((0..count).step_by(at_once)) {
            let filters: Vec<String> = (first..first + at_once).map(|number| format!("{number}{tail}")).collect();
            let names: Vec<&str> = filters.iter().map(String::as_str).collect();
            let reasons = client.subscribe(id, &names, 0)?;
            ensure!(reasons.iter().all(|reason| matches!(reason, 0 | 0x97)), "{reasons:02x?}");
            granted += reasons.iter().filter(|reason| **reason == 0).count();
        }
        told.push(format!("{granted} of {count} {name} filters"));
    }
    let peak = gateway.peak_resident_bytes()?;
    ensure!(peak <= idle + 60_000_000, "{} MB for {}", peak / 1_000_000, told.join(", "));
    gateway.returns_to_idle(idle)?;
    Ok(told.join(", "))
}

/// All subscriptions together are bounded, and room that was given back can be had again.
pub(super) fn all_filters() -> Result<String> {
    let mut gateway = Gateway::start(&["bus.subscriptions_bytes_max=64KiB"])?;
    for round in 0..3 {
        let mut client = Connection::open(gateway.address("mqtt")?, V5, "many")?;
        let filters: Vec<String> = (0..500).map(|number| format!("{round}/{number}/a")).collect();
        let names: Vec<&str> = filters.iter().map(String::as_str).collect();
        let reasons = client.subscribe(1, &names, 0)?;
        let granted = reasons.iter().filter(|reason| **reason == 0).count();
        ensure!((50..400).contains(&granted), "{granted} granted");
        // An existing subscription may be replaced.
        ensure!(client.subscribe(2, names.get(..1).unwrap_or_default(), 1)? == [1]);
        drop(client);
        gateway.settle()?;
    }
    Ok(String::new())
}

/// Unsubscribing from thousands of shared subscriptions while much is queued takes no longer than while nothing is.
pub(super) fn shared_subscriptions_left() -> Result<String> {
    const QUEUED: usize = 40_000;
    let gateway = Gateway::start(&["workers.count=1"])?;
    let groups: Vec<String> = (0..6000).map(|number| format!("$share/g{number}/z")).collect();
    let names: Vec<&str> = groups.iter().map(String::as_str).collect();
    let mut unsubscribe = vec![0, 3, 0];
    names.iter().for_each(|name| unsubscribe.extend(mqtt::string(name.as_bytes())));
    let unsubscribe = mqtt::packet(0xa2, &unsubscribe);
    let mut times = Vec::new();
    // With nothing queued and with much. A delay that the gateway causes is there each time.
    for round in 0..3 {
        for queued in [0, QUEUED] {
            let mut client = Connection::open(gateway.address("mqtt")?, V5, &format!("leaver-{round}-{queued}"))?;
            client.subscribe(1, &names, 1)?;
            client.subscribe(2, &["q"], 1)?;
            let mut publisher = Connection::open(gateway.address("mqtt")?, V4, "publisher")?;
            let batch = mqtt::publish(V4, b"q", b"", 1, false, 1).repeat(500);
            for _ in 0..queued / 500 {
                publisher.stream.write_all(&batch)?;
                publisher.stream.read_exact(&mut [0; 4 * 500])?;
            }
            let began = Instant::now();
            client.stream.write_all(&unsubscribe)?;
            while client.read()?.0 != 0xb0 {}
            times.push(began.elapsed());
        }
        if let [.., nothing, much] = times[..]
            && much <= nothing * 10
        {
            return Ok(format!("{nothing:?} and {much:?}"));
        }
    }
    anyhow::bail!("with nothing queued and with {QUEUED} messages in turn: {times:?}")
}

/// Large wills are bounded together; small ones are always taken.
pub(super) fn wills() -> Result<String> {
    let mut gateway = Gateway::start(&[])?;
    let will = |bytes: usize| {
        // A delay of an hour.
        let mut more = vec![5, 0x18, 0, 0, 0x0e, 0x10];
        more.extend(mqtt::string(b"last/words"));
        more.extend(mqtt::string(&vec![b'w'; bytes]));
        more
    };
    let keep = [0x11, 0, 0, 0x0e, 0x10];
    let mut taken = 0;
    for number in 0..320 {
        let (_, reason) = login(&gateway, &format!("will-{number}"), 0x06, &keep, &will(60_000))?;
        ensure!(matches!(reason, 0 | 0x97), "CONNACK {reason:#x}");
        taken += usize::from(reason == 0);
    }
    // A tenth is reserved for other principals.
    ensure!((240..280).contains(&taken), "{taken} wills of 60 kB in 16 MiB");
    let (_, reason) = login(&gateway, "small", 0x06, &keep, &will(200))?;
    ensure!(reason == 0, "CONNACK {reason:#x} for a small will");
    gateway.check_alive()?;
    // Their sessions end: so do they.
    for number in 0..320 {
        login(&gateway, &format!("will-{number}"), 0x02, &[], &[])?;
    }
    login(&gateway, "small", 0x02, &[], &[])?;
    gateway.wait_metric("fogmux_mqtt_wills_bytes", tcp::PATIENCE, |bytes| bytes == 0.0)?;
    Ok(format!("{taken} of 320"))
}
