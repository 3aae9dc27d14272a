//! `fogmux sub` and `pub` end as their protocols say, so that the gateway forgets them at once.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::mqtt::{self, Connection};
use fogmux_tests::suite::Case;
use fogmux_tests::tcp;
use rustix::process::{Pid, Signal, kill_process};

pub(crate) const FORGOTTEN: Case =
    Case { name: "operation: a subscription of `fogmux sub` ends with it, at every door", run: forgotten };
pub(crate) const DISCONNECTS: Case =
    Case { name: "operation: `fogmux sub` says DISCONNECT however it ends", run: disconnects };

/// Scheme, listener and further arguments.
const DOORS: [(&str, &str, &[&str]); 15] = [
    ("mqtt", "mqtt", &[]),
    ("mqtts", "mqtts", &[]),
    ("ws", "http", &[]),
    ("wss", "https", &[]),
    ("coap", "coap", &[]),
    ("coaps", "coaps", &[]),
    ("coap+tcp", "coap_tcp", &[]),
    ("coaps+tcp", "coaps_tcp", &[]),
    ("coap+ws", "http", &[]),
    ("http", "http", &[]),
    ("https", "https", &[]),
    ("https", "https", &["--http", "2"]),
    ("https", "https", &["--http", "3"]),
    ("xmpp", "xmpp", &[]),
    ("xmpps", "xmpps", &[]),
];

/// How a subscriber ends.
#[derive(Clone, Copy, Debug)]
enum End {
    Count,
    Signal(Signal),
}

impl End {
    const ALL: [Self; 3] = [Self::Count, Self::Signal(Signal::INT), Self::Signal(Signal::TERM)];
}

/// A subscriber that has printed its first message; it follows until it has two.
fn subscriber(url: &str, more: &[&str]) -> Result<Child> {
    let binary = std::env::var("FOGMUX_BIN").context("FOGMUX_BIN")?;
    let mut command = Command::new(binary);
    command.args(["sub", url, "--count", "2", "--qos", "1"]).args(more);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let mut lines = BufReader::new(child.stdout.take().context("no standard output")?);
    let (sender, printed) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        while lines.read_line(&mut line).is_ok_and(|count| count > 0) {
            if sender.send(()).is_err() {
                return;
            }
        }
    });
    printed.recv_timeout(tcp::PATIENCE).with_context(|| format!("{url} prints"))?;
    Ok(child)
}

fn end(mut child: Child, how: End, publish: impl FnOnce() -> Result<()>) -> Result<()> {
    match how {
        End::Count => publish()?,
        End::Signal(signal) => kill_process(Pid::from_raw(i32::try_from(child.id())?).context("no process")?, signal)?,
    }
    let deadline = Instant::now() + tcp::PATIENCE;
    loop {
        if let Some(status) = child.try_wait()? {
            ensure!(status.success(), "{how:?}: it ended with {status}");
            return Ok(());
        }
        if Instant::now() > deadline {
            child.kill()?;
            child.wait()?;
            bail!("{how:?}: it has not ended");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn forgotten() -> Result<String> {
    // HTTP has no word for an end: without this the stream waits for its reader to come back.
    let mut gateway = Gateway::start(&["workers.count=1", "http.event_stream_grace=\"0s\""])?;
    let ca = gateway.ca().display().to_string();
    let mut publisher = Connection::open(gateway.address("mqtt")?, mqtt::V4, "publisher")?;
    // Retained: it comes as soon as there is a subscription.
    publisher.stream.write_all(&mqtt::publish(mqtt::V4, b"a", b"first", 1, true, 1))?;
    ensure!(publisher.read()?.0 == 0x40, "no PUBACK");
    for (scheme, listener, more) in DOORS {
        for how in End::ALL {
            let url = format!("{scheme}://localhost:{}/a", gateway.address(listener)?.port());
            let more = [more, &["--ca", &ca]].concat();
            let child = subscriber(&url, &more)?;
            let what = format!("{url} {}", more.join(" "));
            end(child, how, || publisher.publish("a", b"second")).with_context(|| what.clone())?;
            let deadline = Instant::now() + Duration::from_secs(5);
            while gateway.sum(&["fogmux_bus_subscriptions"])? > 0 {
                ensure!(Instant::now() < deadline, "{what}: its subscription is still there 5 s after {how:?}");
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
    drop(publisher);
    gateway.settle()?;
    Ok(format!("{} ways in, {} ways out", DOORS.len(), End::ALL.len()))
}

/// The last packet that a server of version 3.1.1 gets.
fn disconnects() -> Result<String> {
    for how in End::ALL {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let url = format!("mqtt://localhost:{}/a", listener.local_addr()?.port());
        let server = std::thread::spawn(move || -> Result<Connection> {
            let (stream, _) = listener.accept()?;
            stream.set_read_timeout(Some(tcp::PATIENCE))?;
            let mut connection = Connection::over(stream, mqtt::V4);
            ensure!(connection.read()?.0 == 0x10, "no CONNECT");
            connection.stream.write_all(&[0x20, 2, 0, 0])?;
            let (first, body) = connection.read()?;
            let id = body.get(..2).context("a packet identifier")?.to_vec();
            ensure!(first == 0x82, "{first:#x} instead of SUBSCRIBE");
            connection.stream.write_all(&mqtt::packet(0x90, &[&id[..], &[0]].concat()))?;
            connection.publish("a", b"first")?;
            Ok(connection)
        });
        let child = subscriber(&url, &["--mqtt", "3.1.1"])?;
        let mut connection = server.join().map_err(|_| anyhow::anyhow!("panic"))??;
        end(child, how, || connection.publish("a", b"second"))?;
        let mut rest = Vec::new();
        connection.stream.read_to_end(&mut rest)?;
        ensure!(rest == [0xe0, 0], "{how:?}: {rest:02x?} instead of DISCONNECT");
    }
    Ok(String::new())
}
