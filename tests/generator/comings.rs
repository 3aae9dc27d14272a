//! Clients that come and go, rates that rise and threads that share the work, against a gateway.

use anyhow::{Context as _, Result, ensure};
use fogmux_tests::suite::Case;
use serde_json::Value;

use crate::{check, number, outcomes, report};

pub(crate) const CASES: &[Case] = &[
    Case { name: "subscribers of every kind come back from a storm", run: storm },
    Case { name: "clients that leave in turn come back, under TLS as well", run: churn },
    Case { name: "a ramp adds up to its slices", run: ramp },
    Case { name: "threads lose nothing between them", run: threads },
];

fn outcome(made: &Value) -> Result<&Value> {
    outcomes(made)?.into_iter().next().context("no outcome")
}

fn storm() -> Result<String> {
    let shape = ["run", "--qos", "1", "--subs", "8", "--pubs", "8", "--topics", "8", "--rate", "200"];
    let times = ["--seconds", "2", "--storm", "0.5", "--warm-up", "0", "--drain", "1", "--repeat", "1"];
    let mut said = Vec::new();
    for door in ["mqtt", "mqtt5", "mqtt-ws", "coap", "coap-tcp", "http1", "http2", "xmpp"] {
        let made = report(&[&shape[..], &times, &["--door", "mqtt", "--to", door]].concat())?;
        let outcome = outcome(&made)?;
        let comings = outcome.get("comings").context("nobody left")?;
        ensure!(number(comings, "left")? == 8.0 && number(comings, "returned")? == 8.0, "{door}: {comings}");
        let storm = comings.get("storm").context("no storm")?;
        let back = number(storm, "all_back_s")?;
        ensure!(back > 0.0 && number(storm, "gateway_cpu_us")? > 0.0, "{door}: {storm}");
        ensure!(number(storm, "delivered")? <= number(storm, "expected")?, "{door}: {storm}");
        // All else arrives: but for messages that were under way when they left.
        let missed = number(outcome, "expected")? - number(outcome, "delivered")? - number(outcome, "conflated")?;
        let (stormy, under_way) = (number(storm, "expected")?, number(storm, "under_way")?);
        ensure!(missed <= stormy + under_way, "{door}: {missed} missed, of {stormy} in the storm and {under_way}");
        ensure!(number(outcome, "disconnects")? == 0.0 && number(outcome, "sent")? == 400.0, "{door}: {outcome}");
        said.push(format!("{door} {:.1} ms", back * 1e3));
    }
    Ok(format!("({})", said.join(", ")))
}

fn churn() -> Result<String> {
    let shape = ["run", "--security", "modern", "--seconds", "1.5", "--warm-up", "0", "--repeat", "1"];
    let held = report(&[&shape[..], &["--operation", "hold", "--pubs", "10", "--churn", "100%"]].concat())?;
    let comings = outcome(&held)?.get("comings").context("nobody left")?;
    let left = number(comings, "left")?;
    ensure!((3.0..=15.0).contains(&left), "{left} of fifteen");
    ensure!(number(comings, "failed")? == 0.0, "{comings}");
    let bytes = comings.pointer("/connect_bytes/socket_down").and_then(Value::as_f64);
    ensure!(bytes.is_some_and(|bytes| bytes > 500.0), "no handshake: {comings}");
    Ok(format!("({left} times)"))
}

fn ramp() -> Result<String> {
    let made = report(&["run", "--qos", "1", "--rate", "100..700", "--seconds", "1", "--repeat", "1"])?;
    let outcome = outcome(&made)?;
    check(outcome)?;
    let slices = outcome.get("slices").and_then(Value::as_array).context("no slices")?;
    ensure!(slices.len() == 10, "{} slices", slices.len());
    for key in ["offered", "sent", "delivered", "expected", "acknowledged", "unsent"] {
        let sum = slices.iter().map(|slice| number(slice, key)).sum::<Result<f64>>()?;
        ensure!(sum == number(outcome, key)?, "{key}: {sum} in slices");
    }
    let ends = [slices.first(), slices.last()].map(|slice| slice.map(|slice| number(slice, "offered")));
    ensure!(matches!(ends, [Some(Ok(first)), Some(Ok(last))] if first < last), "{ends:?}");
    Ok(String::new())
}

fn threads() -> Result<String> {
    let counted = ["--count", "3000", "--qos", "1", "--window", "5", "--repeat", "1", "--threads", "3"];
    let many = ["--pubs", "30", "--subs", "12", "--topics", "6"];
    for shape in [&["--door", "mqtt5"][..], &["--door", "http1", "--to", "mqtt"], &["--door", "xmpp"]] {
        let made = report(&[&["run"], shape, &many, &counted].concat())?;
        let outcome = outcome(&made)?;
        check(outcome)?;
        ensure!(number(outcome, "sent")? == 3_000.0 && number(outcome, "delivered")? == 6_000.0, "{outcome}");
    }
    let asked = ["run", "--operation", "get", "--door", "coap", "--pubs", "6", "--window", "1"];
    let made = report(&[&asked[..], &counted[..2], &["--threads", "3", "--repeat", "1"]].concat())?;
    let acknowledged = number(outcome(&made)?, "acknowledged")?;
    ensure!(acknowledged == 3_000.0, "{acknowledged} answers");
    Ok(String::new())
}
