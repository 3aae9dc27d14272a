//! Handshakes of each cipher suite with each group and each key of the gateway.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use fogmux_tests::suite::Case;
use serde_json::Value;

use crate::{bench, number, report};

pub(crate) const CASES: &[Case] = &[
    Case { name: "each cell of the grid of handshakes agrees on its own suite", run: grid },
    Case { name: "handshakes that no gateway does are named with the reason", run: impossible },
];

/// Every cell that is said to be possible is done, and by the suite that it is about. A client that offers one suite
/// and one group has no others to fall back on.
fn grid() -> Result<String> {
    let short = ["handshakes", "--seconds", "0.02", "--repeat", "1"];
    let made = report(&short)?;
    let runs = made.get("runs").and_then(Value::as_array).context("no runs")?;
    let (mut suites, mut groups, mut keys) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for run in runs {
        let experiment = run.get("experiment").context("no experiment")?;
        let outcome = run.pointer("/outcomes/0").with_context(|| format!("not measured: {run}"))?;
        let word = |key: &str| experiment.get(key).and_then(Value::as_str).unwrap_or("none").to_owned();
        let error = outcome.get("first_error").unwrap_or(&Value::Null);
        ensure!(number(outcome, "errors")? == 0.0 && number(outcome, "sent")? > 0.0, "{experiment}: {error}");
        ensure!(outcome.get("cipher").and_then(Value::as_str) == Some(&word("suite")), "{experiment}: {outcome}");
        let used = outcome.pointer("/gateway_connect/cpu_us").and_then(Value::as_f64);
        ensure!(used.is_some_and(|used| used > 0.0), "{experiment}: no processor time");
        suites.insert(word("suite"));
        groups.insert(word("named_group"));
        keys.insert(word("server_key"));
    }
    ensure!((suites.len(), groups.len(), keys.len()) == (20, 4, 6), "{suites:?} {groups:?} {keys:?}");
    Ok(format!("({} cells)", runs.len()))
}

fn impossible() -> Result<String> {
    let listed = bench(&["handshakes", "--impossible"])?.output()?;
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    ensure!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    for line in [
        "mqtt TLS_AES_128_CCM_SHA256, x25519, rsa2048: over TCP, CCM of TLS 1.3 is OpenSSL's",
        "coap TLS_AES_256_GCM_SHA384, x25519, rsa2048: DTLS of a gateway",
        "http3 TLS_PSK_WITH_AES_128_CCM_8, psk: QUIC is TLS 1.3",
    ] {
        ensure!(text.lines().any(|found| found.starts_with(line)), "no {line}: {text}");
    }
    // If it is tried all the same, it fails.
    let shape = ["run", "--operation", "connect", "--seconds", "0.1", "--repeat", "1", "--credential", "anonymous"];
    for words in [
        ["--door", "coap", "--security", "modern", "--suite", "TLS_AES_256_GCM_SHA384"],
        ["--door", "coap", "--security", "modern", "--group", "secp384r1"],
        ["--door", "mqtt", "--security", "pki", "--group", "secp384r1"],
        ["--door", "mqtt", "--security", "pki", "--group", "x25519"],
        ["--door", "mqtt", "--security", "modern", "--suite", "TLS_AES_128_CCM_SHA256"],
        ["--door", "mqtt", "--security", "low", "--suite", "TLS_AES_128_GCM_SHA256"],
    ] {
        let done = bench(&[&shape[..], &words, &["--fail-if", "errors>0"]].concat())?.output()?;
        ensure!(!done.status.success(), "{} was done", words.join(" "));
    }
    let nothing = bench(&["handshakes", "--doors", "http3", "--keys", "psk"])?.output()?;
    ensure!(nothing.status.code() == Some(64), "{}", nothing.status);
    Ok(format!("({} combinations)", text.lines().count()))
}
