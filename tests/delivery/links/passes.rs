//! Messages that pass over a link.

use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::Gateway;

use super::line::{north, number, numbered, wait, wait_up};
use crate::mqtt_bridge::peer::{Message, Mosquitto, Reader, publish};

const COUNT: usize = 97;

/// Every message arrives at the other side once, in order and with its QoS, under its other name; nothing comes back.
pub(super) fn both_ways() -> Result<String> {
    let mosquitto = Mosquitto::start("")?;
    let lines = "out = [{ filter = \"#\", qos = 2, local_prefix = \"room/\", remote_prefix = \"site1/\" }]\n\
                 in = [{ filter = \"#\", qos = 2, local_prefix = \"orders/\", remote_prefix = \"site1/do/\" },\n\
                 { filter = \"shared/#\", qos = 1 }]";
    publish(mosquitto.address, "site1/do/kept", 1, &["-r"], &["before".to_owned()])?;
    let mut gateway = Gateway::start_configured(&north(mosquitto.address, lines))?;
    let fog = gateway.address("mqtt")?;
    wait_up(&gateway, "north")?;
    let outcome = (|| {
        publish(fog, "room/kept", 1, &["-r"], &["now".to_owned()])?;
        let mut here = Reader::open(fog, "here", &["room/#", "orders/#", "shared/#"])?;
        let mut there = Reader::open(mosquitto.address, "there", &["site1/#", "shared/#"])?;
        for qos in 0..=2 {
            publish(fog, &format!("room/q{qos}"), qos, &[], &numbered(COUNT))?;
            publish(mosquitto.address, &format!("site1/do/q{qos}"), qos, &[], &numbered(COUNT))?;
        }
        publish(mosquitto.address, "shared/q2", 2, &[], &["one".to_owned()])?;
        publish(fog, "hall/q2", 2, &[], &["stays".to_owned()])?;
        let of_qos = |messages: &[Message], prefix: &str| {
            messages.iter().filter(|message| message.topic.starts_with(&format!("{prefix}q"))).count()
        };
        here.until(|messages| of_qos(messages, "orders/") >= 3 * COUNT).context("at the gateway")?;
        there.until(|messages| of_qos(messages, "site1/") >= 3 * COUNT).context("at mosquitto")?;
        here.until_value("shared/q2", "one")?;
        publish(fog, "room/end", 1, &[], &["end".to_owned()])?;
        there.until_value("site1/end", "end")?;
        for (reader, prefix) in [(&here, "orders/"), (&there, "site1/")] {
            for qos in 0..=2 {
                let topic = format!("{prefix}q{qos}");
                ensure!(reader.payloads(&topic) == numbered(COUNT), "{topic}: {:?}", reader.payloads(&topic));
                let of_topic = reader.messages.iter().filter(|message| message.topic == topic);
                ensure!(of_topic.clone().all(|message| message.qos == qos), "{topic} with another QoS");
            }
        }
        // The highest QoS of the entry.
        ensure!(here.messages.iter().any(|message| message.topic == "shared/q2" && message.qos == 1));
        for (broker, topic, text) in [(fog, "orders/kept", "before"), (mosquitto.address, "site1/kept", "now")] {
            let mut late = Reader::open(broker, "late", &[topic])?;
            late.until_value(topic, text).with_context(|| format!("{topic} is not retained"))?;
            ensure!(late.messages.iter().all(|message| message.retain), "{topic}: {:?}", late.messages);
        }
        let mut state = Reader::open(fog, "state", &["$SYS/broker/connection/north/state"])?;
        state.until_latest("$SYS/broker/connection/north/state", "1")?;
        let entry = wait(&gateway, "north", |entry| number(entry, "/queue/messages") == 0)?;
        ensure!(number(&entry, "/out/messages") >= 3 * COUNT as u64, "{entry}");
        ensure!(gateway.sum(&["fogmux_link_up{link=\"north\"}"])? == 1, "fogmux_link_up");
        let messages = gateway.sum(&["fogmux_link_messages_total{link=\"north\",direction=\"in\"}"])?;
        ensure!(messages >= 3 * COUNT as u64, "fogmux_link_messages_total is {messages}");
        Ok(String::new())
    })();
    outcome.with_context(|| format!("{}\n{}", mosquitto.log(), gateway.log())).and_then(|text| {
        gateway.check_alive()?;
        Ok(text)
    })
}

/// The properties of a message reach the other broker's subscriber.
pub(super) fn properties() -> Result<String> {
    let mosquitto = Mosquitto::start("")?;
    let gateway = Gateway::start_configured(&north(mosquitto.address, "out = [{ filter = \"p/#\", qos = 2 }]"))?;
    wait_up(&gateway, "north")?;
    let port = |address: std::net::SocketAddr| address.port().to_string();
    let format = "%p|%C|%R|%D|%P|%E|%F";
    let child = Command::new("mosquitto_sub")
        .args(["-V", "5", "-h", "127.0.0.1", "-p", &port(mosquitto.address), "-t", "p/#", "-q", "2", "-C", "1"])
        .args(["-W", "20", "-F", format])
        .stdout(Stdio::piped())
        .spawn()?;
    // Its subscription has to stand first.
    let mut probe = Reader::open(mosquitto.address, "probe", &["$SYS/broker/subscriptions/count"])?;
    probe.publish("nothing", "")?;
    sleep(Duration::from_millis(500));
    let told = Command::new("mosquitto_pub")
        .args(["-V", "5", "-h", "127.0.0.1", "-p", &port(gateway.address("mqtt")?), "-t", "p/x", "-q", "2"])
        .args(["-m", "text", "-D", "publish", "content-type", "text/plain", "-D", "publish", "response-topic", "r/t"])
        .args(["-D", "publish", "correlation-data", "c7", "-D", "publish", "user-property", "k", "v"])
        .args(["-D", "publish", "message-expiry-interval", "90", "-D", "publish", "payload-format-indicator", "1"])
        .status()?;
    ensure!(told.success(), "mosquitto_pub: {told}");
    let output = child.wait_with_output()?;
    let line = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    ensure!(["text|text/plain|r/t|c7|k:v|90|1", "text|text/plain|r/t|c7|k:v|89|1"].contains(&&*line), "{line:?}");
    Ok(String::new())
}

/// One link between two gateways, with the same filter out and in: each message crosses once.
pub(super) fn no_loop() -> Result<String> {
    let other = Gateway::start(&[])?;
    let broker = other.address("mqtt")?;
    let lines = "out = [{ filter = \"#\", qos = 2 }]\nin = [{ filter = \"#\", qos = 2 }]";
    let gateway = Gateway::start_configured(&north(broker, lines))?;
    wait_up(&gateway, "north")?;
    let fog = gateway.address("mqtt")?;
    let mut here = Reader::open(fog, "here", &["a/#"])?;
    let mut there = Reader::open(broker, "there", &["a/#"])?;
    for round in 0..10 {
        publish(fog, "a/h", 1, &["-r"], &[format!("h{round}")])?;
        there.until_value("a/h", &format!("h{round}"))?;
        publish(broker, "a/t", 1, &["-r"], &[format!("t{round}")])?;
        here.until_value("a/t", &format!("t{round}"))?;
    }
    // Behind everything that could come back.
    for _ in 0..2 {
        publish(fog, "a/end", 1, &[], &["h".to_owned()])?;
        there.until_value("a/end", "h")?;
        publish(broker, "a/end", 1, &[], &["t".to_owned()])?;
        here.until_value("a/end", "t")?;
        there.until_value("a/end", "t")?;
    }
    for (reader, topic) in [(&here, "a/h"), (&here, "a/t"), (&there, "a/h"), (&there, "a/t")] {
        ensure!(reader.payloads(topic).len() == 10, "{topic}: {:?}", reader.payloads(topic));
    }
    let entry = wait_up(&gateway, "north")?;
    ensure!(number(&entry, "/out/messages") == 12 && number(&entry, "/in/messages") == 12, "{entry}");
    Ok(String::new())
}
