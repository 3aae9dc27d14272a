//! The loads that servers are compared by.

/// The figures by which servers are compared under a load.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Figure {
    /// Processor time and rate of messages as fast as windows allow.
    Cost,
    /// Processor time and latency at a given rate.
    Latency,
    /// Resident memory of a connection at rest.
    Memory,
}

/// A load: its name in `docs/benchmarks.md`, the door that it needs, and what it says to `fogmux bench peer`.
pub(crate) struct Load {
    pub(crate) name: &'static str,
    /// The scheme of the URL, as [`fogmux_tests::foreign::Foreign::url`] has it.
    pub(crate) door: &'static str,
    pub(crate) figure: Figure,
    pub(crate) flags: &'static [&'static str],
    /// Settings of the gateway where its defaults do more than any peer.
    pub(crate) settings: &'static [&'static str],
}

/// Confirmable, as the requests of C2-get are.
const PUT: &[&str] = &["--operation", "put", "--qos", "1", "--topic", "example_data", "--window", "1", "--pubs", "64"];

/// A hundred observers of a resource that is PUT, the next value when the last is acknowledged.
const OBSERVE: &[&str] = &["--retain", "--qos", "1", "--topic", "example_data", "--window", "1", "--subs", "100"];

/// As libcoap's server keeps them.
const IN_MEMORY: &[&str] = &["store.durability=none"];

/// In the order of the table.
pub(crate) const LOADS: &[Load] = &[
    cost("W1", "mqtt", &["--size", "10", "--in-flight", "10000"]),
    cost("W1s", "mqtt", &["--size", "10", "--in-flight", "100"]),
    cost("W2", "mqtt", &["--size", "10", "--qos", "1"]),
    cost("W3", "mqtt", &["--size", "10", "--qos", "2"]),
    cost("W4", "mqtt", &["--pubs", "10", "--subs", "10", "--topics", "10", "--in-flight", "10000"]),
    cost("W5", "mqtt", &["--subs", "100", "--in-flight", "20000"]),
    cost("W6", "mqtt", &["--size", "1024", "--qos", "1", "--pubs", "10", "--subs", "10", "--topics", "10"]),
    cost("64K", "mqtt", &["--size", "65536", "--qos", "1", "--window", "20"]),
    latency("W7", "mqtt", &["--rate", "1000"]),
    latency("W7-q1", "mqtt", &["--rate", "1000", "--qos", "1"]),
    latency("W7-10k", "mqtt", &["--rate", "10000"]),
    memory("W8", "mqtt", &["--operation", "hold", "--pubs", "5000"]),
    cost("C1", "coap", &["--operation", "get", "--topic", "example_data", "--window", "1"]),
    cost("C2-get", "coap", &["--operation", "get", "--topic", "example_data", "--window", "1", "--pubs", "64"]),
    Load { name: "C2-put", door: "coap", figure: Figure::Cost, flags: PUT, settings: IN_MEMORY },
    cost("C2-put-disk", "coap", PUT),
    Load { name: "C5", door: "coap", figure: Figure::Cost, flags: OBSERVE, settings: IN_MEMORY },
    cost("C3", "coaps", &["--operation", "get", "--topic", "example_data", "--window", "1", "--pubs", "64"]),
    cost("C4", "coaps", &["--operation", "connect", "--topic", "example_data", "--pubs", "16"]),
    cost("h1-get", "http", &["--door", "http1", "--operation", "get", "--pubs", "10", "--window", "1"]),
    cost("h2-get", "h2c", &["--door", "http2", "--operation", "get", "--pubs", "10", "--window", "1"]),
    cost("X1", "xmpp", &[]),
    cost("X2", "xmpp", &["--subs", "100"]),
    cost("X3", "xmpp", &["--pubs", "10", "--subs", "10", "--topics", "10"]),
];

/// The names of all, for a message.
pub(crate) fn names() -> String {
    LOADS.iter().map(|load| load.name).collect::<Vec<_>>().join(" ")
}

const fn cost(name: &'static str, door: &'static str, flags: &'static [&'static str]) -> Load {
    Load { name, door, figure: Figure::Cost, flags, settings: &[] }
}

const fn latency(name: &'static str, door: &'static str, flags: &'static [&'static str]) -> Load {
    Load { name, door, figure: Figure::Latency, flags, settings: &[] }
}

const fn memory(name: &'static str, door: &'static str, flags: &'static [&'static str]) -> Load {
    Load { name, door, figure: Figure::Memory, flags, settings: &[] }
}
