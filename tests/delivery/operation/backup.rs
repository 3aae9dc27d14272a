//! `fogmux backup` of a gateway under load, and `fogmux restore` (ADR 0048): what was acknowledged before the backup
//! began is there, and sessions and OSCORE contexts go on.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::{Gateway, Plan};
use fogmux_tests::mqtt::{self, Connection, V4};
use fogmux_tests::suite::Case;

use super::http;
use super::sessions::{acknowledgement, id_of, resume};
use super::store::stop;

pub(crate) const LOAD: Case = Case {
    name: "operation: a backup under load has all that was acknowledged, and what is restored goes on",
    run: load,
};

pub(crate) const DAMAGED: Case =
    Case { name: "operation: a backup that is damaged anywhere is refused, and nothing is restored", run: damaged };

pub(crate) const KILLED: Case = Case {
    name: "operation: backups that are killed or stay unread leave nothing behind that hinders the next",
    run: killed,
};

/// Backups while the load runs.
const ROUNDS: usize = 3;
/// Rules that come back with the rest.
const RULES: &str = "[[allow]]\nanonymous = true\nboth = [\"load\", \"kept/#\"]\n\
    [[allow]]\nuser = \"lamp\"\nread = [\"kept/#\"]\n";
/// Messages that a publisher has under way.
const WINDOW: u64 = 20;

pub(super) fn fogmux<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Result<Command> {
    let mut command = Command::new(std::env::var_os("FOGMUX_BIN").context("FOGMUX_BIN")?);
    command.args(arguments).stdin(Stdio::null());
    Ok(command)
}

pub(super) fn done(mut command: Command, code: i32) -> Result<String> {
    let Output { status, stdout, stderr } = command.output()?;
    let told = format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    ensure!(status.code() == Some(code), "{command:?} ended with {status} instead of {code}: {told}");
    Ok(told)
}

pub(super) fn backup(data: &Path, file: &Path) -> Result<String> {
    done(fogmux([OsStr::new("backup"), "--data".as_ref(), data.as_ref(), file.as_ref()])?, 0)
}

pub(super) fn restore(file: &Path, data: &Path, code: i32) -> Result<String> {
    done(fogmux([OsStr::new("restore"), "--data".as_ref(), data.as_ref(), file.as_ref()])?, code)
}

/// Publishes numbers at QoS 1 until told to stop; those that were acknowledged are added to `acknowledged`.
fn publish(address: SocketAddr, retain: bool, stop: &AtomicBool, acknowledged: &Mutex<BTreeSet<u64>>) -> Result<()> {
    let mut connection = Connection::open(address, V4, if retain { "keeper" } else { "sender" })?;
    for first in (0..).step_by(usize::try_from(WINDOW)?) {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let mut packets = Vec::new();
        for number in first..first + WINDOW {
            let topic = if retain { format!("kept/{number}") } else { "load".to_owned() };
            let payload = format!("{number} {}", "x".repeat(usize::try_from(number * 37 % 3_000)?));
            let id = u16::try_from(number % 60_000 + 1)?;
            packets.extend(mqtt::publish(V4, topic.as_bytes(), payload.as_bytes(), 1, retain, id));
        }
        connection.stream.write_all(&packets)?;
        for number in first..first + WINDOW {
            let (kind, body) = connection.read()?;
            ensure!(kind == 0x40 && u64::from(id_of(&body)?) == number % 60_000 + 1, "{kind:#x} {body:?}");
        }
        acknowledged.lock().expect("no panic").extend(first..first + WINDOW);
    }
    Ok(())
}

/// The number at the beginning of the payload of a PUBLISH, its QoS and packet identifier.
fn number(first: u8, body: &[u8]) -> Result<(u64, Option<u16>)> {
    let (length, rest) = body.split_first_chunk::<2>().context("no topic")?;
    let rest = rest.get(usize::from(u16::from_be_bytes(*length))..).context("no topic")?;
    let (id, payload) =
        if first & 6 == 0 { (None, rest) } else { (Some(id_of(rest)?), rest.get(2..).unwrap_or_default()) };
    let text = std::str::from_utf8(payload)?;
    Ok((text.split(' ').next().unwrap_or_default().parse()?, id))
}

/// Reads PUBLISH packets until every one of these numbers has come. Each comes once.
fn take(connection: &mut Connection, mut expected: BTreeSet<u64>) -> Result<()> {
    let mut seen = BTreeSet::new();
    while !expected.is_empty() {
        let (first, body) = connection.read().with_context(|| format!("{} are missing", expected.len()))?;
        ensure!(first & 0xf0 == 0x30, "{first:#x} instead of PUBLISH");
        let (number, id) = number(first, &body)?;
        ensure!(seen.insert(number), "{number} came twice");
        expected.remove(&number);
        if let Some(id) = id {
            connection.stream.write_all(&acknowledgement(0x40, id))?;
        }
    }
    Ok(())
}

fn load() -> Result<String> {
    let gateway = Gateway::start_furnished(&[], &[("acl.toml", RULES)])?;
    let home = tempfile::tempdir()?;
    let address = gateway.address("mqtt")?;
    let (mut away, _) = resume(address, "away")?;
    away.subscribe(1, &["load"], 1)?;
    drop(away);
    let device = home.path().join("lamp.toml");
    let data = gateway.data();
    fs::create_dir(data.join("links"))?;
    fs::write(data.join("links/id"), "0123456789ab")?;
    fs::write(data.join("links/north.session"), "fogmux-north-0123456789ab mqtt://north.example")?;
    let context =
        done(fogmux([OsStr::new("pki"), "oscore".as_ref(), "--data".as_ref(), data.as_ref(), "lamp".as_ref()])?, 0)?;
    fs::write(
        &device,
        context.lines().filter(|line| line.contains(" = ") || line.starts_with('#')).collect::<Vec<_>>().join("\n"),
    )?;

    let stopped = AtomicBool::new(false);
    let (sent, kept) = (Mutex::default(), Mutex::default());
    let mut counts = Vec::new();
    let mut last = None;
    thread::scope(|scope| {
        let publishers = [(false, &sent), (true, &kept)].map(|(retain, acknowledged)| {
            let stopped = &stopped;
            scope.spawn(move || publish(address, retain, stopped, acknowledged))
        });
        let result = (0..ROUNDS).try_for_each(|round| {
            thread::sleep(Duration::from_millis(500));
            let copy = || (sent.lock().expect("no panic").clone(), kept.lock().expect("no panic").clone());
            let before: (BTreeSet<u64>, BTreeSet<u64>) = copy();
            let file = home.path().join(format!("backup-{round}.tar"));
            backup(&data, &file)?;
            counts.push(before.0.len() + before.1.len());
            let restored = home.path().join(format!("restored-{round}"));
            restore(&file, &restored, 0)?;
            check_restored(&restored, &before.0, &before.1, &device)?;
            last = Some(file);
            anyhow::Ok(())
        });
        stopped.store(true, Ordering::Relaxed);
        for publisher in publishers {
            publisher.join().expect("no panic")?;
        }
        result
    })?;
    let file = last.context("no backup")?;
    readable_by_others(&file, home.path())?;
    // The same of a gateway that does not run, and never over anything.
    stop(gateway)?;
    ensure!(counts.iter().all(|count| *count > 100), "too little was published: {counts:?}");
    Ok(format!("{counts:?} acknowledged messages"))
}

/// Starts a gateway on what was restored.
fn check_restored(data: &Path, sent: &BTreeSet<u64>, kept: &BTreeSet<u64>, device: &Path) -> Result<()> {
    let mut gateway = Gateway::start_as(Plan { data: Some(data), ..Plan::default() })?;
    let (mut away, present) = resume(gateway.address("mqtt")?, "away")?;
    ensure!(present, "the session is gone");
    take(&mut away, sent.clone())?;
    drop(away);
    let mut reader = Connection::open(gateway.address("mqtt")?, V4, "reader")?;
    ensure!(reader.subscribe(1, &["kept/#"], 0)? == [0]);
    take(&mut reader, kept.clone())?;
    drop(reader);
    let url = format!("coap://{}/kept/0", gateway.address("coap")?);
    let got = done(fogmux([OsStr::new("get"), "--oscore".as_ref(), device.as_ref(), url.as_ref()])?, 0)?;
    ensure!(got.starts_with('0'), "by OSCORE: {got:?}");
    rules_hold(&gateway, data)?;
    gateway.check_alive()?;
    ensure!(!gateway.whole_log().contains("damaged"), "{}", gateway.whole_log());
    stop(gateway)
}

/// The tester and the gateway go by the rules of before.
fn rules_hold(gateway: &Gateway, data: &Path) -> Result<()> {
    for (who, action, topic, is_allowed) in [
        ("anonymous", "write", "kept/new", true),
        ("anonymous", "write", "secret", false),
        ("lamp", "read", "kept/0", true),
        ("lamp", "write", "kept/0", false),
    ] {
        let words = ["acl", "test", "--data"].map(OsStr::new).into_iter().chain([data.as_os_str()]);
        let words = words.chain([who, action, topic].map(OsStr::new));
        done(fogmux(words)?, if is_allowed { 0 } else { 77 })?;
    }
    for (topic, expected) in [("kept/new", 200..300), ("secret", 401..404)] {
        let status = http(gateway, "PUT", &format!("/topics/{topic}"), b"0")?.0;
        ensure!(expected.contains(&status), "PUT {topic}: {status}");
    }
    Ok(())
}

/// GNU tar unpacks it, and the sums are those of sha256sum.
fn readable_by_others(file: &Path, home: &Path) -> Result<()> {
    let place = home.join("unpacked");
    fs::create_dir(&place)?;
    let mut unpack = Command::new("tar");
    unpack.args(["--extract", "--file"]).arg(file).arg("--directory").arg(&place);
    done(unpack, 0)?;
    let mut check = Command::new("sha256sum");
    check.args(["--check", "--strict", "--quiet", "SHA256SUMS"]).current_dir(&place);
    done(check, 0)?;
    ensure!(!place.join("data/oscore/journal").exists() && place.join("data/pki/ca.key").is_file());
    // The client identifier of links stays; a session at another broker has gone on since.
    ensure!(!place.join("data/links/north.session").exists() && place.join("data/links/id").is_file());
    Ok(())
}

fn damaged() -> Result<String> {
    let gateway = Gateway::start(&[])?;
    let home = tempfile::tempdir()?;
    let (file, data) = (home.path().join("whole.tar"), home.path().join("restored"));
    let mut client = Connection::open(gateway.address("mqtt")?, V4, "client")?;
    client.stream.write_all(&mqtt::publish(V4, b"kept/1", b"1", 1, true, 1))?;
    client.read()?;
    let told = backup(&gateway.data(), &file)?;
    ensure!(told.contains("running gateway"), "{told}");
    let text =
        |code| done(fogmux([OsStr::new("backup"), "--data".as_ref(), gateway.data().as_ref(), file.as_ref()])?, code);
    ensure!(text(74)?.contains("exists"), "a backup was overwritten");
    let mode = std::os::unix::fs::MetadataExt::mode(&fs::metadata(&file)?);
    ensure!(mode & 0o777 == 0o600, "mode {mode:o}");
    // Never where something is.
    ensure!(restore(&file, &gateway.data(), 74)?.contains("not empty"));

    let whole = fs::read(&file)?;
    let broken = home.path().join("broken.tar");
    let mut refused = 0;
    let mut refuse = |bytes: &[u8]| -> Result<()> {
        fs::write(&broken, bytes)?;
        restore(&broken, &data, 65)?;
        let left: Vec<_> = fs::read_dir(home.path())?.map(|entry| Ok(entry?.file_name())).collect::<Result<_>>()?;
        ensure!(left.len() == 2, "left behind: {left:?}");
        refused += 1;
        Ok(())
    };
    // Every place at which something else begins is near one of these.
    let step = whole.len() / 97;
    for at in (0..whole.len()).step_by(step).chain([257, 511, 512, whole.len() - 1]) {
        let mut bytes = whole.clone();
        if let Some(byte) = bytes.get_mut(at) {
            *byte ^= 0x10;
        }
        refuse(&bytes).with_context(|| format!("a bit at {at}"))?;
        refuse(whole.get(..at).unwrap_or_default()).with_context(|| format!("cut at {at}"))?;
    }
    let mut more = whole.clone();
    more.extend(b"more");
    refuse(&more).context("more")?;
    for name in ["data/../../escaped", "/etc/escaped", "data/link"] {
        refuse(&hostile(home.path(), name)?).with_context(|| name.to_owned())?;
    }
    // By standard input, and only to look at it.
    let mut check = fogmux(["restore", "--check", "-"])?;
    check.stdin(fs::File::open(&file)?);
    ensure!(done(check, 0)?.contains("whole"));
    restore(&file, &data, 0)?;
    for private in [data.clone(), data.join("pki"), data.join("store")] {
        let mode = fs::metadata(&private)?.permissions().mode() & 0o777;
        ensure!(mode == 0o700, "{} has mode {mode:o}", private.display());
    }
    stop(gateway)?;
    Ok(format!("{refused} refused"))
}

/// An archive of GNU tar with a file of this name; `data/link` is a symbolic link.
fn hostile(home: &Path, name: &str) -> Result<Vec<u8>> {
    let place = tempfile::tempdir()?;
    let file = place.path().join("file");
    let mut pack = Command::new("tar");
    pack.args(["--create", "--format=ustar", "--absolute-names"]).arg(format!("--transform=s,^.*$,{name},"));
    if name == "data/link" {
        std::os::unix::fs::symlink("/etc/passwd", &file)?;
    } else {
        fs::write(&file, "escaped")?;
    }
    let Output { status, stdout, .. } = pack.arg("file").current_dir(place.path()).stdin(Stdio::null()).output()?;
    ensure!(status.success() && !home.join("escaped").exists());
    Ok(stdout)
}

fn killed() -> Result<String> {
    let gateway = Gateway::start(&[])?;
    let home = tempfile::tempdir()?;
    let data = gateway.data();
    let mut client = Connection::open(gateway.address("mqtt")?, V4, "client")?;
    // More than a pipe and a socket hold.
    for number in 0..64_u16 {
        let topic = format!("kept/{number}");
        client.stream.write_all(&mqtt::publish(V4, topic.as_bytes(), &[b'x'; 60_000], 1, true, number + 1))?;
        client.read()?;
    }
    let begin = || -> Result<_> {
        let mut unread = fogmux([OsStr::new("backup"), "--data".as_ref(), data.as_ref(), "-".as_ref()])?;
        let mut unread = unread.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let mut first = [0; 512];
        unread.stdout.as_mut().context("no pipe")?.read_exact(&mut first)?;
        Ok(unread)
    };
    let mut unread = begin()?;
    gateway.wait_log("a copy of the store is made", Duration::from_secs(10))?;
    // The gateway goes on meanwhile, and overwrites what is not lent.
    for number in 0..64_u16 {
        client.stream.write_all(&mqtt::publish(V4, b"kept/0", &[b'y'; 60_000], 1, true, number + 1))?;
        client.read()?;
    }
    unread.kill()?;
    unread.wait()?;
    let file = home.path().join("backup.tar");
    backup(&data, &file)?;
    restore(&file, &home.path().join("restored"), 0)?;
    ensure!(fs::read_dir(home.path())?.count() == 2, "something was left behind");
    let socket = data.join("control");
    ensure!(socket.exists(), "there is no control socket");
    let keeps = gateway.data();
    stop(gateway)?;
    ensure!(!keeps.join("control").exists() || !socket.exists(), "the control socket is left behind");
    Ok(String::new())
}
