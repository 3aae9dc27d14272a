//! The store over several starts: nothing but damage takes it away, and what was refused to its publisher is not there
//! afterwards.
//!
//! The disk is a tmpfs in a mount namespace that several gateways enter one after another.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fogmux_journal::{Batch, Config, Files, Journal, Occasion, RecordId};
use fogmux_tests::gateway::{Gateway, Plan};
use fogmux_tests::suite::Case;
use fogmux_tests::xmpp::{Session, Via, form};
use fogmux_tests::{tcp, tls};
use rustix::process::Signal;

use super::{http, keep};

pub(super) const NO_ROOM: Case = Case { name: "ten starts on a disk without room take nothing away", run: no_room };
pub(super) const NEWER: Case =
    Case { name: "ten starts of a release before the store's take nothing away", run: newer };
pub(super) const REFUSED: Case =
    Case { name: "what a full disk refused is not there after a restart, what it took is", run: refused };
pub(super) const STREAM: Case = Case {
    name: "a full disk: each XMPP publication under way is answered for itself, and the stream goes on",
    run: stream,
};

const VALUES: u16 = 20;

/// A small disk in a namespace, which goes with it.
pub(super) struct Disk {
    holder: Child,
    /// The namespace's mount point, seen from here.
    seen: PathBuf,
    enter: Vec<String>,
}

impl Disk {
    /// `None` where there are no mount namespaces.
    pub(super) fn new(at: &Path, size: &str) -> Result<Option<Self>> {
        fs::create_dir_all(at)?;
        let root = Command::new("id").arg("-u").output()?.stdout == b"0\n";
        let (flags, user): (&str, &[&str]) =
            if root { ("-m", &[]) } else { ("-rm", &["-U", "--preserve-credentials"]) };
        if !Command::new("unshare").args([flags, "true"]).status()?.success() {
            return Ok(None);
        }
        let script = format!(r#"mount -t tmpfs -o size={size},mode=700 tmpfs "$0" && echo && exec cat"#);
        let mut holder = Command::new("unshare")
            .args([flags, "sh", "-c", &script])
            .arg(at)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut mounted = [0];
        let mut told = holder.stdout.take().context("no standard output")?;
        std::io::Read::read_exact(&mut told, &mut mounted).context("no tmpfs")?;
        let pid = holder.id().to_string();
        let enter = ["nsenter", "-t", &pid, "-m"].iter().chain(user).map(|&word| word.to_owned()).collect();
        let seen = Path::new("/proc").join(&pid).join("root").join(at.strip_prefix("/")?);
        Ok(Some(Self { holder, seen, enter }))
    }

    /// Takes all room but `left` bytes.
    pub(super) fn fill(&self, left: u64) -> Result<()> {
        let output = Command::new("stat").args(["-f", "-c", "%a %S"]).arg(&self.seen).output()?;
        let text = String::from_utf8(output.stdout)?;
        let (blocks, bytes) = text.trim().split_once(' ').context("stat -f")?;
        let free = blocks.parse::<u64>()? * bytes.parse::<u64>()?;
        let mut file = fs::File::create(self.seen.join("filler"))?;
        let filler = std::io::copy(&mut std::io::Read::take(std::io::repeat(1), free.saturating_sub(left)), &mut file);
        match filler {
            Err(error) if error.kind() != std::io::ErrorKind::StorageFull => Err(error.into()),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    pub(super) fn empty(&self) -> Result<()> {
        Ok(fs::remove_file(self.seen.join("filler"))?)
    }

    pub(super) fn start(&self, data: &Path, settings: &[&str]) -> Result<Gateway> {
        let launcher: Vec<&str> = self.enter.iter().map(String::as_str).collect();
        Gateway::start_as(Plan { data: Some(data), launcher: &launcher, unready: true, settings, ..Plan::default() })
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

pub(super) fn stop(mut gateway: Gateway) -> Result<()> {
    gateway.signal(Signal::TERM)?;
    gateway.wait_exit(Duration::from_secs(30))?;
    Ok(())
}

/// All values are there, and no directory of a store that was moved aside.
fn nothing_is_gone(gateway: &Gateway, data: &Path) -> Result<()> {
    for number in 1..=VALUES {
        let kept = http(gateway, "GET", &format!("/topics/kept/{number:06}"), b"")?;
        ensure!(kept.0 == 200, "value {number}: {kept:?}\n{}", gateway.log());
    }
    let names: Vec<_> = fs::read_dir(data)?.map(|entry| Ok(entry?.file_name())).collect::<Result<_>>()?;
    let aside = names.iter().find(|name| name.to_string_lossy().contains("damaged"));
    ensure!(aside.is_none(), "moved aside: {aside:?}\n{}", gateway.log());
    Ok(())
}

fn no_room() -> Result<String> {
    let home = tempfile::tempdir()?;
    let data = home.path().join("data");
    let Some(disk) = Disk::new(&data, "12m")? else { return Ok(super::disk::SKIPPED.to_owned()) };
    let first = disk.start(&data, &[])?;
    keep(&first, VALUES, 100)?;
    stop(first)?;
    // Nothing at all, a page, and about what one start writes.
    for (left, starts) in [(0, 1), (4096, 1), (120 << 10, 7), (250 << 10, 1)] {
        disk.fill(left)?;
        for _ in 0..starts {
            let gateway = disk.start(&data, &[])?;
            nothing_is_gone(&gateway, &disk.seen)?;
            // The store's own files may have room.
            let (ready, put) = (http(&gateway, "GET", "/readyz", b"")?, http(&gateway, "PUT", "/topics/new", b"1")?);
            ensure!((ready.0, put.0 < 300) == (200, true) || put.0 == 507, "/readyz: {ready:?}, PUT {put:?}");
            stop(gateway)?;
        }
        disk.empty()?;
    }
    let mut gateway = disk.start(&data, &[])?;
    nothing_is_gone(&gateway, &disk.seen)?;
    let (ready, put) = (http(&gateway, "GET", "/readyz", b"")?, http(&gateway, "PUT", "/topics/new", b"1")?);
    ensure!(ready.0 == 200 && put.0 < 300, "with room again: {ready:?}, PUT {put:?}");
    gateway.settle()?;
    Ok(String::new())
}

fn newer() -> Result<String> {
    let home = tempfile::tempdir()?;
    let data = home.path().join("data");
    fs::create_dir(&data)?;
    let plan = Plan { data: Some(&data), ..Plan::default() };
    let first = Gateway::start_as(plan)?;
    keep(&first, VALUES, 100)?;
    stop(first)?;
    let segments = data.join("store/journal");
    let record = in_journal(&segments, |batch| Some(batch.put(200, &b"of the future"[..])))?;
    for start in 1..=10 {
        let Err(error) = Gateway::start_as(plan) else {
            anyhow::bail!("start {start} took a store of a newer release")
        };
        let told = format!("{error:#}");
        ensure!(told.contains("records of kind 200") && told.contains("nothing in it was changed"), "{told}");
    }
    in_journal(&segments, |batch| {
        record.into_iter().for_each(|id| batch.forget(id));
        None
    })?;
    let mut gateway = Gateway::start_as(plan)?;
    nothing_is_gone(&gateway, &data)?;
    gateway.settle()?;
    Ok(String::new())
}

/// Changes the journal as another release would.
fn in_journal(directory: &Path, change: impl FnOnce(&mut Batch) -> Option<RecordId>) -> Result<Option<RecordId>> {
    let files = Files::open(directory)?;
    let (mut journal, _) = Journal::open(&files, Config::default())?;
    let mut batch = Batch::new(&journal.ids());
    let id = change(&mut batch);
    journal.append(batch)?;
    while let Some(work) = journal.next_work(Occasion::Close) {
        let done = work.run(&files);
        journal.settle(&done);
    }
    Ok(id)
}

fn refused() -> Result<String> {
    let (mut taken, mut refused) = (0, 0);
    // As much room as one, two and three of many commits take, and a part of one.
    for left in [1_300_u64 << 10, 2_400 << 10, 700 << 10] {
        let home = tempfile::tempdir()?;
        let data = home.path().join("data");
        let Some(disk) = Disk::new(&data, "16m")? else { return Ok(super::disk::SKIPPED.to_owned()) };
        let gateway = disk.start(&data, &["store.durability=group"])?;
        disk.fill(left)?;
        let results = publish(&gateway)?;
        ensure!(results.contains(&507), "{left} bytes were room enough: {results:?}");
        compare(&gateway, &results).context("while it runs")?;
        stop(gateway)?;
        let gateway = disk.start(&data, &["store.durability=group"])?;
        compare(&gateway, &results).context("after a restart on the full disk")?;
        stop(gateway)?;
        disk.empty()?;
        let mut gateway = disk.start(&data, &["store.durability=group"])?;
        compare(&gateway, &results).context("after a restart with room")?;
        gateway.settle()?;
        refused += results.iter().filter(|&&status| status == 507).count();
        taken += results.iter().filter(|&&status| status < 300).count();
    }
    Ok(format!("({taken} taken, {refused} refused)"))
}

/// Publishes 3.8 MB of retained messages at once. Returns the status of each.
fn publish(gateway: &Gateway) -> Result<Vec<u16>> {
    let payload = "x".repeat(38_000);
    let line =
        |number: u16| format!("{{\"topic\":\"all/{number}\",\"retain\":true,\"qos\":1,\"payload\":\"{payload}\"}}\n");
    let body: String = (0..100).map(line).collect();
    let mut request = format!(
        "POST /publish HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/x-ndjson\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    request.write_all(body.as_bytes())?;
    let answer = String::from_utf8(tcp::ask(gateway.address("http")?, &request)?)?;
    let status = |line: &str| line.split_once("\"status\":")?.1.get(..3)?.parse().ok();
    let results: Vec<u16> = answer.lines().filter_map(status).collect();
    ensure!(results.len() == 100, "{} results: {answer:.300}", results.len());
    Ok(results)
}

fn compare(gateway: &Gateway, results: &[u16]) -> Result<()> {
    for (number, published) in results.iter().enumerate() {
        let read = http(gateway, "GET", &format!("/topics/all/{number}"), b"")?.0;
        let expected = if *published == 507 { 404 } else { 200 };
        ensure!(read == expected, "{number} was published with {published} and is read with {read}: {results:?}");
    }
    Ok(())
}

/// XEP-0060 §7.1.3: a publication that fails is answered with an error.
fn stream() -> Result<String> {
    let mut told = String::new();
    for (durability, bytes) in [("group", 2_000), ("always", 2_000), ("group", 60_000)] {
        let home = tempfile::tempdir()?;
        let data = home.path().join("data");
        let Some(disk) = Disk::new(&data, "16m")? else { return Ok(super::disk::SKIPPED.to_owned()) };
        let mut gateway = disk.start(&data, &[&format!("store.durability={durability}")])?;
        let socket = tcp::connect(gateway.address("xmpp")?)?;
        let authority = tls::config(&disk.seen.join("pki/ca.pem"))?;
        let mut session = Session::over(socket, &authority, Via::Plain)?;
        disk.fill(0)?;
        super::disk::exhaust(&gateway)?;
        let retained: Vec<String> = (0..16).map(|number| format!("kept/{number}")).collect();
        let live = |number: &str| number.replace("kept", "live");
        let mut requests = String::new();
        for topic in &retained {
            requests += &publication(topic, bytes, true);
            requests += &publication(&live(topic), 10, false);
        }
        session.send(&requests)?;
        let answers = ping(&mut session, "first")?;
        let mut refused = 0;
        for topic in &retained {
            let answer = kind(&answers, topic)?;
            let read = http(&gateway, "GET", &format!("/topics/{topic}"), b"")?.0;
            ensure!(read == if answer == "result" { 200 } else { 404 }, "{topic} has {answer} and is read with {read}");
            refused += usize::from(answer == "error");
            ensure!(kind(&answers, &live(topic))? == "result", "{answers}");
        }
        ensure!(refused > 0, "the disk was not full");
        session.send(&publication("live/again", 10, false))?;
        ensure!(kind(&ping(&mut session, "again")?, "live/again")? == "result", "the stream goes on");
        told += &format!("({refused} refused)");
        drop(session);
        gateway.settle()?;
    }
    Ok(told)
}

/// A request to publish, with its topic as its id.
fn publication(topic: &str, bytes: usize, retained: bool) -> String {
    let passing = form("publish-options", &[("pubsub#persist_items", "0")]);
    let options = if retained { String::new() } else { format!("<publish-options>{passing}</publish-options>") };
    let item = format!("<item><data xmlns='urn:fogmux:0' encoding='utf8'>{}</data></item>", "x".repeat(bytes));
    let publish = format!("<publish node='{topic}'>{item}</publish>{options}");
    let pubsub = format!("<pubsub xmlns='http://jabber.org/protocol/pubsub'>{publish}</pubsub>");
    format!("<iq type='set' id='{topic}' to='pubsub.localhost'>{pubsub}</iq>")
}

/// Everything that comes up to the answer to a ping.
fn ping(session: &mut Session, id: &str) -> Result<String> {
    session.send(&format!("<iq type='get' id='{id}'><ping xmlns='urn:xmpp:ping'/></iq>"))?;
    session.until(&format!("id='{id}'"))
}

/// The type of the only answer with this id.
fn kind<'a>(answers: &'a str, id: &str) -> Result<&'a str> {
    let found: Vec<&str> =
        answers.split("<iq type='").filter(|answer| answer.contains(&format!("id='{id}'"))).collect();
    let [answer] = found[..] else { anyhow::bail!("{} answers to {id}: {answers}", found.len()) };
    Ok(answer.split('\'').next().unwrap_or_default())
}
