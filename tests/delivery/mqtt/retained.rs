//! Retained messages of every number and size, at every QoS, over every transport.

use std::collections::BTreeSet;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::suite::Case;

use super::client::{Client, Login};
use super::wire::{SMALL_BUFFER, Transport};

pub(crate) const CASES: &[Case] = &[
    Case { name: "retained messages of any number arrive over TCP", run: || counts(Transport::Tcp, COUNTS) },
    Case { name: "retained messages of any number arrive over TLS", run: || counts(Transport::Tls, COUNTS) },
    Case { name: "retained messages of any number arrive over WebSocket", run: || counts(Transport::Ws, FEWER) },
    Case {
        name: "retained messages of any number arrive over secure WebSocket",
        run: || counts(Transport::Wss, FEWER),
    },
    Case { name: "retained messages of any number arrive over HTTP/2", run: || counts(Transport::Http2, COUNTS) },
    Case { name: "large retained messages arrive over TCP", run: || sizes(Transport::Tcp) },
    Case { name: "large retained messages arrive over TLS", run: || sizes(Transport::Tls) },
    Case { name: "large retained messages arrive over WebSocket", run: || sizes(Transport::Ws) },
    Case { name: "large retained messages arrive over secure WebSocket", run: || sizes(Transport::Wss) },
    Case { name: "large retained messages arrive over HTTP/2", run: || sizes(Transport::Http2) },
    Case { name: "a SUBSCRIBE with 40 filters brings 40 retained messages", run: forty_filters },
    Case { name: "mosquitto_sub gets every retained message", run: mosquitto },
];

/// Around the constants of the code: chunks of 32, four of them in a turn, four turns in a poll.
const COUNTS: &[usize] = &[0, 1, 2, 31, 32, 33, 96, 97, 128, 129, 512, 513, 1000, 5000];
const FEWER: &[usize] = &[0, 1, 33, 97, 129, 1000];
/// Number and bytes: above what is copied, above a WebSocket's buffer, near the largest packet.
const SIZES: &[(usize, usize)] = &[(20, 17_000), (60, 100_000), (12, 900_000)];

/// Keeps `count` values of `size` bytes below `root`.
fn keep(publisher: &mut Client, root: &str, count: usize, size: usize) -> Result<()> {
    let topics: Vec<String> = (0..count).map(|index| format!("{root}/{index}")).collect();
    let payload = vec![b'x'; size];
    publisher.publish_all(topics.iter().map(|topic| (topic.as_str(), payload.as_slice())), 1, true, 100)?;
    Ok(())
}

/// Subscribes and expects each of `count` values once, and after them what is published then.
fn expect(gateway: &Gateway, login: &Login<'_>, root: &str, count: usize, size: usize, qos: u8) -> Result<()> {
    let mut subscriber = Client::login(gateway, login)?;
    let mut seen = BTreeSet::new();
    let early = subscriber.subscribe(&[&format!("{root}/#")], qos)?;
    let mut early = early.into_iter();
    while seen.len() < count {
        let message = match early.next() {
            Some(message) => message,
            None => subscriber
                .message_or("a retained message")
                .with_context(|| format!("{} of {count} × {size} bytes came at QoS {qos}", seen.len()))?,
        };
        // The publisher's QoS 1 is the most there is.
        ensure!(message.retain && message.payload.len() == size && message.qos == qos.min(1), "{}", message.topic);
        ensure!(seen.insert(message.topic.clone()), "{} came twice", message.topic);
    }
    let live = format!("{root}/live");
    Client::open(gateway, "live", Transport::Tcp)?.publish_all([(live.as_str(), b"now".as_slice())], 1, false, 1)?;
    let message = subscriber.message_or("the live message")?;
    ensure!(message.topic == live && !message.retain, "{message:?}");
    Ok(())
}

fn counts(transport: Transport, counts: &[usize]) -> Result<String> {
    let mut gateway = Gateway::start(&[])?;
    let mut publisher = Client::open(&gateway, "publisher", Transport::Tcp)?;
    for count in counts {
        keep(&mut publisher, &format!("k{count}"), *count, 1)?;
    }
    for count in counts {
        for qos in 0..3 {
            let login = Login::new("subscriber", transport);
            expect(&gateway, &login, &format!("k{count}"), *count, 1, qos)?;
        }
    }
    drop(publisher);
    gateway.settle()?;
    Ok(format!("{} numbers", counts.len()))
}

fn sizes(transport: Transport) -> Result<String> {
    let mut gateway = Gateway::start(&[])?;
    let mut publisher = Client::open(&gateway, "publisher", Transport::Tcp)?;
    for (count, size) in SIZES {
        keep(&mut publisher, &format!("s{size}"), *count, *size)?;
    }
    for (count, size) in SIZES {
        for qos in 0..3 {
            for buffer in [None, Some(SMALL_BUFFER)] {
                if buffer.is_some() && qos != 1 {
                    continue;
                }
                let login = Login { buffer, ..Login::new("subscriber", transport) };
                expect(&gateway, &login, &format!("s{size}"), *count, *size, qos)?;
            }
        }
    }
    drop(publisher);
    gateway.settle()?;
    Ok(String::new())
}

fn forty_filters() -> Result<String> {
    let mut gateway = Gateway::start(&[])?;
    keep(&mut Client::open(&gateway, "publisher", Transport::Tcp)?, "ck", 40, 1)?;
    let topics: Vec<String> = (0..40).map(|index| format!("ck/{index}")).collect();
    let filters: Vec<&str> = topics.iter().map(String::as_str).collect();
    for transport in [Transport::Tcp, Transport::Tls, Transport::Ws, Transport::Http2] {
        let mut subscriber = Client::open(&gateway, "subscriber", transport)?;
        let mut came = subscriber.subscribe(&filters, 0)?.len();
        while came < 40 {
            subscriber.message_or("a retained message").with_context(|| format!("{came} of 40 came"))?;
            came += 1;
        }
    }
    gateway.settle()?;
    Ok(String::new())
}

/// A client from elsewhere: 97 values behind a wildcard, 40 by their names.
fn mosquitto() -> Result<String> {
    let mut gateway = Gateway::start(&[])?;
    let mut publisher = Client::open(&gateway, "publisher", Transport::Tcp)?;
    keep(&mut publisher, "r", 97, 1)?;
    keep(&mut publisher, "ck", 40, 1)?;
    let port = gateway.address("mqtt")?.port().to_string();
    let subscribe = |count: usize, filters: &[String]| -> Result<usize> {
        let mut command = Command::new("mosquitto_sub");
        // -W: an end, whatever happens, in seconds.
        command.args(["-h", "127.0.0.1", "-p", &port, "-W", "20", "-C", &count.to_string()]);
        for filter in filters {
            command.args(["-t", filter]);
        }
        let output = command.output().context("mosquitto_sub, of the package mosquitto-clients")?;
        Ok(output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count())
    };
    let wildcard = subscribe(97, &["r/#".to_owned()])?;
    ensure!(wildcard == 97, "{wildcard} of 97 came");
    let names: Vec<String> = (0..40).map(|index| format!("ck/{index}")).collect();
    let named = subscribe(40, &names)?;
    ensure!(named == 40, "{named} of 40 came");
    drop(publisher);
    gateway.settle()?;
    Ok(String::new())
}
