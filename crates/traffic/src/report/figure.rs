//! The figures that a report shows: how each is computed from one repetition, its unit, and which direction is better.
//!
//! A "message" is a delivery at a subscriber; where nobody subscribes it is an answered operation, and where nothing is
//! sent it is a connection. All figures per message divide by the same number.

use serde::{Deserialize, Serialize};

use super::number::Unit;
use crate::experiment::Experiment;
use crate::measure::latency::Latency;
use crate::outcome::{Bytes, Outcome};

/// Which direction is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// More of it.
    Higher,
    /// Less of it.
    Lower,
}

/// The description of a figure.
#[derive(Clone, Copy, Debug)]
pub struct Meaning {
    /// The name of its CSV column.
    pub key: &'static str,
    /// The title, without the unit.
    pub title: &'static str,
    /// The unit.
    pub unit: Unit,
    /// Which direction is better.
    pub better: Better,
}

/// The figures without which an experiment shows nothing.
pub(crate) const DECISIVE: [Figure; 3] = [Figure::Rate, Figure::LatencyP50, Figure::GatewayCpu];

/// One of the figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// Messages a second.
    Rate,
    /// Payload bytes a second, of those messages.
    Goodput,
    /// Median of the time from when an operation was due to its delivery, else to its answer.
    LatencyP50,
    /// The same, 99 of 100.
    LatencyP99,
    /// The same, 999 of 1000.
    LatencyP999,
    /// The longest.
    LatencyMax,
    /// Median time of connecting.
    ConnectP50,
    /// Messages that did not arrive, or operations that nothing answered.
    Lost,
    /// Messages that came again.
    Duplicates,
    /// Messages that came after a later one.
    Reordered,
    /// Refusals and failures, and connections that broke.
    Errors,
    /// The gateway's processor time a message.
    GatewayCpu,
    /// Our own.
    GeneratorCpu,
    /// The gateway's instructions a message, where the machine counts them.
    Instructions,
    /// Its cycles.
    Cycles,
    /// Our own instructions a message.
    GeneratorInstructions,
    /// Our own cycles.
    GeneratorCycles,
    /// The gateway's memory at the end.
    Memory,
    /// The most that it had.
    PeakMemory,
    /// Bytes of payload for each message.
    PayloadBytes,
    /// Bytes that the protocol adds to each message.
    ProtocolBytes,
    /// Bytes that TLS, DTLS or OSCORE adds to each message.
    SecurityBytes,
    /// Bytes that TCP, UDP, IP and Ethernet add, with retransmissions; only on an emulated link.
    TransportBytes,
    /// All bytes for each message, down to the lowest counted layer.
    TotalBytes,
    /// Frames for each message, acknowledgements included.
    Packets,
    /// Bytes of a connection's beginning, as deep as they were counted.
    HandshakeBytes,
    /// Frames of it.
    HandshakePackets,
    /// The gateway's processor time for it.
    HandshakeCpu,
}

impl Figure {
    /// All of them, in the order of reports.
    pub const ALL: [Self; 28] = [
        Self::Rate,
        Self::Goodput,
        Self::LatencyP50,
        Self::LatencyP99,
        Self::LatencyP999,
        Self::LatencyMax,
        Self::ConnectP50,
        Self::Lost,
        Self::Duplicates,
        Self::Reordered,
        Self::Errors,
        Self::GatewayCpu,
        Self::GeneratorCpu,
        Self::Instructions,
        Self::Cycles,
        Self::GeneratorInstructions,
        Self::GeneratorCycles,
        Self::Memory,
        Self::PeakMemory,
        Self::PayloadBytes,
        Self::ProtocolBytes,
        Self::SecurityBytes,
        Self::TransportBytes,
        Self::TotalBytes,
        Self::Packets,
        Self::HandshakeBytes,
        Self::HandshakePackets,
        Self::HandshakeCpu,
    ];

    /// The layers of what is on the wire, innermost first.
    pub const LAYERS: [Self; 4] = [Self::PayloadBytes, Self::ProtocolBytes, Self::SecurityBytes, Self::TransportBytes];

    /// Returns its name in JSON, which flags take as well: `latency_p99`.
    #[must_use]
    pub fn name(self) -> String {
        serde_json::to_value(self).ok().and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default()
    }

    /// Its name, unit and direction.
    #[must_use]
    pub fn meaning(self) -> Meaning {
        use Better::{Higher, Lower};
        let (key, title, unit, better) = match self {
            Self::Rate => ("per_s", "rate", Unit::PerSecond, Higher),
            Self::Goodput => ("goodput_bytes_per_s", "goodput", Unit::BytesPerSecond, Higher),
            Self::LatencyP50 => ("latency_p50_us", "p50", Unit::Microseconds, Lower),
            Self::LatencyP99 => ("latency_p99_us", "p99", Unit::Microseconds, Lower),
            Self::LatencyP999 => ("latency_p999_us", "p99.9", Unit::Microseconds, Lower),
            Self::LatencyMax => ("latency_max_us", "max", Unit::Microseconds, Lower),
            Self::ConnectP50 => ("connect_p50_us", "connect", Unit::Microseconds, Lower),
            Self::Lost => ("lost", "lost", Unit::Count, Lower),
            Self::Duplicates => ("duplicates", "duplicates", Unit::Count, Lower),
            Self::Reordered => ("reordered", "reordered", Unit::Count, Lower),
            Self::Errors => ("errors", "errors", Unit::Count, Lower),
            Self::GatewayCpu => ("gateway_cpu_us_per_message", "gateway CPU/msg", Unit::Microseconds, Lower),
            Self::GeneratorCpu => ("generator_cpu_us_per_message", "generator CPU/msg", Unit::Microseconds, Lower),
            Self::Instructions => ("gateway_instructions_per_message", "gateway instructions/msg", Unit::Count, Lower),
            Self::Cycles => ("gateway_cycles_per_message", "gateway cycles/msg", Unit::Count, Lower),
            Self::GeneratorInstructions => {
                ("generator_instructions_per_message", "generator instructions/msg", Unit::Count, Lower)
            }
            Self::GeneratorCycles => ("generator_cycles_per_message", "generator cycles/msg", Unit::Count, Lower),
            Self::Memory => ("gateway_resident_bytes", "memory", Unit::Bytes, Lower),
            Self::PeakMemory => ("gateway_peak_resident_bytes", "peak memory", Unit::Bytes, Lower),
            Self::PayloadBytes => ("payload_bytes_per_message", "payload/msg", Unit::ExactBytes, Lower),
            Self::ProtocolBytes => ("protocol_bytes_per_message", "protocol/msg", Unit::ExactBytes, Lower),
            Self::SecurityBytes => ("security_bytes_per_message", "security/msg", Unit::ExactBytes, Lower),
            Self::TransportBytes => ("transport_bytes_per_message", "transport/msg", Unit::ExactBytes, Lower),
            Self::TotalBytes => ("bytes_per_message", "bytes/msg", Unit::ExactBytes, Lower),
            Self::Packets => ("packets_per_message", "packets/msg", Unit::Count, Lower),
            Self::HandshakeBytes => ("handshake_bytes", "handshake", Unit::ExactBytes, Lower),
            Self::HandshakePackets => ("handshake_packets", "handshake packets", Unit::Count, Lower),
            Self::HandshakeCpu => ("handshake_gateway_cpu_us", "handshake CPU", Unit::Microseconds, Lower),
        };
        Meaning { key, title, unit, better }
    }

    /// Its value in one repetition, if that knows it.
    #[must_use]
    pub fn of(self, experiment: &Experiment, outcome: &Outcome) -> Option<f64> {
        let gateway = outcome.gateway.as_ref();
        match self {
            Self::Rate => per(messages(outcome), outcome.seconds),
            Self::Goodput => per(messages(outcome) * float(experiment.payload_bytes), outcome.seconds)
                .filter(|_| outcome.delivered + outcome.acknowledged > 0 && experiment.payload_bytes > 0),
            Self::LatencyP50 => latency(outcome).percentile_us(50.0),
            Self::LatencyP99 => latency(outcome).percentile_us(99.0),
            Self::LatencyP999 => latency(outcome).percentile_us(99.9),
            Self::LatencyMax => latency(outcome).max_us(),
            Self::ConnectP50 => outcome.connect.percentile_us(50.0),
            Self::Lost => Some(whole(lost(outcome))),
            Self::Duplicates => Some(whole(outcome.duplicates)),
            Self::Reordered => Some(whole(outcome.reordered)),
            Self::Errors => Some(whole(outcome.errors + outcome.disconnects)),
            Self::GatewayCpu => gateway.and_then(|used| per(used.cpu_us, messages(outcome))),
            Self::GeneratorCpu => per(outcome.generator.cpu_us, messages(outcome)).filter(|used| *used > 0.0),
            Self::Instructions => counted(gateway?.instructions, outcome),
            Self::Cycles => counted(gateway?.cycles, outcome),
            Self::GeneratorInstructions => counted(outcome.generator.instructions, outcome),
            Self::GeneratorCycles => counted(outcome.generator.cycles, outcome),
            Self::Memory => gateway.map(|used| whole(used.resident_bytes)).filter(|bytes| *bytes > 0.0),
            Self::PeakMemory => gateway.map(|used| whole(used.peak_resident_bytes)).filter(|bytes| *bytes > 0.0),
            Self::PayloadBytes => Layers::of(&outcome.bytes)?.each(messages(outcome), |layers| Some(layers.payload)),
            Self::ProtocolBytes => Layers::of(&outcome.bytes)?.each(messages(outcome), |layers| Some(layers.protocol)),
            Self::SecurityBytes => Layers::of(&outcome.bytes)?.each(messages(outcome), |layers| layers.security),
            Self::TransportBytes => Layers::of(&outcome.bytes)?.each(messages(outcome), |layers| layers.transport),
            Self::TotalBytes => deepest(&outcome.bytes).and_then(|bytes| per(whole(bytes), messages(outcome))),
            Self::Packets => frames(&outcome.bytes).and_then(|frames| per(whole(frames), messages(outcome))),
            Self::HandshakeBytes => {
                deepest(&outcome.connect_bytes).and_then(|bytes| per(whole(bytes), connections(outcome)))
            }
            Self::HandshakePackets => {
                frames(&outcome.connect_bytes).and_then(|frames| per(whole(frames), connections(outcome)))
            }
            Self::HandshakeCpu => {
                outcome.gateway_connect.as_ref().and_then(|used| per(used.cpu_us, connections(outcome)))
            }
        }
    }
}

/// Of deliveries, else of answers.
#[must_use]
pub fn latency(outcome: &Outcome) -> &Latency {
    if outcome.delivery.count() > 0 { &outcome.delivery } else { &outcome.answer }
}

/// Both directions of each layer, together.
struct Layers {
    payload: u64,
    protocol: u64,
    security: Option<u64>,
    transport: Option<u64>,
}

impl Layers {
    /// None when nothing was counted.
    fn of(bytes: &Bytes) -> Option<Self> {
        let payload = bytes.payload_up + bytes.payload_down;
        let protocol = bytes.protocol_up + bytes.protocol_down;
        let socket = Some(bytes.socket_up + bytes.socket_down).filter(|socket| *socket > 0);
        let wire = bytes.wire.map(|wire| wire.bytes_up + wire.bytes_down);
        (protocol > 0).then(|| Self {
            payload,
            protocol: protocol.saturating_sub(payload),
            security: socket.map(|socket| socket.saturating_sub(protocol)),
            transport: wire.map(|wire| wire.saturating_sub(socket.unwrap_or(protocol))),
        })
    }

    fn each(&self, messages: f64, layer: fn(&Self) -> Option<u64>) -> Option<f64> {
        layer(self).and_then(|bytes| per(whole(bytes), messages))
    }
}

/// Of the lowest layer that was counted.
fn deepest(bytes: &Bytes) -> Option<u64> {
    let wire = bytes.wire.map(|wire| wire.bytes_up + wire.bytes_down);
    let counted = [bytes.socket_up + bytes.socket_down, bytes.protocol_up + bytes.protocol_down];
    wire.into_iter().chain(counted).find(|bytes| *bytes > 0)
}

fn frames(bytes: &Bytes) -> Option<u64> {
    bytes.wire.map(|wire| wire.packets_up + wire.packets_down)
}

/// The number of expected messages that neither arrived nor were conflated; without subscribers, of requests that were
/// never answered.
pub(crate) fn lost(outcome: &Outcome) -> u64 {
    if outcome.expected > 0 {
        outcome.expected.saturating_sub(outcome.delivered).saturating_sub(outcome.conflated)
    } else {
        outcome.sent.saturating_sub(outcome.acknowledged).saturating_sub(outcome.errors)
    }
}

fn messages(outcome: &Outcome) -> f64 {
    let counts = [outcome.delivered, outcome.acknowledged, outcome.connect.count()];
    counts.into_iter().find(|count| *count > 0).map_or(0.0, whole)
}

fn connections(outcome: &Outcome) -> f64 {
    whole(outcome.connect.count())
}

/// Returns a count for each message.
fn counted(count: Option<u64>, outcome: &Outcome) -> Option<f64> {
    count.and_then(|count| per(whole(count), messages(outcome)))
}

fn per(amount: f64, of: f64) -> Option<f64> {
    (of > 0.0).then(|| amount / of)
}

fn whole(count: u64) -> f64 {
    count as f64
}

fn float(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{ProcessUse, Wire};

    fn outcome() -> Outcome {
        let wire = Some(Wire { bytes_up: 600, bytes_down: 600, packets_up: 12, packets_down: 8 });
        Outcome {
            sent: 11,
            acknowledged: 11,
            expected: 11,
            delivered: 10,
            seconds: 2.0,
            bytes: Bytes {
                payload_up: 100,
                payload_down: 100,
                protocol_up: 150,
                protocol_down: 150,
                socket_up: 250,
                socket_down: 200,
                wire,
            },
            gateway: Some(ProcessUse { cpu_us: 55.0, ..ProcessUse::default() }),
            ..Outcome::default()
        }
    }

    fn value(figure: Figure, outcome: &Outcome) -> Option<f64> {
        figure.of(&Experiment::default(), outcome)
    }

    #[test]
    fn layers_add_up_to_the_wire() {
        let outcome = outcome();
        let layers = Figure::LAYERS.map(|layer| value(layer, &outcome).unwrap());
        assert_eq!(layers, [20.0, 10.0, 15.0, 75.0]);
        assert_eq!(value(Figure::TotalBytes, &outcome), Some(120.0));
        assert_eq!(value(Figure::Packets, &outcome), Some(2.0));
    }

    #[test]
    fn figures_are_per_delivery_where_something_is_delivered() {
        let outcome = outcome();
        assert_eq!(value(Figure::Rate, &outcome), Some(5.0));
        assert_eq!(value(Figure::GatewayCpu, &outcome), Some(5.5));
        assert_eq!(value(Figure::Lost, &outcome), Some(1.0));
        let answered = Outcome { delivered: 0, expected: 0, ..outcome };
        assert_eq!(value(Figure::Rate, &answered), Some(5.5));
        assert_eq!(value(Figure::Lost, &answered), Some(0.0));
    }

    #[test]
    fn what_nobody_counted_is_no_zero() {
        let none = Outcome { seconds: 1.0, ..Outcome::default() };
        for figure in [Figure::LatencyP50, Figure::GatewayCpu, Figure::TotalBytes, Figure::Packets, Figure::Memory] {
            assert_eq!(value(figure, &none), None, "{figure:?}");
        }
        let unlinked = Outcome { bytes: Bytes { wire: None, ..outcome().bytes }, ..outcome() };
        assert_eq!(value(Figure::TransportBytes, &unlinked), None);
        assert_eq!(value(Figure::TotalBytes, &unlinked), Some(45.0));
    }

    #[test]
    fn counters_of_gateway_and_generator_are_told_apart_and_absent_without_any() {
        let counters = [Figure::Instructions, Figure::Cycles, Figure::GeneratorInstructions, Figure::GeneratorCycles];
        let outcome = outcome();
        assert_eq!(counters.map(|figure| value(figure, &outcome)), [None; 4]);
        let used = |instructions, cycles| ProcessUse { instructions, cycles, ..ProcessUse::default() };
        let counted = Outcome { gateway: Some(used(Some(30), None)), generator: used(Some(50), Some(70)), ..outcome };
        assert_eq!(counters.map(|figure| value(figure, &counted)), [Some(3.0), None, Some(5.0), Some(7.0)]);
    }

    #[test]
    fn keys_are_told_apart() {
        let mut keys = Figure::ALL.map(|figure| figure.meaning().key).to_vec();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), Figure::ALL.len());
    }
}
