//! Experiments with an emulated link, which need root: captured frames, and frames counted one by one.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use fogmux_tests::suite::Case;
use serde_json::Value;

use crate::{COUNTED, bench, check, number, outcomes, parse, report};

pub(crate) const CASES: &[Case] = &[
    Case { name: "a capture has every frame of the link, and the secrets beside it", run: capture },
    Case { name: "frames that a report lists have the lengths that a capture has", run: lengths },
    Case { name: "seoane2021: packets of tables 6 and 10 to the last one, and the bytes of table 6", run: packets },
];

/// Runs of the tables with counted packets, of which one has to be exact.
const TRIES: usize = 5;
/// Of a classic pcap with nanoseconds, and of a record in it (draft-ietf-opsawg-pcap §4, §5).
const MAGIC: [u8; 4] = [0x4d, 0x3c, 0xb2, 0xa1];
const FILE_HEADER_BYTES: usize = 24;
const RECORD_HEADER_BYTES: usize = 16;
/// Frames of a listing that are compared, each way.
const LISTED_MAX: usize = 5;

fn capture() -> Result<String> {
    let place = tempfile::tempdir()?;
    let mut shown = Vec::new();
    for (door, security, secret) in [("mqtt", "modern", "CLIENT_TRAFFIC_SECRET_0 "), ("coap", "psk", "CLIENT_RANDOM ")]
    {
        let file = place.path().join(format!("{door}.pcap"));
        let name = file.display().to_string();
        let words = ["run", "--link", "lossless", "--door", door, "--security", security, "--capture", &name];
        let words = [&words[..], &COUNTED].concat();
        let report = report(&words)?;
        let outcome = outcomes(&report)?.into_iter().next().context("no outcome")?;
        check(outcome)?;
        let frames = split(&fs::read(&file)?)?.len();
        let counted: f64 = ["bytes", "connect_bytes"]
            .iter()
            .filter_map(|part| outcome.get(part)?.get("wire"))
            .map(|wire| -> Result<f64> { Ok(number(wire, "packets_up")? + number(wire, "packets_down")?) })
            .sum::<Result<f64>>()?;
        // The frames that close the connections come after both counts.
        ensure!(frames as f64 >= counted && counted > 40.0, "{door}: {frames} frames of {counted}");
        let secrets = fs::read_to_string(file.with_extension("keys"))?;
        ensure!(secrets.contains(secret), "{door}: no {secret}in {secrets:?}");
        shown.push(format!("{door} {frames} frames"));
    }
    let without = bench(&["run", "--count", "1", "--capture", "never.pcap"])?.output()?;
    ensure!(!without.status.success(), "there is nothing to capture without a link");
    Ok(format!("({})", shown.join(", ")))
}

/// Frames towards the gateway and from it.
type Ways = [Vec<usize>; 2];

fn lengths() -> Result<String> {
    const LISTED: [&str; 10] = ["--qos", "1", "--count", "3", "--window", "1", "--warm-up", "0", "--repeat", "1"];
    let place = tempfile::tempdir()?;
    let mut shown = Vec::new();
    for (door, security) in [("mqtt5", "none"), ("mqtt5", "modern"), ("coap", "psk"), ("coap", "oscore")] {
        let file = place.path().join(format!("{door}-{security}.pcap"));
        let name = file.display().to_string();
        let words = ["run", "--link", "lossless", "--door", door, "--security", security, "--capture", &name];
        let report = report(&[&words[..], &LISTED].concat())?;
        let outcome = outcomes(&report)?.into_iter().next().context("no outcome")?;
        check(outcome)?;
        let more = outcome.get("more").context("nothing more")?;
        for (way, lengths) in ["up", "down"].into_iter().zip(carrying(&fs::read(&file)?)?) {
            ensure!(lengths.len() >= 2, "{door} {security}: {way} {lengths:?}");
            for (at, length) in lengths.into_iter().take(LISTED_MAX).enumerate() {
                let listed = number(more, &format!("sequence.{way}.{}", at + 1))?;
                ensure!(listed == length as f64, "{door} {security}: frame {} {way}: {listed} of {length}", at + 1);
            }
        }
        let clear = number(more, "sequence.clear_percent")?;
        ensure!(clear == if security == "none" { 100.0 } else { 0.0 }, "{door} {security}: {clear} % in the clear");
        shown.push(format!("{door} {security}"));
    }
    Ok(format!("({})", shown.join(", ")))
}

/// The lengths of the first connection's frames that have data and neither begin nor end it.
fn carrying(file: &[u8]) -> Result<Ways> {
    let (mut first, mut ways) = (None, Ways::default());
    for frame in split(file)? {
        // IPv4 without options over Ethernet, as links have it; anything else is none of the experiment's.
        let &[.., 8, 0, _, _, high, low, _, _, _, _, _, protocol @ (6 | 17)] = frame.get(..24).unwrap_or_default()
        else {
            continue;
        };
        let end = 14 + usize::from(u16::from_be_bytes([high, low]));
        let segment = frame.get(34..end).context("cut off")?;
        let is_tcp = protocol == 6;
        let header = if is_tcp { usize::from(segment.get(12).context("cut off")? >> 4) * 4 } else { 8 };
        let ports = (segment.get(..2).context("cut off")?, segment.get(2..4).context("cut off")?);
        let client = *first.get_or_insert(ports);
        let begins_or_ends = is_tcp && segment.get(13).is_some_and(|flags| flags & 0x07 != 0);
        let way = usize::from(ports != client);
        if segment.len() > header && !begins_or_ends && (ports == client || (ports.1, ports.0) == client) {
            ways.get_mut(way).context("no way")?.push(frame.len());
        }
    }
    Ok(ways)
}

/// The frames of a file; one that is cut off is an error.
fn split(file: &[u8]) -> Result<Vec<&[u8]>> {
    ensure!(file.starts_with(&MAGIC), "no pcap");
    let (mut rest, mut frames) = (file.get(FILE_HEADER_BYTES..).context("no header")?, Vec::new());
    while !rest.is_empty() {
        let length =
            rest.get(8..12).and_then(|bytes| bytes.try_into().ok()).map(u32::from_le_bytes).context("cut off")?;
        let end = RECORD_HEADER_BYTES + usize::try_from(length)?;
        frames.push(rest.get(RECORD_HEADER_BYTES..end).context("cut off")?);
        rest = rest.get(end..).context("cut off")?;
    }
    Ok(frames)
}

/// The packets of an exchange do not depend on the machine: A, B and C in the clear, then with a key and with
/// certificates. Only a machine that does much else has TCP merge two of them, or send one again, and not in every run.
fn packets() -> Result<String> {
    let mut tries = Vec::new();
    while tries.len() < TRIES {
        let wrong = counted()?;
        if wrong.is_empty() {
            return Ok("(2, 4, 2 and 10, 12, 10; 134, 258, 134 bytes)".to_owned());
        }
        tries.push(wrong.join(", "));
    }
    anyhow::bail!("{}", tries.join("; "))
}

/// One run of both tables: the cells that are not what the document says.
fn counted() -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    let words = ["paper", "run", "seoane2021", "--quick", "--table", "6", "--table", "10", "--json"];
    let result = parse(&bench(&words)?.output()?)?;
    let tables = result.get("tables").and_then(Value::as_array).context("no tables")?;
    let secured = [10.0, 12.0, 10.0];
    for (id, column, wanted) in
        [("6", 0, [2.0, 4.0, 2.0]), ("6", 1, [134.0, 258.0, 134.0]), ("10", 0, secured), ("10", 1, secured)]
    {
        let table = tables.iter().find(|table| table.get("id").and_then(Value::as_str) == Some(id));
        let rows = table.and_then(|table| table.get("cells")?.as_array()).with_context(|| format!("no table {id}"))?;
        ensure!(rows.len() == wanted.len(), "table {id} has {} rows", rows.len());
        for (row, wanted) in rows.iter().zip(wanted) {
            let cell = row.get(column).with_context(|| format!("table {id} has no column {column}"))?;
            let is_exact = cell.get("exact") == Some(&Value::Bool(true));
            let measured = number(cell, "measured")?;
            if !is_exact || measured != wanted {
                wrong.push(format!("table {id}: {measured} rather than {wanted}"));
            }
        }
    }
    Ok(wrong)
}
