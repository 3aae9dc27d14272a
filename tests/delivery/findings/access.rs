//! Rules that hold for every spelling of a name, pages of state that ask them, and warnings where there are none.

use std::fs;
use std::net::Ipv4Addr;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::Gateway;

use super::{PATIENCE, status};
use crate::logins::{answer, begin, users};

/// `josé` with a combining accent, as some keyboards and file systems write it.
const DECOMPOSED: &str = "jose\u{301}";
/// alice:secret and u0:secret.
const ALICE: &str = "Authorization: Basic YWxpY2U6c2VjcmV0\r\n";
const OTHER: &str = "Authorization: Basic dTA6c2VjcmV0\r\n";

pub(super) fn spellings() -> Result<String> {
    // The deny is written decomposed, the user composed; whoever logs in may type either.
    let rules = format!(
        "[[allow]]\nauthenticated = true\nboth = [\"plant/#\"]\n\n[[deny]]\nuser = \"{DECOMPOSED}\"\nboth = [\"plant/#\"]\n"
    );
    let users = users(0, 0).replace("alice", "\"jos\u{e9}\"");
    let mut gateway = Gateway::start_furnished(&[], &[("users.toml", &users), ("acl.toml", &rules)])?;
    let http = gateway.address("http")?;
    // josé:secret, composed and decomposed.
    for name in ["am9zw6k6c2VjcmV0", "am9zZcyBOnNlY3JldA=="] {
        let line = status(http, "/topics/plant/a", &format!("Authorization: Basic {name}\r\n"))?;
        ensure!(line.contains("403"), "{line}: the deny did not match");
    }
    let binary = std::env::var("FOGMUX_BIN").context("FOGMUX_BIN")?;
    let config = gateway.data().join("checked.toml");
    fs::write(&config, format!("[auth]\nacl_file = \"{}\"\n", gateway.data().join("acl.toml").display()))?;
    let checked = Command::new(binary).arg("check").arg(&config).output()?;
    let text = String::from_utf8_lossy(&checked.stdout);
    ensure!(checked.status.success(), "{text}");
    ensure!(text.contains("acl.toml:6: user jose\\u{301} is compared as jos\\u{e9}"), "{text}");
    gateway.settle()?;
    Ok(String::new())
}

pub(super) fn metrics() -> Result<String> {
    const RULES: &str = "[[allow]]\nuser = \"alice\"\nread = [\"$SYS/metrics\"]\n\n[[allow]]\nauthenticated = true\n\
                         anonymous = true\nread = [\"open/#\"]\n";
    let files = [("users.toml", &*users(0, 1)), ("acl.toml", RULES)];
    let mut gateway = Gateway::start_furnished(&[], &files)?;
    let http = gateway.address("http")?;
    let get = |path: &str, fields: &str| status(http, path, fields);
    // A request that a proxy passes on is not one of this machine.
    for proxied in ["X-Forwarded-For: 192.0.2.7\r\n", "Forwarded: for=192.0.2.7\r\n", "Via: 1.1 proxy\r\n"] {
        let line = get("/metrics", &format!("{proxied}{OTHER}"))?;
        ensure!(line.contains("403"), "{proxied}: {line} for a user whom no rule lets read $SYS/metrics");
        let line = get("/metrics", &format!("{proxied}{ALICE}"))?;
        ensure!(line.contains("200"), "{proxied}: {line} for a user whom a rule lets read $SYS/metrics");
        // A probe hears the status all the same.
        for path in ["/healthz", "/readyz"] {
            let line = get(path, proxied)?;
            ensure!(line.contains("200"), "{path}: {line}");
        }
    }
    // Beside the gateway Prometheus needs neither a rule nor a credential.
    ensure!(get("/metrics", "")?.contains("200"), "refused on this machine");
    gateway.settle()?;
    // A deny holds on this machine as well.
    let rules = format!("{RULES}\n[[deny]]\nuser = \"u0\"\nread = [\"$SYS/metrics\"]\n");
    let files = [("users.toml", &*users(0, 1)), ("acl.toml", &*rules)];
    let gateway = Gateway::start_furnished(&[], &files)?;
    let line = status(gateway.address("http")?, "/metrics", OTHER)?;
    ensure!(line.contains("403"), "{line} in spite of a deny");
    Ok(String::new())
}

pub(super) fn no_rules() -> Result<String> {
    let open = "[listeners.mqtts]\naddress = \"0.0.0.0:0\"\nanonymous = false\n";
    let home = tempfile::tempdir()?;
    let config = home.path().join("fogmux.toml");
    fs::write(&config, open)?;
    let binary = std::env::var("FOGMUX_BIN").context("FOGMUX_BIN")?;
    let check = |text: &str| -> Result<String> {
        fs::write(&config, text)?;
        let checked = Command::new(&binary).arg("check").arg(&config).env("STATE_DIRECTORY", home.path()).output()?;
        ensure!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
        Ok(String::from_utf8_lossy(&checked.stdout).into_owned())
    };
    let said = check(open)?;
    ensure!(said.contains("warning") && said.contains("listeners.mqtts") && said.contains("acl.toml"), "{said}");
    let said = check("")?;
    ensure!(!said.contains("warning"), "on loopback: {said}");
    fs::write(home.path().join("acl.toml"), "[[allow]]\nuser = \"alice\"\nread = [\"#\"]\n")?;
    let said = check(open)?;
    ensure!(!said.contains("warning"), "with rules: {said}");
    let gateway = Gateway::start(&["listeners.mqtts.address=0.0.0.0:0", "listeners.mqtts.anonymous=false"])?;
    gateway.wait_log("there is no acl.toml", PATIENCE)?;
    Ok(String::new())
}

/// A gateway whose users keep logging in while 47 addresses guess at their names.
pub(super) fn lockout() -> Result<String> {
    let mut gateway = Gateway::start_furnished(&["auth.verification.wait_max=5m"], &[("users.toml", &users(0, 1))])?;
    let log_in = |user: &str, password: &str, from| -> Result<bool> {
        Ok(answer(&mut begin(&gateway, from, user, password)?)? == 0)
    };
    for user in ["alice", "u0"] {
        ensure!(log_in(user, "secret", Ipv4Addr::LOCALHOST)?, "{user} was refused at first");
    }
    let mut guesses = 0;
    for round in 0..5 {
        for number in 2..49 {
            let user = if number % 2 == 0 { "alice" } else { "u0" };
            guesses += usize::from(!log_in(user, "guess", Ipv4Addr::new(127, 0, 9, number))?);
        }
        for user in ["alice", "u0"] {
            ensure!(log_in(user, "secret", Ipv4Addr::LOCALHOST)?, "{user} is locked out in round {round}");
        }
    }
    gateway.settle()?;
    Ok(format!("{guesses} guesses refused"))
}
