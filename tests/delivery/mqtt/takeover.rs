//! Takeovers: nothing that the previous connection publishes, its will included, follows the messages that a client
//! publishes after its CONNACK (MQTT 5.0 §3.1.2.5, [MQTT-3.1.4-3]).

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::suite::Case;

use super::client::{Client, Login};
use super::wire::Transport;

mod equal;

pub(crate) const CASES: &[Case] = &[
    Case { name: "the will of a connection comes before its successor's CONNACK: continued sessions", run: continued },
    Case { name: "the will of a connection comes before its successor's CONNACK: fresh sessions", run: fresh },
    Case { name: "the will of a connection that is cut comes before its successor's CONNACK", run: cut },
    Case { name: "a takeover is the same as the end of the connection and a new one", run: equal::all },
];

const ROUNDS: usize = 200;
/// The value of a device that is there; the wills say `gone`.
const ONLINE: &[u8] = b"online";

/// How the previous connection ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ends {
    /// By the next one.
    Displaced,
    /// By its client's host, just before.
    Closed,
}

fn continued() -> Result<String> {
    rounds(3600, Ends::Displaced)
}

fn fresh() -> Result<String> {
    rounds(0, Ends::Displaced)
}

fn cut() -> Result<String> {
    rounds(0, Ends::Closed)
}

fn rounds(session: u32, ends: Ends) -> Result<String> {
    let mut gateway = Gateway::start(&[])?;
    let mut watcher = Client::open(&gateway, "watcher", Transport::Tcp)?;
    watcher.subscribe(&["status/#"], 1)?;
    let names: Vec<String> = (0..ROUNDS).map(|round| format!("status/{round}")).collect();
    let mut devices = Vec::new();
    for name in &names {
        let will = Login { will: Some(name), will_qos: 1, will_retain: true, ..Login::new(name, Transport::Tcp) };
        let login = Login { session, ..will.v5() };
        let online = |device: &mut Client| device.publish_all([(name.as_str(), ONLINE)], 1, true, 1);
        let mut before = Client::login(&gateway, &login)?;
        online(&mut before)?;
        let before = Some(before).filter(|_| ends == Ends::Displaced);
        let mut device = Client::login(&gateway, &login)?;
        online(&mut device)?;
        devices.push((before, device));
    }
    let mut seen: BTreeMap<String, Vec<Vec<u8>>> = BTreeMap::new();
    for _ in 0..3 * ROUNDS {
        let message = watcher.message_or("a value or a will")?;
        seen.entry(message.topic).or_default().push(message.payload);
    }
    let late = seen.values().filter(|values| values.last().is_none_or(|last| last != ONLINE)).count();
    ensure!(late == 0, "{late} of {ROUNDS} devices are online and said to be gone");
    let mut reader = Client::open(&gateway, "reader", Transport::Tcp)?;
    let mut kept = reader.subscribe(&["status/#"], 1)?.len();
    while kept < ROUNDS {
        let value = reader.message_or("a retained value").with_context(|| format!("{kept} came"))?;
        ensure!(value.payload == ONLINE, "{} is kept as gone", value.topic);
        kept += 1;
    }
    for (_, device) in &mut devices {
        device.send(&[0xe0, 0])?;
    }
    drop((devices, watcher, reader));
    if session == 0 {
        gateway.settle()?;
    }
    Ok(format!("{ROUNDS} takeovers"))
}
