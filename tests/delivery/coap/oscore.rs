//! Sequence numbers of OSCORE over restarts, as the journal has them.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::{Gateway, Plan};
use fogmux_tests::tcp;
use rustix::process::Signal;

/// 2020-01-01, from which on the clock gives 256 numbers a second (ADR 0009).
const EPOCH_S: u64 = 1_577_836_800;
/// Numbers of a chunk.
const CHUNK: u64 = 1024;

fn fogmux(arguments: &[&str]) -> Result<()> {
    let output = Command::new(std::env::var("FOGMUX_BIN").context("FOGMUX_BIN")?).args(arguments).output()?;
    ensure!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// The number below which numbers may have been used, by the last line of the journal.
fn below(journal: &Path) -> Result<u64> {
    let text = fs::read_to_string(journal)?;
    let line = text.lines().last().context("no line in the journal")?;
    line.split(' ').nth(1).and_then(|number| number.parse().ok()).with_context(|| format!("no number in {line:?}"))
}

/// A journal that came back from a backup does not bring numbers back that were used since.
pub(super) fn old_journal() -> Result<String> {
    let home = tempfile::tempdir()?;
    let (data, device) = (home.path().join("data"), home.path().join("device.toml"));
    fs::create_dir(&data)?;
    let [data_text, device_text] = [&data, &device].map(|path| path.display().to_string());
    fogmux(&["pki", "oscore", "dev1", "--data", &data_text, "--out", &device_text])?;
    let (journal, backup) = (data.join("oscore/journal"), home.path().join("backup"));
    let publish = |gateway: &Gateway| -> Result<()> {
        let url = format!("coap://localhost:{}/a", gateway.address("coap")?.port());
        fogmux(&["pub", &url, "x", "--oscore", &device_text, "--timeout", "20"])
    };
    let plan = Plan { data: Some(&data), ..Plan::default() };
    let mut gateway = Gateway::start_as(plan)?;
    publish(&gateway)?;
    gateway.signal(Signal::TERM)?;
    gateway.wait_exit(tcp::PATIENCE)?;
    fs::copy(&journal, &backup)?;
    // A second life, which reserves numbers and ends without a word.
    let mut gateway = Gateway::start_as(plan)?;
    publish(&gateway)?;
    gateway.signal(Signal::KILL)?;
    gateway.wait_exit(tcp::PATIENCE)?;
    let reserved = below(&journal)?;
    // The clock has to be past what was reserved at once: 256 numbers a second is what it bears.
    let deadline = Instant::now() + Duration::from_secs(30);
    while (SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() - EPOCH_S) * 256 < reserved {
        ensure!(Instant::now() < deadline, "{reserved} is far ahead of the clock");
        std::thread::sleep(Duration::from_millis(100));
    }
    fs::copy(&backup, &journal)?;
    let gateway = Gateway::start_as(plan)?;
    let next = below(&journal)? - CHUNK;
    ensure!(next >= reserved, "numbers begin again at {next}; those below {reserved} may have been used");
    publish(&gateway)?;
    Ok(format!("{next} after {reserved}"))
}
