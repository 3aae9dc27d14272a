//! The figures that a report shows: how each is computed from one repetition, its unit, and which direction is better.
//!
//! A "message" is a delivery at a subscriber; where nobody subscribes it is an answered operation: a request, a visit,
//! or a connection that is held. That is a matter of the experiment and not of what came: nothing may have, and then
//! the rate is 0 and there is no figure per message. All figures per message divide by the same number.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::number::Unit;
use crate::experiment::{Experiment, Operation};
use crate::measure::latency::Latency;
use crate::outcome::{Bytes, Energy, Outcome, Storm};

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
    /// Operations a second that were due, where they come at a rate.
    Offered,
    /// Operations a second that were sent of these.
    Achieved,
    /// Operations that were due and never sent.
    Unsent,
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
    /// Operations that nothing had answered when the drain ended.
    Unanswered,
    /// Of the errors, messages that nobody had sent to their subscriber.
    Foreign,
    /// The gateway's processor time a message.
    GatewayCpu,
    /// The generator's processor time a message.
    GeneratorCpu,
    /// The gateway's instructions a message, where the machine counts them.
    Instructions,
    /// The gateway's cycles a message.
    Cycles,
    /// The generator's instructions a message.
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
    /// By a model: what the gateway's processor time adds to an idle board, in millijoules a message.
    EnergyGateway,
    /// By a model: the board, idle and busy, for as long as was measured.
    EnergyBoard,
    /// By a model: the radios of both ends; only on an emulated link.
    EnergyRadio,
    /// By an external meter: all that it measured.
    EnergyMeter,
    /// Median time from when a client left to when it was back.
    Away,
    /// Time from when all clients left at once to when all were back.
    AllBack,
    /// Messages of that time that never arrived.
    StormLost,
    /// Messages of that time that arrived again.
    StormDuplicates,
    /// The gateway's processor time meanwhile.
    StormCpu,
}

impl Figure {
    /// All of them, in the order of reports.
    pub const ALL: [Self; 42] = [
        Self::Rate,
        Self::Offered,
        Self::Achieved,
        Self::Unsent,
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
        Self::Unanswered,
        Self::Foreign,
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
        Self::EnergyGateway,
        Self::EnergyBoard,
        Self::EnergyRadio,
        Self::EnergyMeter,
        Self::Away,
        Self::AllBack,
        Self::StormLost,
        Self::StormDuplicates,
        Self::StormCpu,
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
            Self::Offered => ("offered_per_s", "offered", Unit::PerSecond, Higher),
            Self::Achieved => ("achieved_per_s", "achieved", Unit::PerSecond, Higher),
            Self::Unsent => ("unsent", "unsent", Unit::Count, Lower),
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
            Self::Unanswered => ("unanswered", "unanswered", Unit::Count, Lower),
            Self::Foreign => ("foreign", "foreign", Unit::Count, Lower),
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
            Self::EnergyGateway => ("energy_gateway_mj_per_message", "gateway energy/msg", Unit::Millijoules, Lower),
            Self::EnergyBoard => ("energy_board_mj_per_message", "board energy/msg", Unit::Millijoules, Lower),
            Self::EnergyRadio => ("energy_radio_mj_per_message", "radio energy/msg", Unit::Millijoules, Lower),
            Self::EnergyMeter => ("energy_meter_mj_per_message", "metered energy/msg", Unit::Millijoules, Lower),
            Self::Away => ("away_p50_us", "away", Unit::Microseconds, Lower),
            Self::AllBack => ("storm_all_back_us", "all back", Unit::Microseconds, Lower),
            Self::StormLost => ("storm_lost", "lost in storm", Unit::Count, Lower),
            Self::StormDuplicates => ("storm_duplicates", "duplicates in storm", Unit::Count, Lower),
            Self::StormCpu => ("storm_gateway_cpu_us", "storm CPU", Unit::Microseconds, Lower),
        };
        Meaning { key, title, unit, better }
    }

    /// Its value in one repetition, if that knows it.
    #[must_use]
    pub fn of(self, experiment: &Experiment, outcome: &Outcome) -> Option<f64> {
        let gateway = outcome.gateway.as_ref();
        let messages = messages(experiment, outcome);
        match self {
            Self::Rate => rate(experiment, outcome),
            Self::Offered => outcome.offered.and(experiment.mean_rate()),
            Self::Achieved => outcome.sending_seconds.and_then(|seconds| per(whole(outcome.sent), seconds)),
            Self::Unsent => outcome.unsent.map(whole),
            Self::Goodput => rate(experiment, outcome)
                .map(|rate| rate * float(experiment.payload_bytes))
                .filter(|_| carries_payload(experiment)),
            Self::LatencyP50 => latency(experiment, outcome).percentile_us(50.0),
            Self::LatencyP99 => latency(experiment, outcome).percentile_us(99.0),
            Self::LatencyP999 => latency(experiment, outcome).percentile_us(99.9),
            Self::LatencyMax => latency(experiment, outcome).max_us(),
            Self::ConnectP50 => outcome.connect.percentile_us(50.0),
            Self::Lost => Some(whole(lost(outcome))),
            Self::Duplicates => Some(whole(outcome.duplicates)),
            Self::Reordered => Some(whole(outcome.reordered)),
            Self::Errors => Some(whole(outcome.errors + outcome.disconnects)),
            Self::Unanswered => Some(whole(outcome.unanswered)),
            Self::Foreign => Some(whole(outcome.foreign)),
            Self::GatewayCpu => gateway.and_then(|used| per(used.cpu_us, messages)),
            Self::GeneratorCpu => per(outcome.generator.cpu_us, messages).filter(|used| *used > 0.0),
            Self::Instructions => counted(gateway?.instructions, messages),
            Self::Cycles => counted(gateway?.cycles, messages),
            Self::GeneratorInstructions => counted(outcome.generator.instructions, messages),
            Self::GeneratorCycles => counted(outcome.generator.cycles, messages),
            Self::Memory => gateway.map(|used| whole(used.resident_bytes)).filter(|bytes| *bytes > 0.0),
            Self::PeakMemory => gateway.map(|used| whole(used.peak_resident_bytes)).filter(|bytes| *bytes > 0.0),
            Self::PayloadBytes => Layers::of(&outcome.bytes)?.each(messages, |layers| Some(layers.payload)),
            Self::ProtocolBytes => Layers::of(&outcome.bytes)?.each(messages, |layers| Some(layers.protocol)),
            Self::SecurityBytes => Layers::of(&outcome.bytes)?.each(messages, |layers| layers.security),
            Self::TransportBytes => Layers::of(&outcome.bytes)?.each(messages, |layers| layers.transport),
            Self::TotalBytes => deepest(&outcome.bytes).and_then(|bytes| per(whole(bytes), messages)),
            Self::Packets => frames(&outcome.bytes).and_then(|frames| per(whole(frames), messages)),
            Self::HandshakeBytes => {
                deepest(&outcome.connect_bytes).and_then(|bytes| per(whole(bytes), connections(outcome)))
            }
            Self::HandshakePackets => {
                frames(&outcome.connect_bytes).and_then(|frames| per(whole(frames), connections(outcome)))
            }
            Self::HandshakeCpu => {
                outcome.gateway_connect.as_ref().and_then(|used| per(used.cpu_us, connections(outcome)))
            }
            Self::EnergyGateway => joules(outcome, messages, |energy| energy.gateway_j),
            Self::EnergyBoard => joules(outcome, messages, |energy| energy.board_j),
            Self::EnergyRadio => joules(outcome, messages, |energy| energy.radio_j),
            Self::EnergyMeter => joules(outcome, messages, |energy| energy.meter_j),
            Self::Away => outcome.comings.as_ref()?.away.percentile_us(50.0),
            Self::AllBack => storm(outcome)?.all_back_s.map(|seconds| seconds * 1e6),
            // Connections that are only held miss no messages.
            Self::StormLost => storm(outcome).filter(|_| outcome.expected > 0).map(|storm| whole(storm.lost())),
            Self::StormDuplicates => {
                storm(outcome).filter(|_| outcome.expected > 0).map(|storm| whole(storm.duplicates))
            }
            Self::StormCpu => storm(outcome)?.gateway_cpu_us,
        }
    }
}

/// Messages a second, of all the time that the schedule took, where there is one: the last of few operations is sent,
/// and may arrive, an interval before its end.
fn rate(experiment: &Experiment, outcome: &Outcome) -> Option<f64> {
    let messages = messages(experiment, outcome);
    let seconds = outcome.seconds.max(outcome.sending_seconds.unwrap_or_default());
    let is_tried = outcome.sent + outcome.unsent.unwrap_or_default() > 0;
    per(messages, seconds).or((is_tried && messages == 0.0).then_some(0.0))
}

/// Of deliveries, else of answers; with those of operations that were due and never sent, which have waited at least so
/// long.
#[must_use]
pub fn latency<'a>(experiment: &Experiment, outcome: &'a Outcome) -> Cow<'a, Latency> {
    let mut latency = Cow::Borrowed(if experiment.delivers() { &outcome.delivery } else { &outcome.answer });
    if !outcome.unsent_latency.is_empty() {
        latency.to_mut().add(&outcome.unsent_latency);
    }
    latency
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

fn storm(outcome: &Outcome) -> Option<&Storm> {
    outcome.comings.as_ref()?.storm.as_ref()
}

/// Millijoules a message.
fn joules(outcome: &Outcome, messages: f64, of: fn(&Energy) -> Option<f64>) -> Option<f64> {
    per(of(outcome.energy.as_ref()?)? * 1e3, messages)
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

fn messages(experiment: &Experiment, outcome: &Outcome) -> f64 {
    whole(if experiment.delivers() { outcome.delivered } else { outcome.acknowledged })
}

fn carries_payload(experiment: &Experiment) -> bool {
    let sends = match experiment.operation {
        Operation::Deliver | Operation::Get | Operation::Put | Operation::Post => true,
        Operation::Connect => experiment.messages > 0,
        Operation::Hold => false,
    };
    sends && experiment.payload_bytes > 0
}

fn connections(outcome: &Outcome) -> f64 {
    whole(outcome.connect.count())
}

/// Returns a count for each message.
fn counted(count: Option<u64>, messages: f64) -> Option<f64> {
    count.and_then(|count| per(whole(count), messages))
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
mod tests;
