//! Handshakes and logins that stop after any of their messages while their credential is withdrawn, and go on later: no
//! session comes of them. A table of doors, credentials and versions.
//!
//! Each client has a [`Relay`] of its own, which holds back what comes after the first, the second … piece; those that
//! need fewer pieces have a session when the credential is withdrawn.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::mqtt::{self, Connection, V5};
use fogmux_tests::relay::Relay;
use fogmux_tests::suite::Case;
use fogmux_tests::{tcp, users};
use openssl::ssl::{Ssl, SslContext, SslMethod, SslStream, SslVerifyMode};
use rustix::process::Signal;

pub(crate) const CASES: &[Case] = &[
    Case { name: "parked: MQTT over TLS 1.3 with a certificate", run: || check(&MQTT_13) },
    Case { name: "parked: MQTT over TLS 1.2 with a certificate", run: || check(&MQTT_12) },
    Case { name: "parked: MQTT over TLS of OpenSSL with a certificate", run: || check(&MQTT_LOW) },
    Case { name: "parked: MQTT over TLS 1.3 with a key", run: || check(&MQTT_PSK_13) },
    Case { name: "parked: MQTT over TLS 1.2 with a key", run: || check(&MQTT_PSK_12) },
    Case { name: "parked: HTTP/1.1 with a certificate", run: || check(&HTTP) },
    Case { name: "parked: HTTP/1.1 with a key", run: || check(&HTTP_PSK) },
    Case { name: "parked: HTTP/3 with a certificate", run: || check(&HTTP_3) },
    Case { name: "parked: CoAP over TLS with a certificate", run: || check(&COAP_TCP) },
    Case { name: "parked: CoAP over TLS with a key", run: || check(&COAP_TCP_PSK) },
    Case { name: "parked: CoAP over DTLS 1.2 with a certificate", run: || check(&DTLS_12) },
    Case { name: "parked: CoAP over DTLS 1.2 with a key", run: || check(&DTLS_PSK_12) },
    Case { name: "parked: CoAP over DTLS 1.3 with a certificate", run: || check(&DTLS_13) },
    Case { name: "parked: CoAP over DTLS 1.3 with a key", run: || check(&DTLS_PSK_13) },
    Case { name: "parked: requests on one HTTP/1.1 connection outlive no key", run: kept_alive },
];

/// A row of the table: the door, the credential and the client.
struct Row {
    listener: &'static str,
    scheme: &'static str,
    /// Whether a certificate is shown; a pre-shared key otherwise.
    shows_certificate: bool,
    client: Client,
    settings: &'static [&'static str],
}

#[derive(Clone, Copy)]
enum Client {
    /// `fogmux sub` with these arguments.
    Ours(&'static [&'static str]),
    /// `mosquitto_sub` by this version of TLS. OpenSSL sends a record for each message of a handshake; rustls sends one
    /// for all, which leaves nothing to hold back behind a certificate.
    Mosquitto(&'static str),
    /// `curl`, for the same reason.
    Curl,
}

const DOOR: Row =
    Row { listener: "", scheme: "", shows_certificate: true, client: Client::Ours(&[]), settings: &[CUT] };
const MQTT_13: Row = Row { listener: "mqtts", scheme: "mqtts", client: Client::Mosquitto("tlsv1.3"), ..DOOR };
const MQTT_12: Row = Row { client: Client::Mosquitto("tlsv1.2"), ..MQTT_13 };
const MQTT_LOW: Row = Row {
    settings: &[
        CUT,
        "listeners.mqtts.profile=\"low\"",
        "listeners.mqtts.allow_weak=true",
        "listeners.mqtts.client_certificates=\"optional\"",
    ],
    ..MQTT_12
};
const MQTT_PSK_13: Row = Row { shows_certificate: false, settings: &["listeners.mqtts.profile=\"psk\""], ..MQTT_13 };
const MQTT_PSK_12: Row = Row { client: Client::Mosquitto("tlsv1.2"), ..MQTT_PSK_13 };
const HTTP: Row = Row { listener: "https", scheme: "https", client: Client::Curl, ..DOOR };
const HTTP_PSK: Row = Row { shows_certificate: false, client: Client::Ours(&[]), settings: &[HTTPS_PSK], ..HTTP };
const HTTP_3: Row = Row { client: Client::Ours(&["--http", "3"]), ..HTTP };
const COAP_TCP: Row = Row { listener: "coaps_tcp", scheme: "coaps+tcp", ..DOOR };
const COAP_TCP_PSK: Row =
    Row { shows_certificate: false, settings: &["listeners.coaps_tcp.profile=\"psk\""], ..COAP_TCP };
const DTLS_12: Row = Row { listener: "coaps", scheme: "coaps", settings: &[CUT, ASK, OLDER], ..DOOR };
const DTLS_PSK_12: Row = Row { shows_certificate: false, settings: &[OLDER], ..DTLS_12 };
const DTLS_13: Row = Row { settings: &[CUT, ASK, NEWER], ..DTLS_12 };
const DTLS_PSK_13: Row = Row { shows_certificate: false, settings: &[NEWER], ..DTLS_12 };

const CUT: &str = "tls.cut_revoked=true";
const HTTPS_PSK: &str = "listeners.https.profile=\"psk\"";
const ASK: &str = "listeners.coaps.client_certificates=\"optional\"";
const OLDER: &str = "listeners.coaps.dtls_versions=[\"1.2\"]";
const NEWER: &str = "listeners.coaps.dtls_versions=[\"1.3\"]";

const RULES: &str = "[[allow]]\nuser = [\"dev\", \"dev2\"]\nboth = [\"secret/#\"]\n\n\
                     [[allow]]\nanonymous = true\nwrite = [\"secret/#\"]\n";
const TOPIC: &str = "secret/x";
const KEY: &[u8] = b"oldoldoldoldold-";
const NEXT_KEY: &[u8] = b"newnewnewnewnew-";
/// Clients, each of which says one piece more than the one before.
const CLIENTS: usize = 14;
const PATIENCE: Duration = Duration::from_secs(30);
/// All that has been let go has said the rest of its login by then.
const SOON: Duration = Duration::from_secs(5);

/// How a credential is withdrawn.
#[derive(Clone, Copy, Debug)]
enum Withdrawn {
    /// The certificate is revoked, or the key replaced; SIGHUP says so.
    Signalled,
    /// The certificate is refused by `certificates.toml`, or the key removed; the gateway notices by itself.
    Noticed,
}

fn check(row: &Row) -> Result<String> {
    let mut told = Vec::new();
    for how in [Withdrawn::Signalled, Withdrawn::Noticed] {
        told.push(withdraw(row, how).with_context(|| format!("{how:?}"))?);
    }
    Ok(told.join("; "))
}

fn withdraw(row: &Row, how: Withdrawn) -> Result<String> {
    let keys = users::key_file("dev", KEY);
    let files = [("acl.toml", RULES), ("psk.toml", &*keys), ("certificates.toml", "# nobody is refused\n")];
    let mut gateway = Gateway::start_furnished(row.settings, &files)?;
    pki(&gateway, "client", "dev")?;
    pki(&gateway, "client", "dev2")?;
    retain(&gateway, "BEFORE")?;
    let server = gateway.address(row.listener)?;
    let mut clients = Vec::new();
    for pieces in 0..CLIENTS {
        clients.push(Parked::start(&gateway, row, pieces + 1, server)?);
    }
    let deadline = Instant::now() + PATIENCE;
    while !clients.iter().all(Parked::has_stopped) {
        ensure!(Instant::now() < deadline, "a client neither says anything nor reads");
        thread::sleep(Duration::from_millis(50));
    }
    let (held, open) = clients.iter().fold((0, 0), |(held, open), client| match client.relay.holds() {
        true => (held + 1, open),
        false => (held, open + 1),
    });
    ensure!(held > 0, "nothing was held back");
    match how {
        Withdrawn::Signalled if row.shows_certificate => pki(&gateway, "revoke", "dev")?,
        Withdrawn::Signalled => fs::write(gateway.data().join("psk.toml"), users::key_file("dev", NEXT_KEY))?,
        Withdrawn::Noticed if row.shows_certificate => {
            let refused = "[[certificate]]\ncommon_name = \"dev\"\nrefuse = true\n";
            fs::write(gateway.data().join("certificates.toml"), refused)?;
        }
        Withdrawn::Noticed => fs::write(gateway.data().join("psk.toml"), users::key_file("dev2", NEXT_KEY))?,
    }
    match how {
        Withdrawn::Signalled => {
            gateway.forget_log()?;
            gateway.signal(Signal::HUP)?;
            gateway.wait_log("are read again", PATIENCE)?;
        }
        Withdrawn::Noticed => gateway.wait_log("users, rules and keys are read again", PATIENCE)?,
    }
    clients.iter().for_each(|client| client.relay.open());
    thread::sleep(SOON);
    retain(&gateway, "AFTER")?;
    thread::sleep(SOON / 2);
    for client in &clients {
        let seen = client.reader.said();
        ensure!(!seen.contains("AFTER"), "a client that stopped after {} pieces reads: {seen}", client.pieces);
    }
    // A login with a credential that holds reads.
    let (name, key) = match how {
        Withdrawn::Signalled if !row.shows_certificate => ("dev", NEXT_KEY),
        Withdrawn::Signalled | Withdrawn::Noticed => ("dev2", NEXT_KEY),
    };
    let fresh = subscribe(&gateway, row, server, name, key)?;
    let deadline = Instant::now() + PATIENCE;
    while !fresh.said().contains("AFTER") {
        ensure!(Instant::now() < deadline, "a fresh login does not read: {}", fresh.said());
        thread::sleep(Duration::from_millis(50));
    }
    drop((clients, fresh));
    gateway.check_alive()?;
    Ok(format!("{held} held back, {open} open"))
}

fn pki(gateway: &Gateway, what: &str, name: &str) -> Result<()> {
    let binary = std::env::var("FOGMUX_BIN").context("FOGMUX_BIN")?;
    let done = Command::new(binary).args(["pki", what, name, "--data"]).arg(gateway.data()).output()?;
    ensure!(done.status.success(), "pki {what}: {}", String::from_utf8_lossy(&done.stderr));
    Ok(())
}

fn retain(gateway: &Gateway, value: &str) -> Result<()> {
    let mut connection = Connection::open(gateway.address("mqtt")?, V5, "")?;
    connection.stream.write_all(&mqtt::publish(V5, TOPIC.as_bytes(), value.as_bytes(), 1, true, 1))?;
    let (first, body) = connection.read()?;
    ensure!(first == 0x40 && body.get(2).is_none_or(|reason| *reason < 0x80), "PUBACK {body:?}");
    Ok(())
}

/// A command that reads, and what it says.
struct Reader {
    child: Child,
    output: tempfile::NamedTempFile,
}

impl Reader {
    fn said(&self) -> String {
        fs::read_to_string(self.output.path()).unwrap_or_default()
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a command that prints what is retained and what comes, by this credential.
fn subscribe(gateway: &Gateway, row: &Row, at: SocketAddr, name: &str, key: &[u8]) -> Result<Reader> {
    let output = tempfile::NamedTempFile::new()?;
    let file = |kind: &str| gateway.data().join("pki/clients").join(format!("{name}.{kind}"));
    let key: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
    let port = at.port();
    let mut command = match row.client {
        Client::Ours(_) => Command::new(std::env::var("FOGMUX_BIN").context("FOGMUX_BIN")?),
        Client::Mosquitto(_) => Command::new("mosquitto_sub"),
        Client::Curl => Command::new("curl"),
    };
    match row.client {
        Client::Ours(more) => command.args(["sub", &format!("{}://localhost:{port}/{TOPIC}", row.scheme)]).args(more),
        Client::Mosquitto(version) => {
            command.args(["-V", "5", "-h", "localhost", "-p", &port.to_string(), "-t", TOPIC, "--tls-version", version])
        }
        Client::Curl => {
            command.args(["-sSN", "--http1.1", &format!("https://localhost:{port}/subscribe?filter={TOPIC}")])
        }
    };
    let [ca, identity] = match row.client {
        Client::Ours(_) => ["--ca", "--psk-id"],
        Client::Mosquitto(_) => ["--cafile", "--psk-identity"],
        Client::Curl => ["--cacert", ""],
    };
    match row.shows_certificate {
        true => command.arg(ca).arg(gateway.ca()).arg("--cert").arg(file("pem")).arg("--key").arg(file("key")),
        false => command.args([identity, name, "--psk", &key]),
    };
    let said = output.reopen()?;
    command.stdin(Stdio::null()).stdout(said.try_clone()?).stderr(said);
    Ok(Reader { child: command.spawn()?, output })
}

/// A client behind a relay.
struct Parked {
    pieces: usize,
    relay: Relay,
    reader: Reader,
}

impl Parked {
    fn start(gateway: &Gateway, row: &Row, pieces: usize, server: SocketAddr) -> Result<Self> {
        let over_udp = row.listener == "coaps" || matches!(row.client, Client::Ours(["--http", "3"]));
        let relay = if over_udp { Relay::over_udp(server, pieces)? } else { Relay::over_tcp(server, pieces)? };
        let reader = subscribe(gateway, row, relay.address(), "dev", KEY)?;
        Ok(Self { pieces, relay, reader })
    }

    /// Whether it has said all that it may, or reads.
    fn has_stopped(&self) -> bool {
        self.relay.holds() || self.reader.said().contains("BEFORE")
    }
}

fn kept_alive() -> Result<String> {
    let keys = users::key_file("dev", KEY);
    let mut gateway = Gateway::start_furnished(&[HTTPS_PSK], &[("acl.toml", RULES), ("psk.toml", &*keys)])?;
    retain(&gateway, "BEFORE")?;
    let mut context = SslContext::builder(SslMethod::tls_client())?;
    context.set_verify(SslVerifyMode::NONE);
    context.set_psk_client_callback(|_, _, name, secret| {
        name.iter_mut().zip(b"dev\0").for_each(|(to, from)| *to = *from);
        secret.iter_mut().zip(KEY).for_each(|(to, from)| *to = *from);
        Ok(KEY.len())
    });
    let mut stream = SslStream::new(Ssl::new(&context.build())?, tcp::connect(gateway.address("https")?)?)?;
    stream.connect().context("TLS handshake")?;
    let before = get(&mut stream)?;
    ensure!(before.contains("BEFORE"), "{before}");
    fs::write(gateway.data().join("psk.toml"), users::key_file("dev", NEXT_KEY))?;
    gateway.wait_log("users, rules and keys are read again", PATIENCE)?;
    let after = get(&mut stream).unwrap_or_default();
    ensure!(!after.contains("BEFORE"), "a connection outlives its key: {after}");
    gateway.check_alive()?;
    Ok(after.lines().next().unwrap_or_default().to_owned())
}

/// The answer to a request on a connection that stays.
fn get(stream: &mut SslStream<std::net::TcpStream>) -> Result<String> {
    write!(stream, "GET /topics/{TOPIC} HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    let (mut answer, mut buffer) = (Vec::new(), [0; 4096]);
    let deadline = Instant::now() + PATIENCE;
    loop {
        let count = stream.read(&mut buffer)?;
        answer.extend(buffer.get(..count).unwrap_or_default());
        let text = String::from_utf8_lossy(&answer).into_owned();
        if count == 0 || text.split_once("\r\n\r\n").is_some_and(|(_, body)| !body.is_empty()) {
            return Ok(text);
        }
        if Instant::now() > deadline {
            bail!("no answer: {text}");
        }
    }
}
