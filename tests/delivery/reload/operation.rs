//! How long a shutdown takes, and what is logged.

use std::io::Write as _;
use std::net::Ipv4Addr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fogmux_tests::mqtt::{self, Connection, V5};
use fogmux_tests::suite::Case;
use rustix::process::Signal;

use super::{PATIENCE, Row, Subject};
use crate::logins::{answer, begin, users};

/// In the line about a refused login.
const LINE: &str = "login refused";

pub(super) const DRAIN: Row =
    Row { keys: &["workers.drain"], case: Case { name: "reload: workers.drain", run: drain } };
pub(super) const LOG: Row = Row { keys: &["log.filter"], case: Case { name: "reload: log.filter", run: log } };
pub(super) const LOG_FORMAT: Row =
    Row { keys: &["log.format"], case: Case { name: "reload: log.format", run: log_format } };
pub(super) const REPEATED: Row =
    Row { keys: &["log.repeated_lines"], case: Case { name: "reload: log.repeated_lines", run: repeated } };
pub(super) const REFUSED: Row = Row {
    keys: &["log.refused_logins_per_minute", "log.refused_logins_per_address"],
    case: Case { name: "reload: log.refused_logins_*", run: refused },
};
pub(super) const REFUSED_ACTIONS: Row = Row {
    keys: &["log.refused_actions_per_minute", "log.refused_actions_per_principal"],
    case: Case { name: "reload: log.refused_actions_*", run: refused_actions },
};

/// A subscriber that acknowledges nothing of what it has been sent.
fn deaf(subject: &Subject) -> Result<Connection> {
    let address = subject.gateway.address("mqtt")?;
    let mut deaf = Connection::open(address, V5, "deaf")?;
    deaf.subscribe(1, &["a"], 1)?;
    let mut publisher = Connection::open(address, V5, "publisher")?;
    publisher.stream.write_all(&mqtt::publish(V5, b"a", b"x", 1, false, 1))?;
    ensure!(publisher.read()?.0 == 0x40, "no PUBACK");
    ensure!(deaf.read()?.0 & 0xf0 == 0x30, "no PUBLISH");
    Ok(deaf)
}

fn drain() -> Result<String> {
    let long = ("workers.drain", "\"5m\"");
    let mut before = Subject::start(&[long], &[])?;
    let deaf_before = deaf(&before)?;
    before.gateway.signal(Signal::TERM)?;
    ensure!(before.gateway.wait_exit(Duration::from_secs(2)).is_err(), "a drain of 5 minutes was over in 2 s");
    let mut after = Subject::start(&[long], &[])?;
    let deaf_after = deaf(&after)?;
    after.set("workers.drain", "\"200ms\"")?;
    after.gateway.signal(Signal::TERM)?;
    after.gateway.wait_exit(PATIENCE)?;
    drop((deaf_before, deaf_after));
    Ok(String::new())
}

fn log() -> Result<String> {
    let mut subject = Subject::start(&[("log.filter", "\"error\"")], &[])?;
    let quiet = subject.gateway.whole_log();
    ensure!(!quiet.contains(" INFO "), "a filter of errors lets through {quiet}");
    subject.set("log.filter", "\"info\"")?;
    ensure!(subject.gateway.whole_log().contains(" INFO "), "a filter of info lets no info through");
    Ok(String::new())
}

fn log_format() -> Result<String> {
    let mut subject = Subject::start(&[("log.format", "\"text\"")], &[])?;
    let is_json = |subject: &Subject| subject.gateway.whole_log().lines().any(|line| line.starts_with('{'));
    ensure!(!is_json(&subject), "text has lines of JSON");
    subject.set("log.format", "\"json\"")?;
    subject.gateway.signal(Signal::HUP)?;
    let deadline = Instant::now() + PATIENCE;
    while !is_json(&subject) {
        ensure!(Instant::now() < deadline, "no line is JSON: {}", subject.gateway.whole_log());
        thread::sleep(Duration::from_millis(20));
    }
    Ok(String::new())
}

/// Whether it is taken without a restart. That it bounds lines is shown by the unit tests of `serve::logging::limit`:
/// no line that a client causes today is without a closer bound of its own.
fn repeated() -> Result<String> {
    let mut subject = Subject::start(&[("log.repeated_lines", "1")], &[])?;
    subject.set("log.repeated_lines", "1000")?;
    subject.gateway.check_alive()?;
    Ok(String::new())
}

fn refused() -> Result<String> {
    for limit in ["log.refused_logins_per_minute", "log.refused_logins_per_address"] {
        let files = [("users.toml", &*users(0, 0))];
        let mut subject = Subject::start(&[(limit, "0")], &files)?;
        guess(&subject)?;
        let quiet = subject.gateway.whole_log();
        ensure!(!quiet.contains(LINE), "{limit} = 0 lets through {quiet}");
        subject.set(limit, "5")?;
        guess(&subject)?;
        subject.gateway.wait_log(LINE, PATIENCE).with_context(|| limit.to_owned())?;
    }
    Ok(String::new())
}

fn refused_actions() -> Result<String> {
    const LINE: &str = "action refused";
    let rules = "[[allow]]\nanonymous = true\nread = [\"lobby/#\"]\n";
    for limit in ["log.refused_actions_per_minute", "log.refused_actions_per_principal"] {
        let mut subject = Subject::start(&[(limit, "0")], &[("acl.toml", rules)])?;
        let ask = |subject: &Subject, topic: &str| -> Result<()> {
            let mut reader = Connection::open(subject.gateway.address("mqtt")?, V5, topic)?;
            let codes = reader.subscribe(1, &[topic], 1)?;
            ensure!(codes.last() == Some(&0x87), "SUBACK {codes:x?}");
            Ok(())
        };
        ask(&subject, "plant/1")?;
        let quiet = subject.gateway.whole_log();
        ensure!(!quiet.contains(LINE), "{limit} = 0 lets through {quiet}");
        subject.set(limit, "5")?;
        ask(&subject, "plant/2")?;
        subject.gateway.wait_log(LINE, PATIENCE).with_context(|| limit.to_owned())?;
    }
    Ok(String::new())
}

/// Shows a wrong password.
fn guess(subject: &Subject) -> Result<()> {
    let mut refused = begin(&subject.gateway, Ipv4Addr::new(127, 0, 4, 1), "nobody", "wrong")?;
    ensure!(answer(&mut refused)? != 0, "a wrong password was taken");
    Ok(())
}
