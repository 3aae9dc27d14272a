//! Each configuration that `fogmux check` calls valid starts: single keys, each in an empty data directory, with the
//! gateway's own certificate and with an operator's.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::{Gateway, Plan};
use fogmux_tests::suite::Case;

pub(super) const STARTS: Case = Case { name: "a configuration that check calls valid starts", run: starts };

/// Starts at a time.
const THREADS: usize = 4;
const ENCRYPTED: [&str; 6] = ["mqtts", "coaps", "coaps_tcp", "https", "xmpp", "xmpps"];
const DATAGRAM: [&str; 1] = ["coaps"];
/// Lines for the sections of listeners.
const LISTENERS: &[(&[&str], &str)] = &[
    (&ENCRYPTED, "client_certificates = \"no\""),
    (&["mqtts"], "client_certificates = \"no\""),
    (&ENCRYPTED, "client_certificates = \"optional\""),
    (&ENCRYPTED, "client_certificates = \"required\""),
    (&ENCRYPTED, "profile = \"high\""),
    (&ENCRYPTED, "profile = \"pki\""),
    (&ENCRYPTED, "profile = \"psk\""),
    (&ENCRYPTED, "profile = \"low\"\nallow_weak = true"),
    (&ENCRYPTED, "profile = \"none\"\nallow_weak = true"),
    (&ENCRYPTED, "enabled = false"),
    (&ENCRYPTED, "anonymous = false"),
    (&ENCRYPTED, "auth = [\"certificate\"]"),
    (&ENCRYPTED, "auth = []"),
    (&ENCRYPTED, "address = \"0.0.0.0:0\""),
    (&ENCRYPTED, "address = \"0.0.0.0:0\"\nallow_remote_anonymous = true"),
    (&DATAGRAM, "dtls_versions = [\"1.2\"]"),
    (&DATAGRAM, "dtls_versions = [\"1.3\"]"),
];
/// Sections and lines; `CA` is a file with an authority, `TEXT` one with nothing that is anything.
const OTHERS: &[(&str, &str)] = &[
    ("", ""),
    ("tls", "client_ca_file = \"CA\""),
    ("tls", "client_ca_file = \"TEXT\""),
    ("tls", "crl_file = \"CA\""),
    ("tls", "crl_file = \"TEXT\""),
    ("tls", "crl_file = \"TEXT.gone\""),
    ("proxy", "addresses = [\"0.0.0.0/0\"]"),
    ("tls", "crl_expiry = \"refuse\""),
    ("tls", "cut_revoked = true"),
    ("auth", "acl_file = \"TEXT\""),
    ("auth", "psk_file = \"TEXT\""),
    ("auth", "certificates_file = \"TEXT\""),
    ("auth", "certificate_users_only = true"),
    ("auth.token", "key_file = \"TEXT\""),
    ("auth.token", "jwks_file = \"TEXT\""),
    ("auth.callback", "url = \"http://127.0.0.1:9/\""),
    ("auth.callback", "ca_file = \"TEXT\""),
    ("auth.verification", "threads = 1"),
];

fn starts() -> Result<String> {
    // Its certificate is that of another gateway's operator.
    let maker = Gateway::start(&[])?;
    let home = tempfile::tempdir()?;
    let (pki, text) = (maker.data().join("pki"), home.path().join("text"));
    fs::write(&text, "neither PEM nor TOML nor JSON\n")?;
    let owned = format!("certificate_file = {:?}\nkey_file = {:?}\n", pki.join("server.pem"), pki.join("server.key"));
    let filled = |line: &str| {
        line.replace("CA", &pki.join("ca.pem").display().to_string()).replace("TEXT", &text.display().to_string())
    };
    let mut plans = Vec::new();
    for owned in ["", &owned] {
        for (listeners, lines) in LISTENERS {
            plans.push((listeners.to_vec(), (*lines).to_owned(), format!("[tls]\n{owned}")));
        }
        for (section, line) in OTHERS {
            let own = if *section == "tls" { filled(line) } else { String::new() };
            let other =
                if ["", "tls"].contains(section) { String::new() } else { format!("[{section}]\n{}\n", filled(line)) };
            plans.push((Vec::new(), String::new(), format!("[tls]\n{owned}{own}\n{other}")));
        }
    }
    let (next, outcomes) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let file = home.path().join(format!("{thread}.toml"));
            let (plans, next, outcomes) = (&plans, &next, &outcomes);
            scope.spawn(move || {
                while let Some((listeners, lines, rest)) = plans.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let outcome = start(&file, listeners.clone(), lines, rest);
                    outcomes.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(outcome);
                }
            });
        }
    });
    let outcomes = outcomes.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut started = 0;
    for outcome in outcomes {
        started += usize::from(outcome?);
    }
    ensure!(started > plans.len() / 2, "only {started} of {} were valid", plans.len());
    Ok(format!("({started} of {} were valid)", plans.len()))
}

/// Returns whether the configuration is valid, without the listeners that the line is not for.
fn start(file: &Path, mut listeners: Vec<&str>, lines: &str, rest: &str) -> Result<bool> {
    let binary = std::env::var("FOGMUX_BIN").context("FOGMUX_BIN names no gateway; use `cargo xtask test`")?;
    loop {
        let sections: String = listeners.iter().map(|name| format!("[listeners.{name}]\n{lines}\n")).collect();
        let text = format!("{sections}{rest}");
        fs::write(file, &text)?;
        let checked = Command::new(&binary).arg("check").arg(file).output()?;
        if checked.status.success() {
            let gateway = Gateway::start_as(Plan { configuration: Some(&text), ..Plan::default() });
            return gateway.map(|_| true).with_context(|| format!("valid, but does not start: {text}"));
        }
        let said = String::from_utf8_lossy(&checked.stdout);
        let before = listeners.len();
        listeners.retain(|name| !said.contains(&format!("listeners.{name}.")));
        if listeners.len() == before || listeners.is_empty() {
            return Ok(false);
        }
    }
}
