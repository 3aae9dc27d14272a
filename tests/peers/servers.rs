//! The servers that are compared: the gateway, and those of others that the machine has.

use std::process::{Command, Stdio};

use anyhow::{Result, bail};
use fogmux_tests::foreign::{self, Foreign};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::server::program;
use fogmux_tests::users;

/// The identity and key of a CoAP client under DTLS.
pub(crate) const IDENTITY: &str = "dev1";
const KEY: &[u8] = b"0123456789abcdef";

/// A server of others: how to see that it is there, and how it is started.
struct Kind {
    name: &'static str,
    /// The program that must be there.
    program: &'static str,
    start: fn() -> Result<Foreign>,
    doors: &'static [&'static str],
}

const KINDS: &[Kind] = &[
    Kind { name: "Mosquitto", program: "mosquitto", start: foreign::mosquitto, doors: &["mqtt"] },
    Kind { name: "FlashMQ", program: "flashmq", start: foreign::flashmq, doors: &["mqtt"] },
    Kind { name: "libcoap", program: "coap-server-notls", start: foreign::libcoap, doors: &["coap"] },
    Kind { name: "libcoap, OpenSSL", program: "coap-server-openssl", start: libcoap_psk, doors: &["coaps"] },
    Kind { name: "nginx", program: "nginx", start: nginx, doors: &["http", "h2c"] },
    Kind { name: "ejabberd", program: "ejabberdctl", start: foreign::ejabberd, doors: &["xmpp"] },
];

fn libcoap_psk() -> Result<Foreign> {
    foreign::libcoap_psk(std::str::from_utf8(KEY)?)
}

/// Files stay open, and connections last.
fn nginx() -> Result<Foreign> {
    foreign::nginx("open_file_cache max=1000; sendfile on; keepalive_requests 100000000;")
}

/// A server that runs.
pub(crate) enum Running {
    Ours(Gateway),
    Foreign(Foreign),
}

impl Running {
    /// Its URL for a door.
    pub(crate) fn url(&self, door: &str) -> Result<String> {
        let gateway = match self {
            Self::Foreign(peer) => return Ok(peer.url(door)?.to_owned()),
            Self::Ours(gateway) => gateway,
        };
        Ok(match door {
            "mqtt" => format!("mqtt://{}", gateway.address("mqtt")?),
            "coap" => format!("coap://{}/ps", gateway.address("coap")?),
            "coaps" => format!("coaps://{}/ps", gateway.address("coaps")?),
            "http" | "h2c" => format!("http://{}/topics", gateway.address("http")?),
            "xmpp" => format!("xmpp://{}", gateway.address("xmpp")?),
            _ => bail!("no {door}"),
        })
    }

    pub(crate) fn pid(&self) -> u32 {
        match self {
            Self::Ours(gateway) => gateway.pid(),
            Self::Foreign(peer) => peer.pid(),
        }
    }
}

/// A server by its name.
pub(crate) struct Server {
    pub(crate) name: &'static str,
    kind: Option<&'static Kind>,
}

impl Server {
    /// Whether it has that door.
    pub(crate) fn has(&self, door: &str) -> bool {
        self.kind.is_none_or(|kind| kind.doors.contains(&door))
    }

    /// Whether others wrote it.
    pub(crate) fn is_foreign(&self) -> bool {
        self.kind.is_some()
    }

    /// Starts it: a fresh one for each load, because what one load leaves behind may slow down the next.
    /// `settings` are the gateway's.
    pub(crate) fn start(&self, settings: &[&str]) -> Result<Running> {
        let Some(kind) = self.kind else {
            let files = [("psk.toml", &*users::key_file(IDENTITY, KEY))];
            return Ok(Running::Ours(Gateway::start_furnished(&[&["log.filter=error"], settings].concat(), &files)?));
        };
        Ok(Running::Foreign((kind.start)()?))
    }
}

/// The gateway first, then those that are on this machine; those that are not are named.
pub(crate) fn present() -> Vec<Server> {
    let mut servers = vec![Server { name: "fogmux", kind: None }];
    for kind in KINDS {
        let found = Command::new(program(kind.program)).arg("--help").stdin(Stdio::null()).output();
        match found {
            Ok(_) => servers.push(Server { name: kind.name, kind: Some(kind) }),
            Err(error) => println!("without {}: {}: {error}", kind.name, kind.program),
        }
    }
    servers
}

/// The key in hexadecimal, as flags have it.
pub(crate) fn key() -> String {
    KEY.iter().map(|byte| format!("{byte:02x}")).collect()
}
