//! The queues of one principal do not delay publishers of another (ADR 0038).

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::mqtt::{self, Connection, V5};
use fogmux_tests::users::{self, Login};
use fogmux_tests::{tcp, tls, xmpp};

/// Each has topics of her own.
const RULES: &str = "[[allow]]\nuser = \"ada\"\nboth = [\"ada/#\"]\n\n[[allow]]\nuser = \"eve\"\nboth = [\"eve/#\"]\n";
const LITTLE_MEMORY: [&str; 3] =
    ["bus.memory_high_bytes=8MiB", "mqtt.tight_bytes=2MiB", "http.event_stream_bytes=2MiB"];
/// Subscribers of Eve that read nothing.
const DEAF: usize = 40;
const LARGE: usize = 256 << 10;
/// More than sockets and queues of event streams take.
const UNTIL_REFUSED: usize = 400;

fn gateway() -> Result<Gateway> {
    users::gateway(&LITTLE_MEMORY, &["ada", "eve"], &[("acl.toml", RULES)])
}

fn log_in(gateway: &Gateway, user: &str, client: &str) -> Result<Connection> {
    let login = Login { clean: true, expiry: 0, ..Login::of(user, client) };
    let (connection, _, reason) = login.connect(gateway.address("mqtt")?)?;
    ensure!(reason == 0, "CONNACK {reason:#x}");
    Ok(connection)
}

/// Ada publishes at two doors, and receives it.
struct Ada {
    http: SocketAddr,
    publisher: Connection,
    subscriber: Connection,
}

impl Ada {
    fn new(gateway: &Gateway) -> Result<Self> {
        let mut subscriber = log_in(gateway, "ada", "subscriber")?;
        subscriber.subscribe(1, &["ada/#"], 0)?;
        Ok(Self { http: gateway.address("http")?, publisher: log_in(gateway, "ada", "publisher")?, subscriber })
    }

    fn publishes(&mut self, when: &str) -> Result<()> {
        let status = users::http(self.http, "ada", "POST", "/topics/ada/http", b"x")?;
        ensure!(matches!(status, 202 | 204), "{when}: HTTP {status}");
        let status = users::http(self.http, "ada", "PUT", "/topics/ada/kept", b"x")?;
        ensure!(matches!(status, 201 | 204), "{when}: HTTP {status}");
        self.publisher.stream.write_all(&mqtt::publish(V5, b"ada/mqtt", b"x", 1, false, 7))?;
        let (first, body) = self.publisher.read().with_context(|| format!("{when}: no PUBACK"))?;
        ensure!(first == 0x40 && body.get(2).is_none_or(|reason| *reason == 0), "{when}: {first:#x} {body:?}");
        for topic in ["ada/http", "ada/kept", "ada/mqtt"] {
            let (_, got, _) = super::next_publish(&mut self.subscriber).with_context(|| format!("{when}: {topic}"))?;
            ensure!(got == topic, "{when}: {got} instead of {topic}");
        }
        Ok(())
    }
}

/// Clients that read nothing come again each time, and what they are sent is large.
pub(super) fn deaf_subscribers() -> Result<String> {
    const ROUNDS: usize = 4;
    const PUBLISHERS: usize = 3;
    let mut gateway = gateway()?;
    let mut ada = Ada::new(&gateway)?;
    let (mut held, large) = (Vec::new(), mqtt::publish(V5, b"eve/x", &[b'x'; LARGE], 1, false, 7));
    for round in 0..ROUNDS {
        for number in 0..DEAF {
            let mut deaf = log_in(&gateway, "eve", &format!("deaf-{round}-{number}"))?;
            deaf.subscribe(1, &["eve/#"], 1)?;
            held.push(deaf);
        }
        for number in 0..PUBLISHERS {
            let mut publisher = log_in(&gateway, "eve", &format!("publisher-{round}-{number}"))?;
            // One that has to wait may not take all of it.
            tcp::pour(&mut publisher.stream, &large)?;
            held.push(publisher);
            for _ in 0..5 {
                ada.publishes(&format!("round {round}"))?;
            }
        }
    }
    drop((held, ada));
    gateway.settle()?;
    Ok(String::new())
}

/// Has Eve publish until she is refused, then Ada. Eve is refused for a few seconds only.
fn eve_is_refused(gateway: &Gateway, ada: &mut Ada) -> Result<()> {
    let large = vec![b'x'; LARGE];
    let http = gateway.address("http")?;
    let publish = || users::http(http, "eve", "POST", "/topics/eve/x", &large);
    let mut count = 0;
    while publish()? != 503 {
        count += 1;
        ensure!(count < UNTIL_REFUSED, "her queues took {count} messages");
    }
    for _ in 0..20 {
        ada.publishes("while another's queues are full")?;
    }
    let deadline = Instant::now() + tcp::PATIENCE;
    while publish()? == 503 {
        ensure!(Instant::now() < deadline, "her publishers wait for as long as her queues are full");
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// Event streams that nobody reads hold more than the mark for as long as they are open.
pub(super) fn event_streams() -> Result<String> {
    let mut gateway = gateway()?;
    let mut ada = Ada::new(&gateway)?;
    let open = |_| -> Result<TcpStream> {
        let mut stream = tcp::connect_narrow(gateway.address("http")?, 4096)?;
        let authorization = users::authorization("eve");
        write!(stream, "GET /subscribe?filter=eve/%23 HTTP/1.1\r\nHost: localhost\r\n{authorization}\r\n")?;
        Ok(stream)
    };
    let streams = (0..8).map(open).collect::<Result<Vec<_>>>()?;
    gateway.wait_metric("fogmux_bus_subscriptions", tcp::PATIENCE, |count| count >= 9.0)?;
    eve_is_refused(&gateway, &mut ada)?;
    drop((streams, ada));
    gateway.wait_metric("fogmux_bus_mailbox_bytes", tcp::PATIENCE * 2, |bytes| bytes < f64::from(8 << 20))?;
    gateway.check_alive()?;
    Ok(String::new())
}

/// XMPP sessions that nobody reads do.
pub(super) fn xmpp_sessions() -> Result<String> {
    let mut gateway = gateway()?;
    let mut ada = Ada::new(&gateway)?;
    let config = tls::config(gateway.ca())?;
    let mut sessions = Vec::new();
    for number in 0..8 {
        let stream = tcp::connect_narrow(gateway.address("xmpps")?, 4096)?;
        let resource = format!("r{number}");
        let mut session = xmpp::Session::plain_password(stream, &config, &users::sasl_plain("eve"), &resource)?;
        let own = format!("eve@localhost/{resource}");
        session.send(&format!(
            "<iq type='set' id='s' to='pubsub.localhost'><pubsub xmlns='http://jabber.org/protocol/pubsub'>\
             <subscribe node='eve/x' jid='{own}'/></pubsub></iq>"
        ))?;
        let answer = session.until("</iq>")?;
        ensure!(answer.contains("subscribed"), "{answer}");
        sessions.push(session);
    }
    eve_is_refused(&gateway, &mut ada)?;
    drop((sessions, ada));
    gateway.settle()?;
    Ok(String::new())
}
