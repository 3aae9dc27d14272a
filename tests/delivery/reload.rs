//! SIGHUP: every key that `config/fogmux.toml` marks as reloadable takes effect, as seen from outside; a change of any
//! other key is named in the log as waiting for a restart.

mod backoff;
mod callback;
mod credentials;
mod listeners;
mod operation;
mod reference;
mod restart;
mod tokens;
mod verification;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::suite::Case;
use fogmux_tests::tcp;
use rustix::process::Signal;

const PATIENCE: Duration = Duration::from_secs(30);
/// The log line of a finished reload.
const RELOADED: &str = "configuration, users, rules and certificates are read again";
/// The log line about keys that a reload does not apply.
const RESTART: &str = "takes effect when the gateway is restarted";

/// The keys whose effect a case shows before and after SIGHUP. `*` stands for each listener.
struct Row {
    keys: &'static [&'static str],
    case: Case,
}

const ROWS: &[Row] = &[
    listeners::ANONYMOUS,
    listeners::REMOTE_ANONYMOUS,
    credentials::USERS,
    credentials::RULES,
    credentials::PRE_SHARED_KEYS,
    credentials::CERTIFICATES,
    credentials::API_CHANGES,
    credentials::CONTEXTS,
    tokens::TOKENS,
    callback::CALLBACK,
    backoff::NAMES,
    backoff::ADDRESSES,
    backoff::TABLES,
    verification::THREADS,
    verification::WAITING,
    verification::KNOWN,
    verification::WAIT,
    operation::DRAIN,
    operation::LOG,
    operation::LOG_FORMAT,
    operation::REPEATED,
    operation::REFUSED,
    operation::REFUSED_ACTIONS,
];

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = vec![
        Case { name: "reload: every key marked as reloadable has a case of its own", run: all_covered },
        Case { name: "reload: every other key waits for a restart, and the log says so", run: restart::each },
    ];
    cases.extend(ROWS.iter().map(|row| row.case));
    cases
}

fn all_covered() -> Result<String> {
    let keys = reference::keys()?;
    let reloadable: BTreeSet<String> = keys.iter().filter(|key| key.reloadable).map(|key| key.name.clone()).collect();
    ensure!(reloadable.len() > 20, "the marks of config/fogmux.toml are not understood: {reloadable:?}");
    let spelled = |key: &&str| match key.split_once('*') {
        None => vec![(*key).to_owned()],
        Some((before, after)) => listeners::NAMES.iter().map(|name| format!("{before}{name}{after}")).collect(),
    };
    let tested: BTreeSet<String> = ROWS.iter().flat_map(|row| row.keys).flat_map(spelled).collect();
    let missing: Vec<_> = reloadable.difference(&tested).collect();
    let surplus: Vec<_> = tested.difference(&reloadable).collect();
    ensure!(missing.is_empty(), "marked as reloadable and without a case: {missing:?}");
    ensure!(surplus.is_empty(), "tested, but not marked as reloadable: {surplus:?}");
    Ok(format!("{} keys", tested.len()))
}

/// A gateway whose configuration file changes key by key.
struct Subject {
    gateway: Gateway,
    settings: BTreeMap<String, String>,
}

impl Subject {
    /// Starts one; values are written as TOML has them.
    fn start(settings: &[(&str, &str)], files: &[(&str, &str)]) -> Result<Self> {
        let settings = settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let text = text_of(&settings);
        let plan = fogmux_tests::gateway::Plan { configuration: Some(&text), files, ..Default::default() };
        Ok(Self { gateway: Gateway::start_as(plan)?, settings })
    }

    /// Sets a key and reloads.
    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        self.settings.insert(key.to_owned(), value.to_owned());
        self.gateway.configure(&text_of(&self.settings))?;
        self.reload()?;
        ensure!(!self.gateway.whole_log().contains(RESTART), "{key} is said to wait for a restart");
        Ok(())
    }

    fn reload(&self) -> Result<()> {
        self.gateway.forget_log()?;
        self.gateway.signal(Signal::HUP)?;
        self.gateway.wait_log(RELOADED, PATIENCE)
    }

    /// Sets a key: what is seen changes from `before` to `after`.
    fn changes<T: PartialEq + Debug>(
        &mut self,
        (key, value): (&str, &str),
        (before, after): (T, T),
        look: impl Fn(&Gateway) -> Result<T>,
    ) -> Result<()> {
        let seen = look(&self.gateway).with_context(|| format!("before {key} is set"))?;
        ensure!(seen == before, "{key}: {seen:?} instead of {before:?} before it is set");
        self.set(key, value)?;
        let seen = look(&self.gateway).with_context(|| format!("after {key} is set"))?;
        ensure!(seen == after, "{key}: {seen:?} instead of {after:?} after it is set to {value}");
        Ok(())
    }
}

fn text_of(settings: &BTreeMap<String, String>) -> String {
    settings.iter().map(|(key, value)| format!("{key} = {value}\n")).collect()
}

/// A path as TOML has it.
fn quoted(path: &Path) -> String {
    format!("{:?}", path.display().to_string())
}

/// The answer to GET of a topic at the HTTP listener: status, and `Retry-After` in seconds or 0.
fn get(gateway: &Gateway, topic: &str, header: &str) -> Result<(u16, u64)> {
    let request = format!("GET /topics/{topic} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{header}\r\n");
    let answer = tcp::ask(gateway.address("http")?, request.as_bytes())?;
    let text = String::from_utf8_lossy(&answer).to_lowercase();
    let status = text.get(9..12).context("no status")?.parse()?;
    let wait = text.lines().find_map(|line| line.strip_prefix("retry-after: ")).unwrap_or("0");
    Ok((status, wait.trim().parse()?))
}

/// The header of RFC 7617.
fn basic(user: &str, password: &str) -> String {
    format!("Authorization: Basic {}\r\n", openssl::base64::encode_block(format!("{user}:{password}").as_bytes()))
}

/// Runs a command of the binary that is tested; its exit code.
fn fogmux(arguments: &[&str]) -> Result<i32> {
    let binary = std::env::var("FOGMUX_BIN").context("FOGMUX_BIN")?;
    let output = Command::new(binary).args(arguments).output()?;
    output.status.code().with_context(|| format!("{arguments:?} was killed"))
}

/// The same for a command that has to succeed.
fn made(arguments: &[&str]) -> Result<()> {
    let code = fogmux(arguments)?;
    ensure!(code == 0, "{arguments:?} ended with {code}");
    Ok(())
}
