//! Damage is never silent: whichever file of the store is deleted, cut or changed, the gateway starts, and where a
//! value is missing afterwards the log and `/metrics` say so.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::{Gateway, Plan};
use fogmux_tests::suite::Case;
use fogmux_tests::tls;
use rustix::process::Signal;

use super::{http, keep};

pub(super) const DELETED: Case = Case { name: "each file of the store deleted", run: || each(delete) };
pub(super) const TRUNCATED: Case = Case { name: "each file of the store cut in half", run: || each(cut) };
pub(super) const FLIPPED: Case = Case { name: "a bit changed in each file of the store", run: || each(flip) };
pub(super) const SERVER_KEY: Case =
    Case { name: "a damaged key of the gateway is made anew, as its certificate is", run: server_key };
pub(super) const USERS: Case = Case { name: "a users file that is gone is named in the log", run: users };

/// Enough for several files.
const VALUES: u16 = 1_500;
const BYTES: usize = 2_000;
const LOSSES: [&str; 4] = ["damaged_records", "damaged_blocks", "damaged_files", "lost_commits"];

fn each(damage: fn(&Path) -> Result<()>) -> Result<String> {
    let home = tempfile::tempdir()?;
    let data = home.path().join("data");
    fs::create_dir(&data)?;
    let mut gateway = Gateway::start_as(Plan { data: Some(&data), ..Plan::default() })?;
    keep(&gateway, VALUES, BYTES)?;
    gateway.signal(Signal::TERM)?;
    gateway.wait_exit(Duration::from_secs(30))?;
    let files = files(&data.join("store"))?;
    let mut lossy = 0;
    for (number, file) in files.iter().enumerate() {
        let copy = home.path().join(format!("copy{number}"));
        copy_directory(&data, &copy)?;
        let name = file.strip_prefix(&data)?;
        damage(&copy.join(name)).with_context(|| name.display().to_string())?;
        lossy += u32::from(after(&copy).with_context(|| name.display().to_string())?);
        fs::remove_dir_all(copy)?;
    }
    ensure!(lossy > 0, "no damage was damage");
    Ok(format!("({} files, {lossy} with losses)", files.len()))
}

/// Whether values are missing; an error if they are and nobody says so.
fn after(data: &Path) -> Result<bool> {
    // Without the gateway's own messages, which count as retained.
    let settings = &["mqtt.sys_interval=0s"];
    let mut gateway = Gateway::start_as(Plan { data: Some(data), settings, ..Plan::default() })?;
    let metrics = gateway.metrics()?;
    let sample = |name: &str| metrics.get(name).copied().unwrap_or_default();
    let there = sample("fogmux_bus_retained_messages");
    let put = http(&gateway, "PUT", "/topics/new", b"1")?;
    ensure!(put.0 < 300, "it does not serve: {put:?}");
    gateway.check_alive()?;
    if there >= f64::from(VALUES) {
        return Ok(false);
    }
    let log = gateway.whole_log();
    let told = log.lines().any(|line| line.contains("ERROR") && line.contains("store"));
    ensure!(told, "{there} of {VALUES} values are left, and the log says\n{log}");
    let counted: f64 = LOSSES.iter().map(|name| sample(&format!("fogmux_store_{name}_total"))).sum();
    ensure!(counted > 0.0, "{there} of {VALUES} values are left, and nothing is counted");
    let ready = http(&gateway, "GET", "/readyz", b"")?;
    ensure!(ready.1.contains("damaged"), "/readyz: {ready:?}");
    let losses = fs::read_to_string(data.join("store/losses")).context("what is lost is in no file")?;
    ensure!(losses.lines().all(|line| line.contains("Z ")) && !losses.is_empty(), "{losses}");
    Ok(true)
}

/// The authority is whole: what it signs can be signed again, and clients that believe it notice nothing.
fn server_key() -> Result<String> {
    let home = tempfile::tempdir()?;
    let data = home.path().join("data");
    fs::create_dir(&data)?;
    let plan = Plan { data: Some(&data), ..Plan::default() };
    drop(Gateway::start_as(plan)?);
    for (name, damage) in [
        ("server.key", cut as fn(&Path) -> Result<()>),
        ("server.key", flip),
        ("server.pem", cut),
        ("server.pem", flip),
    ] {
        damage(&data.join("pki").join(name))?;
        let mut gateway = Gateway::start_as(plan).with_context(|| name.to_owned())?;
        drop(tls::connect(&tls::config(gateway.ca())?, gateway.address("mqtts")?)?);
        ensure!(gateway.whole_log().contains("made anew"), "{name}: {}", gateway.log());
        gateway.settle()?;
    }
    Ok(String::new())
}

fn delete(file: &Path) -> Result<()> {
    Ok(fs::remove_file(file)?)
}

fn cut(file: &Path) -> Result<()> {
    let open = fs::File::options().write(true).open(file)?;
    Ok(open.set_len(content_bytes(file)? / 2)?)
}

fn flip(file: &Path) -> Result<()> {
    let open = fs::File::options().read(true).write(true).open(file)?;
    let middle = content_bytes(file)? / 2;
    let mut byte = [0];
    if open.read_at(&mut byte, middle)? == 1 {
        let [old] = byte;
        open.write_all_at(&[old ^ 0x10], middle)?;
    }
    Ok(())
}

/// Without the zeros at the end: files are made full of them.
fn content_bytes(file: &Path) -> Result<u64> {
    let bytes = fs::read(file)?;
    Ok(bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last as u64 + 1))
}

fn files(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() { all.extend(files(&entry.path())?) } else { all.push(entry.path()) }
    }
    all.sort();
    Ok(all)
}

fn copy_directory(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            copy_directory(&from, &to)?;
        } else {
            fs::copy(&from, &to)?;
        }
    }
    Ok(())
}

/// A loss is refused, while it runs and at the start, until the administrator deletes the list of what was there. The
/// first start of all is neither.
fn users() -> Result<String> {
    const PATIENCE: Duration = Duration::from_secs(30);
    let home = tempfile::tempdir()?;
    let data = home.path().join("data");
    fs::create_dir(&data)?;
    let (plan, users) = (Plan { data: Some(&data), ..Plan::default() }, data.join("users.toml"));
    let named =
        |log: &str, level: &str| log.lines().filter(|line| line.contains(level) && line.contains("users.toml")).count();
    let mut gateway = Gateway::start_as(plan)?;
    ensure!(named(&gateway.whole_log(), "WARN") == 0, "at the first start: {}", gateway.whole_log());
    fs::remove_file(&users)?;
    gateway.signal(Signal::HUP)?;
    gateway.wait_log("the users are gone", PATIENCE)?;
    ensure!(named(&gateway.whole_log(), "ERROR") > 0, "while it runs: {}", gateway.whole_log());
    gateway.signal(Signal::TERM)?;
    gateway.wait_exit(PATIENCE)?;
    let refused = Gateway::start_as(plan).map(drop).err().context("it starts without its users")?;
    let said = format!("{refused:#}");
    ensure!(said.contains("users.toml") && said.contains("files-in-use") && !users.exists(), "{said}");
    fs::remove_file(data.join("files-in-use"))?;
    let mut gateway = Gateway::start_as(plan)?;
    ensure!(named(&gateway.whole_log(), "WARN") == 1, "at the start: {}", gateway.whole_log());
    ensure!(users.exists(), "no new users file");
    gateway.settle()?;
    Ok(String::new())
}
