//! State that XMPP keeps of clients that have gone – nodes, their names, configurations and affiliations, and
//! subscriptions – is bounded in bytes, before and after a restart (ADR 0068).

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::{Gateway, Plan};
use fogmux_tests::xmpp::{Session, form};
use fogmux_tests::{tcp, tls, users};

/// The bound of the table that a case fills, and of each other thing that may take memory meanwhile.
const TABLE_BYTES_MAX: u64 = 8 << 20;
const SETTINGS: [&str; 7] = [
    "xmpp.nodes_bytes_max=8MiB",
    "xmpp.subscriptions_bytes_max=8MiB",
    "xmpp.open_stanzas_bytes_max=1MiB",
    "xmpp.stanza_bytes_max=512KiB",
    "store.queue_bytes_max=1MiB",
    "store.group_delay=1ms",
    "workers.count=1",
];
/// The table with its reserve, unfinished stanzas, and what waits for the disk and is being written.
const BOUNDS_BYTES: u64 = TABLE_BYTES_MAX / 10 * 11 + (1 << 20) + (2 << 20);
/// RFC 7622 §3.2 and §3.3: a part of an address has 1 023 bytes at most.
const PART_BYTES_MAX: usize = 1023;

/// Asks for things of the largest legal size, one after another, until there is no room.
struct Filled {
    gateway: Gateway,
    home: tempfile::TempDir,
    idle_bytes: u64,
}

impl Filled {
    fn by(attempts: usize, ask: impl Fn(&mut Session, usize) -> Result<String>) -> Result<Self> {
        let home = tempfile::tempdir()?;
        std::fs::write(home.path().join("users.toml"), users::file(&["dev"]))?;
        let gateway = Gateway::start_as(Plan { settings: &SETTINGS, data: Some(home.path()), ..Plan::default() })?;
        let config = tls::config(gateway.ca())?;
        let stream = tcp::connect(gateway.address("xmpps")?)?;
        let mut session = Session::plain_password(stream, &config, &users::sasl_plain("dev"), "r")?;
        // Subscriptions are kept while nobody is there to be notified.
        session.send("<presence type='unavailable'/>")?;
        session.entity("set", "<create node='first'/>")?;
        let idle_bytes = gateway.resident_bytes()?;
        let mut answers = (0..attempts).map(|number| ask(&mut session, number));
        let refused = answers.find(|answer| !answer.as_ref().is_ok_and(|answer| answer.contains("type='result'")));
        let refused = refused.with_context(|| format!("none of {attempts} was refused"))??;
        ensure!(refused.contains("<resource-constraint"), "{refused}");
        Ok(Self { gateway, home, idle_bytes })
    }

    /// The memory is bounded, and so is that of a gateway that starts with what this one has kept.
    fn check(mut self, gauge: &str) -> Result<String> {
        let largest = self.idle_bytes + BOUNDS_BYTES;
        let deadline = || Instant::now() + Duration::from_secs(30);
        let kept = self.gateway.sum(&[gauge])?;
        ensure!(kept > TABLE_BYTES_MAX / 2 && kept <= TABLE_BYTES_MAX / 10 * 11, "{gauge} is {kept}");
        let before = self.gateway.comes_down(largest, deadline())?;
        self.gateway.signal(rustix::process::Signal::TERM)?;
        self.gateway.wait_exit(tcp::PATIENCE)?;
        let gateway = Gateway::start_as(Plan { settings: &SETTINGS, data: Some(self.home.path()), ..Plan::default() })?;
        ensure!(gateway.sum(&[gauge])? == kept, "{gauge} is {} after a restart", gateway.sum(&[gauge])?);
        let after = gateway.comes_down(largest, deadline())?;
        let grown = |resident: u64| resident.saturating_sub(self.idle_bytes) >> 10;
        Ok(format!("{} KiB kept, {} taken, {} after a restart", kept >> 10, grown(before), grown(after)))
    }
}

/// 255 affiliations of each node, as many as there may be beside its owner.
pub(super) fn affiliations() -> Result<String> {
    let domain = vec!["d".repeat(60); 17].join(".").chars().take(PART_BYTES_MAX).collect::<String>();
    let members = |from: usize, to: usize| -> String {
        let local = |number| format!("{number:03}{}", "x".repeat(PART_BYTES_MAX - 3));
        (from..to).map(|n| format!("<affiliation jid='{}@{domain}' affiliation='member'/>", local(n))).collect()
    };
    let halves = [members(0, 128), members(128, 255)];
    let filled = Filled::by(100, |session, number| {
        let mut answer = session.entity("set", &format!("<create node='n/{number}'/>"))?;
        for half in &halves {
            if answer.contains("type='result'") {
                answer = session.owner("set", &format!("<affiliations node='n/{number}'>{half}</affiliations>"))?;
            }
        }
        Ok(answer)
    })?;
    filled.check("fogmux_xmpp_nodes_bytes")
}

pub(super) fn names() -> Result<String> {
    let text = "t".repeat(1024);
    let config = form("node_config", &[("pubsub#title", &*text), ("pubsub#description", &*text)]);
    let filled = Filled::by(10_000, |session, number| {
        let create = format!("<create node='{number:05}{}'/>", "n".repeat(1019));
        session.entity("set", &format!("{create}<configure>{config}</configure>"))
    })?;
    filled.check("fogmux_xmpp_nodes_bytes")
}

pub(super) fn subscriptions() -> Result<String> {
    let filled = Filled::by(300, |session, number| {
        let node = format!("{number:05}{}", "n".repeat(65_000));
        let jid = session.bare();
        session.entity("set", &format!("<subscribe node='{node}' jid='{jid}'/>"))
    })?;
    filled.check("fogmux_xmpp_subscriptions_bytes")
}

/// Parts of addresses beyond the standard's bounds are refused.
pub(super) fn addresses() -> Result<String> {
    let gateway = Gateway::start(&[])?;
    let config = tls::config(gateway.ca())?;
    let mut session = Session::anonymous(&config, gateway.address("xmpps")?)?;
    session.entity("set", "<create node='n'/>")?;
    let long = |bytes: usize| "x".repeat(bytes);
    for (jid, taken) in [
        (format!("{}@d", long(1023)), true),
        (format!("{}@d", long(1024)), false),
        (format!("a@{}", long(1023)), true),
        (format!("a@{}", long(1024)), false),
    ] {
        let one = format!("<affiliation jid='{jid}' affiliation='member'/>");
        let answer = session.owner("set", &format!("<affiliations node='n'>{one}</affiliations>"))?;
        ensure!(answer.contains("type='result'") == taken, "{} bytes: {answer}", jid.len());
    }
    Ok(String::new())
}
