//! Brokers and servers that others wrote, driven by the same generator.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use fogmux_tests::foreign;
use fogmux_tests::server::{Server, free_udp_port};
use fogmux_tests::suite::Case;

use crate::{check, lasting, number, outcomes};

pub(crate) const CASES: &[Case] = &[
    Case { name: "mosquitto, MQTT 3.1.1 and 5", run: mosquitto },
    Case { name: "libcoap's server, plain and by a pre-shared key", run: libcoap },
    Case { name: "aiocoap's server, observed too", run: aiocoap },
    Case { name: "nginx, HTTP/1.1 and HTTP/2", run: nginx },
    Case { name: "ejabberd, XMPP", run: ejabberd },
];

/// One short experiment, whose outcomes must be sound and must know what the server used.
fn drive(url: &str, pid: u32, words: &[&str]) -> Result<f64> {
    let pid = pid.to_string();
    let common = ["peer", url, "--pid", &pid, "--warm-up", "0.1", "--repeat", "1"];
    let report = lasting(&[&common[..], words].concat()).with_context(|| format!("{url} {}", words.join(" ")))?;
    let mut rate = 0.0;
    for outcome in outcomes(&report)? {
        check(outcome).with_context(|| format!("{url} {}", words.join(" ")))?;
        let used = number(outcome.get("gateway").context("the server's processor time is missing")?, "cpu_us")?;
        ensure!(used > 0.0, "the server used nothing");
        rate = number(outcome, "acknowledged")?.max(number(outcome, "delivered")?) / number(outcome, "seconds")?;
    }
    Ok(rate)
}

fn mosquitto() -> Result<String> {
    let peer = foreign::mosquitto()?;
    let url = peer.url("mqtt")?;
    let rates = [
        drive(url, peer.pid(), &["--in-flight", "1000"])?,
        drive(url, peer.pid(), &["--qos", "1"])?,
        drive(url, peer.pid(), &["--qos", "2", "--door", "mqtt5"])?,
    ];
    Ok(format!("({} messages a second by QoS)", rates.map(|rate| format!("{rate:.0}")).join(", ")))
}

fn libcoap() -> Result<String> {
    let (plain, secure) = (foreign::libcoap()?, foreign::libcoap_psk("secretPSK")?);
    let words = ["--topic", "example_data", "--pubs", "4", "--window", "1"];
    let url = plain.url("coap")?;
    let put = drive(url, plain.pid(), &[&words[..], &["--operation", "put", "--qos", "1"]].concat())?;
    let get = drive(url, plain.pid(), &[&words[..], &["--operation", "get"]].concat())?;
    let psk = ["--psk-id", "dev1", "--psk", "73656372657450534b", "--operation", "put", "--qos", "1"];
    let dtls = drive(secure.url("coaps")?, secure.pid(), &[&words[..], &psk].concat())?;
    Ok(format!("(PUT {put:.0}, GET {get:.0}, under DTLS {dtls:.0} a second)"))
}

fn aiocoap() -> Result<String> {
    let clients = std::env::var("FOGMUX_CLIENTS").context("FOGMUX_CLIENTS names no place; use `cargo xtask test`")?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("generator/aiocoap_server.py");
    let python = Path::new(&clients).join("venv/bin/python");
    let (server, port) = Server::start_at(free_udp_port, |port| {
        let mut command = Command::new(&python);
        command.arg(&script).arg(port.to_string());
        Ok(command)
    })?;
    let url = format!("coap://127.0.0.1:{port}");
    let words = ["--topic", "value", "--window", "1"];
    let put = drive(&url, server.pid(), &[&words[..], &["--operation", "put", "--qos", "1"]].concat())?;
    let get = drive(&url, server.pid(), &[&words[..], &["--operation", "get", "--pubs", "4"]].concat())?;
    let followed = ["--retain", "--qos", "1", "--subs", "4"];
    let observed = drive(&url, server.pid(), &[&words[..], &followed].concat())?;
    Ok(format!("(PUT {put:.0}, GET {get:.0}, {observed:.0} notifications a second)"))
}

/// It ends connections after 1 000 requests, as it does by itself.
fn nginx() -> Result<String> {
    let peer = foreign::nginx("")?;
    let words = ["--operation", "get", "--pubs", "4"];
    let one = drive(peer.url("http")?, peer.pid(), &[&words[..], &["--window", "1"]].concat())?;
    let two = drive(peer.url("h2c")?, peer.pid(), &[&words[..], &["--door", "http2", "--window", "10"]].concat())?;
    Ok(format!("(HTTP/1.1 {one:.0}, HTTP/2 {two:.0} a second)"))
}

fn ejabberd() -> Result<String> {
    let peer = foreign::ejabberd()?;
    let url = peer.url("xmpp")?;
    let passing = drive(url, peer.pid(), &["--name", "localhost", "--subs", "2"])?;
    let kept = drive(url, peer.pid(), &["--name", "localhost", "--retain", "--topic", "kept/{}"])?;
    Ok(format!("(passing {passing:.0}, kept {kept:.0} a second)"))
}
