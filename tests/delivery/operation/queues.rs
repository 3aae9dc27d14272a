//! Queues of absent clients in the store (ADR 0073): larger than memory may be, and whole after `kill -9`.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::{Gateway, Plan};
use fogmux_tests::mqtt::Connection;
use fogmux_tests::suite::Case;
use rustix::process::Signal;

use super::restart::{make_sessions, parts, publish, queue};
use super::sessions::{acknowledgement, id_of, resume};

pub(super) const LARGE: Case = Case {
    name: "operation: queues in the store take little memory, and are whole after kill -9 with their clients connected",
    run: large,
};

pub(super) const BOUNDED: Case = Case {
    name: "operation: the bound of a queue holds however often the gateway is killed with its client connected",
    run: bounded,
};

const SESSIONS: usize = 8;
/// Messages that wait for each.
const QUEUED: usize = 4_000;
const BYTES: usize = 2_000;
/// The most that all of it may take of memory: a third of the payloads. A place takes some 250 bytes of it, a session
/// 64 KiB, and what waits for a commit is in memory twice.
const MEMORY_MAX: u64 = (SESSIONS * QUEUED * BYTES / 3) as u64;
/// Messages that a client reads before the gateway is killed. Every other one is not acknowledged.
const READ: usize = 300;
const END: Duration = Duration::from_secs(60);

fn value(number: usize) -> String {
    format!("{number:0BYTES$}")
}

/// The memory that it has taken since the start, once it has given back what it can.
fn taken(gateway: &Gateway, idle: u64) -> Result<u64> {
    let mut least = u64::MAX;
    for _ in 0..20 {
        least = least.min(gateway.anonymous_bytes()?.saturating_sub(idle));
        if least <= MEMORY_MAX {
            return Ok(least);
        }
        std::thread::sleep(Duration::from_millis(500));
    }
    Ok(least)
}

/// Reads so many messages of a session. Returns their numbers, and whether each may have been sent before.
fn read(connection: &mut Connection, session: usize, count: usize, all: bool) -> Result<Vec<(usize, bool)>> {
    let mut numbers = Vec::new();
    for place in 0..count {
        let (first, body) = connection.read().with_context(|| format!("{place} of {count} came"))?;
        ensure!(first & 0xf6 == 0x32, "{first:#x} instead of PUBLISH");
        let (topic, payload) = parts(&body, true)?;
        let number: usize = payload.parse()?;
        ensure!(topic == queue(session) && payload == value(number), "{topic} has {payload:?}");
        numbers.push((number, first & 8 != 0));
        if all || place % 2 == 0 {
            let id = id_of(body.get(2 + topic.len()..).unwrap_or_default())?;
            std::io::Write::write_all(&mut connection.stream, &acknowledgement(0x40, id))?;
        }
    }
    Ok(numbers)
}

fn large() -> Result<String> {
    let home = tempfile::tempdir()?;
    let data = home.path().join("data");
    std::fs::create_dir(&data)?;
    let settings = ["mqtt.queue_bytes_max=64MiB", "mqtt.tight_bytes=24MiB", "bus.memory_high_bytes=32MiB"];
    let plan = Plan { data: Some(&data), settings: &settings, ..Plan::default() };
    let mut gateway = Gateway::start_as(plan)?;
    let idle = gateway.anonymous_bytes()?;
    let address = gateway.address("mqtt")?;
    make_sessions(address, SESSIONS)?;
    publish(address, SESSIONS * QUEUED, false, |number| (queue(number / QUEUED), value(number)))?;
    let waiting = taken(&gateway, idle)?;
    ensure!(waiting <= MEMORY_MAX, "what waits takes {} MB of memory", waiting / 1_000_000);
    let connect = |address: SocketAddr, session: usize| -> Result<Connection> {
        let (connection, is_present) = resume(address, &format!("session-{session}"))?;
        ensure!(is_present, "session {session} is not there");
        Ok(connection)
    };
    let mut connected = Vec::new();
    for session in 0..SESSIONS {
        let mut connection = connect(address, session)?;
        let numbers = read(&mut connection, session, READ, false)?;
        let expected = session * QUEUED..session * QUEUED + READ;
        ensure!(numbers.iter().map(|(number, _)| *number).eq(expected), "session {session} had {numbers:?}");
        connected.push(connection);
    }
    gateway.signal(Signal::KILL)?;
    gateway.wait_exit(END)?;
    drop(connected);

    let mut gateway = Gateway::start_as(plan)?;
    let restored = taken(&gateway, idle)?;
    ensure!(restored <= MEMORY_MAX, "after a start it takes {} MB of memory", restored / 1_000_000);
    for session in 0..SESSIONS {
        let mut connection = connect(gateway.address("mqtt")?, session)?;
        // The last acknowledgements may not have been on the disk.
        let (mut numbers, last) = (Vec::new(), (session + 1) * QUEUED - 1);
        while numbers.last().is_none_or(|(number, _)| *number != last) {
            numbers.extend(read(&mut connection, session, 1, true).with_context(|| format!("session {session}"))?);
        }
        ensure!(numbers.is_sorted() && numbers.iter().is_sorted_by(|one, next| one.0 < next.0), "{numbers:?}");
        let unacknowledged = (0..READ).skip(1).step_by(2).map(|place| session * QUEUED + place);
        let unread = session * QUEUED + READ..=last;
        let missing = unacknowledged.chain(unread).find(|one| !numbers.iter().any(|(number, _)| number == one));
        ensure!(missing.is_none(), "{missing:?} did not come to session {session}");
        let unmarked = numbers.iter().find(|(number, dup)| number % QUEUED < READ && !dup);
        ensure!(unmarked.is_none(), "{unmarked:?} was sent before, and had no DUP");
    }
    let dropped = gateway.metrics()?.get("fogmux_bus_dropped_full_total").copied().unwrap_or_default();
    ensure!(dropped == 0.0, "{dropped} messages were dropped");
    gateway.check_alive()?;
    let [waiting, restored] = [waiting, restored].map(|bytes| bytes / 1_000_000);
    let payload = SESSIONS * QUEUED * BYTES / 1_000_000;
    Ok(format!("({payload} MB wait in {waiting} MB of memory, {restored} MB after the start)"))
}

/// Messages that count as sent after each kill: the first step of a mark, which is not moved while fewer than half of
/// it are sent.
const SENT_MAX: usize = 64;

fn bounded() -> Result<String> {
    const BOUND: usize = 1_000;
    const KILLS: usize = 3;
    let home = tempfile::tempdir()?;
    let data = home.path().join("data");
    std::fs::create_dir(&data)?;
    let bound = format!("mqtt.queue_messages_max={BOUND}");
    // A client that acknowledges nothing is sent so many.
    let settings = [&*bound, "mqtt.max_inflight=20"];
    let plan = Plan { data: Some(&data), settings: &settings, ..Plan::default() };
    let mut gateway = Gateway::start_as(plan)?;
    make_sessions(gateway.address("mqtt")?, 1)?;
    for kill in 0..KILLS {
        // More than there is room for, so the oldest go.
        let first = kill * 2 * BOUND;
        let text = |number: usize| (queue(0), format!("{:0BYTES$}", first + number));
        publish(gateway.address("mqtt")?, BOUND + BOUND / 2, false, text)?;
        let (mut connection, is_present) = resume(gateway.address("mqtt")?, "session-0")?;
        ensure!(is_present, "it is not there");
        // The first few come, and are not acknowledged.
        connection.read()?;
        gateway.signal(Signal::KILL)?;
        gateway.wait_exit(END)?;
        gateway = Gateway::start_as(plan)?;
    }
    let (mut connection, is_present) = resume(gateway.address("mqtt")?, "session-0")?;
    ensure!(is_present, "it is not there after all");
    let (mut count, last) = (0, (KILLS - 1) * 2 * BOUND + BOUND + BOUND / 2 - 1);
    let mut before = None;
    while before != Some(last) {
        let numbers = read(&mut connection, 0, 1, true).with_context(|| format!("{count} came"))?;
        let number = numbers.first().map(|(number, _)| *number);
        ensure!(before < number, "{number:?} behind {before:?}");
        (before, count) = (number, count + 1);
    }
    let most = BOUND + KILLS * SENT_MAX;
    ensure!((BOUND..=most).contains(&count), "{count} messages came, {BOUND} may wait");
    Ok(format!("({count} of at most {most})"))
}
