//! Operation: full and read-only disks, damaged stores, descriptor limits, memory after load.

mod backup;
mod backup_places;
mod checked;
mod clock;
mod clock_elapsed;
mod clock_keys;
mod control;
mod damage;
mod descriptors;
mod discovery;
mod disk;
mod early;
mod exit;
mod idle;
mod interface;
mod listeners;
mod mdns;
mod memory;
mod mixed;
mod monitoring;
mod polite;
mod pressure;
mod queues;
mod read_only;
mod reload;
mod restart;
mod sessions;
mod shutdown;
mod small;
mod stopped;
mod store;
mod times;
mod vanished;
mod wear;

use std::io::Write;

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::mqtt::{self, Connection, V5};
use fogmux_tests::suite::Case;
use fogmux_tests::tcp;

pub(crate) const CASES: &[Case] = &[
    disk::READ_ONLY,
    disk::FULL_AT_START,
    disk::FIRST_START,
    disk::FULL_LATER,
    disk::FULL_LATER_GROUP,
    read_only::LATER,
    checked::STARTS,
    early::SIGNALS,
    early::KILLED,
    listeners::NAMED,
    listeners::ADDRESSES,
    listeners::LATER,
    interface::LATER,
    listeners::DUAL,
    listeners::OSCORE,
    discovery::GROUPS,
    discovery::BOUNDS,
    discovery::CLIENTS,
    mdns::FOUND,
    mdns::TAKEN,
    mdns::LATER,
    backup::LOAD,
    backup::DAMAGED,
    backup::KILLED,
    backup_places::PLACES,
    backup_places::OTHER_NAMES,
    control::SILENT,
    control::NO_FILES,
    control::GONE,
    control::TWO,
    control::NO_FILE,
    exit::LATE,
    idle::CLIENTS,
    exit::REFUSED,
    exit::UNTOUCHED,
    store::NO_ROOM,
    store::NEWER,
    store::REFUSED,
    store::STREAM,
    clock::UNSET,
    clock::BEHIND,
    clock::AT_THE_END,
    clock::AHEAD,
    clock::AHEAD_MEANWHILE,
    clock::CLEARED,
    clock::OVERDUE,
    clock_keys::RESTORED,
    clock_keys::WAITING,
    clock_keys::CERTIFICATE,
    clock_keys::CLIENT,
    clock_elapsed::KEEP_ALIVE,
    clock_elapsed::SESSIONS,
    reload::FULL,
    reload::FULL_LATER,
    damage::DELETED,
    damage::TRUNCATED,
    damage::FLIPPED,
    damage::SERVER_KEY,
    damage::USERS,
    pressure::AWAY,
    pressure::SILENT,
    pressure::OVERRUN,
    restart::MANY,
    queues::LARGE,
    queues::BOUNDED,
    sessions::KILLED,
    sessions::STOPPED,
    sessions::FULL,
    shutdown::EVENT_STREAMS,
    shutdown::XMPP,
    shutdown::DEAF,
    stopped::SILENT,
    stopped::COMPLETED,
    stopped::READ,
    descriptors::FEW_FILES,
    descriptors::NONE_LEFT,
    times::PAIRS,
    times::MANY,
    times::SLOW,
    times::ABSENT,
    times::STORE,
    times::HANDSHAKES,
    monitoring::CHECKED,
    monitoring::NAMES,
    monitoring::PAGE,
    monitoring::BOARD,
    memory::RETAINED_AND_READERS,
    memory::LARGE_PUTS,
    memory::MIX,
    memory::GAUGE,
    memory::CLIENTS_GONE,
    memory::TLS_CLIENTS_GONE,
    mixed::GONE,
    small::SMALL,
    polite::FORGOTTEN,
    polite::DISCONNECTS,
    vanished::EVERY_LISTENER,
    vanished::KEEP_ALIVE,
    vanished::READERS,
    wear::BLOCKS,
    wear::DELAY,
    wear::TAKEN,
];

/// One request over a connection of its own: the status and the body of the answer.
pub(crate) fn http(gateway: &Gateway, method: &str, path: &str, body: &[u8]) -> Result<(u16, String)> {
    let length = body.len();
    let mut request =
        format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n")
            .into_bytes();
    request.extend_from_slice(body);
    let answer = tcp::ask(gateway.address("http")?, &request)?;
    let text = String::from_utf8_lossy(&answer);
    let status = text.get(9..12).context("no status")?.parse()?;
    Ok((status, text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default()))
}

/// Keeps `count` values of `bytes` under `kept/NNNNNN`, each acknowledged.
fn keep(gateway: &Gateway, count: u16, bytes: usize) -> Result<()> {
    let mut connection = Connection::open(gateway.address("mqtt")?, V5, "keeper")?;
    let numbers: Vec<u16> = (1..=count).collect();
    for turn in numbers.chunks(1_000) {
        let mut packets = Vec::new();
        for number in turn {
            let payload = format!("{number:06}{}", "x".repeat(bytes.saturating_sub(6)));
            let topic = format!("kept/{number:06}");
            packets.extend(mqtt::publish(V5, topic.as_bytes(), payload.as_bytes(), 1, true, *number));
        }
        connection.stream.write_all(&packets)?;
        for number in turn {
            let (first, body) = connection.read()?;
            let reason = body.get(2).copied().unwrap_or_default();
            ensure!(first == 0x40 && reason < 0x80, "{first:#x} {reason:#x} for value {number}");
        }
    }
    Ok(())
}
