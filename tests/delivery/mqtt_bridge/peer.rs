//! A stock Mosquitto on a port of its own, its command-line publisher, and a reader of messages at any broker.

use std::fs;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use fogmux_tests::mqtt::{self, Connection, V4, packet, string};
use fogmux_tests::tcp;
use tempfile::TempDir;

/// The longest that anything is waited for.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A running Mosquitto; dropped, it is killed.
pub(crate) struct Mosquitto {
    child: Child,
    home: TempDir,
    pub(crate) address: SocketAddr,
}

impl Mosquitto {
    /// Starts it with these lines besides those of its listener, and waits until it answers.
    pub(crate) fn start(lines: &str) -> Result<Self> {
        Self::start_as(&format!("allow_anonymous true\n{lines}"))
    }

    /// The same for clients with a credential only.
    pub(crate) fn start_closed(lines: &str) -> Result<Self> {
        Self::start_as(&format!("allow_anonymous false\n{lines}"))
    }

    fn start_as(lines: &str) -> Result<Self> {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let home = tempfile::tempdir()?;
        let conf = home.path().join("mosquitto.conf");
        // 2.0.11 loses QoS 2 messages to its own subscribers when more are in flight than it allows (its issue 2306).
        let listener =
            format!("listener {port} 127.0.0.1\nmax_inflight_messages 1000\nlog_dest stderr\nlog_type all\n");
        fs::write(conf, listener + lines)?;
        let mut this = Self { child: spawn(home.path())?, home, address: (Ipv4Addr::LOCALHOST, port).into() };
        this.wait()?;
        Ok(this)
    }

    /// Ends it without a word, as a power cut would.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Starts it again with the same configuration.
    pub(crate) fn restart(&mut self) -> Result<()> {
        self.child = spawn(self.home.path())?;
        self.wait()
    }

    /// The end of its log.
    pub(crate) fn log(&self) -> String {
        let log = fs::read_to_string(self.home.path().join("log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines.get(lines.len().saturating_sub(25)..).unwrap_or_default().join("\n")
    }

    fn wait(&mut self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect(self.address).is_err() {
            if let Some(status) = self.child.try_wait()? {
                bail!("mosquitto ended with {status}\n{}", self.log());
            }
            ensure!(Instant::now() < deadline, "mosquitto does not answer\n{}", self.log());
            sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

impl Drop for Mosquitto {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(home: &Path) -> Result<Child> {
    let sbin = Path::new("/usr/sbin/mosquitto");
    let program = if sbin.exists() { sbin } else { Path::new("mosquitto") };
    let log = fs::File::create(home.join("log"))?;
    let mut command = Command::new(program);
    command.arg("-c").arg(home.join("mosquitto.conf")).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    command.spawn().context("mosquitto; `cargo xtask setup` installs it")
}

/// Publishes each line by `mosquitto_pub`, which waits for the acknowledgements.
pub(crate) fn publish(broker: SocketAddr, topic: &str, qos: u8, options: &[&str], lines: &[String]) -> Result<()> {
    let mut command = Command::new("mosquitto_pub");
    command.args(["-h", "127.0.0.1", "-p", &broker.port().to_string(), "-t", topic, "-q", &qos.to_string(), "-l"]);
    let mut child = command.args(options).stdin(Stdio::piped()).spawn().context("mosquitto_pub")?;
    let mut stdin = child.stdin.take().context("no standard input")?;
    for line in lines {
        writeln!(stdin, "{line}")?;
    }
    drop(stdin);
    let status = child.wait()?;
    ensure!(status.success(), "mosquitto_pub to {broker}: {status}");
    Ok(())
}

/// A message as a subscriber gets it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Message {
    pub(crate) topic: String,
    pub(crate) payload: String,
    pub(crate) qos: u8,
    pub(crate) retain: bool,
}

/// A subscriber of 3.1.1 that acknowledges what it gets.
pub(crate) struct Reader {
    connection: Connection,
    pub(crate) messages: Vec<Message>,
}

impl Reader {
    /// Connects and subscribes with QoS 2.
    pub(crate) fn open(broker: SocketAddr, client: &str, filters: &[&str]) -> Result<Self> {
        let mut connection = Connection::open(broker, V4, client)?;
        connection.stream.write_all(&mqtt::subscribe(V4, 1, filters, 2))?;
        let mut this = Self { connection, messages: Vec::new() };
        while this.step()? != 0x90 {}
        Ok(this)
    }

    /// Publishes with QoS 0.
    pub(crate) fn publish(&mut self, topic: &str, payload: &str) -> Result<()> {
        self.connection.publish(topic, payload.as_bytes())
    }

    /// Reads until the messages satisfy `holds`.
    pub(crate) fn until(&mut self, holds: impl Fn(&[Message]) -> bool) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !holds(&self.messages) {
            ensure!(Instant::now() < deadline, "not within {PATIENCE:?}: {:?}", self.tail());
            self.step().with_context(|| format!("after {:?}", self.tail()))?;
        }
        Ok(())
    }

    /// Reads until `topic` has brought `payload`.
    pub(crate) fn until_value(&mut self, topic: &str, payload: &str) -> Result<()> {
        self.until(|messages| messages.iter().any(|m| m.topic == topic && m.payload == payload))
    }

    /// Reads until the latest value of `topic` is `payload`.
    pub(crate) fn until_latest(&mut self, topic: &str, payload: &str) -> Result<()> {
        self.until(|messages| {
            messages.iter().rev().find(|message| message.topic == topic).is_some_and(|m| m.payload == payload)
        })
    }

    /// The payloads of a topic in the order they came.
    pub(crate) fn payloads(&self, topic: &str) -> Vec<&str> {
        let of_topic = self.messages.iter().filter(|message| message.topic == topic);
        of_topic.map(|message| message.payload.as_str()).collect()
    }

    fn tail(&self) -> &[Message] {
        self.messages.get(self.messages.len().saturating_sub(5)..).unwrap_or_default()
    }

    /// Reads one packet, answers it, and gives its first byte.
    fn step(&mut self) -> Result<u8> {
        let (first, body) = self.connection.read()?;
        let id = |at: usize| body.get(at..at + 2).context("no packet identifier");
        match first & 0xF0 {
            0x30 => {
                let qos = first >> 1 & 3;
                let length = body.first_chunk().map(|length| usize::from(u16::from_be_bytes(*length)));
                let length = length.context("no topic")?;
                let payload = 2 + length + if qos > 0 { 2 } else { 0 };
                if qos > 0 {
                    let answer = if qos == 1 { 0x40 } else { 0x50 };
                    self.connection.stream.write_all(&packet(answer, id(2 + length)?))?;
                }
                let text = |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned();
                let (topic, payload) = (text(body.get(2..2 + length)), text(body.get(payload..)));
                self.messages.push(Message { topic, payload, qos, retain: first & 1 == 1 });
            }
            0x60 => self.connection.stream.write_all(&packet(0x70, id(0)?))?,
            _ => {}
        }
        Ok(first)
    }
}

/// CONNECT with any protocol name and level, a clean session, and what follows the keep alive.
pub(crate) fn connect(name: &[u8], level: u8, flags: u8, rest: &[u8]) -> Vec<u8> {
    let mut body = string(name);
    body.extend([level, flags, 0, 60]);
    body.extend(rest);
    packet(0x10, &body)
}

/// A broker's answer to these bytes, until it closes or half a second is over.
pub(crate) fn answer(broker: SocketAddr, bytes: &[u8]) -> Result<tcp::End> {
    let mut stream = tcp::connect(broker)?;
    stream.write_all(bytes)?;
    tcp::read_end(&mut stream, Duration::from_millis(500))
}
