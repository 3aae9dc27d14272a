//! SIGHUP on a full disk: what can be reloaded is, and the rest once there is space.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::{Gateway, Plan};
use fogmux_tests::suite::Case;
use fogmux_tests::tcp;
use rustix::process::Signal;

use super::disk::{FULL_DISK, SKIPPED, apart};
use super::http;

pub(super) const FULL: Case =
    Case { name: "a reload on a full disk applies all but what needs space", run: full_at_start };
pub(super) const FULL_LATER: Case =
    Case { name: "a reload on a disk that has filled up applies all but what needs space", run: full_later };

/// The log line of a finished reload, and of one without a part.
const WHOLE: &str = "configuration, users, rules and certificates are read again";
const PARTIAL: &str = "everything else is read again and holds";
const ANYBODY: &str = "[[allow]]\nanonymous = true\nboth = [\"#\"]\n";
const DEVICE: &str = "[[allow]]\nanonymous = true\nread = [\"#\"]\n[[allow]]\nuser = \"lamp\"\nboth = [\"#\"]\n";
/// A disk that somebody fills later.
const SMALL_DISK: &str = r#"cp -a "$0" "$0.copy" && mount -t tmpfs -o size=12m,mode=700 tmpfs "$0" &&
    cp -a "$0.copy/." "$0" && exec "$@""#;

/// Publishes without retaining, so that the store is not asked.
fn publishes(gateway: &Gateway) -> Result<bool> {
    Ok(http(gateway, "POST", "/topics/a", b"x")?.0 < 300)
}

fn fogmux(words: &[&str]) -> Result<bool> {
    let binary = std::env::var("FOGMUX_BIN").context("FOGMUX_BIN")?;
    Ok(Command::new(binary).args(words).output()?.status.success())
}

/// Whether the device's OSCORE context is in use.
fn device(gateway: &Gateway, keys: &str) -> Result<bool> {
    let url = format!("coap://localhost:{}/a", gateway.address("coap")?.port());
    fogmux(&["pub", &url, "x", "--oscore", keys, "--timeout", "5"])
}

/// The path at which the gateway sees a file: its disk is mounted for it alone.
fn inside(gateway: &Gateway, file: &Path) -> String {
    format!("/proc/{}/root{}", gateway.pid(), file.display())
}

/// A gateway whose rules are on another disk than its data; `keys` are of a device that is made before the start.
fn on_disk(script: &str, is_known: bool, check: impl Fn(&mut Gateway, &Path, &str) -> Result<()>) -> Result<String> {
    let home = tempfile::tempdir()?;
    let (data, keys) = (home.path().join("data"), home.path().join("lamp.toml"));
    let (name, keys) = (data.to_str().context("a path")?, keys.to_str().context("a path")?);
    let Some(launcher) = apart(script, name)? else { return Ok(SKIPPED.to_owned()) };
    fs::create_dir(&data)?;
    let mut first = Gateway::start_as(Plan { data: Some(&data), ..Plan::default() })?;
    first.signal(Signal::TERM)?;
    first.wait_exit(tcp::PATIENCE)?;
    if is_known {
        ensure!(fogmux(&["pki", "oscore", "lamp", "--data", name, "--out", keys])?, "pki oscore");
    }
    let configuration = rules(home.path(), "anybody", ANYBODY)?;
    let plan = Plan { data: Some(&data), configuration: Some(&configuration), ..Plan::default() };
    let mut gateway = Gateway::start_as(Plan { launcher: &launcher, unready: true, ..plan })?;
    ensure!(publishes(&gateway)?, "where anybody may");
    check(&mut gateway, home.path(), keys).with_context(|| gateway.log())?;
    gateway.settle()?;
    Ok(String::new())
}

/// A configuration with these rules.
fn rules(home: &Path, name: &str, text: &str) -> Result<String> {
    let file = home.join(format!("{name}.toml"));
    fs::write(&file, text)?;
    Ok(format!("auth.acl_file = {:?}\n", file.display().to_string()))
}

fn reload(gateway: &Gateway, outcome: &str) -> Result<()> {
    gateway.forget_log()?;
    gateway.signal(Signal::HUP)?;
    gateway.wait_log(outcome, tcp::PATIENCE)
}

/// Everything but the OSCORE context is reloaded; that is when there is space again.
fn in_part(gateway: &mut Gateway, home: &Path, keys: &str) -> Result<()> {
    gateway.configure(&rules(home, "device", DEVICE)?)?;
    reload(gateway, PARTIAL)?;
    ensure!(!publishes(gateway)?, "new rules are not in place");
    ensure!(gateway.whole_log().contains("new OSCORE contexts are not in use"), "the part is not named");
    ensure!(!device(gateway, keys)?, "a context is in use whose numbers are not on the disk");
    fs::remove_file(inside(gateway, &home.join("data/filler")))?;
    reload(gateway, WHOLE)?;
    ensure!(!publishes(gateway)?, "rules are as they were");
    ensure!(device(gateway, keys)?, "the context is not in use although there is space");
    let counted = ["partial", "applied"].map(|outcome| format!("fogmux_reloads_total{{outcome=\"{outcome}\"}}"));
    let counted = counted.each_ref().map(|name| gateway.sum(&[name]));
    ensure!(matches!(counted, [Ok(1), Ok(1)]), "{counted:?} reloads in /metrics");
    Ok(())
}

/// So many contexts that their lines in the journal do not fit the rest of its last page.
const MANY: u16 = 150;

fn contexts(directory: &Path) -> Result<()> {
    for number in 0x100..0x100 + MANY {
        let text = format!(
            "user = \"lamp{number}\"\nsender_id = \"00\"\nrecipient_id = \"{number:04x}\"\n\
             master_secret = \"{number:032x}\"\n"
        );
        let file = directory.join(format!("lamp{number}.toml"));
        fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(file)?.write_all(text.as_bytes())?;
    }
    Ok(())
}

fn full_at_start() -> Result<String> {
    on_disk(FULL_DISK, true, in_part)
}

fn full_later() -> Result<String> {
    on_disk(SMALL_DISK, false, |gateway, home, keys| {
        let data = inside(gateway, &home.join("data"));
        ensure!(fogmux(&["pki", "oscore", "first", "--data", &data, "--out", &format!("{keys}.first")])?, "pki oscore");
        gateway.wait_log("OSCORE contexts are read again", tcp::PATIENCE)?;
        // Made elsewhere, so that only the last step of putting it in use needs space.
        let other = home.join("other");
        fs::create_dir(&other)?;
        let place = other.to_str().context("a path")?;
        ensure!(fogmux(&["pki", "oscore", "lamp", "--data", place, "--out", keys])?, "pki oscore");
        contexts(&other.join("oscore"))?;
        let filler = format!("{data}/filler");
        let _ = std::io::copy(&mut std::io::repeat(0), &mut fs::File::create(&filler)?);
        let more = format!("coap.oscore.directory = {:?}\n", other.join("oscore").display().to_string());
        gateway.configure(&(rules(home, "device", DEVICE)? + &more))?;
        reload(gateway, PARTIAL)?;
        ensure!(!publishes(gateway)?, "new rules are not in place");
        ensure!(!device(gateway, &format!("{keys}.first"))?, "a context that is gone is in use");
        fs::remove_file(&filler)?;
        reload(gateway, WHOLE)?;
        ensure!(device(gateway, keys)?, "the context is not in use although there is space");
        Ok(())
    })
}
