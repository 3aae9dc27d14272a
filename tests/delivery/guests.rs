//! `fogmux sub`, `get` and `pub` as guests of any server: what they print of one topic at every door, and servers that
//! mean no good.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::mqtt;
use fogmux_tests::suite::Case;
use fogmux_tests::{tcp, tls, users, xmpp};

pub(crate) const CASES: &[Case] = &[
    Case { name: "guests: fogmux sub tells of clearings at every door, and goes on after them", run: clearings },
    Case { name: "guests: a server that never stops sending fills no memory", run: endless },
    Case { name: "guests: no text of a server steers the terminal", run: terminal },
];

const PATIENCE: Duration = Duration::from_secs(20);

fn fogmux(arguments: &[&str]) -> Result<Command> {
    let mut command = Command::new(std::env::var("FOGMUX_BIN").context("FOGMUX_BIN names no gateway")?);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Ok(command)
}

/// A `fogmux sub` whose lines are read as they come.
struct Follower {
    name: &'static str,
    command: Child,
    lines: mpsc::Receiver<String>,
}

impl Follower {
    fn start(name: &'static str, arguments: &[&str]) -> Result<Self> {
        let mut command = fogmux(arguments)?.spawn()?;
        let output = command.stdout.take().context("no output")?;
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            BufReader::new(output).lines().map_while(Result::ok).try_for_each(|line| sender.send(line)).ok();
        });
        Ok(Self { name, command, lines })
    }

    fn expect(&self, line: &str) -> Result<()> {
        let found = self.lines.recv_timeout(PATIENCE).with_context(|| format!("{}: no {line:?}", self.name))?;
        ensure!(found.trim_end() == line, "{}: {found:?} instead of {line:?}", self.name);
        Ok(())
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let _ = self.command.kill();
        let _ = self.command.wait();
    }
}

/// Values, an HTTP DELETE, and a retract, purge and deletion by XMPP, as each scheme tells of them.
fn clearings() -> Result<String> {
    let mut gateway = Gateway::start(&[])?;
    let http = gateway.address("http")?;
    let put = |text: &str| -> Result<()> {
        let status = users::http_with(http, "", "PUT", "/topics/r/t", text.as_bytes())?;
        ensure!(matches!(status, 201 | 204), "PUT is answered {status}");
        Ok(())
    };
    put("zero")?;
    let ca = gateway.ca().display().to_string();
    let mut followers = Vec::new();
    for (name, listener) in [
        ("mqtt", "mqtt"),
        ("mqtts", "mqtts"),
        ("ws", "http"),
        ("coap", "coap"),
        ("coap+tcp", "coap_tcp"),
        ("http", "http"),
        ("https", "https"),
        ("xmpp", "xmpp"),
        ("xmpps", "xmpps"),
    ] {
        for topic in ["r/t", "r/#"] {
            let url = format!("{name}://localhost:{}/{topic}", gateway.address(listener)?.port());
            let follower = Follower::start(name, &["sub", &url, "--ca", &ca])?;
            follower.expect("r/t zero").with_context(|| topic.to_owned())?;
            followers.push(follower);
        }
    }
    let everybody = |line: &str| followers.iter().try_for_each(|follower| follower.expect(line));
    let config = tls::config(gateway.ca())?;
    let mut owner = xmpp::Session::anonymous(&config, gateway.address("xmpps")?)?;
    for (number, clearing) in
        ["", "<retract node='r/t' notify='1'><item id='current'/></retract>"].into_iter().enumerate()
    {
        put(&format!("value {number}"))?;
        everybody(&format!("r/t value {number}"))?;
        if clearing.is_empty() {
            ensure!(users::http_with(http, "", "DELETE", "/topics/r/t", b"")? == 204);
        } else {
            owner.entity("set", clearing)?;
        }
        everybody("r/t")?;
    }
    for (number, clearing) in ["<purge node='r/t'/>", "<delete node='r/t'/>"].into_iter().enumerate() {
        put(&format!("more {number}"))?;
        everybody(&format!("r/t more {number}"))?;
        owner.owner("set", clearing)?;
        everybody("r/t")?;
    }
    // Subscriptions to the node have ended with it, and are made anew.
    std::thread::sleep(Duration::from_secs(1));
    put("last")?;
    everybody("r/t last")?;
    let count = followers.len();
    drop((followers, owner));
    // Observers over UDP that are killed say no goodbye: what is left of them ends later.
    gateway.check_lines()?;
    gateway.check_alive()?;
    Ok(format!("{count} followers"))
}

/// A server that reads a little, and then writes as long as anybody reads.
fn server(head: Vec<u8>, more: Vec<u8>) -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || {
        let serve = |mut stream: TcpStream| -> std::io::Result<()> {
            stream.set_write_timeout(Some(tcp::PATIENCE))?;
            let mut first = [0; 1024];
            let _ = stream.read(&mut first)?;
            stream.write_all(&head)?;
            if more.is_empty() {
                // The client's last bytes are read, so that its answer is not lost by a reset.
                return stream
                    .set_read_timeout(Some(tcp::PATIENCE))
                    .and_then(|()| std::io::copy(&mut stream, &mut std::io::sink()))
                    .map(drop);
            }
            loop {
                stream.write_all(&more)?;
            }
        };
        listener.incoming().filter_map(Result::ok).for_each(|stream| drop(serve(stream)));
    });
    Ok(address)
}

/// The largest resident size of a command, and how it has ended.
fn peak(command: &Command) -> Result<(u64, Option<i32>, String)> {
    // The size is printed by a shell whose child the command is, for only a parent is told.
    let mut line = Command::new("python3");
    line.args(["-c", "import resource,subprocess,sys\np=subprocess.run(sys.argv[1:],stdin=subprocess.DEVNULL,stdout=subprocess.DEVNULL,stderr=subprocess.PIPE)\nsys.stderr.buffer.write(p.stderr)\nprint(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss,p.returncode)"]);
    line.arg(command.get_program()).args(command.get_args());
    let output = line.output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut words = said.split_whitespace();
    let kibibytes: u64 = words.next().context("no size")?.parse()?;
    let code = words.next().and_then(|code| code.parse().ok());
    Ok((kibibytes * 1024, code, String::from_utf8_lossy(&output.stderr).into_owned()))
}

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n";
const FORBIDDEN: &[u8] = b"HTTP/1.1 403 Forbidden\r\nContent-Type: application/problem+json\r\n\r\n";
const CONNACK: &[u8] = &[0x20, 2, 0, 0];

/// Twice what a client keeps at most, and the program itself.
const RESIDENT_BYTES: u64 = 200_000_000;

fn endless() -> Result<String> {
    let filling = vec![b'x'; 1 << 20];
    let message = mqtt::publish(mqtt::V4, b"a", &filling, 0, true, 0);
    let mut largest = 0;
    for (scheme, arguments, head, more) in [
        ("http", &["get"][..], OK, &filling),
        ("http", &["get"], FORBIDDEN, &filling),
        ("http", &["pub", "x"], FORBIDDEN, &filling),
        ("http", &["sub"], OK, &filling),
        ("mqtt", &["get"], CONNACK, &message),
        ("mqtt", &["sub"], CONNACK, &message),
    ] {
        let address = server(head.to_vec(), more.clone())?;
        let url = format!("{scheme}://{address}/a");
        let (name, rest) = arguments.split_first().context("a command")?;
        let version: &[&str] = if scheme == "mqtt" { &["--mqtt", "3.1.1"] } else { &[] };
        let words = [&[*name, &url], rest, version].concat();
        let (bytes, code, said) = peak(&fogmux(&words)?)?;
        ensure!(bytes <= RESIDENT_BYTES, "{words:?} took {} MB", bytes / 1_000_000);
        ensure!(code.is_some_and(|code| code != 0), "{words:?} ended with {code:?}: {said}");
        ensure!(!said.contains("no answer within"), "{words:?} only ended by its timeout: {said}");
        largest = largest.max(bytes);
    }
    Ok(format!("{} MB at most", largest / 1_000_000))
}

fn terminal() -> Result<String> {
    let evil = "\\u001b]0;pwned\\u0007\\u009b2J";
    let body = format!("{{\"title\":\"{evil}\",\"detail\":\"{evil}\"}}");
    let head = format!(
        "HTTP/1.1 400 Bad Request\r\nContent-Type: application/problem+json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let address = server(head.into_bytes(), Vec::new())?;
    let output = fogmux(&["get", &format!("http://{address}/a")])?.output()?;
    clean(&output.stderr)?;
    ensure!(String::from_utf8_lossy(&output.stderr).contains("pwned"), "the reason is not told");

    // Another peer, by an honest gateway.
    let mut gateway = Gateway::start(&[])?;
    let mut peer = mqtt::Connection::open(gateway.address("mqtt")?, mqtt::V4, "peer")?;
    let text = "\u{9b}2J\u{9d}0;pwned\u{7}\u{7f}";
    peer.stream.write_all(&mqtt::publish(mqtt::V4, b"a", text.as_bytes(), 1, true, 1))?;
    peer.read()?;
    for format in ["text", "json"] {
        let url = format!("mqtt://{}/a", gateway.address("mqtt")?);
        let output = fogmux(&["get", &url, "--format", format])?.output()?;
        clean(&output.stdout)?;
        ensure!(String::from_utf8_lossy(&output.stdout).contains("pwned"), "the message is not printed");
    }
    drop(peer);
    gateway.settle()?;
    Ok(String::new())
}

/// Nothing but line ends steers what shows it.
fn clean(output: &[u8]) -> Result<()> {
    let text = std::str::from_utf8(output)?;
    let steers = |character: char| character.is_control() && character != '\n';
    ensure!(!text.contains(steers), "{text:?}");
    Ok(())
}
