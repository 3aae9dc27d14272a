//! Actions of strangers, and of users with little permission, that must not harm others.

use std::io::{Read, Write};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::mqtt::{self, Connection, V5};
use fogmux_tests::users::{self, Login};
use fogmux_tests::{coap, tcp, tls, xmpp};

use super::{PATIENCE, refused_log};
use crate::logins::{answer, begin};

/// The marks of a page of another origin.
const FOREIGN: [&str; 4] = [
    "Origin: http://evil.example\r\nSec-Fetch-Site: cross-site\r\n",
    "Origin: http://evil.example\r\n",
    "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\n",
    "Origin: null\r\nSec-Fetch-Site: same-site\r\n",
];

/// The status line of the answer, after which the connection stays open.
fn ask(gateway: &Gateway, request: &str) -> Result<(std::net::TcpStream, String)> {
    let mut stream = tcp::connect(gateway.address("http")?)?;
    stream.write_all(request.as_bytes())?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.extend(byte);
    }
    Ok((stream, String::from_utf8_lossy(&head).trim().to_owned()))
}

/// No route lets a page of another origin change a table, by any method.
pub(super) fn pages() -> Result<String> {
    let mut gateway = Gateway::start(&["http.origins=[\"http://panel.example\"]"])?;
    let worker = &mut Connection::open(gateway.address("mqtt")?, V5, "worker")?;
    ensure!(worker.subscribe(1, &["$share/workers/jobs/#"], 1)? == [1], "SUBACK");
    let tables = ["fogmux_bus_subscriptions", "fogmux_bus_retained_messages", "fogmux_http_streams"];
    let of_tables = |gateway: &Gateway| -> Result<Vec<f64>> {
        let metrics = gateway.metrics()?;
        Ok(tables.iter().filter_map(|name| metrics.get(*name).copied()).collect())
    };
    let before = of_tables(&gateway)?;
    ensure!(!before.is_empty(), "no gauge is known");
    let mut open = Vec::new();
    for path in ["/subscribe?filter=$share/workers/jobs/%23", "/subscribe?filter=a", "/topics/jobs/a", "/publish"] {
        for method in ["GET", "HEAD", "PUT", "POST", "DELETE"] {
            for marks in FOREIGN {
                let request =
                    format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n{marks}Content-Length: 0\r\n\r\n");
                let (stream, line) = ask(&gateway, &request)?;
                let reads = path.starts_with("/topics") && matches!(method, "GET" | "HEAD");
                ensure!(reads || ["403", "405"].iter().any(|code| line.contains(code)), "{method} {path}: {line}");
                open.push(stream);
                ensure!(of_tables(&gateway)? == before, "{method} {path} with {marks:?} changes a table");
            }
        }
    }
    // Those of the gateway's own origin and of configured ones go on, and so do clients that are no browsers.
    for marks in
        ["", "Sec-Fetch-Site: same-origin\r\n", "Origin: http://localhost\r\n", "Origin: http://panel.example\r\n"]
    {
        let request = format!("GET /subscribe?filter=a HTTP/1.1\r\nHost: localhost\r\n{marks}\r\n");
        let (_, line) = ask(&gateway, &request)?;
        ensure!(line.contains("200"), "{marks:?}: {line}");
    }
    gateway.check_alive()?;
    Ok(format!("{} requests", open.len()))
}

/// Messages that a member of a shared group leaves behind come to one that may read them, however many may not.
pub(super) fn corner() -> Result<String> {
    const RULES: &str =
        "[[allow]]\nuser = \"ada\"\nboth = [\"plant/#\"]\n\n[[allow]]\nuser = \"eve\"\nread = [\"plant/lobby\"]\n";
    const MESSAGES: usize = 20;
    for strangers in [0, 65, 130] {
        let files = [("users.toml", &*users::file(&["ada", "eve"])), ("acl.toml", RULES)];
        let gateway = Gateway::start_furnished(&["mqtt.max_inflight=4", "auth.verification.wait_max=5m"], &files)?;
        let mqtt = gateway.address("mqtt")?;
        let join = |user: &str, client: &str| -> Result<Connection> {
            let (mut connection, _, reason) =
                Login { clean: true, expiry: 0, ..Login::of(user, client) }.connect(mqtt)?;
            ensure!(reason == 0, "CONNACK {reason:#x}");
            connection.subscribe(1, &["$share/g/plant/#"], 1)?;
            Ok(connection)
        };
        let crowd: Vec<Connection> =
            (0..strangers).map(|number| join("eve", &format!("e{number}"))).collect::<Result<_>>()?;
        let leaving = join("ada", "leaving")?;
        let (mut publisher, ..) = Login { clean: true, expiry: 0, ..Login::of("ada", "p") }.connect(mqtt)?;
        for number in 1..=MESSAGES {
            let id = u16::try_from(number)?;
            publisher.stream.write_all(&mqtt::publish(V5, b"plant/job", b"x", 1, false, id))?;
            ensure!(publisher.read()?.0 == 0x40, "no PUBACK");
        }
        let mut heir = join("ada", "heir")?;
        drop(leaving);
        for number in 0..MESSAGES {
            let (first, body) = heir.read().with_context(|| format!("{number} of {MESSAGES} beside {strangers}"))?;
            ensure!(first & 0xf6 == 0x32, "{first:#x} instead of PUBLISH");
            let at = 2 + "plant/job".len();
            heir.stream.write_all(&mqtt::packet(0x40, body.get(at..at + 2).context("a PUBLISH cut short")?))?;
        }
        drop(crowd);
    }
    Ok(String::new())
}

/// One byte that is no text does not free a client of a proxy that appends from its back-off.
pub(super) fn appended() -> Result<String> {
    let files = [("users.toml", &*users::file(&["ada"]))];
    let gateway = Gateway::start_furnished(&["proxy.addresses=[\"127.0.0.1\"]"], &files)?;
    for (own, client) in [(&b""[..], "203.0.113.9"), (b"X-Forwarded-For: \xff\r\n", "203.0.113.10")] {
        let mut waits = false;
        for number in 0..20 {
            let basic = users::basic(&format!("{client}-{number}"), "guess");
            let mut request = b"GET /topics/a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n".to_vec();
            request.extend(own);
            request.extend(format!("X-Forwarded-For: {client}\r\n{basic}\r\n").into_bytes());
            waits |= tcp::ask(gateway.address("http")?, &request)?.starts_with(b"HTTP/1.1 429");
        }
        ensure!(waits, "a client with {own:?} before its address does not wait");
    }
    let lines = refused_log::lines(&gateway);
    ensure!(lines.iter().all(|line| line.contains("peer=203.0.113.")), "the proxy is named: {lines:?}");
    Ok(String::new())
}

/// The filter of fail2ban counts those that wait because of their address, not those that wait for a name.
pub(super) fn owner() -> Result<String> {
    let filter = include_str!("../../../deploy/fail2ban/filter.d/fogmux.conf");
    let reasons = filter.lines().find_map(|line| line.strip_prefix("_reason = \"(?:")).context("no _reason")?;
    let reasons: Vec<&str> = reasons.trim_end_matches(')').split('|').collect();
    let files = [("users.toml", &*users::file(&["ada"]))];
    let gateway =
        Gateway::start_furnished(&["proxy.addresses=[\"127.0.0.1\"]", "log.refused_logins_per_address=100"], &files)?;
    for number in 1..=20 {
        answer(&mut begin(&gateway, Ipv4Addr::new(127, 0, 8, number), "ada", "guess")?)?;
    }
    ensure!(answer(&mut begin(&gateway, Ipv4Addr::new(127, 9, 9, 9), "ada", users::PASSWORD)?)? != 0, "no wait");
    for number in 0..20 {
        let fields = format!("X-Forwarded-For: 203.0.113.9\r\n{}", users::basic(&format!("n{number}"), "guess"));
        users::http_with(gateway.address("http")?, &fields, "GET", "/topics/a", b"")?;
    }
    let reason = |peer: &str, word: &str| -> Result<String> {
        let line = refused_log::wait_line(&gateway, &[peer, word])?;
        let (_, reason) = line.split_once(" reason=\"").context("no reason")?;
        Ok(reason.split('"').next().unwrap_or_default().to_owned())
    };
    let of_owner = reason("peer=127.9.9.9 ", "too many")?;
    ensure!(!reasons.contains(&&*of_owner), "fail2ban bans the owner of a name that others guess at: {of_owner:?}");
    let of_guesser = reason("peer=203.0.113.9 ", "too many")?;
    ensure!(reasons.contains(&&*of_guesser), "fail2ban does not count {of_guesser:?}");
    Ok(of_owner)
}

/// An owner of nodes subscribes nobody else to them, and tells nobody of a change that is none.
pub(super) fn forced() -> Result<String> {
    const RULES: &str = "[[allow]]\nuser = \"ada\"\nboth = [\"#\"]\n\n[[allow]]\nuser = \"eve\"\nboth = [\"eve/#\"]\n";
    let files = [("users.toml", &*users::file(&["ada", "eve"])), ("acl.toml", RULES)];
    let gateway = Gateway::start_furnished(&[], &files)?;
    let config = tls::config(gateway.ca())?;
    let log_in = |user: &str| {
        let stream = tcp::connect(gateway.address("xmpps")?)?;
        xmpp::Session::plain_password(stream, &config, &users::sasl_plain(user), "r")
    };
    let (mut ada, mut eve) = (log_in("ada")?, log_in("eve")?);
    eve.entity("set", "<create node='eve/1'/>")?;
    let change = |state: &str| {
        let one = format!("<subscription jid='ada@localhost' subscription='{state}'/>");
        format!("<subscriptions node='eve/1'>{one}</subscriptions>")
    };
    let forced = eve.owner("set", &change("subscribed"))?;
    ensure!(forced.contains("<not-allowed"), "{forced}");
    ensure!(!eve.owner("set", &change("none"))?.contains("error"), "an end that changes nothing");
    let list = ada.entity("get", "<subscriptions/>")?;
    ensure!(!list.contains("eve/1"), "ada is subscribed, or was told: {list}");
    // One that is there may be confirmed and ended.
    ada.entity("set", "<subscribe node='eve/1' jid='ada@localhost'/>")?;
    ensure!(!eve.owner("set", &change("subscribed"))?.contains("error"), "confirmed");
    ensure!(!eve.owner("set", &change("none"))?.contains("error"), "ended");
    ada.until("subscription='none'")?;
    Ok(String::new())
}

/// No flood of anonymous addresses keeps the refusals of others out of the log.
pub(super) fn blind() -> Result<String> {
    const RULES: &str =
        "[[allow]]\nanonymous = true\nread = [\"lobby/#\"]\n\n[[allow]]\nuser = \"ada\"\nboth = [\"plant/#\"]\n";
    const ADDRESSES: u32 = 4200;
    let files = [("users.toml", &*users::file(&["ada", "eve"])), ("acl.toml", RULES)];
    let gateway = Gateway::start_furnished(&[], &files)?;
    let server = gateway.address("coap")?;
    for number in 0..ADDRESSES {
        let from = Ipv4Addr::from_bits(0x7f0a_0001 + number);
        let socket = std::net::UdpSocket::bind((from, 0))?;
        socket.set_read_timeout(Some(Duration::from_secs(5)))?;
        // Uri-Path is option 11; each is answered before the next.
        let get = coap::message(0, 1, u16::try_from(number)?, b"t", &[(11, b"ps"), (11, b"plant")], b"");
        socket.send_to(&get, server)?;
        socket.recv(&mut [0; 1500]).context("no answer")?;
    }
    let (mut eve, _, reason) = Login::of("eve", "e").connect(gateway.address("mqtt")?)?;
    ensure!(reason == 0, "CONNACK {reason:#x}");
    eve.subscribe(1, &["plant/secret"], 1)?;
    let deadline = Instant::now() + PATIENCE / 3;
    while !gateway.whole_log().lines().any(|line| line.contains("action refused") && line.contains("\"eve\"")) {
        ensure!(Instant::now() < deadline, "no line about eve after a flood from {ADDRESSES} addresses");
        std::thread::sleep(Duration::from_millis(20));
    }
    let written = gateway.whole_log().matches("action refused").count() as u64;
    let counted = gateway.sum(&["fogmux_actions_unlogged_total"])?;
    ensure!(written + counted == u64::from(ADDRESSES) + 1, "{written} written, {counted} counted");
    Ok(format!("{written} written, {counted} counted"))
}
