//! Discovery on the LAN: CoAP by multicast.

use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use fogmux_tests::coap::{self, Message, NON};
use fogmux_tests::gateway::{Gateway, Plan};
use fogmux_tests::suite::Case;
use fogmux_tests::tcp::PATIENCE;
use rustix::process::{Pid, Signal, kill_process};

pub(super) const GROUPS: Case =
    Case { name: "operation: requests to a group get what anybody may read, or nothing", run: groups };
pub(super) const BOUNDS: Case = Case { name: "operation: answers to a group are bounded for a host", run: bounds };
pub(super) const CLIENTS: Case =
    Case { name: "operation: libcoap finds the gateway by IPv4 and IPv6 multicast", run: clients };

const MULTICAST: &str = "[listeners.coap]\nmulticast = true\n[coap.multicast]\nleisure = \"0s\"\n";
/// Topics that anybody may read, and those that a user may.
const RULES: &str = "[[allow]]\nanonymous = true\nread = [\"open/#\"]\nwrite = [\"#\"]\n";
const CORE: [(u16, &[u8]); 2] = [(coap::URI_PATH, b".well-known"), (coap::URI_PATH, b"core")];

/// A client on loopback, whose datagrams to a group stay there: the kernel chooses the interface by the source address.
struct Client {
    socket: UdpSocket,
    group: SocketAddr,
    gateway: SocketAddr,
    id: u16,
}

impl Client {
    fn of(gateway: &Gateway) -> Result<Self> {
        let address = gateway.address("coap")?;
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { socket, group: SocketAddr::new([224, 0, 1, 187].into(), address.port()), gateway: address, id: 0 })
    }

    fn send(&mut self, kind: u8, code: u8, options: &[(u16, &[u8])], token: u8) -> Result<()> {
        self.id += 1;
        self.socket.send_to(&coap::message(kind, code, self.id, &[token], options, b""), self.group)?;
        Ok(())
    }

    /// The next answer: without Leisure they come in the order of their requests.
    fn next(&self) -> Result<Message> {
        let mut buffer = [0; 2048];
        let (count, from) = self.socket.recv_from(&mut buffer).context("no answer")?;
        ensure!(from == self.gateway, "an answer from {from}, not from {}", self.gateway);
        let answer = Message::of_datagram(buffer.get(..count).unwrap_or(&[]))?;
        ensure!(answer.kind == NON && answer.code == 0x45, "{answer:?}");
        Ok(answer)
    }

    fn put(&mut self, topic: &str, payload: &[u8]) -> Result<()> {
        self.id += 1;
        let request = coap::request(coap::CON, coap::PUT, self.id, &[9], topic, &[], payload);
        let answer = coap::dotted(&coap::exchange(&coap::endpoint(self.gateway)?, &request, &[9])?);
        ensure!(answer.starts_with("2."), "{topic}: {answer}");
        Ok(())
    }
}

fn groups() -> Result<String> {
    let plan = Plan { configuration: Some(MULTICAST), files: &[("acl.toml", RULES)], ..Plan::default() };
    let mut gateway = Gateway::start_as(plan)?;
    gateway.wait_log("requests to this group are answered", PATIENCE)?;
    let mut client = Client::of(&gateway)?;
    client.put("open/a", b"1")?;
    client.put("secret/b", b"2")?;
    let topic = |last: &'static [u8]| -> Vec<(u16, &'static [u8])> {
        vec![(coap::URI_PATH, b"ps"), (coap::URI_PATH, b"open"), (coap::URI_PATH, last)]
    };
    let query = |text: &'static str| [&CORE[..], &[(coap::URI_QUERY, text.as_bytes())]].concat();
    // None of these is answered, nor changes anything: each would come before the answer to the last.
    for (kind, code, options) in [
        (coap::CON, coap::GET, CORE.to_vec()),
        (coap::CON, 0, vec![]),
        (NON, coap::PUT, topic(b"new")),
        (NON, coap::POST, topic(b"new")),
        (NON, coap::DELETE, topic(b"a")),
        (NON, coap::GET, topic(b"a")),
        (NON, coap::GET, query("rt=nothing.here")),
        (NON, coap::GET, query("href=/ps/secret*")),
        (NON, coap::GET, [&CORE[..], &[(65_001, b"critical")]].concat()),
    ] {
        let token = 1;
        client.send(kind, code, if code == 0 { &[] } else { &options }, token)?;
    }
    client.send(NON, coap::GET, &CORE, 2)?;
    let all = client.next()?;
    let text = String::from_utf8_lossy(&all.payload).into_owned();
    ensure!(all.token == [2], "{all:?}");
    ensure!(text.contains("</ps>;rt=\"fogmux.topics\"") && text.contains("</ps/open/a>"), "{text}");
    ensure!(!text.contains("secret") && !text.contains("new"), "{text}");
    client.send(NON, coap::GET, &query("rt=fogmux.topic"), 3)?;
    let one = client.next()?;
    let text = String::from_utf8_lossy(&one.payload).into_owned();
    ensure!(one.token == [3] && text.starts_with("</ps/open/a>") && !text.contains("topics"), "{text}");
    let metrics = gateway.metrics()?;
    let count = |outcome: &str| {
        let name = format!("fogmux_discovery_answers_total{{by=\"coap\",outcome=\"{outcome}\"}}");
        metrics.get(&name).copied().with_context(|| name)
    };
    // The ping has a token, which makes it malformed as well.
    ensure!(count("sent")? == 2.0 && count("suppressed")? == 9.0, "{:?} {:?}", count("sent"), count("suppressed"));
    gateway.settle()?;
    Ok("9 requests without an answer, 2 with one".to_owned())
}

fn bounds() -> Result<String> {
    let text = format!("{MULTICAST}answers_per_minute = 3\nblock_bytes_max = \"64B\"\n");
    let mut gateway = Gateway::start_configured(&text)?;
    gateway.wait_log("requests to this group are answered", PATIENCE)?;
    let mut client = Client::of(&gateway)?;
    for number in 0..100 {
        client.put(&format!("many/{number}"), b"x")?;
    }
    for token in 0..20 {
        client.send(NON, coap::GET, &CORE, token)?;
    }
    for token in 0..3 {
        let answer = client.next()?;
        ensure!(answer.token == [token], "{answer:?}");
        // Block 0, more to come, of 64 bytes.
        ensure!(answer.uint(coap::BLOCK2) == Some(0x0a) && answer.payload.len() == 64, "{answer:?}");
    }
    let suppressed = "fogmux_discovery_answers_total{by=\"coap\",outcome=\"suppressed\"}";
    gateway.wait_metric(suppressed, PATIENCE, |count| count >= 17.0)?;
    client.socket.set_nonblocking(true)?;
    ensure!(client.next().is_err(), "a fourth answer");
    // The next block is for a request to the gateway itself.
    let options: Vec<(u16, &[u8])> = [&CORE[..], &[(coap::BLOCK2, &[0x12])]].concat();
    let next = coap::message(coap::CON, coap::GET, 500, &[7], &options, b"");
    let answer = Message::of_datagram(&coap::exchange(&coap::endpoint(client.gateway)?, &next, &[7])?)?;
    ensure!(answer.code == 0x45 && answer.payload.len() == 64, "{answer:?}");
    gateway.settle()?;
    Ok("3 answers to 20 requests".to_owned())
}

/// A network of its own with an interface that has addresses of both families.
pub(super) const NETWORK: &str = "ip link set lo up && ip link add lan type veth peer name far && ip link set far up && \
    ip address add 192.0.2.1/24 dev lan && ip address add fd00::1/64 dev lan nodad && \
    ip link set lan addrgenmode none && ip link set lan up && ip address add fe80::1/64 dev lan nodad && exec \"$@\"";

/// Runs what follows in a network namespace of its own; `None` where there are none.
pub(super) fn alone() -> Result<Option<&'static [&'static str]>> {
    let user = Command::new("id").arg("-u").output()?;
    let flags: &[&str] = if user.stdout == b"0\n" { &["-n"] } else { &["-rn"] };
    let made = Command::new("unshare").args(flags).args(["sh", "-c", NETWORK, "sh", "true"]).status()?;
    Ok(made.success().then_some(flags))
}

fn clients() -> Result<String> {
    let Some(flags) = alone()? else { return Ok("(skipped: no network namespaces here)".to_owned()) };
    let home = tempfile::tempdir()?;
    let listener = |name: &str, address: &str| {
        format!(
            "[listeners.{name}]\nkind = \"coap\"\nenabled = true\naddress = \"{address}\"\nmulticast = true\n\
             allow_plaintext = true\nallow_remote_anonymous = true\n"
        )
    };
    let text = "[listeners.defaults]\nenabled = false\n[coap.multicast]\nleisure = \"100ms\"\n".to_owned()
        + &listener("coap", "0.0.0.0:5683")
        + &listener("six", "[::]:5683");
    std::fs::create_dir(home.path().join("data"))?;
    std::fs::write(home.path().join("data/acl.toml"), RULES)?;
    let mut launcher = Command::new("unshare");
    launcher.args(flags).args(["sh", "-c", NETWORK, "sh"]).arg(std::env::var("FOGMUX_BIN").context("FOGMUX_BIN")?);
    let (mut gateway, _) = super::listeners::serve_by(launcher, home.path(), &text)?;
    let outcome = found(gateway.id(), flags, home.path());
    kill_process(Pid::from_child(&gateway), Signal::TERM)?;
    let status = gateway.wait()?;
    let log = std::fs::read_to_string(home.path().join("log"))?;
    outcome.with_context(|| log.clone())?;
    ensure!(status.success(), "{status}\n{log}");
    Ok("224.0.1.187, ff02::fd, ff05::fd".to_owned())
}

/// The answer to libcoap, from an address of the interface.
fn found(pid: u32, flags: &[&str], home: &Path) -> Result<()> {
    let log = home.join("log");
    let began = std::time::Instant::now();
    while std::fs::read_to_string(&log)?.matches("requests to this group are answered").count() < 8 {
        ensure!(began.elapsed() < PATIENCE, "not all groups were joined");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let pid = pid.to_string();
    let inside: &[&str] = if flags == ["-n"] { &["-n"] } else { &["-U", "--preserve-credentials", "-n"] };
    for (own, group, answered_from) in [
        ("192.0.2.1", "224.0.1.187", "192.0.2.1"),
        ("fe80::1%lan", "[ff02::fd%lan]", "fe80::1"),
        ("fd00::1", "[ff05::fd]", "fd00::1"),
    ] {
        let mut client = Command::new("nsenter");
        client.args(["-t", &pid]).args(inside).args(["coap-client-openssl", "-N", "-v", "7", "-B", "3", "-a", own]);
        let output = client.args(["-m", "get", &format!("coap://{group}/.well-known/core")]).output()?;
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        ensure!(said.contains("</ps>;rt=\"fogmux.topics\""), "{group}: {said}");
        ensure!(said.contains(answered_from), "{group}: {said}");
    }
    Ok(())
}
