//! Access without credentials, at each listener.

use anyhow::{Result, bail, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::suite::Case;

use super::{Row, Subject, fogmux};

pub(super) const NAMES: [&str; 10] =
    ["mqtt", "mqtts", "coap", "coaps", "coap_tcp", "coaps_tcp", "http", "https", "xmpp", "xmpps"];

/// `EX_NOPERM` of sysexits(3).
const NO_PERMISSION: i32 = 77;

pub(super) const ANONYMOUS: Row = Row {
    keys: &["listeners.*.anonymous", "listeners.defaults.anonymous"],
    case: Case { name: "reload: anonymous, at each listener", run: anonymous },
};

pub(super) const REMOTE_ANONYMOUS: Row = Row {
    keys: &["listeners.*.allow_remote_anonymous", "listeners.defaults.allow_remote_anonymous"],
    case: Case { name: "reload: allow_remote_anonymous, at each listener", run: remote_anonymous },
};

/// Whether a client without credentials publishes at a listener, by every transport that it has.
fn lets_in(gateway: &Gateway, listener: &str) -> Result<bool> {
    let port = gateway.address(listener)?.port();
    let (scheme, versions): (&str, &[&str]) = match listener {
        "coap_tcp" => ("coap+tcp", &["1.1"]),
        "coaps_tcp" => ("coaps+tcp", &["1.1"]),
        "https" => ("https", &["1.1", "2", "3"]),
        other => (other, &["1.1"]),
    };
    let url = format!("{scheme}://localhost:{port}/open/a");
    let ca = gateway.ca().display().to_string();
    let mut outcomes = Vec::new();
    for version in versions {
        outcomes.push(match fogmux(&["pub", &url, "x", "--ca", &ca, "--http", version])? {
            0 => true,
            NO_PERMISSION => false,
            other => bail!("a client of {url} ended with {other}"),
        });
    }
    let first = outcomes.first().copied().unwrap_or_default();
    ensure!(
        outcomes.iter().all(|outcome| *outcome == first),
        "{listener} is not the same at {versions:?}: {outcomes:?}"
    );
    Ok(first)
}

/// Those that let a client in.
fn open(gateway: &Gateway) -> Result<Vec<&'static str>> {
    let mut open = Vec::new();
    for name in NAMES {
        if lets_in(gateway, name)? {
            open.push(name);
        }
    }
    Ok(open)
}

fn anonymous() -> Result<String> {
    let mut subject = Subject::start(&[("workers.count", "1")], &[])?;
    let all = open(&subject.gateway)?;
    ensure!(all == NAMES, "only {all:?} are open at the start");
    subject.changes(("listeners.defaults.anonymous", "false"), (all, Vec::new()), open)?;
    subject.set("listeners.defaults.anonymous", "true")?;
    for name in NAMES {
        let key = format!("listeners.{name}.anonymous");
        subject.changes((&key, "false"), (true, false), |gateway| lets_in(gateway, name))?;
    }
    // Each closed only itself, and opens only itself.
    for name in NAMES {
        subject.set(&format!("listeners.{name}.anonymous"), "true")?;
        let now = open(&subject.gateway)?;
        ensure!(now == [name], "{now:?} are open when {name} is");
        subject.set(&format!("listeners.{name}.anonymous"), "false")?;
    }
    Ok(String::new())
}

fn remote_anonymous() -> Result<String> {
    let mut settings = vec![("workers.count".to_owned(), "1")];
    for name in NAMES {
        settings.push((format!("listeners.{name}.address"), "\"0.0.0.0:0\""));
        if matches!(name, "mqtt" | "coap" | "coap_tcp" | "http") {
            settings.push((format!("listeners.{name}.allow_plaintext"), "true"));
        }
    }
    let settings: Vec<_> = settings.iter().map(|(key, value)| (key.as_str(), *value)).collect();
    let rules = "[[allow]]\nanonymous = true\nboth = [\"open/#\"]\n";
    let mut subject = Subject::start(&settings, &[("acl.toml", rules)])?;
    let key = "listeners.defaults.allow_remote_anonymous";
    subject.changes((key, "true"), (Vec::new(), NAMES.to_vec()), open)?;
    subject.set(key, "false")?;
    for name in NAMES {
        let key = format!("listeners.{name}.allow_remote_anonymous");
        subject.changes((&key, "true"), (false, true), |gateway| lets_in(gateway, name))?;
        subject.set(&key, "false")?;
    }
    let now = open(&subject.gateway)?;
    ensure!(now.is_empty(), "{now:?} stay open");
    Ok(String::new())
}
