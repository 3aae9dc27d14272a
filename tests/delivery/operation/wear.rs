//! Wear of the disk, by what the process writes. What the file system adds is measured by `cargo xtask wear`.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::mqtt::{Connection, V5, packet, publish};
use fogmux_tests::suite::Case;

pub(super) const BLOCKS: Case =
    Case { name: "an update that comes alone writes one block, and files stay small", run: one_block };
pub(super) const DELAY: Case = Case { name: "no commit is more often than the delay of group", run: delay };

pub(super) const TAKEN: Case =
    Case { name: "a publisher waits for the disk only for those who have not acknowledged", run: taken };

const TOPICS: u16 = 100;
/// Updates before blocks are counted: the journal has as many segments as it needs by then.
const FILLING: u16 = 800;
const UPDATES: u16 = 800;
const BLOCK: u64 = 4_096;
/// Bytes of disk for the 12 kB of live data.
const FILES_MAX: u64 = 4 << 20;

fn one_block() -> Result<String> {
    let mut gateway = Gateway::start(&["store.durability=always", "log.filter=warn"])?;
    let mut publisher = Connection::open(gateway.address("mqtt")?, V5, "publisher")?;
    let mut largest = 0;
    let mut publish_all = |updates: u16| -> Result<()> {
        for number in 0..updates {
            update(&mut publisher, number % TOPICS)?;
            if number % TOPICS == 0 {
                largest = largest.max(disk_bytes(&gateway.data())?);
            }
        }
        Ok(())
    };
    publish_all(FILLING)?;
    let before = (commits(&gateway)?, written(&gateway)?);
    publish_all(UPDATES)?;
    let (commits, bytes) = (commits(&gateway)? - before.0, written(&gateway)? - before.1);
    drop(publisher);
    ensure!(commits == u64::from(UPDATES), "{commits} commits of {UPDATES} updates");
    // Wakes of threads, and the two readings, are among the bytes.
    ensure!(bytes * 10 <= commits * BLOCK * 12, "{bytes} bytes written for {commits} commits");
    ensure!(largest <= FILES_MAX, "files of {largest} bytes");
    gateway.settle()?;
    Ok(format!("({:.3} blocks a commit, files of {} KiB)", bytes as f64 / (commits * BLOCK) as f64, largest >> 10))
}

fn delay() -> Result<String> {
    const GROUP: Duration = Duration::from_millis(100);
    let mut gateway = Gateway::start(&["store.durability=group", "store.group_delay=100ms"])?;
    let mut publisher = Connection::open(gateway.address("mqtt")?, V5, "publisher")?;
    let (session, _) = Connection::resume(gateway.address("mqtt")?, "away", 600, true)?;
    let mut session = session;
    ensure!(session.subscribe(1, &["wear/#"], 1)? == [1], "SUBACK");
    drop(session);
    let before = commits(&gateway)?;
    let began = Instant::now();
    for round in 0..20 {
        // One alone, and then ten at once.
        for count in [1, 10] {
            let packets: Vec<u8> = (1..=count).flat_map(|id| value(id + round, id)).collect();
            publisher.stream.write_all(&packets)?;
            (0..count).try_for_each(|_| acknowledged(&mut publisher))?;
        }
    }
    let commits = commits(&gateway)? - before;
    let elapsed = began.elapsed();
    // One is at once, after a pause.
    let most = 1 + elapsed.as_nanos() / GROUP.as_nanos();
    ensure!(commits > 1 && u128::from(commits) <= most, "{commits} commits in {elapsed:?}");
    drop(publisher);
    Connection::resume(gateway.address("mqtt")?, "away", 0, true)?;
    gateway.settle()?;
    Ok(format!("({commits} commits in {:.1} s)", elapsed.as_secs_f64()))
}

fn taken() -> Result<String> {
    const MESSAGES: u16 = 50;
    let mut gateway = Gateway::start(&["store.durability=group", "store.group_delay=100ms"])?;
    let address = gateway.address("mqtt")?;
    let (mut subscriber, _) = Connection::resume(address, "subscriber", 600, true)?;
    ensure!(subscriber.subscribe(1, &["wear/#"], 1)? == [1], "SUBACK");
    let mut publisher = Connection::open(address, V5, "publisher")?;
    let mut exchange = |acknowledges: bool, messages: u16| -> Result<u64> {
        let before = commits(&gateway)?;
        for id in 1..=messages {
            publisher.stream.write_all(&publish(V5, b"wear/x", &[b'x'; 64], 1, false, id))?;
            let (first, body) = subscriber.read()?;
            ensure!(first >> 4 == 3, "{first:#x} instead of PUBLISH");
            if acknowledges {
                let id = body.get(8..10).context("no identifier")?;
                subscriber.stream.write_all(&packet(0x40, id))?;
            }
            acknowledged(&mut publisher)?;
        }
        Ok(commits(&gateway)? - before)
    };
    let with = exchange(true, MESSAGES)?;
    // Each waits for a commit of its own.
    let without = exchange(false, 5)?;
    ensure!(with < u64::from(MESSAGES) / 2, "{with} commits for {MESSAGES} messages that were acknowledged");
    ensure!(without >= 5, "{without} commits for 5 messages that were not");
    drop((publisher, subscriber));
    Connection::resume(address, "subscriber", 0, true)?;
    gateway.settle()?;
    Ok(format!("({with} commits for {MESSAGES} messages, {without} for 5)"))
}

/// PUBLISH of a retained value of 64 bytes.
fn value(topic: u16, id: u16) -> Vec<u8> {
    publish(V5, format!("wear/{topic:03}").as_bytes(), &[b'x'; 64], 1, true, id)
}

fn acknowledged(publisher: &mut Connection) -> Result<()> {
    let (first, body) = publisher.read()?;
    let reason = body.get(2).copied().unwrap_or_default();
    ensure!(first == 0x40 && reason < 0x80, "{first:#x} {reason:#x}");
    Ok(())
}

fn update(publisher: &mut Connection, topic: u16) -> Result<()> {
    publisher.stream.write_all(&value(topic, 1))?;
    acknowledged(publisher)
}

fn commits(gateway: &Gateway) -> Result<u64> {
    gateway.sum(&["fogmux_store_commits_total"])
}

/// Bytes that the process has handed to `write` (`wchar` of proc(5)), which counts where `write_bytes` does not: on a
/// file system in memory.
fn written(gateway: &Gateway) -> Result<u64> {
    let io = fs::read_to_string(format!("/proc/{}/io", gateway.pid()))?;
    let calls = io.lines().find_map(|line| line.strip_prefix("wchar: ")).context("no wchar")?;
    Ok(calls.trim().parse()?)
}

/// Bytes of disk that the files below a directory take.
fn disk_bytes(directory: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        bytes += if metadata.is_dir() { disk_bytes(&entry.path())? } else { metadata.blocks() * 512 };
    }
    Ok(bytes)
}
