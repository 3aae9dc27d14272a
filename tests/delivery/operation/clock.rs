//! Boards without a battery: a clock that begins in 1970 or is ahead, and is set while the gateway runs. What expires
//! has the time left that its publisher gave it, then and after a restart.
//!
//! The clock is libfaketime's, which reads it from a file; the monotonic clock is the system's.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use fogmux_tests::gateway::{Gateway, Plan};
use fogmux_tests::mqtt::{self, Connection, V4};
use fogmux_tests::suite::Case;
use fogmux_tests::tcp;
use rustix::process::Signal;

use super::http;

pub(super) const UNSET: Case = Case {
    name: "a clock that begins in 1970 and is set: nothing expires early",
    run: || forward("1970-01-01 00:10:00"),
};
pub(super) const BEHIND: Case = Case {
    name: "a clock that begins where it stopped and is set: nothing expires early",
    run: || forward("2026-01-01 00:10:00"),
};
pub(super) const AT_THE_END: Case =
    Case { name: "a clock that is set just before the gateway ends: nothing expires early", run: at_the_end };
pub(super) const AHEAD: Case =
    Case { name: "a clock that is ahead and is set back: what seemed to have expired is there again", run: ahead };
pub(super) const AHEAD_MEANWHILE: Case =
    Case { name: "a clock that is ahead for some seconds: what seemed to have expired is there again", run: meanwhile };
pub(super) const CLEARED: Case =
    Case { name: "a clock that is ahead and is set back: what was cleared meanwhile does not come back", run: cleared };
pub(super) const OVERDUE: Case =
    Case { name: "a clock that hears of the time: what expired while the gateway was off is gone", run: overdue };

/// A data directory, and a clock for its gateways.
pub(super) struct Board {
    pub(super) home: tempfile::TempDir,
    pub(super) data: PathBuf,
    clock: PathBuf,
    launcher: Vec<String>,
}

impl Board {
    pub(super) fn new() -> Result<Self> {
        let library = library()?;
        let home = tempfile::tempdir()?;
        let (data, clock) = (home.path().join("data"), home.path().join("clock"));
        fs::create_dir(&data)?;
        let launcher = vec![
            "env".to_owned(),
            format!("LD_PRELOAD={library}"),
            format!("FAKETIME_TIMESTAMP_FILE={}", clock.display()),
            "FAKETIME_NO_CACHE=1".to_owned(),
            "FAKETIME_DONT_FAKE_MONOTONIC=1".to_owned(),
        ];
        Ok(Self { home, data, clock, launcher })
    }

    /// Sets the clock: `@` and a date, at which it begins, or seconds before or after the system's.
    pub(super) fn set(&self, clock: &str) -> Result<()> {
        // In one step, for it is read at any time.
        let new = self.clock.with_extension("new");
        fs::write(&new, clock)?;
        Ok(fs::rename(new, &self.clock)?)
    }

    pub(super) fn start(&self, clock: &str) -> Result<Gateway> {
        self.start_in(&self.data, clock)
    }

    /// Starts a gateway with settings, each `KEY=VALUE`.
    pub(super) fn start_with(&self, clock: &str, settings: &[&str]) -> Result<Gateway> {
        self.start_as(clock, Plan { data: Some(&self.data), settings, ..Plan::default() })
    }

    /// Starts a gateway on another data directory.
    pub(super) fn start_in(&self, data: &Path, clock: &str) -> Result<Gateway> {
        self.start_as(clock, Plan { data: Some(data), ..Plan::default() })
    }

    fn start_as(&self, clock: &str, plan: Plan<'_>) -> Result<Gateway> {
        self.set(clock)?;
        let launcher: Vec<&str> = self.launcher.iter().map(String::as_str).collect();
        Gateway::start_as(Plan { launcher: &launcher, ..plan })
    }

    /// Makes a command that sees the clock as it was set last.
    pub(super) fn command<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Result<Command> {
        let mut words = self.launcher.iter();
        let mut command = Command::new(words.next().context("no launcher")?);
        command.args(words).arg(std::env::var_os("FOGMUX_BIN").context("FOGMUX_BIN")?).args(arguments);
        Ok(command)
    }
}

/// The path of libfaketime's preload library, as its command would preload it.
fn library() -> Result<String> {
    let output = Command::new("faketime").args(["-f", "+0", "env"]).output().context("faketime is not installed")?;
    let text = String::from_utf8(output.stdout)?;
    let preloaded = text.lines().find_map(|line| line.strip_prefix("LD_PRELOAD=")).unwrap_or_default();
    let one = preloaded.split([':', ' ']).find(|path| path.contains("libfaketime")).context("no LD_PRELOAD")?;
    // The loader expands `$LIB`. This one is for programs with threads.
    Ok(one.replace("libfaketime.so", "libfaketimeMT.so"))
}

pub(super) fn stop(mut gateway: Gateway) -> Result<()> {
    gateway.settle()?;
    gateway.signal(Signal::TERM)?;
    gateway.wait_exit(Duration::from_secs(30))?;
    Ok(())
}

fn put(gateway: &Gateway, topic: &str, expiry_s: u32) -> Result<()> {
    let answer = http(gateway, "PUT", &format!("/topics/{topic}?expiry={expiry_s}"), b"1")?;
    ensure!(answer.0 < 300, "PUT {topic}: {answer:?}");
    Ok(())
}

fn status(gateway: &Gateway, topic: &str) -> Result<u16> {
    Ok(http(gateway, "GET", &format!("/topics/{topic}"), b"")?.0)
}

fn wait_status(gateway: &Gateway, topic: &str, wanted: u16) -> Result<()> {
    wait(&format!("{topic} with {wanted}"), || Ok(status(gateway, topic)? == wanted))
}

pub(super) fn wait(what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds()? {
        if Instant::now() > deadline {
            bail!("waited in vain for {what}");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// The year in which a value came in, as its reader is told.
fn year(gateway: &Gateway, topic: &str) -> Result<u16> {
    let request = format!("GET /topics/{topic} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let answer = String::from_utf8(tcp::ask(gateway.address("http")?, request.as_bytes())?)?;
    let modified = answer.lines().find(|line| line.to_ascii_lowercase().starts_with("last-modified:"));
    // `Last-Modified: Sat, 21 Nov 2026 05:39:10 GMT`
    let year = modified.and_then(|line| line.split(' ').nth(4)).with_context(|| format!("no date: {answer}"))?;
    Ok(year.parse()?)
}

fn this_year() -> Result<u16> {
    Ok(String::from_utf8(Command::new("date").args(["-u", "+%Y"]).output()?.stdout)?.trim().parse()?)
}

fn forward(from: &str) -> Result<String> {
    let board = Board::new()?;
    let gateway = board.start(&format!("@{from}"))?;
    put(&gateway, "before", 86_400)?;
    let wrong = year(&gateway, "before")?;
    board.set("+0")?;
    put(&gateway, "between", 86_400)?;
    let now = this_year()?;
    if wrong != now {
        wait("a stamp of this year", || Ok(year(&gateway, "before")? == now))?;
    } else {
        wait("the clock in the log", || Ok(gateway.whole_log().contains("the clock was set")))?;
    }
    put(&gateway, "after", 86_400)?;
    // Elapsed time is the monotonic clock's: nothing of it has passed.
    for topic in ["before", "between", "after"] {
        ensure!(status(&gateway, topic)? == 200, "{topic} expired when the clock was set");
    }
    stop(gateway)?;
    let gateway = board.start("+0")?;
    for topic in ["before", "between", "after"] {
        let found = status(&gateway, topic)?;
        ensure!(found == 200, "{topic}, with a day to live, is {found} after a restart");
        ensure!(year(&gateway, topic)? == now, "{topic} has the wrong year after a restart");
    }
    stop(gateway)?;
    // The next start has the clock wrong again.
    let gateway = board.start(&format!("@{from}"))?;
    for topic in ["before", "between", "after"] {
        ensure!(status(&gateway, topic)? == 200, "{topic} expired by a clock that is behind");
    }
    board.set("+90000")?;
    wait_status(&gateway, "after", 404).context("a day later")?;
    wait_status(&gateway, "before", 404).context("a day later")?;
    stop(gateway)?;
    Ok(String::new())
}

/// The gateway looks at its clock once a second, and is told to end sooner than that.
fn at_the_end() -> Result<String> {
    let board = Board::new()?;
    for round in 0..3 {
        let mut gateway = board.start("@2026-01-01 00:10:00")?;
        for topic in ["a", "b"] {
            put(&gateway, topic, 86_400)?;
        }
        board.set("+0")?;
        gateway.signal(Signal::TERM)?;
        gateway.wait_exit(Duration::from_secs(30))?;
        let gateway = board.start("+0")?;
        for topic in ["a", "b"] {
            let found = status(&gateway, topic)?;
            ensure!(found == 200, "{topic}, with a day to live, is {found} after restart {round}");
        }
        stop(gateway)?;
    }
    Ok(String::new())
}

fn ahead() -> Result<String> {
    let board = Board::new()?;
    let gateway = board.start("+0")?;
    put(&gateway, "kept", 3_600)?;
    stop(gateway)?;
    let gateway = board.start("+31536000")?;
    ensure!(status(&gateway, "kept")? == 404, "it should have expired a year ago");
    put(&gateway, "ahead", 3_600)?;
    board.set("+0")?;
    wait_status(&gateway, "kept", 200)?;
    ensure!(status(&gateway, "ahead")? == 200, "it expired when the clock was set back");
    stop(gateway)?;
    let gateway = board.start("+0")?;
    ensure!(status(&gateway, "kept")? == 200 && status(&gateway, "ahead")? == 200, "gone after a restart");
    stop(gateway)?;
    // Neither has more time left than it was published with.
    let gateway = board.start("+3700")?;
    ensure!(status(&gateway, "kept")? == 404 && status(&gateway, "ahead")? == 404, "there after its time");
    stop(gateway)?;
    Ok(String::new())
}

/// Somebody, or a bad source of time, sets the clock of a gateway that has been started again.
fn meanwhile() -> Result<String> {
    let board = Board::new()?;
    let gateway = board.start("+0")?;
    put(&gateway, "kept", 3_600)?;
    stop(gateway)?;
    let gateway = board.start("+0")?;
    put(&gateway, "new", 3_600)?;
    board.set("+7200")?;
    wait_status(&gateway, "kept", 404)?;
    // Expired messages are removed once a second.
    std::thread::sleep(Duration::from_millis(2_500));
    board.set("+0")?;
    wait_status(&gateway, "kept", 200)?;
    ensure!(status(&gateway, "new")? == 200, "what was published meanwhile has expired");
    stop(gateway)?;
    let gateway = board.start("+0")?;
    ensure!(status(&gateway, "kept")? == 200 && status(&gateway, "new")? == 200, "gone after a restart");
    stop(gateway)?;
    Ok(String::new())
}

fn cleared() -> Result<String> {
    let board = Board::new()?;
    let gateway = board.start("+0")?;
    for topic in ["mqtt", "http", "left"] {
        put(&gateway, topic, 3_600)?;
    }
    stop(gateway)?;
    let gateway = board.start("+31536000")?;
    let mut client = Connection::open(gateway.address("mqtt")?, V4, "client")?;
    client.stream.write_all(&mqtt::publish(V4, b"mqtt", b"", 1, true, 1))?;
    ensure!(client.read()?.0 == 0x40, "no PUBACK");
    drop(client);
    let deleted = http(&gateway, "DELETE", "/topics/http", b"")?.0;
    board.set("+0")?;
    wait_status(&gateway, "left", 200)?;
    for topic in ["mqtt", "http"] {
        ensure!(status(&gateway, topic)? == 404, "{topic} was cleared and is back (DELETE: {deleted})");
    }
    stop(gateway)?;
    let gateway = board.start("+0")?;
    for topic in ["mqtt", "http"] {
        ensure!(status(&gateway, topic)? == 404, "{topic} was cleared and is back after a restart");
    }
    ensure!(status(&gateway, "left")? == 200, "a value that was not cleared is gone");
    stop(gateway)?;
    Ok(String::new())
}

fn overdue() -> Result<String> {
    let board = Board::new()?;
    let gateway = board.start("+0")?;
    put(&gateway, "short", 60)?;
    put(&gateway, "long", 86_400)?;
    stop(gateway)?;
    let gateway = board.start("@1970-01-01 00:10:00")?;
    ensure!(status(&gateway, "short")? == 200, "it expired by a clock that is not set");
    board.set("+120")?;
    wait_status(&gateway, "short", 404)?;
    ensure!(status(&gateway, "long")? == 200, "it expired when the clock was set");
    stop(gateway)?;
    Ok(String::new())
}
