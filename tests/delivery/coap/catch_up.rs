//! Observers of a filter that catch up on retained messages over UDP and DTLS (RFC 7641 §4.5, RFC 7252 §4.7).

use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fogmux_tests::coap::{self, CON};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::mqtt::{Connection, V4};

use super::{Observer, retain};

/// For an observation that begins or ends.
const PATIENCE: Duration = Duration::from_secs(20);
/// Bytes of a receive buffer that are the least that Linux gives.
const SMALLEST_BUFFER: usize = 1;

fn retained(gateway: &Gateway, prefix: &str, count: usize, size: usize) -> Result<()> {
    retain(gateway, (0..count).map(|number| (format!("{prefix}/{number}"), vec![b'x'; size])))
}

pub(super) fn small_buffer() -> Result<String> {
    let mut gateway = Gateway::start(&[])?;
    for (count, size) in [(0, 1), (1, 1), (2, 1), (97, 1), (97, 400), (20, 1023), (20, 1024), (1000, 10)] {
        let prefix = format!("small/{count}/{size}");
        retained(&gateway, &prefix, count, size)?;
        let socket = coap::endpoint(gateway.address("coap")?)?;
        rustix::net::sockopt::set_socket_recv_buffer_size(&socket, SMALLEST_BUFFER)?;
        let mut observer = Observer::register_by(socket, "", Some(&format!("{prefix}/#")), &[])?;
        let all = observer.follow(|observer| observer.newest.len() >= count)?;
        ensure!(all, "{} of {count} retained messages of {size} bytes", observer.newest.len());
        observer.deregister()?;
    }
    gateway.settle()?;
    Ok(String::new())
}

pub(super) fn late() -> Result<String> {
    const COUNT: usize = 60;
    let mut gateway = Gateway::start(&["coap.ack_timeout=500ms"])?;
    retained(&gateway, "late", COUNT, 20)?;
    let mut observer = Observer::register(gateway.address("coap")?, "", Some("late/#"), &[])?;
    let mut confirmables = 0;
    while observer.newest.len() < COUNT {
        let message = observer.receive(super::PATIENCE)?;
        let message = message.with_context(|| format!("{} of {COUNT}", observer.newest.len()))?;
        confirmables += usize::from(message.kind == CON);
        if message.kind == CON && confirmables % 8 == 3 {
            // Not before it comes again, and nothing else comes meanwhile.
            let again = observer.receive(super::PATIENCE)?;
            ensure!(again.as_ref() == Some(&message), "{again:?} before the acknowledgement");
        }
        observer.note(&message)?;
    }
    observer.deregister()?;
    gateway.settle()?;
    Ok(format!("{confirmables} Confirmables"))
}

pub(super) fn never() -> Result<String> {
    let mut gateway = Gateway::start(&["coap.ack_timeout=200ms", "coap.max_retransmit=2"])?;
    retained(&gateway, "never", 500, 20)?;
    let observer = Observer::register(gateway.address("coap")?, "", Some("never/#"), &[])?;
    let (mut topics, mut repeats) = (BTreeSet::new(), 0);
    while let Some(message) = observer.receive(Duration::from_secs(3))? {
        repeats += usize::from(!topics.insert(message.topic()));
    }
    ensure!((1..=8).contains(&topics.len()), "{} topics without an acknowledgement", topics.len());
    ensure!(repeats == 2, "{repeats} repetitions");
    gateway.settle()?;
    Ok(format!("{} topics", topics.len()))
}

fn command(gateway: &Gateway, url: &str, count: usize, more: &[&str]) -> Result<()> {
    let binary = std::env::var("FOGMUX_BIN").context("FOGMUX_BIN names no gateway")?;
    let mut command = Command::new(binary);
    let count_text = count.to_string();
    command.args(["sub", url, "--count", &count_text, "--timeout", "10", "--format", "text"]).args(more);
    command.arg("--ca").arg(gateway.ca());
    let output = command.stdin(Stdio::null()).stderr(Stdio::piped()).output()?;
    let topics: BTreeSet<&[u8]> = output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).collect();
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(topics.len() == count, "{} of {count} retained messages; {said}", topics.len());
    Ok(())
}

pub(super) fn command_udp() -> Result<String> {
    // The command leaves without a word: what is left of its observation ends when it is told something next.
    let mut gateway = Gateway::start(&[])?;
    retained(&gateway, "many", 5_000, 20)?;
    let address = gateway.address("coap")?;
    command(&gateway, &format!("coap://{address}/many/%23"), 5_000, &[])?;
    gateway.check_alive()?;
    Ok(String::new())
}

pub(super) fn command_dtls() -> Result<String> {
    let mut gateway = Gateway::start(&[])?;
    retained(&gateway, "many", 1_000, 20)?;
    let port = gateway.address("coaps")?.port();
    command(&gateway, &format!("coaps://localhost:{port}/many/%23"), 1_000, &["--qos", "0"])?;
    gateway.check_alive()?;
    Ok(String::new())
}

/// Large messages that are not retained, on many topics at once: only their first blocks come by themselves.
pub(super) fn command_events() -> Result<String> {
    const SIZES: [(usize, usize); 4] = [(16, 50_000), (17, 100_000), (97, 20_000), (97, 50_000)];
    let mut gateway = Gateway::start(&[])?;
    let binary = std::env::var("FOGMUX_BIN").context("FOGMUX_BIN names no gateway")?;
    let address = gateway.address("coap")?;
    let mut publisher = Connection::open(gateway.address("mqtt")?, V4, "publisher")?;
    for (count, bytes) in SIZES {
        let url = format!("coap://{address}/{count}/{bytes}/%23");
        let mut command = Command::new(&binary);
        command.args(["sub", &url, "--count", &count.to_string(), "--timeout", "20", "--format", "text"]);
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        gateway.wait_metric("fogmux_door_connections{door=\"coap\"}", PATIENCE, |observers| observers > 0.0)?;
        for number in 0..count {
            let payload = format!("{number:06}{}", "x".repeat(bytes - 6));
            publisher.publish(&format!("{count}/{bytes}/{number}"), payload.as_bytes())?;
        }
        let output = command.wait_with_output()?;
        let told: BTreeSet<&[u8]> =
            output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).collect();
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(told.len() == count, "{} of {count} messages of {bytes} bytes; {said}", told.len());
        gateway.wait_metric("fogmux_door_connections{door=\"coap\"}", PATIENCE, |observers| observers == 0.0)?;
    }
    gateway.check_alive()?;
    Ok(String::new())
}

/// Many times as much as there is room for: the rest of each message is kept until it is fetched, and the next ones
/// wait for that.
pub(super) fn command_large_events() -> Result<String> {
    const COUNT: usize = 97;
    const BYTES: usize = 100_000;
    let mut gateway = Gateway::start(&["workers.count=1", "coap.download_bytes_max=1MiB"])?;
    let binary = std::env::var("FOGMUX_BIN").context("FOGMUX_BIN names no gateway")?;
    let mut publisher = Connection::open(gateway.address("mqtt")?, V4, "publisher")?;
    for (scheme, name) in [("coap+tcp", "coap_tcp"), ("coap", "coap")] {
        let address = gateway.address(name)?;
        let mut command = Command::new(&binary);
        command.args(["sub", &format!("{scheme}://{address}/{name}/%23"), "--count", &COUNT.to_string()]);
        command.args(["--timeout", "30", "--format", "text"]);
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        gateway.wait_metric("fogmux_bus_subscriptions", PATIENCE, |filters| filters > 0.0)?;
        for number in 0..COUNT {
            let payload = format!("{number:06}{}", "x".repeat(BYTES - 6));
            publisher.publish(&format!("{name}/{number}"), payload.as_bytes())?;
        }
        let output = command.wait_with_output()?;
        let told: BTreeSet<&[u8]> =
            output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).collect();
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(told.len() == COUNT, "{} of {COUNT} over {scheme}; {said}", told.len());
        let lost = gateway.sum(&["fogmux_coap_events_lost_total"])?;
        ensure!(lost == 0, "{lost} are counted as lost");
        gateway.wait_metric("fogmux_bus_subscriptions", PATIENCE, |filters| filters == 0.0)?;
    }
    gateway.check_alive()?;
    Ok(String::new())
}
