//! Names for what is read off an outcome.
//!
//! "Message" is an operation that was begun: what `*_per_message` divides by. With connections made over and over it
//! is what each of them carries, and then handshakes and goodbyes are part of every sum.

use super::claim::Side;
use super::frames;
use crate::experiment::{Experiment, Operation};
use crate::measure::latency::Latency;
use crate::outcome::{Outcome, PROGRAM_BYTES, ProcessUse, Wire};

/// One of them.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// The name in files.
    pub name: &'static str,
    /// The unit.
    pub unit: &'static str,
    /// A description.
    pub about: &'static str,
    read: fn(&Experiment, &Outcome) -> Option<f64>,
}

impl Metric {
    /// The number, if this outcome has it.
    #[must_use]
    pub fn read(&self, experiment: &Experiment, outcome: &Outcome) -> Option<f64> {
        (self.read)(experiment, outcome).filter(|number| number.is_finite())
    }
}

impl Metric {
    /// The side on which it lies where the generator was the limit, if it depends on how fast operations were sent.
    #[must_use]
    pub fn side(&self) -> Option<Side> {
        match (self.unit, self.name) {
            ("1/s" | "KiB/s", _) | (_, "gateway_cpu_percent") => Some(Side::AtLeast),
            ("s" | "ms", _) => Some(Side::AtMost),
            (_, "generator_cpu_percent") => Some(Side::Unknown),
            _ => None,
        }
    }
}

/// The metric of that name.
#[must_use]
pub fn named(name: &str) -> Option<&'static Metric> {
    METRICS.iter().find(|metric| metric.name == name)
}

macro_rules! metrics {
    ($($name:literal, $unit:literal, $about:literal, $read:expr;)*) => {
        &[$(Metric { name: $name, unit: $unit, about: $about, read: $read }),*]
    };
}

/// All metrics.
pub const METRICS: &[Metric] = metrics! {
    "sent_per_s", "1/s", "operations begun in a second", |_, o| per_second(o, o.sent);
    "acknowledged_per_s", "1/s", "operations answered as they should be, in a second", |_, o| per_second(o, o.acknowledged);
    "acknowledged_per_s_per_publisher", "1/s", "the same of one client",
        |e, o| Some(per_second(o, o.acknowledged)? / f64::from(e.publishers));
    "delivered_per_s", "1/s", "messages that reached subscribers in a second, all subscribers together",
        |_, o| per_second(o, o.delivered);
    "delivered_per_s_per_subscriber", "1/s", "what one subscriber saw",
        |e, o| Some(per_second(o, o.delivered)? / f64::from(e.subscribers));
    "delivered_per_s_per_client", "1/s", "what one subscriber saw of one publisher",
        |e, o| Some(per_second(o, o.delivered)? / f64::from(e.subscribers) / f64::from(e.publishers));
    "delivery_percent", "%", "deliveries, or answers where nobody listens, of those that should have been", |_, o| arrived(o);
    "lost_percent", "%", "what is missing of that", |_, o| Some(100.0 - arrived(o)?);
    "throughput_kib_per_s", "KiB/s", "payload delivered, or answered, in a second", throughput;
    "seconds_total", "s", "from the first operation to the last delivery or answer", |_, o| Some(o.seconds);
    "seconds_per_message", "s", "the same, for one operation", |e, o| Some(o.seconds / messages(e, o)?);
    "seconds_with_connect", "s", "the same, and the longest connecting before it",
        |_, o| Some(o.seconds + o.connect.max_us().unwrap_or(0.0) / 1e6);

    "first_fifth_percent", "%", "speed in the first fifth of the time, of the mean", |_, o| course(o, |c| c.first);
    "last_fifth_percent", "%", "the same in the last fifth", |_, o| course(o, |c| c.last);
    "least_tenth_percent", "%", "the slowest tenth of a second, of the mean", |_, o| course(o, |c| c.least);
    "greatest_tenth_percent", "%", "the fastest one", |_, o| course(o, |c| c.greatest);
    "drops_percent", "%", "tenths of a second with less than three quarters of the mean", |_, o| course(o, |c| c.drops);

    "delivery_mean_ms", "ms", "from when a message was due to its delivery: mean", |_, o| ms(o.delivery.mean_us());
    "delivery_mean_with_connect_ms", "ms", "the same, and of the longest connecting what each message has of it", shared;
    "delivery_min_ms", "ms", "shortest", |_, o| ms(o.delivery.min_us());
    "delivery_p50_ms", "ms", "median", |_, o| percentile(&o.delivery, 50.0);
    "delivery_p95_ms", "ms", "95th percentile", |_, o| percentile(&o.delivery, 95.0);
    "delivery_p99_ms", "ms", "99th percentile", |_, o| percentile(&o.delivery, 99.0);
    "delivery_max_ms", "ms", "longest", |_, o| ms(o.delivery.max_us());
    "answer_mean_ms", "ms", "from when an operation was due to its answer: mean", |_, o| ms(o.answer.mean_us());
    "answer_min_ms", "ms", "shortest", |_, o| ms(o.answer.min_us());
    "answer_p50_ms", "ms", "median", |_, o| percentile(&o.answer, 50.0);
    "answer_p95_ms", "ms", "95th percentile", |_, o| percentile(&o.answer, 95.0);
    "answer_p99_ms", "ms", "99th percentile", |_, o| percentile(&o.answer, 99.0);
    "answer_max_ms", "ms", "longest", |_, o| ms(o.answer.max_us());
    "connect_mean_ms", "ms", "transport, TLS and login of one connection: mean", |_, o| ms(o.connect.mean_us());
    "exchange_mean_ms", "ms", "connecting and the delivery, or else the answer, together: mean", exchange;

    "bytes_per_message", "bytes", "on the wire, both ways, frames with their Ethernet header", |e, o| per_message(e, o, bytes);
    "packets_per_message", "packets", "on the wire, both ways", |e, o| per_message(e, o, packets);
    "bytes_up_per_message", "bytes", "towards the gateway", |e, o| per_message(e, o, |w| w.bytes_up);
    "bytes_down_per_message", "bytes", "from the gateway", |e, o| per_message(e, o, |w| w.bytes_down);
    "packets_up_per_message", "packets", "towards the gateway", |e, o| per_message(e, o, |w| w.packets_up);
    "packets_down_per_message", "packets", "from the gateway", |e, o| per_message(e, o, |w| w.packets_down);
    "bytes_total", "bytes", "of everything, connecting and closing included", |_, o| Some(count(bytes(&whole(o)?)));
    "packets_total", "packets", "of everything, connecting and closing included", |_, o| Some(count(packets(&whole(o)?)));
    "bytes_of_100_with_connect", "bytes", "of connecting, closing and a hundred messages; without a connection, of trying",
        |e, o| with_connect(e, o, bytes);
    "bytes_up_total", "bytes", "towards the gateway", |_, o| Some(count(whole(o)?.bytes_up));
    "bytes_down_total", "bytes", "from the gateway", |_, o| Some(count(whole(o)?.bytes_down));
    "packets_up_total", "packets", "towards the gateway", |_, o| Some(count(whole(o)?.packets_up));
    "packets_down_total", "packets", "from the gateway", |_, o| Some(count(whole(o)?.packets_down));
    "connect_bytes", "bytes", "on the wire for making one connection", |_, o| per_connection(o, bytes);
    "connect_packets", "packets", "on the wire for making one connection", |_, o| per_connection(o, packets);
    "cooked_bytes_per_message", "bytes",
        "as a Linux cooked capture counts: 16 bytes before each IP packet, which is filled up to 46",
        |e, o| Some(o.more.get("frames.cooked_bytes")? / messages(e, o)?);
    "frame_up_1_bytes", "bytes", "a frame towards the gateway: number 1 of those of the first connection that have data", |_, o| sequence(o, "up.1");
    "frame_up_2_bytes", "bytes", "a frame towards the gateway: number 2 of those of the first connection that have data", |_, o| sequence(o, "up.2");
    "frame_up_3_bytes", "bytes", "a frame towards the gateway: number 3 of those of the first connection that have data", |_, o| sequence(o, "up.3");
    "frame_up_4_bytes", "bytes", "a frame towards the gateway: number 4 of those of the first connection that have data", |_, o| sequence(o, "up.4");
    "frame_up_5_bytes", "bytes", "a frame towards the gateway: number 5 of those of the first connection that have data", |_, o| sequence(o, "up.5");
    "frame_down_1_bytes", "bytes", "a frame from the gateway, number 1", |_, o| sequence(o, "down.1");
    "frame_down_2_bytes", "bytes", "a frame from the gateway, number 2", |_, o| sequence(o, "down.2");
    "frame_down_3_bytes", "bytes", "a frame from the gateway, number 3", |_, o| sequence(o, "down.3");
    "frame_down_4_bytes", "bytes", "a frame from the gateway, number 4", |_, o| sequence(o, "down.4");
    "frame_down_5_bytes", "bytes", "a frame from the gateway, number 5", |_, o| sequence(o, "down.5");
    "frame_ack_bytes", "bytes", "an acknowledgement of TCP without data", |_, o| sequence(o, "ack");
    "frame_data_min_bytes", "bytes", "the least that a frame with data carries in TCP or UDP", |_, o| sequence(o, "data_min");
    "frames_clear_percent", "%", "frames with data of the application that nothing encrypts, of those with data",
        |_, o| sequence(o, "clear_percent");
    "connect_socket_up", "bytes", "written to the socket for making one connection, above TCP or UDP",
        |_, o| opening(o, o.connect_bytes.socket_up);
    "connect_socket_down", "bytes", "the same from the gateway", |_, o| opening(o, o.connect_bytes.socket_down);
    "protocol_up_per_message", "bytes", "of the protocol itself, below TLS and above TCP or UDP, towards the gateway",
        |e, o| protocol(e, o, o.bytes.protocol_up);
    "protocol_down_per_message", "bytes", "the same from the gateway", |e, o| protocol(e, o, o.bytes.protocol_down);

    "gateway_cpu_percent", "%", "processor time of the gateway, of one core", |_, o| cpu_percent(o.gateway.as_ref()?);
    "gateway_cpu_us_per_message", "µs", "processor time of the gateway", |e, o| Some(o.gateway?.cpu_us / messages(e, o)?);
    "gateway_cycles_per_message", "cycles", "of the gateway, where the machine counts them",
        |e, o| Some(count(o.gateway?.cycles?) / messages(e, o)?);
    "gateway_memory_mib", "MiB", "resident, of the gateway, at the end", |_, o| Some(mib(o.gateway?.resident_bytes));
    "gateway_peak_mib", "MiB", "the most that was resident of the gateway", |_, o| Some(mib(o.gateway?.peak_resident_bytes));
    "program_mib", "MiB", "the file of the gateway's program", |_, o| o.more.get(PROGRAM_BYTES).map(|bytes| bytes / MIB);
    "generator_cpu_percent", "%", "processor time of the clients, of one core", |_, o| cpu_percent(&o.generator);
    "generator_cpu_us_per_message", "µs", "processor time of the clients", |e, o| Some(o.generator.cpu_us / messages(e, o)?);
    "generator_cycles_per_message", "cycles", "of the clients, where the machine counts them",
        |e, o| Some(count(o.generator.cycles?) / messages(e, o)?);
    "generator_memory_mib", "MiB", "resident, of the clients, at the end", |_, o| Some(mib(o.generator.resident_bytes));
    "generator_memory_virtual_mib", "MiB", "of addresses, used or not, of the clients, at the end",
        |_, o| Some(mib(o.generator.virtual_bytes));
};

#[expect(clippy::cast_precision_loss, reason = "below 2^53")]
fn count(number: u64) -> f64 {
    number as f64
}

const MIB: f64 = 1_048_576.0;

fn mib(bytes: u64) -> f64 {
    count(bytes) / MIB
}

fn ms(us: Option<f64>) -> Option<f64> {
    us.map(|us| us / 1e3)
}

fn percentile(latency: &Latency, percent: f64) -> Option<f64> {
    ms(latency.percentile_us(percent))
}

fn per_second(outcome: &Outcome, number: u64) -> Option<f64> {
    (outcome.seconds > 0.0).then(|| count(number) / outcome.seconds)
}

/// Operations begun; none: nothing can be said of one.
pub(super) fn messages(experiment: &Experiment, outcome: &Outcome) -> Option<f64> {
    let each = match experiment.operation {
        Operation::Connect => experiment.messages.max(1),
        Operation::Deliver | Operation::Get | Operation::Put | Operation::Post | Operation::Hold => 1,
    };
    (outcome.sent > 0).then(|| count(outcome.sent) * f64::from(each))
}

fn arrived(outcome: &Outcome) -> Option<f64> {
    // An operation that was due and never sent has not arrived either, be it that there was no connection.
    let unsent = outcome.unsent_latency.count();
    let (there, wanted) = match outcome.expected {
        0 => (outcome.acknowledged, outcome.sent + unsent),
        expected => (outcome.delivered, expected.saturating_sub(outcome.conflated) + unsent),
    };
    (wanted > 0).then(|| 100.0 * count(there) / count(wanted))
}

fn throughput(experiment: &Experiment, outcome: &Outcome) -> Option<f64> {
    let done = if experiment.delivers() { outcome.delivered } else { outcome.acknowledged };
    #[expect(clippy::cast_precision_loss, reason = "a payload is below 2^53 bytes")]
    let kib = experiment.payload_bytes as f64 / 1024.0;
    Some(per_second(outcome, done)? * kib)
}

/// Visits measure the whole of themselves as their answer.
fn exchange(experiment: &Experiment, outcome: &Outcome) -> Option<f64> {
    let connecting = outcome.connect.mean_us().unwrap_or(0.0);
    match (experiment.delivers(), experiment.operation) {
        (true, _) => ms(Some(connecting + outcome.delivery.mean_us()?)),
        (false, Operation::Connect) => ms(outcome.answer.mean_us()),
        (false, Operation::Deliver | Operation::Get | Operation::Put | Operation::Post | Operation::Hold) => {
            ms(Some(connecting + outcome.answer.mean_us()?))
        }
    }
}

/// The mean of deliveries, if connecting is spread over them.
fn shared(_: &Experiment, outcome: &Outcome) -> Option<f64> {
    let connecting = outcome.connect.max_us().unwrap_or(0.0) / count(outcome.delivery.count().max(1));
    ms(Some(outcome.delivery.mean_us()? + connecting))
}

fn bytes(wire: &Wire) -> u64 {
    wire.bytes_up.saturating_add(wire.bytes_down)
}

fn packets(wire: &Wire) -> u64 {
    wire.packets_up.saturating_add(wire.packets_down)
}

/// The traffic on the wire for each message: in the steady state, or in total if the experiment includes connections.
fn per_message(experiment: &Experiment, outcome: &Outcome, of: impl Fn(&Wire) -> u64) -> Option<f64> {
    let wire = match experiment.operation {
        Operation::Connect => whole(outcome)?,
        Operation::Deliver | Operation::Get | Operation::Put | Operation::Post | Operation::Hold => {
            outcome.bytes.wire?
        }
    };
    Some(count(of(&wire)) / messages(experiment, outcome)?)
}

fn per_connection(outcome: &Outcome, of: impl Fn(&Wire) -> u64) -> Option<f64> {
    let connections = outcome.connect.count();
    (connections > 0).then(|| Some(count(of(&outcome.connect_bytes.wire?)) / count(connections)))?
}

fn protocol(experiment: &Experiment, outcome: &Outcome, number: u64) -> Option<f64> {
    (number > 0).then(|| Some(count(number) / messages(experiment, outcome)?))?
}

/// The course of speed over time: shares of the mean, and of tenths of a second.
struct Course {
    first: f64,
    last: f64,
    least: f64,
    greatest: f64,
    drops: f64,
}

/// A number of it in percent; nothing if there are too few whole tenths of a second to speak of one.
fn course(outcome: &Outcome, of: impl Fn(&Course) -> f64) -> Option<f64> {
    const TENTHS_MIN: usize = 5;
    const DROP: f64 = 0.75;
    // The last one is rarely whole.
    let (_, tenths) = outcome.per_tenth.split_last().filter(|(_, tenths)| tenths.len() >= TENTHS_MIN)?;
    let tenths: Vec<f64> = tenths.iter().map(|tenth| count(*tenth)).collect();
    let mean = |tenths: &[f64]| {
        let (sum, number) = tenths.iter().fold((0.0, 0.0), |(sum, number), tenth| (sum + tenth, number + 1.0));
        sum / number
    };
    let all = mean(&tenths);
    if all <= 0.0 {
        return None;
    }
    let fifth = tenths.len() / 5;
    let drops = tenths.iter().map(|tenth| if *tenth < DROP * all { 1.0 } else { 0.0 });
    let course = Course {
        first: mean(tenths.get(..fifth)?) / all,
        last: mean(tenths.get(tenths.len() - fifth..)?) / all,
        least: tenths.iter().copied().fold(f64::INFINITY, f64::min) / all,
        greatest: tenths.iter().copied().fold(0.0, f64::max) / all,
        drops: mean(&drops.collect::<Vec<_>>()),
    };
    Some(100.0 * of(&course))
}

/// A number of the frames that were recorded in their order.
fn sequence(outcome: &Outcome, key: &str) -> Option<f64> {
    outcome.more.get(&format!("{}{key}", frames::SEQUENCE_PREFIX)).copied()
}

fn opening(outcome: &Outcome, number: u64) -> Option<f64> {
    let connections = outcome.connect.count();
    (connections > 0).then(|| count(number) / count(connections))
}

/// A hundred messages, and what it takes to be able to send them.
fn with_connect(experiment: &Experiment, outcome: &Outcome, of: impl Fn(&Wire) -> u64) -> Option<f64> {
    let around = [Some(outcome.connect_bytes.wire?), closing(outcome)];
    let around: f64 = around.iter().flatten().map(|wire| count(of(wire))).sum();
    let each = match messages(experiment, outcome) {
        Some(messages) => count(of(&outcome.bytes.wire?)) / messages,
        // Nothing was sent.
        None => 0.0,
    };
    Some(around + 100.0 * each)
}

/// Connecting, the steady state and closing.
fn whole(outcome: &Outcome) -> Option<Wire> {
    let parts = [outcome.connect_bytes.wire, outcome.bytes.wire, closing(outcome)];
    parts.into_iter().flatten().reduce(|a, b| Wire {
        bytes_up: a.bytes_up.saturating_add(b.bytes_up),
        bytes_down: a.bytes_down.saturating_add(b.bytes_down),
        packets_up: a.packets_up.saturating_add(b.packets_up),
        packets_down: a.packets_down.saturating_add(b.packets_down),
    })
}

fn closing(outcome: &Outcome) -> Option<Wire> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counters, kept as floats")]
    let counter = |name: &str| outcome.more.get(name).map(|value| *value as u64);
    Some(Wire {
        bytes_up: counter("closing.bytes_up")?,
        bytes_down: counter("closing.bytes_down")?,
        packets_up: counter("closing.packets_up")?,
        packets_down: counter("closing.packets_down")?,
    })
}

fn cpu_percent(used: &ProcessUse) -> Option<f64> {
    (used.wall_us > 0.0).then(|| 100.0 * used.cpu_us / used.wall_us)
}

#[cfg(test)]
mod tests;
