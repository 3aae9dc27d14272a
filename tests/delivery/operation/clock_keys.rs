//! A clock in the past, and keys: OSCORE numbers that must not be used twice (RFC 8613 §7.2.1), and the gateway's own
//! certificate, which is not valid yet by such a clock.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::suite::Case;
use fogmux_tests::tcp;

use super::backup::{backup, done, fogmux};
use super::clock::{Board, stop, wait};
use super::http;

pub(super) const RESTORED: Case = Case {
    name: "a clock that is stale when a backup is restored: OSCORE numbers of none of the gateways repeat",
    run: restored,
};
pub(super) const WAITING: Case = Case {
    name: "a clock that begins in 1970: OSCORE without numbers waits until it is set, and all doors open",
    run: waiting,
};
pub(super) const CERTIFICATE: Case = Case {
    name: "a clock that begins in 1970: the certificate of before is kept, and the log names the clock",
    run: certificate,
};

pub(super) const CLIENT: Case = Case {
    name: "a clock that begins in 1970: good certificates of clients are refused, and the log names the clock",
    run: client,
};

/// Numbers that a context may use before the next restore, far more than these do.
const USED: u64 = 1_000_000;

/// Adds a context to a data directory, and returns the device's side.
fn lamp(data: &Path, home: &Path) -> Result<PathBuf> {
    let told =
        done(fogmux(["pki".as_ref(), "oscore".as_ref(), "--data".as_ref(), data.as_os_str(), "lamp".as_ref()])?, 0)?;
    let text: Vec<_> = told.lines().filter(|line| line.contains(" = ") || line.starts_with('#')).collect();
    let device = home.join("lamp.toml");
    fs::write(&device, text.join("\n"))?;
    Ok(device)
}

/// The number up to which the only context has numbers reserved; `None` if it has none.
fn reserved(data: &Path) -> Option<u64> {
    let text = fs::read_to_string(data.join("oscore/journal")).ok()?;
    let fingerprint = |line: &&str| ['0', 'f'].iter().all(|digit| !line.starts_with(&digit.to_string().repeat(32)));
    text.lines().filter(fingerprint).filter_map(|line| line.split(' ').nth(1)?.parse().ok()).max()
}

/// Reads a value by OSCORE.
fn get(gateway: &Gateway, device: &Path, code: i32) -> Result<()> {
    let url = format!("coap://{}/kept", gateway.address("coap")?);
    let words = ["get".as_ref(), "--oscore".as_ref(), device.as_os_str(), url.as_ref()];
    done(fogmux(words)?, code).map(drop)
}

fn put(gateway: &Gateway) -> Result<()> {
    let status = http(gateway, "PUT", "/topics/kept", b"1")?.0;
    ensure!(status < 300, "PUT: {status}");
    Ok(())
}

fn restored() -> Result<String> {
    let board = Board::new()?;
    let home = board.home.path().to_owned();
    let gateway = board.start("+0")?;
    put(&gateway)?;
    let device = lamp(&board.data, &home)?;
    wait("numbers of the old gateway", || Ok(reserved(&board.data).is_some()))?;
    get(&gateway, &device, 0)?;
    let file = home.join("backup.tar");
    backup(&board.data, &file)?;
    stop(gateway)?;
    // As many as a year of it may use.
    let used = reserved(&board.data).context("no numbers")? + 256 * 365 * 86_400;
    let mut firsts = Vec::new();
    for (index, clock) in
        ["@2025-05-13 00:00:00", "@2025-05-13 00:00:00", "@1970-01-01 00:10:00", "+0"].iter().enumerate()
    {
        let data = home.join(format!("restored-{index}"));
        board.set(clock)?;
        let restore = board.command(["restore".as_ref(), "--data".as_ref(), data.as_os_str(), file.as_os_str()])?;
        let told = done(restore, 0)?;
        ensure!(told.contains("warning: the backup was made") == (*clock != "+0"), "at {clock}: {told}");
        let gateway = board.start_in(&data, clock)?;
        let first = reserved(&data).with_context(|| format!("no numbers at {clock}"))? - 1024;
        ensure!(first > used, "at {clock} numbers begin with {first}, and {used} may have been used");
        get(&gateway, &device, 0).with_context(|| format!("at {clock}"))?;
        stop(gateway)?;
        firsts.push(first);
    }
    let mut sorted = firsts.clone();
    sorted.sort_unstable();
    ensure!(sorted.is_sorted_by(|a, b| a + USED < *b), "{firsts:?} are too near each other");
    Ok(format!("{firsts:?}"))
}

fn readyz(gateway: &Gateway) -> Result<String> {
    let request = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    Ok(String::from_utf8(tcp::ask(gateway.address("http")?, request)?)?)
}

fn waiting() -> Result<String> {
    let board = Board::new()?;
    let home = board.home.path().to_owned();
    // The contexts of another gateway, of which this one has no journal.
    let device = lamp(&board.data, &home)?;
    let gateway = board.start("@1970-01-01 00:10:00")?;
    put(&gateway)?;
    let told = readyz(&gateway)?;
    ensure!(told.starts_with("HTTP/1.1 200") && told.contains("waiting: ") && told.contains("lamp"), "{told}");
    ensure!(
        gateway.whole_log().contains("the clock, by which they would begin, is not set"),
        "{}",
        gateway.whole_log()
    );
    ensure!(get(&gateway, &device, 0).is_err(), "a context without numbers answers");
    ensure!(reserved(&board.data).is_none(), "numbers are reserved");
    board.set("+0")?;
    wait("a gateway that waits for nothing", || Ok(!readyz(&gateway)?.contains("waiting: ")))?;
    get(&gateway, &device, 0)?;
    stop(gateway)?;
    // Now they are noted, and the clock is not needed.
    let gateway = board.start("@1970-01-01 00:10:00")?;
    ensure!(!readyz(&gateway)?.contains("waiting: "));
    get(&gateway, &device, 0)?;
    stop(gateway)?;
    Ok(String::new())
}

fn certificate() -> Result<String> {
    let board = Board::new()?;
    stop(board.start("+0")?)?;
    let pki = board.data.join("pki");
    let read = || ["server.pem", "server.key"].map(|name| fs::read(pki.join(name)).ok());
    let before = read();
    for clock in ["@1970-01-01 00:10:00", "@2026-01-01 00:10:00"] {
        let gateway = board.start(clock)?;
        ensure!(read() == before && !pki.join("server.pem.old").exists(), "at {clock} the certificate was made anew");
        ensure!(gateway.whole_log().contains("the clock is in the past"), "at {clock}: {}", gateway.whole_log());
        stop(gateway)?;
    }
    let gateway = board.start("+0")?;
    ensure!(read() == before && !gateway.whole_log().contains("in the past"), "{}", gateway.whole_log());
    stop(gateway)?;
    Ok(String::new())
}

/// Makes a client's certificate by the clock as it is set.
fn issue(board: &Board, name: &str, clock: &str) -> Result<()> {
    board.set(clock)?;
    let made =
        board.command(["pki".as_ref(), "client".as_ref(), "--data".as_ref(), board.data.as_os_str(), name.as_ref()]);
    done(made?, 0).map(drop)
}

/// Shows a client's certificate over TLS and over DTLS, whatever becomes of it. OpenSSL goes on with a certificate of
/// the gateway that it does not take.
fn show(board: &Board, gateway: &Gateway, name: &str) -> Result<()> {
    let file = |ending: &str| board.data.join(format!("pki/clients/{name}.{ending}"));
    for (listener, version) in [("mqtts", "-tls1_3"), ("mqtts", "-tls1_2"), ("coaps", "-dtls1_2")] {
        let mut openssl = Command::new("timeout");
        openssl.args(["2", "openssl", "s_client", version, "-connect", &gateway.address(listener)?.to_string()]);
        openssl.arg("-cert").arg(file("pem")).arg("-key").arg(file("key"));
        openssl.stdin(Stdio::null()).output().context("openssl")?;
    }
    Ok(())
}

const EARLY: &str = "certificate not yet valid";
const BY_CLOCK: &str = "certificate not yet valid; the gateway's clock may be in the past";

/// Shows it, and expects one reason of all refusals.
fn refused(board: &Board, gateway: &Gateway, name: &str, reason: &str) -> Result<()> {
    show(board, gateway, name)?;
    let claimed = format!("by=certificate claimed={name:?}");
    for door in ["mqtt", "coap"] {
        let line = format!("door={door} {claimed}");
        wait(&line, || Ok(gateway.whole_log().contains(&line)))?;
    }
    let log = gateway.whole_log();
    let (line, reason) = (|line: &&str| line.contains(&claimed), format!("reason={reason:?}"));
    ensure!(log.lines().filter(line).all(|line| line.contains(&reason)), "no {reason}: {log}");
    Ok(())
}

/// Whether mosquitto publishes by a certificate.
fn publishes(board: &Board, gateway: &Gateway, name: &str) -> Result<bool> {
    let file = |ending: &str| board.data.join(format!("pki/clients/{name}.{ending}"));
    let mut client = Command::new("mosquitto_pub");
    client.args(["-h", "localhost", "-p", &gateway.address("mqtts")?.port().to_string(), "-t", "a", "-m", "x"]);
    client.arg("--cafile").arg(gateway.ca()).arg("--cert").arg(file("pem")).arg("--key").arg(file("key"));
    Ok(client.output().context("mosquitto_pub")?.status.success())
}

fn client() -> Result<String> {
    const LATER: &str = "+31536000";
    let board = Board::new()?;
    stop(board.start("+0")?)?;
    issue(&board, "pump", "+0")?;
    issue(&board, "early", LATER)?;
    for clock in ["@1970-01-01 00:10:00", "@2026-01-01 00:10:00"] {
        let gateway = board.start(clock)?;
        refused(&board, &gateway, "pump", BY_CLOCK).with_context(|| format!("at {clock}"))?;
        ensure!(!publishes(&board, &gateway, "pump")?, "it was admitted at {clock}");
        board.set("+0")?;
        wait("a client that is admitted", || publishes(&board, &gateway, "pump"))?;
        stop(gateway)?;
    }
    // Nothing is said of a clock that is right.
    let gateway = board.start("+0")?;
    refused(&board, &gateway, "early", EARLY)?;
    stop(gateway)?;
    // A clock at which there were gateways, but not this one's certificate.
    board.set(LATER)?;
    let own = board.home.path().join("own");
    let words = ["pki".as_ref(), "server".as_ref(), "--data".as_ref(), board.data.as_os_str(), "--out".as_ref()];
    done(board.command(words.into_iter().chain([own.as_os_str(), "localhost".as_ref()]))?, 0)?;
    let file = |key: &str, ending: &str| format!("tls.{key}={:?}", own.with_extension(ending).display().to_string());
    let settings = [file("certificate_file", "pem"), file("key_file", "key")];
    let gateway = board.start_with("+0", &settings.each_ref().map(|setting| &**setting))?;
    refused(&board, &gateway, "early", BY_CLOCK)?;
    stop(gateway)?;
    Ok("TLS and DTLS".to_owned())
}
