//! Revocation lists (RFC 5280 §5) that have expired, are damaged, or are of others: they never open access.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::{Gateway, Plan};
use fogmux_tests::tcp;
use rustix::process::Signal;

const RULES: &str = "[[allow]]\nuser = \"dev1\"\nboth = [\"#\"]\n";
/// For `openssl ca`, which wants a database of what it has signed.
const CONFIGURATION: &str = "[ca]\ndefault_ca = own\n[own]\ndatabase = index\ndefault_md = sha256\n\
    crlnumber = number\ncrl_extensions = extensions\n[extensions]\nauthorityKeyIdentifier = keyid\n";

/// Signs an empty list whose time is over since 2020.
fn sign(pki: &Path) -> Result<()> {
    sign_until(pki, "20200201000000Z", &pki.join("crl.pem"))
}

/// Signs an empty list.
fn sign_until(pki: &Path, next_update: &str, file: &Path) -> Result<()> {
    let home = tempfile::tempdir()?;
    fs::write(home.path().join("configuration"), CONFIGURATION)?;
    fs::write(home.path().join("index"), "")?;
    fs::write(home.path().join("number"), "01\n")?;
    let mut openssl = Command::new("openssl");
    openssl.current_dir(&home).args(["ca", "-config", "configuration", "-gencrl", "-out", "crl.pem", "-batch"]);
    openssl.args(["-crl_lastupdate", "20200101000000Z", "-crl_nextupdate", next_update]);
    openssl.arg("-cert").arg(pki.join("ca.pem")).arg("-keyfile").arg(pki.join("ca.key"));
    let output = openssl.output()?;
    ensure!(output.status.success(), "openssl ca: {}", String::from_utf8_lossy(&output.stderr));
    fs::copy(home.path().join("crl.pem"), file)?;
    Ok(())
}

pub(super) fn expired() -> Result<String> {
    let binary = std::env::var("FOGMUX_BIN").context("FOGMUX_BIN")?;
    for (settings, taken) in [(&[][..], true), (&["tls.crl_expiry=warn"], true), (&["tls.crl_expiry=refuse"], false)] {
        let gateway = Gateway::start_furnished(settings, &[("acl.toml", RULES)])?;
        let pki = gateway.data().join("pki");
        let made = Command::new(&binary).args(["pki", "client", "dev1", "--data"]).arg(gateway.data()).output()?;
        ensure!(made.status.success(), "pki client: {}", String::from_utf8_lossy(&made.stderr));
        let put = || -> Result<bool> {
            let mut curl = Command::new("curl");
            curl.args(["-sS", "-o", "/dev/null", "-f", "-X", "PUT", "-d", "x", "--cacert"]).arg(gateway.ca());
            curl.arg("--cert").arg(pki.join("clients/dev1.pem")).arg("--key").arg(pki.join("clients/dev1.key"));
            curl.arg(format!("https://localhost:{}/topics/t", gateway.address("https")?.port()));
            Ok(curl.output()?.status.success())
        };
        ensure!(put()?, "a certificate of ours was refused before there was a list");
        sign(&pki)?;
        ensure!(put()? == taken, "{settings:?}: a certificate whose list has expired");
        gateway.wait_log("the revocation list has expired", tcp::PATIENCE)?;
    }
    Ok(String::new())
}

/// `sysexits.h`: the configuration does not hold.
const EX_CONFIG: i32 = 78;

/// Runs `fogmux pki`.
fn pki(words: &[&str], data: &Path) -> Result<()> {
    let binary = std::env::var("FOGMUX_BIN").context("FOGMUX_BIN")?;
    let made = Command::new(binary).arg("pki").args(words).arg("--data").arg(data).output()?;
    ensure!(made.status.success(), "pki {words:?}: {}", String::from_utf8_lossy(&made.stderr));
    Ok(())
}

/// Whether HTTPS lets the owner of a certificate write; nobody else may.
fn admits(gateway: &Gateway, name: &str) -> Result<bool> {
    let clients = gateway.data().join("pki/clients");
    let mut curl = Command::new("curl");
    curl.args(["-sS", "-m", "10", "-o", "/dev/null", "-f", "-X", "PUT", "-d", "x", "--cacert"]).arg(gateway.ca());
    curl.arg("--cert").arg(clients.join(format!("{name}.pem"))).arg("--key").arg(clients.join(format!("{name}.key")));
    curl.arg(format!("https://localhost:{}/topics/t", gateway.address("https")?.port()));
    Ok(curl.output()?.status.success())
}

/// Two devices, of which the first is revoked.
const DEVICES: [&str; 2] = ["dev1", "dev2"];
const DEVICES_MAY: &str = "[[allow]]\nuser = \"dev1\"\nboth = [\"#\"]\n[[allow]]\nuser = \"dev2\"\nboth = [\"#\"]\n";

/// A data directory of a gateway that has made two certificates and revoked one.
fn furnished(data: &Path) -> Result<()> {
    fs::create_dir(data)?;
    let mut gateway =
        Gateway::start_as(Plan { data: Some(data), files: &[("acl.toml", DEVICES_MAY)], ..Plan::default() })?;
    DEVICES.iter().try_for_each(|name| pki(&["client", name], data))?;
    ensure!(admits(&gateway, "dev1")? && admits(&gateway, "dev2")?, "a certificate of ours is refused");
    pki(&["revoke", "dev1"], data)?;
    ensure!(!admits(&gateway, "dev1")? && admits(&gateway, "dev2")?, "the wrong certificate is refused");
    gateway.signal(Signal::TERM)?;
    gateway.wait_exit(tcp::PATIENCE)?;
    Ok(())
}

/// Damaged lists: each of these is no list. A directory stands for a file that cannot be read.
fn damages(whole: &str) -> Vec<(&'static str, Option<String>)> {
    let first = whole.lines().next().unwrap_or_default().to_owned();
    vec![
        ("empty", Some(String::new())),
        ("a line break", Some("\n".to_owned())),
        ("a comment", Some("# none\n".to_owned())),
        ("its first line", Some(first)),
        ("its first half", whole.get(..whole.len() / 2).map(str::to_owned)),
        ("a directory", None),
    ]
}

/// Puts this in the place of a file; nothing is a directory.
fn put(file: &Path, text: Option<&str>) -> Result<()> {
    let _ = fs::remove_file(file).or_else(|_| fs::remove_dir(file));
    match text {
        Some(text) => fs::write(file, text),
        None => fs::create_dir(file),
    }
    .map_err(Into::into)
}

pub(super) fn damaged() -> Result<String> {
    let binary = std::env::var("FOGMUX_BIN").context("FOGMUX_BIN")?;
    let home = tempfile::tempdir()?;
    let data = home.path().join("data");
    furnished(&data)?;
    let list = data.join("pki/crl.pem");
    let whole = fs::read_to_string(&list)?;
    // One that is configured has to be there.
    let gone = ("gone", Some(whole.clone()));
    for (what, text) in damages(&whole).into_iter().chain([gone]) {
        put(&list, text.as_deref())?;
        let mut gateway = Command::new("timeout");
        gateway.args(["20", &binary, "serve", "--json", "--free-ports", "--data"]).arg(&data);
        if what == "gone" {
            gateway.args(["--set", &format!("tls.crl_file={:?}", home.path().join("gone.pem"))]);
        }
        let output = gateway.output()?;
        let told = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(EX_CONFIG), "{what}: {}: {told}", output.status);
        let file = if what == "gone" { "gone.pem" } else { "crl.pem" };
        ensure!(told.contains(file), "{what}: the file is not named: {told}");
    }
    Ok(String::new())
}

pub(super) fn damaged_later() -> Result<String> {
    let home = tempfile::tempdir()?;
    let data = home.path().join("data");
    furnished(&data)?;
    let list = data.join("pki/crl.pem");
    let whole = fs::read_to_string(&list)?;
    let mut gateway = Gateway::start_as(Plan { data: Some(&data), ..Plan::default() })?;
    for (what, text) in damages(&whole) {
        gateway.forget_log()?;
        put(&list, text.as_deref())?;
        for round in ["before", "after"] {
            ensure!(!admits(&gateway, "dev1")?, "{what}, {round} SIGHUP: a revoked certificate is taken");
            ensure!(admits(&gateway, "dev2")?, "{what}, {round} SIGHUP: a good certificate is refused");
            gateway.wait_log("crl.pem", tcp::PATIENCE).with_context(|| format!("{what}: {round} SIGHUP"))?;
            gateway.forget_log()?;
            gateway.signal(Signal::HUP)?;
            gateway.wait_log("reloaded", tcp::PATIENCE).context(what)?;
        }
    }
    fs::remove_dir(&list)?;
    ensure!(!admits(&gateway, "dev1")?, "gone: a revoked certificate is taken");
    fs::write(&list, whole)?;
    ensure!(!admits(&gateway, "dev1")? && admits(&gateway, "dev2")?, "the list is back");
    gateway.settle()?;
    Ok(String::new())
}

pub(super) fn foreign() -> Result<String> {
    let home = tempfile::tempdir()?;
    let (data, other) = (home.path().join("data"), home.path().join("other"));
    furnished(&data)?;
    // The authority of another gateway.
    furnished(&other)?;
    let (ours, theirs) = (data.join("pki/crl.pem"), home.path().join("theirs.pem"));
    sign_until(&other.join("pki"), "20990101000000Z", &theirs)?;
    let whole = fs::read_to_string(&ours)?;
    let theirs = fs::read_to_string(theirs)?;
    let mut running = Gateway::start_as(Plan { data: Some(&data), ..Plan::default() })?;
    ensure!(!admits(&running, "dev1")? && admits(&running, "dev2")?, "the wrong certificate is refused");
    fs::write(&ours, &theirs)?;
    ensure!(!admits(&running, "dev1")?, "a list of others in the place of ours: a revoked certificate is taken");
    ensure!(admits(&running, "dev2")?, "a list of others in the place of ours: the list before is forgotten");
    running.wait_log("the one before stays in force", tcp::PATIENCE)?;
    // Beside ours it is of no importance.
    fs::write(&ours, format!("{theirs}{whole}"))?;
    ensure!(!admits(&running, "dev1")? && admits(&running, "dev2")?, "beside a list of others");
    running.signal(Signal::TERM)?;
    running.wait_exit(Duration::from_secs(30))?;
    fs::write(&ours, &theirs)?;
    let mut started = Gateway::start_as(Plan { data: Some(&data), ..Plan::default() })?;
    ensure!(!admits(&started, "dev1")?, "a list of others at the start: a revoked certificate is taken");
    started.wait_log("certificates that no list covers are refused", tcp::PATIENCE)?;
    fs::write(&ours, whole)?;
    ensure!(!admits(&started, "dev1")? && admits(&started, "dev2")?, "our list is back");
    started.settle()?;
    Ok(String::new())
}
