//! The control socket of a running gateway and its data directory: who may have them, and clients that say nothing.

use std::ffi::OsStr;
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::{Gateway, Plan};
use fogmux_tests::mqtt::{self, Connection, V4};
use fogmux_tests::suite::Case;
use rustix::process::Signal;

use super::backup::{backup, done, fogmux};
use super::store::stop;

pub(super) const SILENT: Case =
    Case { name: "operation: clients of the control socket that say nothing keep no backup waiting", run: silent };
pub(super) const NO_FILES: Case =
    Case { name: "operation: without a descriptor the control socket waits, and says so once", run: no_files };
pub(super) const GONE: Case =
    Case { name: "operation: a backup whose gateway is killed says that it may be tried again", run: gone };
pub(super) const TWO: Case = Case { name: "operation: a data directory has one gateway", run: two };
pub(super) const NO_FILE: Case =
    Case { name: "operation: doctor ends, whatever is in the place of a file", run: no_file };

fn silent() -> Result<String> {
    let gateway = Gateway::start(&[])?;
    let home = tempfile::tempdir()?;
    let socket = gateway.data().join("control");
    // More than a backup waits for, one after the other.
    let silent: Vec<UnixStream> = (0..2).map(|_| UnixStream::connect(&socket)).collect::<Result<_, _>>()?;
    let mut half = UnixStream::connect(&socket)?;
    half.write_all(b"fogmux 1 ba")?;
    backup(&gateway.data(), &home.path().join("b.tar"))?;
    drop((silent, half));
    // More than are heard: each is answered, or cut.
    for _ in 0..100 {
        drop(UnixStream::connect(&socket)?);
    }
    stop(gateway)?;
    Ok(String::new())
}

fn no_files() -> Result<String> {
    let gateway = Gateway::start(&[])?;
    let home = tempfile::tempdir()?;
    let limit = |soft: &str| -> Result<()> {
        let pid = format!("--pid={}", gateway.pid());
        let done = Command::new("prlimit").args([pid, format!("--nofile={soft}:")]).status()?;
        ensure!(done.success(), "prlimit failed");
        Ok(())
    };
    // Below every descriptor that is open: there is none for anybody.
    limit("3")?;
    let waiting = UnixStream::connect(gateway.data().join("control"))?;
    gateway.wait_log("control socket cannot be accepted yet", Duration::from_secs(10))?;
    drop(waiting);
    limit("256")?;
    backup(&gateway.data(), &home.path().join("b.tar"))?;
    let said = gateway.whole_log().matches("control socket cannot be accepted yet").count();
    ensure!(said == 1, "the log says it {said} times");
    stop(gateway)?;
    Ok(String::new())
}

fn gone() -> Result<String> {
    let mut gateway = Gateway::start(&[])?;
    let mut client = Connection::open(gateway.address("mqtt")?, V4, "client")?;
    // More than a pipe and a socket hold.
    for number in 0..64_u16 {
        let topic = format!("kept/{number}");
        client.stream.write_all(&mqtt::publish(V4, topic.as_bytes(), &[b'x'; 60_000], 1, true, number + 1))?;
        client.read()?;
    }
    let data = gateway.data();
    let mut unread = fogmux([OsStr::new("backup"), "--data".as_ref(), data.as_ref(), "-".as_ref()])?
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut out = unread.stdout.take().context("no pipe")?;
    out.read_exact(&mut [0; 512])?;
    gateway.wait_log("a copy of the store is made", Duration::from_secs(10))?;
    gateway.signal(Signal::KILL)?;
    gateway.wait_exit(Duration::from_secs(10))?;
    std::io::copy(&mut out, &mut std::io::sink())?;
    let ended = unread.wait_with_output()?;
    let told = String::from_utf8_lossy(&ended.stderr).into_owned();
    ensure!(ended.status.code() == Some(69) && told.contains("ended meanwhile"), "{}: {told}", ended.status);
    Ok(String::new())
}

fn two() -> Result<String> {
    let home = tempfile::tempdir()?;
    let gateway = Gateway::start(&[])?;
    let data = gateway.data();
    let elsewhere = format!("store.path={}", home.path().join("store").display());
    let mut second = fogmux(["serve", "--json", "--free-ports", "--set", &elsewhere, "--data"])?;
    second.arg(&data);
    // One that starts goes on until it is stopped.
    let mut limited = Command::new("timeout");
    limited.arg("20").arg(second.get_program()).args(second.get_args()).stdin(Stdio::null());
    ensure!(done(limited, 69)?.contains("another gateway"));
    // Nothing of the first one's was touched.
    ensure!(backup(&data, &home.path().join("b.tar"))?.contains("running gateway"));
    // A gateway that comes after one that was killed may have it.
    gateway.signal(Signal::KILL)?;
    let mut gateway = gateway;
    gateway.wait_exit(Duration::from_secs(10))?;
    let next = Gateway::start_as(Plan { data: Some(&data), settings: &[&elsewhere], ..Plan::default() })?;
    stop(next)?;
    Ok(String::new())
}

fn no_file() -> Result<String> {
    let home = tempfile::tempdir()?;
    let config = home.path().join("fogmux.toml");
    let key = home.path().join("key.pem");
    let text = format!("[tls]\ncertificate_file = \"{0}\"\nkey_file = \"{0}\"\n", key.display());
    let places =
        ["users.toml", "acl.toml", "psk.toml", "pki/server.pem", "store/losses", "../fogmux.toml", "../key.pem"];
    for place in places {
        let data = home.path().join("data");
        let _ = fs::remove_dir_all(&data);
        let _ = fs::remove_file(&config);
        fs::create_dir_all(data.join("pki"))?;
        fs::create_dir_all(data.join("store"))?;
        if place != "../fogmux.toml" {
            fs::write(&config, if place == "../key.pem" { &text } else { "" })?;
        }
        ensure!(Command::new("mkfifo").arg(data.join(place)).status()?.success(), "no FIFO");
        let mut doctor = Command::new("timeout");
        doctor.arg("60").arg(std::env::var_os("FOGMUX_BIN").context("FOGMUX_BIN")?).args(["doctor", "--data"]);
        doctor.arg(&data).arg("--config").arg(&config);
        // A start does without the last one.
        let code = if place == "store/losses" { 69 } else { 78 };
        let told = done(doctor, code).with_context(|| format!("a FIFO for {place}"))?;
        ensure!(told.contains("is no regular file"), "{place}: {told}");
    }
    Ok(String::new())
}
