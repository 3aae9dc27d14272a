//! MQTT sessions over several processes (ADR 0042): what was acknowledged is delivered, at QoS 2 once, whenever the
//! gateway is killed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, ensure};
use fogmux_tests::gateway::{Gateway, Plan};
use fogmux_tests::mqtt::{self, Connection, V4, V5};
use fogmux_tests::suite::Case;
use fogmux_tests::tcp;
use rustix::process::Signal;

use super::store::{Disk, stop};

pub(crate) const KILLED: Case = Case {
    name: "operation: kill -9 under load costs MQTT sessions nothing, and doubles nothing at QoS 2",
    run: killed,
};

pub(crate) const STOPPED: Case = Case {
    name: "operation: MQTT sessions go on after a restart until they expire or a clean start ends them",
    run: stopped,
};

pub(crate) const FULL: Case = Case {
    name: "operation: a full disk refuses what MQTT sessions would have to keep, and they do not get it",
    run: full,
};

/// Kills; `FOGMUX_KILLS` sets another number.
const KILLS: usize = 6;
/// Messages that a publisher has under way.
const WINDOW: usize = 20;
/// The first number of a publisher of each QoS.
const NUMBERS: [u64; 3] = [0, 1 << 32, 2 << 32];
/// The longest wait for the last messages.
const END: Duration = Duration::from_secs(60);

/// Random numbers that a seed repeats (Knuth's MMIX).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// CONNECT of 3.1.1 without Clean Session. Returns whether the session was there.
pub(super) fn resume(address: SocketAddr, client: &str) -> Result<(Connection, bool)> {
    let mut body = mqtt::string(b"MQTT");
    body.extend([V4, 0, 0, 60]);
    body.extend(mqtt::string(client.as_bytes()));
    let mut stream = tcp::connect(address)?;
    stream.write_all(&mqtt::packet(0x10, &body))?;
    let mut connection = Connection::over(stream, V4);
    let (first, body) = connection.read()?;
    ensure!(first == 0x20 && body.get(1) == Some(&0), "CONNACK {first:#x} {body:?}");
    Ok((connection, body.first() == Some(&1)))
}

pub(super) fn id_of(body: &[u8]) -> Result<u16> {
    let [high, low, ..] = body else { return Err(anyhow!("no packet identifier: {body:?}")) };
    Ok(u16::from_be_bytes([*high, *low]))
}

pub(super) fn acknowledgement(first: u8, id: u16) -> Vec<u8> {
    mqtt::packet(first, &id.to_be_bytes())
}

/// A message that is not acknowledged for good.
struct Sent {
    id: u16,
    number: u64,
    released: bool,
}

/// A publisher with a session of its own, which it never loses.
struct Publisher {
    qos: u8,
    next: u64,
    id: u16,
    sent: VecDeque<Sent>,
    acknowledged: BTreeSet<u64>,
}

impl Publisher {
    fn new(qos: u8) -> Self {
        let next = NUMBERS.get(usize::from(qos)).copied().unwrap_or_default();
        Self { qos, next, id: 0, sent: VecDeque::new(), acknowledged: BTreeSet::new() }
    }

    fn packet(&self, sent: &Sent, dup: bool) -> Vec<u8> {
        if sent.released {
            return acknowledgement(0x62, sent.id);
        }
        let payload = sent.number.to_string();
        let mut packet = mqtt::publish(V4, b"load", payload.as_bytes(), self.qos, false, sent.id);
        if let Some(first) = packet.first_mut().filter(|_| dup) {
            *first |= 8;
        }
        packet
    }

    /// Publishes until the connection breaks, or what there is has been acknowledged if there is no more to come.
    fn run(&mut self, address: SocketAddr, more: bool, present: bool) -> Result<()> {
        let (mut connection, found) = resume(address, &format!("publisher-{}", self.qos))?;
        ensure!(found == present, "session present {found} for a publisher");
        let again: Vec<u8> = self.sent.iter().flat_map(|sent| self.packet(sent, true)).collect();
        connection.stream.write_all(&again)?;
        loop {
            let mut packets = Vec::new();
            while more && self.sent.len() < WINDOW {
                self.id = self.id.checked_add(1).unwrap_or(1);
                let sent = Sent { id: self.id, number: self.next, released: false };
                self.next += 1;
                packets.extend(self.packet(&sent, false));
                self.sent.push_back(sent);
            }
            connection.stream.write_all(&packets)?;
            if self.sent.is_empty() {
                return Ok(());
            }
            let (first, body) = connection.read()?;
            let id = id_of(&body)?;
            let at = self.sent.iter().position(|sent| sent.id == id).with_context(|| format!("{first:#x} for {id}"))?;
            if first == 0x50 {
                self.sent.get_mut(at).context("no message")?.released = true;
                connection.stream.write_all(&acknowledgement(0x62, id))?;
            } else {
                let sent = self.sent.remove(at).context("no message")?;
                ensure!(first == if self.qos == 1 { 0x40 } else { 0x70 }, "{first:#x} for QoS {}", self.qos);
                self.acknowledged.insert(sent.number);
            }
        }
    }
}

/// A subscriber with a session of its own, which it never loses.
struct Subscriber {
    name: &'static str,
    /// Identifiers that wait for PUBREL.
    received: BTreeSet<u16>,
    got: Vec<u64>,
}

impl Subscriber {
    const fn new(name: &'static str) -> Self {
        Self { name, received: BTreeSet::new(), got: Vec::new() }
    }

    /// Reads until the connection breaks, or nothing is missing any more.
    fn run(&mut self, address: SocketAddr, mut missing: BTreeSet<u64>) -> Result<()> {
        let (mut connection, found) = resume(address, self.name)?;
        ensure!(found, "session present 0 for {}", self.name);
        let waits = !missing.is_empty();
        self.got.iter().for_each(|number| _ = missing.remove(number));
        let end = Instant::now() + END;
        while !waits || !missing.is_empty() {
            ensure!(Instant::now() < end, "{} messages do not come, the first is {:?}", missing.len(), missing.first());
            let (first, body) = connection.read()?;
            if first & 0xf0 != 0x30 {
                ensure!(first == 0x62, "{first:#x} for a subscriber");
                let id = id_of(&body)?;
                self.received.remove(&id);
                connection.stream.write_all(&acknowledgement(0x70, id))?;
                continue;
            }
            let (exactly_once, rest) = (first & 6 == 4, body.get(6..).unwrap_or_default());
            let (id, number) = (id_of(rest)?, std::str::from_utf8(rest.get(2..).unwrap_or_default())?.parse()?);
            if !exactly_once || self.received.insert(id) {
                self.got.push(number);
                missing.remove(&number);
            }
            connection.stream.write_all(&acknowledgement(if exactly_once { 0x50 } else { 0x40 }, id))?;
        }
        Ok(())
    }

    /// Checks that everything came that was acknowledged, of QoS 2 once and in order, and nothing that nobody sent.
    fn check(&self, publishers: &[Publisher]) -> Result<()> {
        let mut times: BTreeMap<u64, usize> = BTreeMap::new();
        self.got.iter().for_each(|number| *times.entry(*number).or_default() += 1);
        for publisher in publishers {
            let lost: Vec<_> = publisher.acknowledged.iter().filter(|number| !times.contains_key(number)).collect();
            ensure!(lost.is_empty(), "{} lost {lost:?} of QoS {}", self.name, publisher.qos);
        }
        let [_, _, two] = NUMBERS;
        let twice: Vec<_> = times.iter().filter(|(number, times)| **number >= two && **times > 1).collect();
        ensure!(twice.is_empty(), "{} got of QoS 2 twice: {twice:?}", self.name);
        ensure!(self.got.iter().filter(|number| **number >= two).is_sorted(), "{}: QoS 2 out of order", self.name);
        let sent = |number: u64| publishers.iter().any(|one| number < one.next && number >> 32 == u64::from(one.qos));
        ensure!(self.got.iter().all(|number| sent(*number)), "{} got what nobody sent", self.name);
        Ok(())
    }
}

fn killed() -> Result<String> {
    let kills = std::env::var("FOGMUX_KILLS").ok().and_then(|count| count.parse().ok()).unwrap_or(KILLS);
    let seed = u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis())?;
    let mut random = Random(seed);
    let home = tempfile::tempdir()?;
    let data = home.path().join("data");
    std::fs::create_dir(&data)?;
    let settings = ["mqtt.queue_messages_max=1000000", "mqtt.queue_bytes_max=1GiB"];
    let plan = Plan { data: Some(&data), settings: &settings, ..Plan::default() };
    let mut gateway = Gateway::start_as(plan)?;
    for name in ["live", "away"] {
        let (mut connection, _) = resume(gateway.address("mqtt")?, name)?;
        ensure!(connection.subscribe(1, &["load"], 2)? == [2], "not granted");
    }
    let (mut live, mut away) = (Subscriber::new("live"), Subscriber::new("away"));
    let mut publishers = [Publisher::new(1), Publisher::new(2)];
    for round in 0..kills {
        let address = gateway.address("mqtt")?;
        let pause = Duration::from_millis(100 + random.below(900));
        thread::scope(|scope| {
            let mut threads = vec![scope.spawn(|| live.run(address, BTreeSet::new()))];
            threads.extend(publishers.iter_mut().map(|one| scope.spawn(move || one.run(address, true, round > 0))));
            thread::sleep(pause);
            gateway.signal(Signal::KILL)?;
            for thread in threads {
                // It ends with the connection, and any other error is found again at the end.
                let ended = thread.join().map_err(|_| anyhow!("a client panicked"))?;
                let Err(error) = ended else { return Err(anyhow!("a client has ended by itself")) };
                ensure!(error.downcast_ref::<std::io::Error>().is_some(), "round {round}, seed {seed}: {error:#}");
            }
            Ok(())
        })?;
        gateway.wait_exit(END)?;
        gateway = Gateway::start_as(plan).with_context(|| format!("start {round}, seed {seed}"))?;
    }
    let address = gateway.address("mqtt")?;
    for publisher in &mut publishers {
        publisher.run(address, false, true).with_context(|| format!("seed {seed}"))?;
    }
    let all: BTreeSet<u64> = publishers.iter().flat_map(|one| one.acknowledged.iter().copied()).collect();
    for subscriber in [&mut live, &mut away] {
        subscriber.run(address, all.clone()).with_context(|| format!("seed {seed}"))?;
        subscriber.check(&publishers).with_context(|| format!("seed {seed}"))?;
    }
    Ok(format!("({} acknowledged, {kills} kills)", all.len()))
}

fn restart(mut gateway: Gateway, data: &Path) -> Result<Gateway> {
    gateway.signal(Signal::TERM)?;
    gateway.wait_exit(Duration::from_secs(30))?;
    Gateway::start_as(Plan { data: Some(data), ..Plan::default() })
}

fn stopped() -> Result<String> {
    let home = tempfile::tempdir()?;
    let data = home.path().join("data");
    std::fs::create_dir(&data)?;
    let mut gateway = Gateway::start_as(Plan { data: Some(&data), ..Plan::default() })?;
    for (name, seconds) in [("stays", 3600), ("ends", 1), ("cleaned", 3600)] {
        let (mut connection, found) = Connection::resume(gateway.address("mqtt")?, name, seconds, false)?;
        ensure!(!found && connection.subscribe(1, &["a/+"], 1)? == [1], "{name}");
    }
    gateway = restart(gateway, &data)?;
    let mut writer = Connection::open(gateway.address("mqtt")?, V5, "writer")?;
    writer.stream.write_all(&mqtt::publish(V5, b"a/b", b"1", 1, false, 7))?;
    ensure!(writer.read()? == (0x40, vec![0, 7]), "the restored subscriptions match");
    drop(writer);
    let (_, found) = Connection::resume(gateway.address("mqtt")?, "cleaned", 3600, true)?;
    ensure!(!found, "a clean start found a session");
    gateway = restart(gateway, &data)?;
    let (mut stays, found) = Connection::resume(gateway.address("mqtt")?, "stays", 3600, false)?;
    ensure!(found, "session present 0 after two restarts");
    let (first, body) = stays.read()?;
    ensure!(first & 0x30 == 0x30 && body.ends_with(b"1"), "{first:#x} {body:?}");
    stays.stream.write_all(&acknowledgement(0x40, id_of(body.get(5..).unwrap_or_default())?))?;
    let (mut cleaned, found) = Connection::resume(gateway.address("mqtt")?, "cleaned", 3600, false)?;
    ensure!(found, "the new session is gone");
    ensure!(cleaned.subscribe(1, &["b"], 1)? == [1], "it has nothing of the old one");
    // One that seems to have ended while the gateway was not there is kept for a minute.
    gateway.wait_metric("fogmux_bus_subscriptions", Duration::from_secs(90), |left| left <= 2.0)?;
    let (_, found) = Connection::resume(gateway.address("mqtt")?, "ends", 1, false)?;
    ensure!(!found, "a session has outlived its interval");
    Ok(String::new())
}

/// Publishes with QoS 1 over a connection of its own. Returns the reason code; `None` if the connection ends instead.
fn publish(gateway: &Gateway, version: u8, payload: &[u8]) -> Result<Option<u8>> {
    let mut writer = Connection::open(gateway.address("mqtt")?, version, "writer")?;
    writer.stream.write_all(&mqtt::publish(version, b"load", payload, 1, false, 7))?;
    match writer.read() {
        Ok((0x40, body)) => Ok(Some(body.get(2).copied().unwrap_or_default())),
        Ok((first, body)) => Err(anyhow!("{first:#x} {body:?} instead of PUBACK")),
        Err(_) => Ok(None),
    }
}

fn full() -> Result<String> {
    let home = tempfile::tempdir()?;
    let data = home.path().join("data");
    let Some(disk) = Disk::new(&data, "16m")? else { return Ok(super::disk::SKIPPED.to_owned()) };
    let gateway = disk.start(&data, &[])?;
    let (mut away, _) = resume(gateway.address("mqtt")?, "away")?;
    ensure!(away.subscribe(1, &["load"], 1)? == [1], "not granted");
    drop(away);
    ensure!(publish(&gateway, V5, b"1")? == Some(0), "there is room");
    disk.fill(0)?;
    super::disk::exhaust(&gateway)?;
    // A removal was the last thing that the disk took, so there may be a little room.
    let mut expected = vec![b"1"];
    while publish(&gateway, V5, b"1")? == Some(0) {
        expected.push(b"1");
        ensure!(expected.len() < 500, "nothing is refused");
    }
    for number in 0..20 {
        let refused = publish(&gateway, V5, b"2")?;
        ensure!(refused == Some(0x97), "{refused:?} for message {number}");
    }
    ensure!(publish(&gateway, V4, b"2")?.is_none(), "3.1.1 has no PUBACK that refuses");
    ensure!(resume(gateway.address("mqtt")?, "new").is_err(), "a session that cannot be kept was granted");
    // Waiting messages can be taken, and make room.
    let (mut away, found) = resume(gateway.address("mqtt")?, "away")?;
    let (first, body) = away.read()?;
    ensure!(found && first & 0xf6 == 0x32 && body.ends_with(b"1"), "{found} {first:#x} {body:?}");
    drop(away);
    disk.empty()?;
    let end = Instant::now() + END;
    while publish(&gateway, V5, b"3")? != Some(0) {
        ensure!(Instant::now() < end, "refused with room again");
    }
    stop(gateway)?;
    let gateway = disk.start(&data, &[])?;
    let (mut away, found) = resume(gateway.address("mqtt")?, "away")?;
    ensure!(found, "session present 0");
    expected.push(b"3");
    for payload in &expected {
        let (first, body) = away.read()?;
        ensure!(first & 0xf6 == 0x32 && body.ends_with(*payload), "{first:#x} {body:?} instead of {payload:?}");
        away.stream.write_all(&acknowledgement(0x40, id_of(body.get(6..).unwrap_or_default())?))?;
    }
    Ok(format!("({} taken)", expected.len()))
}
