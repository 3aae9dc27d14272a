//! Every door under every profile that it has, as the matrix does it, and every pattern at some door.

use anyhow::{Context as _, Result, ensure};
use fogmux_tests::suite::Case;
use serde_json::Value;

use crate::{COUNTED, check, lasting, number, outcomes, report};

pub(crate) const CASES: &[Case] = &[
    Case { name: "every door under every profile delivers everything", run: matrix },
    Case { name: "one door in, another out", run: mixed },
    Case { name: "every pattern", run: patterns },
    Case { name: "more publishers than 4 096", run: crowd },
    Case { name: "bytes by layer", run: layers },
];

fn matrix() -> Result<String> {
    let report = report(&["matrix", "--quick", "--repeat", "1", "--seconds", "0.2"])?;
    let done = outcomes(&report)?;
    for (outcome, run) in done.iter().zip(report.get("runs").and_then(Value::as_array).context("no runs")?) {
        let experiment = run.get("experiment").context("no experiment")?;
        if number(outcome, "sent")? == 0.0 {
            longer(experiment).with_context(|| experiment.to_string())?;
        } else {
            check(outcome).with_context(|| experiment.to_string())?;
        }
    }
    Ok(format!("({} doors and profiles)", done.len()))
}

/// Nothing was sent in so short a time, as happens on a machine that does much else: the same for as long as it takes.
fn longer(experiment: &Value) -> Result<()> {
    let word = |name: &str| experiment.get(name).and_then(Value::as_str).with_context(|| format!("no {name}"));
    let (door, security) = (word("door")?, word("security")?);
    let report = lasting(&["matrix", "--quick", "--repeat", "1", "--doors", door, "--securities", security])?;
    outcomes(&report)?.into_iter().try_for_each(check)
}

fn mixed() -> Result<String> {
    let doors = ["mqtt", "mqtt5", "coap", "http1", "http2", "xmpp"];
    let mut ways = 0;
    for from in doors {
        for to in doors.iter().filter(|to| **to != from) {
            let words = [&["run", "--door", from, "--to", to][..], &COUNTED].concat();
            let report = report(&words).with_context(|| format!("{from} to {to}"))?;
            outcomes(&report)?.into_iter().try_for_each(check).with_context(|| format!("{from} to {to}"))?;
            ways += 1;
        }
    }
    Ok(format!("({ways} ways)"))
}

fn patterns() -> Result<String> {
    let table: &[&[&str]] = &[
        &["--door", "coap", "--operation", "get", "--pubs", "8", "--window", "1"],
        &["--door", "coap", "--operation", "put", "--security", "psk", "--qos", "1"],
        &["--door", "http2", "--operation", "get", "--window", "20"],
        &["--door", "http1", "--operation", "post", "--window", "1", "--rate", "200"],
        &[
            "--door",
            "mqtt",
            "--operation",
            "connect",
            "--security",
            "modern",
            "--pubs",
            "4",
            "--messages",
            "3",
            "--qos",
            "1",
        ],
        &["--door", "coap", "--operation", "connect", "--security", "psk", "--pubs", "4"],
        &["--door", "mqtt", "--operation", "hold", "--pubs", "200"],
        &["--door", "mqtt", "--pubs", "10", "--subs", "10", "--topics", "5", "--in-flight", "1000"],
        &["--door", "mqtt", "--size", "1", "--qos", "2", "--count", "50"],
        &["--door", "mqtt", "--size", "2000000", "--qos", "1", "--count", "3"],
        &["--door", "coap", "--size", "100000", "--qos", "1", "--operation", "put", "--count", "3", "--window", "1"],
        &["--door", "coap", "--size", "100000", "--qos", "1", "--count", "3", "--window", "1", "--in-flight", "1"],
        &["--door", "coap-tcp", "--size", "100000", "--qos", "1", "--count", "3", "--window", "1", "--in-flight", "1"],
        &["--door", "mqtt", "--rate", "500", "--qos", "1"],
        &["--door", "mqtt", "--credential", "token", "--qos", "1"],
        &["--door", "http1", "--credential", "token", "--security", "modern", "--operation", "put", "--window", "1"],
        &["--door", "xmpp", "--credential", "token", "--security", "modern", "--qos", "1"],
    ];
    for row in table {
        let words = [&["run", "--warm-up", "0.1", "--repeat", "1"], *row].concat();
        // A number of messages or connections ends by itself.
        let report = if row.contains(&"--count") { report(&words) } else { lasting(&words) };
        let report = report.with_context(|| row.join(" "))?;
        outcomes(&report)?.into_iter().try_for_each(check).with_context(|| row.join(" "))?;
    }
    Ok(format!("({} patterns)", table.len()))
}

/// Two messages of each of five thousand publishers: more than the short form of a stamp has numbers for.
fn crowd() -> Result<String> {
    const PUBLISHERS: &str = "5000";
    // Both processes have a descriptor for each connection, and some beside them.
    const DESCRIPTORS: u64 = 6_000;
    let limits = std::fs::read_to_string("/proc/self/limits")?;
    let line = limits.lines().find(|line| line.starts_with("Max open files")).context("no limit of open files")?;
    if let Some(most) = line.split_whitespace().nth(4).and_then(|hard| hard.parse::<u64>().ok())
        && most < DESCRIPTORS
    {
        return Ok(format!("(left out: {most} descriptors, and {DESCRIPTORS} are needed)"));
    }
    let report = report(&["run", "--pubs", PUBLISHERS, "--count", "10000", "--qos", "1", "--repeat", "1"])?;
    for outcome in outcomes(&report)? {
        check(outcome)?;
        let (sent, delivered) = (number(outcome, "sent")?, number(outcome, "delivered")?);
        ensure!(sent == 10_000.0 && delivered == 10_000.0, "{sent} sent, {delivered} delivered");
    }
    Ok(format!("({PUBLISHERS} publishers)"))
}

/// Checks that the bytes of each layer include those of the layer above.
fn layers() -> Result<String> {
    let mut shown = Vec::new();
    for (door, security) in
        [("mqtt", "none"), ("mqtt", "modern"), ("coap", "psk"), ("coap", "oscore"), ("http2", "modern")]
    {
        let words = [
            "run",
            "--door",
            door,
            "--security",
            security,
            "--qos",
            "1",
            "--count",
            "50",
            "--size",
            "100",
            "--window",
            "1",
            "--in-flight",
            "1",
            "--repeat",
            "1",
        ];
        let report = report(&words)?;
        for outcome in outcomes(&report)? {
            check(outcome)?;
            let bytes = outcome.get("bytes").context("no bytes")?;
            let (payload, protocol, socket) =
                (number(bytes, "payload_up")?, number(bytes, "protocol_up")?, number(bytes, "socket_up")?);
            ensure!(payload == 5_000.0, "{door} {security}: {payload} bytes of payload");
            ensure!(protocol > payload && socket >= protocol, "{door} {security}: {bytes}");
            ensure!((socket > protocol) == (security != "none"), "{door} {security}: {bytes}");
            shown.push(format!("{door} {security} {payload}+{}+{}", protocol - payload, socket - protocol));
        }
    }
    Ok(format!("({})", shown.join(", ")))
}
