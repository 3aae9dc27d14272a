//! The explanation of a difference in a count, by the names of packets and headers.

use std::collections::BTreeMap;

use super::claim::shown;
use super::file::Spec;
use super::formula;
use super::frames::{self, Part};
use super::metric;
use super::table::Cell;
use crate::experiment::Experiment;
use crate::outcome::Outcome;

/// A late acknowledgement now and then is no other exchange: by so much a count per message may differ and be the same.
pub(super) const STRAY: f64 = 0.05;

/// Why `measured` is not what the document prints; as much as the outcome can tell.
pub(super) fn difference(
    spec: &Spec<'_>,
    experiment: &Experiment,
    outcome: &Outcome,
    measured: f64,
    cell: &Cell,
) -> Option<String> {
    let paper = cell.paper.number()?;
    let mut reasons = Vec::new();
    if let Some(computed) = cell.computed.filter(|computed| (computed - paper).abs() > STRAY) {
        let rest = shown(computed);
        reasons.push(format!("the document's own formula gives {rest}, not {}", shown(paper)));
    }
    if let Some(known) = spec.differs {
        reasons.push(known.to_owned());
    }
    match spec.unit {
        "packets" => reasons.extend(packets(spec, experiment, outcome)),
        "bytes" => reasons.extend(bytes(spec, experiment, outcome)),
        _ => {}
    }
    let sum = format!("{} rather than {}", shown(measured), shown(paper));
    Some(if reasons.is_empty() { sum } else { format!("{sum}: {}", reasons.join("; ")) })
}

/// The captured packets of one message, by name.
fn captured(experiment: &Experiment, outcome: &Outcome) -> Option<BTreeMap<String, f64>> {
    let messages = metric::messages(experiment, outcome)?;
    let named = outcome.more.iter().filter(|(key, _)| *key != frames::COOKED_BYTES);
    let counts: BTreeMap<String, f64> = named
        .filter_map(|(key, count)| Some((key.strip_prefix(frames::PREFIX)?.to_owned(), count / messages)))
        .collect();
    (!counts.is_empty()).then_some(counts)
}

fn packets(spec: &Spec<'_>, experiment: &Experiment, outcome: &Outcome) -> Vec<String> {
    let Some(captured) = captured(experiment, outcome) else {
        return vec!["the link did not record its frames, so packets have no names".to_owned()];
    };
    let Some(expected) = spec.computed.as_ref().and_then(|(name, input)| formula::parts(name, input)) else {
        return vec![
            captured.iter().map(|(part, count)| format!("{} {part}", shown(*count))).collect::<Vec<_>>().join(", "),
        ];
    };
    let mut reasons = Vec::new();
    for (part, count) in &expected {
        let found = captured.get(*part).copied().unwrap_or_default();
        reasons.extend(step(part, found - f64::from(*count)));
    }
    let unexpected = captured.iter().filter(|(part, _)| expected.iter().all(|(known, _)| known != part));
    reasons.extend(unexpected.filter_map(|(part, count)| step(part, *count)));
    reasons
}

fn step(part: &str, difference: f64) -> Option<String> {
    (difference.abs() > STRAY).then(|| {
        let sign = if difference > 0.0 { "+" } else { "−" };
        let why = why(part, difference > 0.0).map(|why| format!(" ({why})")).unwrap_or_default();
        format!("{sign}{} {part}{why}", shown((difference.abs() * 100.0).round() / 100.0))
    })
}

/// Returns the usual cause of a different number of such packets.
fn why(part: &str, more: bool) -> Option<&'static str> {
    const MORE: [(Part, &str); 5] = [
        (frames::PURE_ACK, "Linux acknowledges the first segments of a connection at once"),
        (frames::SYN, "a connection was tried again"),
        (frames::RESET, "an end closed before it had read everything"),
        (frames::HANDSHAKE, "the handshake has more messages, or they travel apart"),
        (frames::ALERT, "more alerts than one close_notify each way"),
    ];
    const LESS: [(Part, &str); 6] = [
        (frames::PURE_ACK, "the acknowledgement went with data, with FIN, or with that of a later segment"),
        (frames::FIN, "an end did not close"),
        (frames::HANDSHAKE, "messages of the handshake share packets"),
        (frames::ALERT, "close_notify was not answered"),
        (frames::COAP_ACK, "the answer came in the acknowledgement"),
        (frames::MQTT_DISCONNECT, "it went in the same segment as FIN or another packet"),
    ];
    let known: &[(Part, &'static str)] = if more { &MORE } else { &LESS };
    known.iter().find(|(name, _)| *name == part).map(|(_, why)| *why)
}

fn bytes(spec: &Spec<'_>, experiment: &Experiment, outcome: &Outcome) -> Vec<String> {
    let mut reasons = Vec::new();
    let Some(messages) = metric::messages(experiment, outcome) else { return reasons };
    let Some((name, input)) = spec.computed.as_ref().filter(|(name, _)| *name != "frame") else { return reasons };
    if spec.metric.is_some_and(|metric| metric.starts_with("protocol")) {
        reasons.push("token, path, ETag, Content-Format and Max-Age are not as in table 5".to_owned());
        return reasons;
    }
    #[expect(clippy::cast_precision_loss, reason = "below 2^53")]
    let protocol = (outcome.bytes.protocol_up + outcome.bytes.protocol_down) as f64 / messages;
    if let Some(model) = formula::application_bytes(name, input).filter(|_| protocol > 0.0) {
        let difference = protocol - model;
        if difference.abs() > STRAY {
            reasons.push(format!(
                "messages of the protocol have {} bytes rather than {}: token, path, ETag, Max-Age and payload",
                shown(protocol),
                shown(model)
            ));
        }
    }
    if let Some(handshake) = formula::handshake_bytes(name, input) {
        let handshake = shown(handshake);
        reasons.push(format!(
            "the rest is in the handshake, which has {handshake} bytes there: extensions, certificates, no ticket"
        ));
    }
    if spec.metric != Some("cooked_bytes_per_message") {
        reasons.push("a frame is counted with 14 bytes of Ethernet and is not filled up".to_owned());
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Operation;
    use crate::paper::load;
    use crate::paper::table::Printed;

    fn explained(id: &str, row: usize, column: usize, counts: &[(&str, f64)]) -> String {
        let paper = load("seoane2021").unwrap();
        let table = paper.tables.iter().find(|table| table.id == id).unwrap();
        let spec = table.spec(row, column);
        let experiment = Experiment { operation: Operation::Connect, messages: 1, ..Experiment::default() };
        let more = counts.iter().map(|(part, count)| (format!("frames.{part}"), count * 10.0)).collect();
        let outcome = Outcome { sent: 10, more, ..Outcome::default() };
        let computed = spec.computed.as_ref().map(|(name, input)| formula::compute(name, input).unwrap());
        let measured = counts.iter().map(|(_, count)| count).sum();
        let cell = Cell { paper: table.printed(row, column), computed, ..Cell::default() };
        assert!(matches!(cell.paper, Printed::Number(_)));
        difference(&spec, &experiment, &outcome, measured, &cell).unwrap()
    }

    #[test]
    fn packets_that_are_too_few_or_too_many_are_named() {
        // QoS 0 with delayed acknowledgements: 14 in the document.
        let found = explained(
            "13",
            0,
            1,
            &[
                ("TCP SYN", 2.0),
                ("CONNECT", 1.0),
                ("CONNACK", 1.0),
                ("PUBLISH", 2.0),
                ("DISCONNECT", 1.0),
                ("TCP FIN", 2.0),
                ("TCP ACK without data", 4.0),
                ("TCP RST", 0.5),
            ],
        );
        assert!(found.starts_with("13.50 rather than 14: −1 TCP ACK without data (the acknowledgement"), "{found}");
        assert!(found.ends_with("+0.500 TCP RST (an end closed before it had read everything)"), "{found}");
    }

    #[test]
    fn what_the_document_adds_up_wrongly_is_said() {
        let found = explained("13", 2, 1, &[("TCP SYN", 20.0)]);
        assert!(found.contains("the document's own formula gives 20, not 21"), "{found}");
    }
}
