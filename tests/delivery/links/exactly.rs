//! QoS 2 over a link whose line is cut, and between brokers that are killed.

use std::collections::BTreeMap;
use std::path::Path;
use std::thread::{self, sleep};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::{Gateway, Plan};
use rustix::process::Signal;

use super::line::{Line, Mailbox, PARALLEL, north, number, numbered, publish_exactly, wait, wait_up};
use crate::mqtt_bridge::peer::{Mosquitto, Reader, publish};

/// Mosquitto and the gateway stay, the line between them is cut many times in two streams.
pub(super) fn cut() -> Result<String> {
    const COUNT: usize = 3000;
    let mosquitto = Mosquitto::start("max_queued_messages 100000\n")?;
    let line = Line::new(Some(mosquitto.address))?;
    let lines = "out = [{ filter = \"up/#\", qos = 2 }]\nin = [{ filter = \"down/#\", qos = 2 }]\n\
                 inflight_max = 1000";
    let gateway = Gateway::start_configured(&north(line.address, lines))?;
    wait_up(&gateway, "north")?;
    let fog = gateway.address("mqtt")?;
    let mut here = Reader::open(fog, "here", &["down/#"])?;
    let mut there = Reader::open(mosquitto.address, "there", &["up/#"])?;
    let sources = [(fog, "up/x"), (mosquitto.address, "down/x")]
        .map(|(broker, topic)| thread::spawn(move || publish(broker, topic, 2, &[], &numbered(COUNT))));
    let end = (COUNT - 1).to_string();
    let mut cuts = 0;
    while cuts < 8 {
        sleep(Duration::from_millis(60 + 37 * (cuts % 5)));
        line.cut();
        cuts += 1;
        wait_up(&gateway, "north")?;
    }
    for source in sources {
        source.join().ok().context("a publisher panicked")??;
    }
    there.until_value("up/x", &end).with_context(|| gateway.log())?;
    here.until_value("down/x", &end).with_context(|| gateway.log())?;
    for (reader, topic) in [(&there, "up/x"), (&here, "down/x")] {
        let got = reader.payloads(topic);
        ensure!(got == numbered(COUNT), "{topic}: {} of {COUNT}, {:?}", got.len(), faults(&got, COUNT));
    }
    Ok(format!("{cuts} cuts"))
}

/// Numbers that did not come exactly once.
fn faults<S: AsRef<str>>(got: &[S], count: usize) -> Vec<(String, usize)> {
    let mut times: BTreeMap<String, usize> = numbered(count).into_iter().map(|number| (number, 0)).collect();
    for one in got {
        *times.entry(one.as_ref().to_owned()).or_default() += 1;
    }
    times.into_iter().filter(|(_, times)| *times != 1).take(20).collect()
}

/// A gateway with a link, and the one that it leads to, are killed in turn while QoS 2 messages come: what was
/// acknowledged arrives exactly once, and what was not at most once.
pub(super) fn killed() -> Result<String> {
    const KILLS: usize = 6;
    const COUNT: usize = 400;
    let (near, far) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let line = Line::new(None)?;
    let configuration = north(line.address, "out = [{ filter = \"up/#\", qos = 2 }]");
    let start_near = |data: &Path| {
        Gateway::start_as(Plan { data: Some(data), configuration: Some(&configuration), ..Plan::default() })
    };
    let start_far = |data: &Path| Gateway::start_as(Plan { data: Some(data), ..Plan::default() });
    let mut other = start_far(far.path())?;
    let mailbox = Mailbox("mailbox").open(other.address("mqtt")?, "up/#")?;
    line.lead(Some(other.address("mqtt")?));
    let mut gateway = start_near(near.path())?;
    wait_up(&gateway, "north")?;
    let (mut next, mut doubtful) = (0, Vec::new());
    for kill in 0..KILLS {
        let fog = gateway.address("mqtt")?;
        let range = next..next + COUNT;
        let source = thread::spawn(move || publish_exactly(fog, "up/x", range));
        sleep(Duration::from_millis(40 + 90 * (kill as u64 % 4)));
        if kill % 2 == 0 {
            gateway.signal(Signal::KILL)?;
            gateway.wait_exit(Duration::from_secs(10))?;
        } else {
            other.signal(Signal::KILL)?;
            other.wait_exit(Duration::from_secs(10))?;
        }
        let done = source.join().ok().context("the publisher panicked")??;
        if done < next + COUNT {
            doubtful.extend(done..done + PARALLEL);
            next = done + PARALLEL;
        } else {
            next = done;
        }
        if kill % 2 == 0 {
            gateway = start_near(near.path())?;
        } else {
            other = start_far(far.path())?;
            line.lead(Some(other.address("mqtt")?));
        }
        wait_up(&gateway, "north")?;
    }
    wait(&gateway, "north", |entry| number(entry, "/queue/messages") == 0)?;
    let acknowledged: Vec<usize> = (0..next).filter(|number| !doubtful.contains(number)).collect();
    let got = mailbox.empty(other.address("mqtt")?, acknowledged.len())?;
    let mut times: BTreeMap<usize, usize> = BTreeMap::new();
    for payload in &got {
        *times.entry(payload.parse()?).or_default() += 1;
    }
    let lost: Vec<_> = acknowledged.iter().filter(|number| !times.contains_key(number)).take(20).collect();
    let doubled: Vec<_> = times.iter().filter(|(_, times)| **times > 1).take(20).collect();
    ensure!(lost.is_empty() && doubled.is_empty(), "of {}: lost {lost:?}, doubled {doubled:?}", acknowledged.len());
    Ok(format!("{KILLS} kills, {} acknowledged, {} doubtful", acknowledged.len(), doubtful.len()))
}

/// Mosquitto without persistence forgets the link's session when it ends. Packet identifiers begin again, and must not
/// be taken for repetitions of the messages that had them before, in either direction.
pub(super) fn forgetful() -> Result<String> {
    const COUNT: usize = 1500;
    let mut mosquitto = Mosquitto::start("max_queued_messages 100000\n")?;
    let line = Line::new(Some(mosquitto.address))?;
    let lines = "out = [{ filter = \"up/#\", qos = 2 }]\nin = [{ filter = \"down/#\", qos = 2 }]";
    let gateway = Gateway::start_configured(&north(line.address, lines))?;
    let fog = gateway.address("mqtt")?;
    let mut here = Reader::open(fog, "here", &["down/#"])?;
    for round in 0..3 {
        wait_up(&gateway, "north")?;
        let mut there = Reader::open(mosquitto.address, "there", &["up/#"])?;
        let (up, down) = (format!("up/{round}"), format!("down/{round}"));
        // As many that the identifiers of exchanges that were cut off come again.
        publish(fog, &up, 2, &[], &numbered(COUNT))?;
        publish(mosquitto.address, &down, 2, &[], &numbered(COUNT))?;
        let end = (COUNT - 1).to_string();
        there.until_value(&up, &end)?;
        here.until_value(&down, &end)?;
        for (reader, topic) in [(&there, &up), (&here, &down)] {
            let got = reader.payloads(topic);
            ensure!(got == numbered(COUNT), "{topic}: {} of {COUNT}, {:?}", got.len(), faults(&got, COUNT));
        }
        // A stream is cut off in the middle of its exchanges.
        let broker = mosquitto.address;
        let source = thread::spawn(move || publish_exactly(broker, "down/cut", 0..50_000));
        sleep(Duration::from_millis(150));
        mosquitto.kill()?;
        drop(source.join());
        mosquitto.restart()?;
    }
    Ok(String::new())
}
