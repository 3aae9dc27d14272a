//! The outcome of an experiment: the raw counts from which all tables are computed.
//!
//! It defines the JSON that `fogmux bench` writes, documented in `docs/benchmarks.md`. Keys are only ever added.

mod comings;
mod energy;
mod merge;
mod slice;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

pub use self::comings::{Comings, Storm};
pub use self::energy::Energy;
pub use self::slice::Slice;
use crate::experiment::Experiment;
use crate::measure::environment::Environment;
use crate::measure::latency::Latency;
use crate::paper::table::PaperResult;

/// Everything of one call of `fogmux bench`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Of this format; rises when a key changes its meaning.
    pub version: u32,
    /// The command, as it was typed.
    pub command: String,
    /// When it began, in seconds since 1970.
    pub began_unix_s: u64,
    /// When it went on after an interruption, each time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resumed_unix_s: Vec<u64>,
    /// The machine; with an agent, the one that drives.
    pub environment: Environment,
    /// The gateway's machine, where an agent runs it elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway_environment: Option<Environment>,
    /// One for each experiment.
    pub runs: Vec<Run>,
    /// The document that they come from, with its numbers and claims.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paper: Option<PaperResult>,
}

/// One experiment and its repetitions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The name of a group of a fleet, or of all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The experiment.
    pub experiment: Experiment,
    /// The target: `fogmux 0.1.0`, or the address of a peer.
    pub target: String,
    /// The outcomes of the repetitions, in order.
    pub outcomes: Vec<Outcome>,
    /// The reason why there are fewer outcomes than requested, or none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The reasons why repetitions failed, whether or not others replaced them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<String>,
    /// Half of the interval's width that repetitions were to reach, as a share of the median.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<f64>,
}

impl Run {
    /// Of this experiment, before its first repetition.
    #[must_use]
    pub fn of(experiment: Experiment, target: String) -> Self {
        Self { name: None, experiment, target, outcomes: Vec::new(), problem: None, failed: Vec::new(), until: None }
    }

    /// Whether there are repetitions, and nothing came of any operation in any of them.
    #[must_use]
    pub fn is_fruitless(&self) -> bool {
        !self.outcomes.is_empty() && self.outcomes.iter().all(Outcome::is_fruitless)
    }
}

/// One repetition.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Outcome {
    /// When the repetition began, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub began_unix_ms: Option<u64>,
    /// When its measured time began, after connecting and warming up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured_from_unix_ms: Option<u64>,
    /// The processors that the gateway might run on, where its process is known here: a list such as `0-3,6`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway_affinity: Option<String>,
    /// By what frames were lost: `nftables`, `netem` or `relay`; none on a link that loses none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_by: Option<String>,
    /// The seed that the lost frames were drawn from; none if the kernel drew them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_seed: Option<u64>,
    /// Operations begun within the measurement, with those that were due then and begun in the drain.
    pub sent: u64,
    /// The number of these that were answered with success (QoS 0: that were sent).
    pub acknowledged: u64,
    /// Operations that were due within the measurement, where they come at a rate: `sent` and `unsent` together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offered: Option<u64>,
    /// The number of these that were due and not yet sent when the time was over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub behind: Option<u64>,
    /// The number of these that were not sent in the drain either.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unsent: Option<u64>,
    /// From when they were due to the end of the drain, once for each delivery (else answer) that they would have
    /// caused.
    #[serde(skip_serializing_if = "Latency::is_empty")]
    pub unsent_latency: Latency,
    /// The time of the schedule or, if that is longer, until the last operation was sent, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sending_seconds: Option<f64>,
    /// The number of these that nothing had answered when the drain ended.
    pub unanswered: u64,
    /// Refusals, failed operations, and messages and acknowledgements that are not as they were sent.
    pub errors: u64,
    /// The number of these that were messages nobody had sent to their subscriber.
    pub foreign: u64,
    /// The text of the first error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_error: Option<String>,
    /// Messages that should have reached subscribers.
    pub expected: u64,
    /// Different messages that did.
    pub delivered: u64,
    /// Messages that came again.
    pub duplicates: u64,
    /// Messages that came after a later one of the same publisher.
    pub reordered: u64,
    /// Values left out on purpose, where a protocol may (CoAP Observe); not part of `delivered`, nor lost.
    pub conflated: u64,
    /// Connections that ended before they should.
    pub disconnects: u64,
    /// From the first operation to the last delivery or answer, in seconds.
    pub seconds: f64,
    /// From when an operation was due to its delivery.
    pub delivery: Latency,
    /// From when an operation was due to its answer.
    pub answer: Latency,
    /// Of connecting, until the first operation may be sent.
    pub connect: Latency,
    /// Done operations (deliveries, else answers) in each tenth of a second since the first.
    pub per_tenth: Vec<u64>,
    /// Clients that left and came back, where they do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comings: Option<Comings>,
    /// Tenths of the measured time, where the rate changes in it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub slices: Vec<Slice>,
    /// Steady state: after connecting, before closing.
    pub bytes: Bytes,
    /// The same for connecting, of all connections together.
    pub connect_bytes: Bytes,
    /// The cipher suite that was agreed on, or empty.
    pub cipher: String,
    /// The settings of a fogmux gateway, as `KEY=VALUE` for its `--set`; all others had their default.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<String>,
    /// The resources used by the gateway, if its process is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway: Option<ProcessUse>,
    /// The resources used by the gateway while clients connected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway_connect: Option<ProcessUse>,
    /// The resources used by the generator.
    pub generator: ProcessUse,
    /// Seconds of processor time that others on this machine used meanwhile.
    pub others_cpu_s: f64,
    /// The reason why the generator and not the target limited the rate. Such an outcome is no evidence about a rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limited_by_generator: Option<String>,
    /// Joules, where a model or a meter was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub energy: Option<Energy>,
    /// Values that only some kinds of experiments have, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub more: BTreeMap<String, f64>,
}

/// The share of offered operations that may be sent after the time, as those of its last milliseconds may be.
const BEHIND_MAX: f64 = 0.01;

#[expect(clippy::cast_precision_loss, reason = "below 2^53")]
fn is_more(behind: u64, offered: u64) -> bool {
    behind as f64 > BEHIND_MAX * offered as f64
}

/// The size of the gateway's program, as a key of [`Outcome::more`].
pub const PROGRAM_BYTES: &str = "program_bytes";

impl Outcome {
    /// Whether operations came faster than they could be sent.
    #[must_use]
    pub fn fell_behind(&self) -> bool {
        let behind = self.behind.zip(self.offered).is_some_and(|(behind, offered)| is_more(behind, offered));
        behind || self.unsent.is_some_and(|unsent| unsent > 0)
    }

    /// Whether operations were begun, and nothing came of any.
    #[must_use]
    pub fn is_fruitless(&self) -> bool {
        self.sent > 0 && self.acknowledged == 0 && self.delivered == 0
    }

    /// Frames of closing all connections: part of a packet count, and of neither connecting nor steady state.
    pub fn note_closing(&mut self, wire: Wire) {
        #[expect(clippy::cast_precision_loss, reason = "below 2^53")]
        let mut note = |name: &str, value: u64| {
            self.more.insert(format!("closing.{name}"), value as f64);
        };
        note("bytes_up", wire.bytes_up);
        note("bytes_down", wire.bytes_down);
        note("packets_up", wire.packets_up);
        note("packets_down", wire.packets_down);
    }
}

/// Bytes and packets, layer by layer. `up` is to the gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Bytes {
    /// Bytes of application payloads, towards the gateway.
    pub payload_up: u64,
    /// The same, down.
    pub payload_down: u64,
    /// Bytes that the protocol state machine wrote, payloads included.
    pub protocol_up: u64,
    /// The same, read.
    pub protocol_down: u64,
    /// Bytes written to sockets, with TLS, DTLS and OSCORE.
    pub socket_up: u64,
    /// The same, out of sockets.
    pub socket_down: u64,
    /// The traffic that the link counted, with all headers down to Ethernet's; `None` without an emulated link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wire: Option<Wire>,
}

impl Bytes {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.with(other, u64::saturating_add)
    }

    /// Returns the difference to `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        self.with(earlier, u64::saturating_sub)
    }

    fn with(self, other: Self, change: fn(u64, u64) -> u64) -> Self {
        Self {
            payload_up: change(self.payload_up, other.payload_up),
            payload_down: change(self.payload_down, other.payload_down),
            protocol_up: change(self.protocol_up, other.protocol_up),
            protocol_down: change(self.protocol_down, other.protocol_down),
            socket_up: change(self.socket_up, other.socket_up),
            socket_down: change(self.socket_down, other.socket_down),
            wire: self.wire,
        }
    }
}

impl Wire {
    /// Returns the difference to `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            bytes_up: self.bytes_up.saturating_sub(earlier.bytes_up),
            bytes_down: self.bytes_down.saturating_sub(earlier.bytes_down),
            packets_up: self.packets_up.saturating_sub(earlier.packets_up),
            packets_down: self.packets_down.saturating_sub(earlier.packets_down),
        }
    }
}

/// Counters of the link's two ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wire {
    /// Bytes of frames towards the gateway.
    pub bytes_up: u64,
    /// Bytes of frames towards the clients.
    pub bytes_down: u64,
    /// Frames towards the gateway.
    pub packets_up: u64,
    /// Frames towards the clients.
    pub packets_down: u64,
}

/// The resources that a process used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessUse {
    /// Processor time in microseconds.
    pub cpu_us: f64,
    /// Over how many microseconds it was looked at.
    pub wall_us: f64,
    /// Resident at the end, in bytes.
    pub resident_bytes: u64,
    /// The most since it was looked at, in bytes.
    pub peak_resident_bytes: u64,
    /// Of addresses at the end, used or not, in bytes.
    pub virtual_bytes: u64,
    /// Instructions, where the machine counts them; of the kernel too, if [`Environment::counters`] says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions: Option<u64>,
    /// Cycles, in the same way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cycles: Option<u64>,
    /// It was another machine's processor time.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub elsewhere: bool,
}

impl Outcome {
    /// SHA-256 over [`Outcome::settings`], a line each, for what has no room for all of them; none without any.
    #[must_use]
    pub fn configuration_sha256(&self) -> Option<String> {
        let lines: String = self.settings.iter().map(|setting| format!("{setting}\n")).collect();
        (!lines.is_empty()).then(|| fogmux_net::channel::hex(&Sha256::digest(&lines)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_is_told_from_another_by_its_hash() {
        let set = |settings: &[&str]| Outcome {
            settings: settings.iter().map(|setting| (*setting).to_owned()).collect(),
            ..Outcome::default()
        };
        // printf 'log.filter=warn\n' | sha256sum
        let hash = "dff39d898bed846b290b79d0bfa39ea8a9553179d7527eab4be08490c5a3a745";
        assert_eq!(set(&["log.filter=warn"]).configuration_sha256().as_deref(), Some(hash));
        assert_ne!(set(&["log.filter=info"]).configuration_sha256().as_deref(), Some(hash));
        assert_eq!(set(&[]).configuration_sha256(), None);
    }

    #[test]
    fn counters_survive_json_and_absent_ones_stay_absent() {
        let counted = ProcessUse { instructions: Some(u64::MAX), cycles: Some(0), ..ProcessUse::default() };
        let text = serde_json::to_string(&counted).unwrap();
        assert_eq!(serde_json::from_str::<ProcessUse>(&text).unwrap(), counted, "{text}");
        let text = serde_json::to_string(&ProcessUse::default()).unwrap();
        assert!(!text.contains("instructions") && !text.contains("cycles"), "{text}");
        assert_eq!(serde_json::from_str::<ProcessUse>(&text).unwrap(), ProcessUse::default());
    }
}
