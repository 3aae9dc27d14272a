//! Disks that cannot be written: the gateway starts, live traffic flows, and nobody reads a message whose publisher was
//! told that it was not kept.
//!
//! The disks are a tmpfs and a read-only mount in a mount namespace of the gateway's own.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fogmux_tests::coap::{self, CON, PUT};
use fogmux_tests::gateway::{Gateway, Plan};
use fogmux_tests::mqtt::{self, Connection, V4, V5};
use fogmux_tests::suite::Case;
use fogmux_tests::xmpp::{Session, Via};
use fogmux_tests::{tcp, tls};
use rustix::process::Signal;

use super::{http, keep};

pub(super) const READ_ONLY: Case = Case { name: "a read-only disk: starts, serves what was kept", run: read_only };
pub(super) const FULL_AT_START: Case = Case { name: "a full disk: starts, serves what was kept", run: full_at_start };
pub(super) const FIRST_START: Case = Case { name: "a first start on a disk that takes nothing", run: first_start };
pub(super) const FULL_LATER: Case = Case { name: "a disk that fills up while the gateway runs", run: full_later };
pub(super) const FULL_LATER_GROUP: Case =
    Case { name: "a disk that fills up while acknowledgements wait for it", run: full_later_group };

/// Behind these stand the directory and the command to run.
const READ_ONLY_MOUNT: &str = r#"mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@""#;
pub(super) const SMALL_DISK: &str = r#"mount -t tmpfs -o size=6m,mode=700 tmpfs "$0" && exec "$@""#;
pub(super) const FULL_DISK: &str = r#"cp -a "$0" "$0.copy" && mount -t tmpfs -o size=12m,mode=700 tmpfs "$0" && cp -a "$0.copy/." "$0" &&
    { cat /dev/zero > "$0/filler" 2>/dev/null; exec "$@"; }"#;
const FULL_EMPTY_DISK: &str = r#"mount -t tmpfs -o size=64k,mode=700 tmpfs "$0" &&
    { cat /dev/zero > "$0/filler" 2>/dev/null; exec "$@"; }"#;

/// Runs what follows in a mount namespace after `script`.
pub(super) fn apart<'a>(script: &'a str, data: &'a str) -> Result<Option<Vec<&'a str>>> {
    let user = Command::new("id").arg("-u").output()?;
    let namespace: &[&str] = if user.stdout == b"0\n" { &["unshare", "-m"] } else { &["unshare", "-rm"] };
    let (program, flags) = namespace.split_first().context("no command")?;
    if !Command::new(program).args(flags).arg("true").status()?.success() {
        return Ok(None);
    }
    Ok(Some(namespace.iter().copied().chain(["sh", "-c", script, data]).collect()))
}

pub(super) const SKIPPED: &str = "(skipped: no mount namespaces here)";

/// A gateway on what an earlier one kept, on a disk made by `script`.
fn on_disk(script: &str, check: impl FnOnce(&mut Gateway) -> Result<()>) -> Result<String> {
    let home = tempfile::tempdir()?;
    let data = home.path().join("data");
    let name = data.to_str().context("a path that is no text")?;
    let Some(launcher) = apart(script, name)? else { return Ok(SKIPPED.to_owned()) };
    fs::create_dir(&data)?;
    let plan = Plan { data: Some(&data), ..Plan::default() };
    let mut first = Gateway::start_as(plan)?;
    keep(&first, 50, 100)?;
    first.signal(Signal::TERM)?;
    first.wait_exit(Duration::from_secs(30))?;
    let mut gateway = Gateway::start_as(Plan { launcher: &launcher, unready: true, ..plan })?;
    check(&mut gateway).with_context(|| gateway.log())?;
    gateway.settle()?;
    Ok(String::new())
}

fn read_only() -> Result<String> {
    on_disk(READ_ONLY_MOUNT, nothing_is_taken)
}

fn full_at_start() -> Result<String> {
    on_disk(FULL_DISK, |gateway| {
        let kept = http(gateway, "GET", "/topics/kept/000007", b"")?;
        ensure!(kept.0 == 200 && kept.1.starts_with("000007"), "what was kept: {kept:?}");
        exhaust(gateway)?;
        let errors =
            gateway.whole_log().lines().filter(|line| line.contains("ERROR") && line.contains("store")).count();
        ensure!(errors == 1, "{errors} lines in the log");
        live_traffic_flows(gateway)
    })
}

/// Has a store on a full disk use up the files that it has, and looks that values are either taken and read or refused
/// and not read. Removals are taken.
pub(super) fn exhaust(gateway: &Gateway) -> Result<()> {
    for bytes in [20_000, 2_000, 200] {
        let mut number = 0;
        loop {
            let (topic, value) = (format!("/topics/full/{bytes}/{number}"), "x".repeat(bytes));
            let put = http(gateway, "PUT", &topic, value.as_bytes())?;
            let read = http(gateway, "GET", &topic, b"")?;
            if put.0 == 507 {
                ensure!(read.0 == 404, "a refused value is read: {:.20}", read.1);
                break;
            }
            ensure!(put.0 < 300 && read.1 == value, "PUT {put:?}, and {:.20} is read", read.1);
            number += 1;
            ensure!(number < 2_000, "{number} values of {bytes} bytes on a full disk");
        }
    }
    let ready = http(gateway, "GET", "/readyz", b"")?;
    ensure!(ready.0 == 503 && ready.1.contains("store is full"), "/readyz: {ready:?}");
    let full = gateway.metrics()?.get("fogmux_store_state{state=\"full\"}").copied();
    ensure!(full == Some(1.0), "the state in /metrics");
    let delete = http(gateway, "DELETE", "/topics/full/20000/0", b"")?;
    let read = http(gateway, "GET", "/topics/full/20000/0", b"")?;
    ensure!(delete.0 < 300 && read.0 == 404, "a removal on a full disk: {delete:?} {read:?}");
    gateway.check_conservation()
}

/// Retained messages are served, new ones are refused and read by nobody, and everything else flows.
fn nothing_is_taken(gateway: &mut Gateway) -> Result<()> {
    let kept = http(gateway, "GET", "/topics/kept/000007", b"")?;
    ensure!(kept.0 == 200 && kept.1.starts_with("000007"), "what was kept: {kept:?}");
    refuses_to_keep(gateway, gateway.ca())?;
    let errors = gateway.whole_log().lines().filter(|line| line.contains("ERROR") && line.contains("store")).count();
    ensure!(errors == 1, "{errors} lines in the log");
    live_traffic_flows(gateway)?;
    none_was_kept(gateway)
}

/// `ca` is the gateway's authority as it is seen from here.
pub(super) fn refuses_to_keep(gateway: &Gateway, ca: &Path) -> Result<()> {
    let ready = http(gateway, "GET", "/readyz", b"")?;
    ensure!(ready.0 == 503 && ready.1.contains("store"), "/readyz: {ready:?}");
    let metrics = gateway.metrics()?;
    let state = |state: &str| metrics.get(&format!("fogmux_store_state{{state=\"{state}\"}}")).copied();
    ensure!(state("writable") == Some(0.0) && state("read-only") == Some(1.0), "the state in /metrics");
    let put = http(gateway, "PUT", "/topics/kept/new", b"1")?;
    ensure!(put.0 == 507, "PUT: {put:?}");
    let read = http(gateway, "GET", "/topics/kept/new", b"")?;
    ensure!(read.0 == 404, "a refused value is read: {read:?}");
    let put = http(gateway, "PUT", "/topics/kept/000007", b"other")?;
    let read = http(gateway, "GET", "/topics/kept/000007", b"")?;
    ensure!(put.0 == 507 && read.1 != "other", "a refused value is read: {read:?}");
    let delete = http(gateway, "DELETE", "/topics/kept/000008", b"")?;
    let read = http(gateway, "GET", "/topics/kept/000008", b"")?;
    ensure!(delete.0 == 507 && read.0 == 200, "a refused removal is seen: {delete:?} {read:?}");
    // 0x97: Quota exceeded. Version 3.1.1 has no word for it but the end of the connection (ADR 0012).
    let mut five = Connection::open(gateway.address("mqtt")?, V5, "five")?;
    five.stream.write_all(&mqtt::publish(V5, b"kept/new", b"1", 1, true, 1))?;
    let ack = five.read()?;
    ensure!(ack.0 == 0x40 && ack.1.get(2) == Some(&0x97), "PUBACK {ack:?}");
    let mut four = Connection::open(gateway.address("mqtt")?, V4, "four")?;
    four.stream.write_all(&mqtt::publish(V4, b"kept/new", b"1", 1, true, 1))?;
    ensure!(four.read().is_err(), "3.1.1 was acknowledged");
    let socket = coap::endpoint(gateway.address("coap")?)?;
    let answer = coap::exchange(&socket, &coap::request(CON, PUT, 1, b"t", "kept/new", &[], b"1"), b"t")?;
    ensure!(coap::dotted(&answer) == "5.03", "CoAP PUT: {}", coap::dotted(&answer));
    let read = http(gateway, "GET", "/topics/kept/new", b"")?;
    ensure!(read.0 == 404, "a refused value is read: {read:?}");
    refuses_to_retract(gateway, ca)
}

/// XEP-0060 §7.2 and §8.5: a removal that the store refuses is answered with an error, and the item stays.
fn refuses_to_retract(gateway: &Gateway, ca: &Path) -> Result<()> {
    let stream = tcp::connect(gateway.address("xmpp")?)?;
    let mut session = Session::over(stream, &tls::config(ca)?, Via::Plain)?;
    let retract = session.entity("set", "<retract node='kept/000009'><item id='current'/></retract>")?;
    ensure!(retract.contains("<resource-constraint"), "retract: {retract}");
    let purge = session.owner("set", "<purge node='kept/000009'/>")?;
    ensure!(purge.contains("<resource-constraint"), "purge: {purge}");
    // §8.4: a node that cannot be deleted stays, and so does what it has been configured to.
    let delete = session.owner("set", "<delete node='kept/000009'/>")?;
    ensure!(delete.contains("<resource-constraint"), "delete: {delete}");
    let read = http(gateway, "GET", "/topics/kept/000009", b"")?;
    ensure!(read.0 == 200, "a refused removal is seen: {read:?}");
    // Refused publications are no deliveries.
    gateway.check_conservation()
}

pub(super) fn live_traffic_flows(gateway: &Gateway) -> Result<()> {
    let mut reader = Connection::open(gateway.address("mqtt")?, V4, "reader")?;
    reader.subscribe(1, &["live/#"], 0)?;
    let mut writer = Connection::open(gateway.address("mqtt")?, V4, "writer")?;
    // Without retain, and with it where nobody can be refused.
    for (qos, retain) in [(1, false), (0, true)] {
        writer.stream.write_all(&mqtt::publish(V4, b"live/a", b"x", qos, retain, 7))?;
        let (first, body) = reader.read()?;
        ensure!(first & 0xf0 == 0x30 && body.ends_with(b"x"), "QoS {qos}: {first:#x} {body:?}");
    }
    Ok(())
}

/// The retained one is not kept, which may turn out after it was delivered.
pub(super) fn none_was_kept(gateway: &Gateway) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let read = http(gateway, "GET", "/topics/live/a", b"")?;
        if read.0 == 404 {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "kept after all: {read:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn first_start() -> Result<String> {
    let mut told = String::new();
    for script in [READ_ONLY_MOUNT, FULL_EMPTY_DISK] {
        let home = tempfile::tempdir()?;
        let data = home.path().join("data");
        fs::create_dir(&data)?;
        let Some(launcher) = apart(script, data.to_str().context("a path that is no text")?)? else {
            return Ok(SKIPPED.to_owned());
        };
        let plan = Plan { data: Some(&data), launcher: &launcher, unready: true, ..Plan::default() };
        let mut gateway = Gateway::start_as(plan)?;
        refuses_without_values(&gateway)?;
        live_traffic_flows(&gateway)?;
        none_was_kept(&gateway)?;
        ensure!(gateway.address("mqtts").is_err(), "a listener without a key");
        gateway.settle()?;
        told = format!("({} lines in the log)", gateway.whole_log().lines().count());
    }
    Ok(told)
}

fn refuses_without_values(gateway: &Gateway) -> Result<()> {
    let ready = http(gateway, "GET", "/readyz", b"")?;
    ensure!(ready.0 == 503 && ready.1.contains("store"), "/readyz: {ready:?}");
    let put = http(gateway, "PUT", "/topics/kept/new", b"1")?;
    let read = http(gateway, "GET", "/topics/kept/new", b"")?;
    ensure!(put.0 == 507 && read.0 == 404, "PUT: {put:?}, GET: {read:?}");
    Ok(())
}

fn full_later() -> Result<String> {
    fills_up("interval")
}

fn full_later_group() -> Result<String> {
    fills_up("group")
}

/// Fills the disk under a gateway, and looks that a PUT is either acknowledged and read, or refused and not read.
fn fills_up(durability: &str) -> Result<String> {
    let home = tempfile::tempdir()?;
    let data = home.path().join("data");
    fs::create_dir(&data)?;
    let name = data.to_str().context("a path that is no text")?;
    let Some(launcher) = apart(SMALL_DISK, name)? else { return Ok(SKIPPED.to_owned()) };
    let setting = format!("store.durability={durability}");
    let settings = [setting.as_str()];
    let plan = Plan { data: Some(&data), launcher: &launcher, settings: &settings, ..Plan::default() };
    let mut gateway = Gateway::start_as(plan)?;
    let put = http(&gateway, "PUT", "/topics/a", b"before")?;
    ensure!(put.0 < 300, "PUT on a healthy disk: {put:?}");
    let seen = Path::new("/proc").join(gateway.pid().to_string()).join("root").join(name.trim_start_matches('/'));
    fill(&seen.join("filler"))?;
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut latest = "before".to_owned();
    for round in 0_u32.. {
        // Other topics beside it, so that it does not find the room that it leaves itself.
        let filler = http(&gateway, "PUT", &format!("/topics/filler/{round}"), "x".repeat(20_000).as_bytes())?;
        let value = format!("{round} {}", "x".repeat(20_000));
        let put = http(&gateway, "PUT", "/topics/a", value.as_bytes())?;
        let read = http(&gateway, "GET", "/topics/a", b"")?;
        if put.0 == 507 {
            ensure!(read.1 == latest, "a refused value is read: {:.20}", read.1);
            break;
        }
        latest = value;
        ensure!(read.1 == latest, "an acknowledged value is not read: {:.20}", read.1);
        ensure!(Instant::now() < deadline, "{round} values on a full disk, the last {filler:?}");
    }
    let ready = http(&gateway, "GET", "/readyz", b"")?;
    ensure!(ready.0 == 503 && ready.1.contains("store"), "/readyz: {ready:?}");
    live_traffic_flows(&gateway)?;
    // Without a restart, and without a value that would find out.
    fs::remove_file(seen.join("filler"))?;
    let deadline = Instant::now() + Duration::from_secs(20);
    while http(&gateway, "GET", "/readyz", b"")?.0 != 200 {
        ensure!(Instant::now() < deadline, "not ready with room again: {}", gateway.log());
        std::thread::sleep(Duration::from_millis(200));
    }
    let put = http(&gateway, "PUT", "/topics/a", "y".repeat(20_000).as_bytes())?;
    ensure!(put.0 < 300, "PUT with room again: {put:?}");
    gateway.settle()?;
    Ok(String::new())
}

/// Fills the disk on which the file is.
pub(super) fn fill(filler: &Path) -> Result<()> {
    let mut file = fs::File::create(filler)?;
    let block = [1; 4096];
    while file.write_all(&block).is_ok() {}
    Ok(())
}
