//! Changes of users, rules, keys and certificates have the same effects by whatever way they come in: the gateway
//! notices a changed file, SIGHUP, or the administration API.

use std::fs::{self, File};
use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::{Gateway, Plan};
use fogmux_tests::mqtt::{Connection, V5, publish};
use fogmux_tests::{tcp, users};
use openssl::ssl::{SslStream, SslVersion};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, prlimit};

use super::withdrawn::{READ_AGAIN, ask, client_certificate, ends, tls};
use super::{KEY, PATIENCE, TLS_PSK, keys, tls_psk};

const RELOADED: &str = "configuration, users, rules and certificates are read again";
const ALLOW: &str = "[[allow]]\nauthenticated = true\nboth = [\"#\"]\n[[allow]]\nuser = \"admin\"\nboth = \
                     [\"$fogmux/admin\"]\n";
const DENY: &str = "[[deny]]\nuser = \"ada\"\nread = [\"door\"]\n";

/// The way by which a change comes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Noticed,
    Signalled,
    Api,
}

impl Way {
    /// Changes files, and returns when the gateway says that it has read them.
    fn apply(self, gateway: &Gateway, says: &str, change: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
        gateway.forget_log()?;
        change(&gateway.data())?;
        if self == Self::Signalled {
            gateway.signal(Signal::HUP)?;
            return gateway.wait_log(RELOADED, PATIENCE);
        }
        gateway.wait_log(says, PATIENCE)
    }
}

pub(super) fn noticed() -> Result<String> {
    each_change(Way::Noticed)
}

pub(super) fn signalled() -> Result<String> {
    each_change(Way::Signalled)
}

pub(super) fn by_api() -> Result<String> {
    each_change(Way::Api)
}

/// Makes each kind of change that the way has.
fn each_change(way: Way) -> Result<String> {
    let users = users::file(&["admin", "ada", "eve"]);
    let keys = keys();
    let first = format!("{}\n", users::PASSWORD);
    let files = [
        ("users.toml", &*users),
        ("psk.toml", &*keys),
        ("acl.toml", ALLOW),
        ("admin-password", &*first),
        ("certificates.toml", "# nobody is refused\n"),
    ];
    let settings = ["tls.cut_revoked=true", "listeners.coaps_tcp.profile=\"psk\"", "auth.api_changes=true"];
    let mut gateway = Gateway::start_as(Plan { settings: &settings, files: &files, ..Plan::default() })?;
    if way != Way::Api {
        revoked(&gateway, way).context("a certificate is revoked")?;
        refused(&gateway, way).context("a certificate is refused")?;
        unkeyed(&gateway, way).context("a pre-shared key is gone")?;
        unprotected(&gateway, way).context("an OSCORE context is gone")?;
    }
    denied(&gateway, way).context("a denial")?;
    disabled(&gateway, way).context("a user is disabled")?;
    new_password(&gateway, way).context("another password of the administrator")?;
    gateway.check_alive()?;
    Ok(String::new())
}

/// An MQTT connection with a new certificate.
fn certified(gateway: &Gateway, name: &str) -> Result<SslStream<TcpStream>> {
    let mut stream = tls(&client_certificate(gateway, name)?, gateway.address("mqtts")?)?;
    ensure!(super::connack(&mut stream)? == 0, "CONNACK");
    Ok(stream)
}

fn revoked(gateway: &Gateway, way: Way) -> Result<()> {
    let mut client = certified(gateway, "dev1")?;
    way.apply(gateway, "certificates and revocations are read again", |data| {
        command(&["pki", "revoke", "dev1", "--data"], data)
    })?;
    ends(&mut client)
}

fn refused(gateway: &Gateway, way: Way) -> Result<()> {
    let mut client = certified(gateway, "dev2")?;
    way.apply(gateway, READ_AGAIN, |data| {
        put(&data.join("certificates.toml"), "[[certificate]]\ncommon_name = \"dev2\"\nrefuse = true\n")
    })?;
    ends(&mut client)
}

fn unkeyed(gateway: &Gateway, way: Way) -> Result<()> {
    let mut coap = tls_psk(gateway.address("coaps_tcp")?, SslVersion::TLS1_3, "dev", KEY)?;
    // CSM without options (RFC 8323 §5.3).
    coap.write_all(&[0x00, 0xe1])?;
    let before = ask(&mut coap)?;
    ensure!(before == "4.04", "{before} under the key");
    way.apply(gateway, READ_AGAIN, |data| put(&data.join("psk.toml"), "# none\n"))?;
    let after = ask(&mut coap)?;
    ensure!(after == "4.01", "{after} under a key that is gone");
    Ok(())
}

fn unprotected(gateway: &Gateway, way: Way) -> Result<()> {
    const CONTEXTS: &str = "OSCORE contexts are read again";
    let home = tempfile::tempdir()?;
    let device = home.path().join("device.toml");
    let device = device.to_str().context("no UTF-8")?;
    way.apply(gateway, CONTEXTS, |data| command(&["pki", "oscore", "osc", "--out", device, "--data"], data))?;
    let url = format!("coap://localhost:{}/a", gateway.address("coap")?.port());
    let publish = || succeeds(&["pub", &url, "x", "--oscore", device, "--timeout", "5"]);
    ensure!(publish()?, "refused with its context");
    way.apply(gateway, CONTEXTS, |data| {
        let files = fs::read_dir(data.join("oscore"))?.collect::<Result<Vec<_>, _>>()?;
        for file in files.iter().filter(|file| file.path().extension().is_some_and(|kind| kind == "toml")) {
            fs::remove_file(file.path())?;
        }
        Ok(())
    })?;
    ensure!(!publish()?, "taken under a context that is gone");
    Ok(())
}

fn denied(gateway: &Gateway, way: Way) -> Result<()> {
    let (mut reader, ..) = users::Login::of("ada", "reader").connect(gateway.address("mqtt")?)?;
    reader.subscribe(1, &["door", "open"], 0)?;
    let rules = format!("{DENY}{ALLOW}");
    if way == Way::Api {
        api(gateway, "rules", "Content-Type: application/toml\r\nIf-Match: *\r\n", &rules, 204)?;
    } else {
        way.apply(gateway, READ_AGAIN, |data| put(&data.join("acl.toml"), &rules))?;
    }
    let (mut writer, ..) = users::Login::of("eve", "writer").connect(gateway.address("mqtt")?)?;
    for topic in ["door", "open"] {
        writer.stream.write_all(&publish(V5, topic.as_bytes(), b"1", 0, false, 1))?;
    }
    let (_, body) = reader.read()?;
    ensure!(!body.starts_with(b"\0\x04door"), "delivered to a client that may not read it any more");
    ensure!(body.starts_with(b"\0\x04open"), "{body:?}");
    Ok(())
}

fn disabled(gateway: &Gateway, way: Way) -> Result<()> {
    let (mut client, ..): (Connection, _, _) = users::Login::of("eve", "c").connect(gateway.address("mqtt")?)?;
    if way == Way::Api {
        api(gateway, "users/eve", "Content-Type: application/json\r\n", "{\"disabled\": true}", 204)?;
    } else {
        way.apply(gateway, READ_AGAIN, |data| command(&["passwd", "eve", "--disable", "--data"], data))?;
    }
    ensure!(tcp::read_end(&mut client.stream, PATIENCE)?.is_closed(), "the connection goes on");
    Ok(())
}

/// The file with the first password goes with it.
fn new_password(gateway: &Gateway, way: Way) -> Result<()> {
    let file = gateway.data().join("admin-password");
    ensure!(file.exists(), "it is gone before");
    if way == Way::Api {
        api(gateway, "users/admin", "Content-Type: application/json\r\n", "{\"password\": \"another one\"}", 204)?;
    } else {
        way.apply(gateway, READ_AGAIN, |data| put(&data.join("users.toml"), "[users.admin]\ngroups = [\"admin\"]\n"))?;
    }
    ensure!(!file.exists(), "the file outlives its password");
    Ok(())
}

fn api(gateway: &Gateway, path: &str, headers: &str, body: &str, expected: u16) -> Result<()> {
    let headers = format!("{}{headers}", users::authorization("admin"));
    let path = format!("/api/v1/{path}");
    let status = users::http_with(gateway.address("http")?, &headers, "PUT", &path, body.as_bytes())?;
    ensure!(status == expected, "{status} for {path}");
    Ok(())
}

/// Replaces a file at once.
fn put(file: &Path, text: &str) -> Result<()> {
    let fresh = file.with_extension("fresh");
    fs::write(&fresh, text)?;
    Ok(fs::rename(fresh, file)?)
}

fn succeeds(arguments: &[&str]) -> Result<bool> {
    let binary = std::env::var("FOGMUX_BIN").context("FOGMUX_BIN")?;
    Ok(Command::new(binary).args(arguments).output()?.status.success())
}

fn command(arguments: &[&str], data: &Path) -> Result<()> {
    let data = data.to_str().context("no UTF-8")?;
    ensure!(succeeds(&[arguments, &[data]].concat())?, "{arguments:?}");
    Ok(())
}

/// A process without a free descriptor reads nothing, and its files do not change when it has one again.
pub(super) fn starved() -> Result<String> {
    let settings = [TLS_PSK, "tls.cut_revoked=true", "listeners.https.anonymous=true"];
    let mut gateway = users::gateway(&settings, &["ada"], &[("acl.toml", ALLOW)])?;
    let context = client_certificate(&gateway, "dev1")?;
    let mut stream = tls(&context, gateway.address("https")?)?;
    stream.write_all(b"GET /subscribe?filter=a HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    let (mut reader, ..) = users::Login::of("ada", "reader").connect(gateway.address("mqtt")?)?;
    reader.subscribe(1, &["door", "open"], 0)?;
    let pid = Pid::from_raw(gateway.pid().cast_signed());
    // Only a process with privileges raises the maximum again.
    let none = Rlimit { current: Some(3), ..getrlimit(Resource::Nofile) };
    let before = prlimit(pid, Resource::Nofile, none).context("the limit of open files")?;
    put(&gateway.data().join("acl.toml"), &format!("{DENY}{ALLOW}"))?;
    command(&["pki", "revoke", "dev1", "--data"], &gateway.data())?;
    gateway.wait_log("users, rules and keys stay as they were", PATIENCE)?;
    gateway.wait_log("certificates and revocations stay as they were", PATIENCE)?;
    prlimit(pid, Resource::Nofile, before)?;
    gateway.wait_log(READ_AGAIN, PATIENCE).context("rules that could not be read")?;
    gateway.wait_log("certificates and revocations are read again", PATIENCE).context("a list")?;
    ends(&mut stream).context("the connection of a revoked certificate")?;
    let (mut writer, ..) = users::Login::of("ada", "writer").connect(gateway.address("mqtt")?)?;
    for topic in ["door", "open"] {
        writer.stream.write_all(&publish(V5, topic.as_bytes(), b"1", 0, false, 1))?;
    }
    let (_, body) = reader.read()?;
    ensure!(body.starts_with(b"\0\x04open"), "{body:?}");
    gateway.check_alive()?;
    Ok(String::new())
}

/// Rules that are being written when SIGHUP comes: their denials are at the end.
pub(super) fn unfinished() -> Result<String> {
    const PIECES: usize = 30;
    const PAUSE: Duration = Duration::from_millis(20);
    let text = format!("{ALLOW}{DENY}");
    for _ in 0..20 {
        let mut gateway = users::gateway(&[], &["ada"], &[("acl.toml", &*text)])?;
        let file = gateway.data().join("acl.toml");
        let is_done = &AtomicBool::new(false);
        let (early, is_steady) = std::thread::scope(|scope| {
            let mut rules = File::create(&file)?;
            rules.write_all(ALLOW.as_bytes())?;
            let write = move || -> Result<bool> {
                let mut longest = Duration::ZERO;
                for _ in 0..PIECES {
                    let begun = Instant::now();
                    std::thread::sleep(PAUSE);
                    rules.write_all(b"# more\n")?;
                    longest = longest.max(begun.elapsed());
                }
                rules.write_all(DENY.as_bytes())?;
                is_done.store(true, Ordering::SeqCst);
                Ok(longest < PAUSE * 5)
            };
            let writer = scope.spawn(write);
            gateway.signal(Signal::HUP)?;
            gateway.wait_log(RELOADED, PATIENCE)?;
            let early = !is_done.load(Ordering::SeqCst);
            let is_steady = writer.join().map_err(|_| anyhow::anyhow!("the writer panicked"))??;
            anyhow::Ok((early, is_steady))
        })?;
        if !is_steady {
            // The machine was busy, and the file quiet for so long that it seemed to be finished.
            continue;
        }
        ensure!(!early, "rules are in force that were not written to their end");
        let status = users::http(gateway.address("http")?, "ada", "GET", "/topics/door", b"")?;
        ensure!(status == 403, "{status} where the rules deny");
        gateway.check_alive()?;
        return Ok(String::new());
    }
    Ok("the machine is too busy".to_owned())
}

/// A start without a file that was there opens nothing, and says how to go on.
pub(super) fn lost() -> Result<String> {
    let home = tempfile::tempdir()?;
    let data = home.path().join("data");
    fs::create_dir(&data)?;
    let certificates = "[[certificate]]\ncommon_name = \"dev1\"\nrefuse = true\n";
    let disabled = format!("{}[users.dev2]\ndisabled = true\n", users::file(&["ada"]));
    let files = [("acl.toml", DENY), ("users.toml", &*disabled), ("certificates.toml", certificates)];
    let plan = Plan { data: Some(&data), ..Plan::default() };
    let gateway = Gateway::start_as(Plan { files: &files, ..plan })?;
    client_certificate(&gateway, "dev3")?;
    Way::Noticed.apply(&gateway, "certificates and revocations are read again", |data| {
        command(&["pki", "revoke", "dev3", "--data"], data)
    })?;
    stop(gateway)?;
    for name in ["acl.toml", "users.toml", "certificates.toml", "pki/crl.pem"] {
        let (file, away) = (data.join(name), home.path().join("away"));
        fs::rename(&file, &away)?;
        if name == "users.toml" {
            // As a power cut leaves it.
            File::create(&file)?;
        }
        let refused = Gateway::start_as(plan).map(drop).err().with_context(|| format!("it starts without {name}"))?;
        let said = format!("{refused:#}");
        ensure!(said.contains(name) && said.contains("files-in-use"), "{name}: {said}");
        fs::rename(&away, &file)?;
    }
    stop(Gateway::start_as(plan)?)?;
    // On purpose.
    fs::remove_file(data.join("acl.toml"))?;
    fs::remove_file(data.join("files-in-use"))?;
    Gateway::start_as(plan)?.check_alive()?;
    Ok(String::new())
}

fn stop(mut gateway: Gateway) -> Result<()> {
    gateway.signal(Signal::TERM)?;
    ensure!(gateway.wait_exit(PATIENCE)?.success(), "{}", gateway.log());
    Ok(())
}
