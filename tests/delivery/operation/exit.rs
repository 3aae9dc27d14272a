//! The exit code, by which a service manager sees whether everything was kept.
//!
//! The disk is a tmpfs in a mount namespace of the gateway's own.

use std::fs;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::{Gateway, Plan};
use fogmux_tests::suite::Case;
use rustix::process::Signal;

use super::{disk, http};

pub(super) const LATE: Case =
    Case { name: "acknowledged messages that a full disk does not take end with exit code 74", run: late };
pub(super) const REFUSED: Case =
    Case { name: "messages that a full disk refused end with exit code 74, in every durability", run: refused };
pub(super) const UNTOUCHED: Case = Case {
    name: "a full disk that nobody wrote to, and one that takes everything, end with exit code 0",
    run: untouched,
};

/// In sysexits.h: an error while doing I/O on some file.
const EX_IOERR: i32 = 74;
const NOT_KEPT: &str = "the store did not take everything";

/// Starts a gateway on a disk of 6 MB, fills it if `full`, publishes, and stops the gateway. Returns the exit code and
/// the log.
fn end(durability: &str, full: bool, publish: impl Fn(&Gateway) -> Result<()>) -> Result<Option<(i32, String)>> {
    let home = tempfile::tempdir()?;
    let data = home.path().join("data");
    fs::create_dir(&data)?;
    let name = data.to_str().context("a path that is no text")?;
    let Some(launcher) = disk::apart(disk::SMALL_DISK, name)? else { return Ok(None) };
    let setting = format!("store.durability={durability}");
    let settings = [setting.as_str()];
    let plan = Plan { data: Some(&data), launcher: &launcher, settings: &settings, ..Plan::default() };
    let mut gateway = Gateway::start_as(plan)?;
    let before = http(&gateway, "PUT", "/topics/before", b"1")?;
    ensure!(before.0 < 300, "PUT on a healthy disk: {before:?}");
    if full {
        // The first commit has the value published before, so that one is on the disk.
        gateway.wait_metric("fogmux_store_commits_total", Duration::from_secs(20), |commits| commits > 0.0)?;
        let seen = Path::new("/proc").join(gateway.pid().to_string()).join("root").join(name.trim_start_matches('/'));
        disk::fill(&seen.join("filler"))?;
    }
    publish(&gateway)?;
    gateway.signal(Signal::TERM)?;
    let status = gateway.wait_exit(Duration::from_secs(30))?;
    let code = status.code().with_context(|| format!("{status}"))?;
    Ok(Some((code, gateway.whole_log())))
}

/// Publishes retained messages of 20 000 bytes to the topics of these numbers. Returns the status of each.
fn put(gateway: &Gateway, mut numbers: Range<usize>) -> Result<Vec<u16>> {
    let payload = "x".repeat(20_000);
    numbers.try_fold(Vec::new(), |mut all, number| {
        all.push(http(gateway, "PUT", &format!("/topics/{number}"), payload.as_bytes())?.0);
        Ok(all)
    })
}

/// More than the files of a small store have room for.
const MANY: usize = 80;

/// The exit code and the log say that changes are not kept: so many, if that is known.
fn expect_lost(ended: &(i32, String), count: Option<usize>) -> Result<()> {
    let (code, log) = ended;
    let line = log.lines().find(|line| line.contains(NOT_KEPT)).with_context(|| format!("not said in {log}"))?;
    let said =
        line.split(" changes").next().and_then(|text| text.rsplit(' ').next()).and_then(|count| count.parse().ok());
    ensure!(said.is_some_and(|said: usize| said > 0 && count.is_none_or(|count| said == count)), "{count:?}: {line}");
    ensure!(*code == EX_IOERR, "exit code {code}: {log}");
    Ok(())
}

/// Acknowledgements do not wait for the disk, and the gateway is stopped before its next commit.
fn late() -> Result<String> {
    for durability in ["interval", "none"] {
        let ended = end(durability, true, |gateway| {
            let results = put(gateway, 0..MANY)?;
            ensure!(results.iter().all(|status| *status < 300 || *status == 507), "{results:?}");
            Ok(())
        })?;
        let Some(ended) = ended else { return Ok(disk::SKIPPED.to_owned()) };
        expect_lost(&ended, None).context(durability)?;
    }
    Ok(String::new())
}

fn refused() -> Result<String> {
    for durability in ["interval", "group", "always"] {
        let refused = std::cell::Cell::new(0);
        let ended = end(durability, true, |gateway| {
            let results = put(gateway, 0..MANY)?;
            gateway.wait_metric("fogmux_store_state{state=\"full\"}", Duration::from_secs(20), |v| v > 0.0)?;
            // To other topics: a value is taken in the place of one that takes as much.
            let more = put(gateway, MANY..MANY + 2)?;
            // Where acknowledgements do not wait, the first has the disk tried, which may have room for one value.
            let expected: &[u16] = if durability == "interval" { &[507] } else { &[507, 507] };
            ensure!(more.starts_with(expected), "{more:?}");
            if durability != "interval" {
                // The first one is on the disk, so its successor needs no more space.
                let again = put(gateway, 0..1)?;
                ensure!(again == [204], "a value in the place of another: {again:?}");
                let full = gateway.metrics()?.get("fogmux_store_state{state=\"full\"}").copied();
                ensure!(full == Some(1.0), "the disk is as full as before: {full:?}");
            }
            refused.set(results.iter().chain(&more).filter(|status| **status == 507).count());
            Ok(())
        })?;
        let Some(ended) = ended else { return Ok(disk::SKIPPED.to_owned()) };
        // Where acknowledgements do not wait, more is lost than was refused.
        let count = (durability != "interval").then_some(refused.get());
        expect_lost(&ended, count).context(durability)?;
    }
    Ok(String::new())
}

fn untouched() -> Result<String> {
    for (durability, full) in [("interval", true), ("group", true), ("interval", false), ("none", false)] {
        let publish = |gateway: &Gateway| if full { Ok(()) } else { put(gateway, 0..3).map(drop) };
        let Some((code, log)) = end(durability, full, publish)? else { return Ok(disk::SKIPPED.to_owned()) };
        ensure!(code == 0 && !log.contains(NOT_KEPT), "{durability}: exit code {code}: {log}");
    }
    Ok(String::new())
}
