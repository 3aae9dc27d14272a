//! Tables that all principals share (ADR 0031): one of them who fills a table to its end leaves room for the others.

use std::io::Write;
use std::net::TcpStream;

use anyhow::{Context, Result, ensure};
use fogmux_tests::dtls;
use fogmux_tests::gateway::Gateway;
use fogmux_tests::mqtt::Connection;
use fogmux_tests::suite::Case;
use fogmux_tests::users::{self, Login};
use fogmux_tests::{coap, tcp, tls, xmpp};

pub(crate) const CASES: &[Case] = &[
    Case { name: "fairness: absent sessions of one user give way to another's", run: absent_sessions },
    Case { name: "fairness: connected sessions of one user give way to another's", run: connected_sessions },
    Case { name: "fairness: retained messages of one user leave room for another's", run: retained_messages },
    Case { name: "fairness: bytes of retained messages leave room for another user's", run: retained_bytes },
    Case { name: "fairness: shares of retained messages survive a restart", run: restart },
    Case { name: "fairness: subscriptions of one user leave room for another's", run: subscriptions },
    Case { name: "fairness: bytes of subscriptions leave room for another user's", run: subscription_bytes },
    Case { name: "fairness: wills of one user leave room for another's", run: wills },
    Case { name: "fairness: observations of strangers leave room for a device's", run: observations },
    Case { name: "fairness: nodes of one user leave room for another's", run: nodes },
    Case { name: "fairness: nodes that are given away count for who made them", run: given_away },
    Case { name: "fairness: an owner's requests cost nobody else anything", run: requests_of_owners },
    Case { name: "fairness: event streams of one user leave room for another's", run: event_streams },
];

const PSK: &[u8] = b"a key of 16 byte";

fn start(settings: &[&str]) -> Result<Gateway> {
    users::gateway(settings, &["dev", "ada"], &[("psk.toml", &users::key_file("sensor", PSK))])
}

fn metric(gateway: &Gateway, name: &str) -> Result<f64> {
    gateway.metrics()?.get(name).copied().with_context(|| format!("no {name}"))
}

fn absent_sessions() -> Result<String> {
    let gateway = start(&["mqtt.sessions_max=20"])?;
    let mqtt = gateway.address("mqtt")?;
    for number in 0..20 {
        let (_, _, reason) = Login::of("dev", &format!("d{number}")).connect(mqtt)?;
        ensure!(reason == 0, "session {number} of 20 was refused: {reason:#x}");
    }
    gateway.wait_metric("fogmux_door_connections{door=\"mqtt\"}", tcp::PATIENCE, |open| open == 0.0)?;
    for number in 0..10 {
        let (_, _, reason) = Login::of("ada", &format!("a{number}")).connect(mqtt)?;
        ensure!(reason == 0, "session {number} of ada was refused: {reason:#x}");
    }
    // Both have ten: nobody has more than another, and nobody's own session gives way to a new one.
    for user in ["ada", "dev"] {
        let (_, _, reason) = Login::of(user, "one-more").connect(mqtt)?;
        ensure!(reason == 0x97, "{reason:#x} instead of 0x97 for one more of {user}");
    }
    // The session that was absent for longest gave way.
    let (_, present, reason) = Login::of("dev", "d10").connect(mqtt)?;
    ensure!(present && reason == 0, "the eleventh session of dev: present {present}, {reason:#x}");
    let (_, _, reason) = Login::of("dev", "d9").connect(mqtt)?;
    ensure!(reason == 0x97, "the tenth session of dev: {reason:#x}");
    ensure!(metric(&gateway, "fogmux_share_gave_way_total{table=\"sessions\"}")? == 10.0);
    ensure!(metric(&gateway, "fogmux_share_largest{table=\"sessions\"}")? == 10.0);
    ensure!(metric(&gateway, "fogmux_share_refused_total{table=\"sessions\"}")? == 3.0);
    Ok(String::new())
}

fn connected_sessions() -> Result<String> {
    let mut gateway = start(&["mqtt.sessions_max=20"])?;
    let mqtt = gateway.address("mqtt")?;
    let mut clients = Vec::new();
    for number in 0..20 {
        let (client, _, reason) =
            Login { clean: true, expiry: 0, ..Login::of("dev", &format!("d{number}")) }.connect(mqtt)?;
        ensure!(reason == 0, "session {number} of 20 was refused: {reason:#x}");
        clients.push(client);
    }
    let (mut ada, _, reason) = Login { expiry: 0, ..Login::of("ada", "a") }.connect(mqtt)?;
    ensure!(reason == 0, "ada was refused: {reason:#x}");
    let mut last = clients.pop().context("no client")?;
    let (first, body) = last.read()?;
    ensure!(first == 0xe0 && body.first() == Some(&0x97), "{first:#x} {body:?} instead of DISCONNECT 0x97");
    // The others stay.
    for client in clients.iter_mut().chain([&mut ada]) {
        client.stream.write_all(&[0xc0, 0])?;
        ensure!(client.read()?.0 == 0xd0, "no PINGRESP");
    }
    let (_, _, reason) = Login::of("dev", "d99").connect(mqtt)?;
    ensure!(reason == 0x97, "{reason:#x} instead of 0x97 for one more of dev");
    drop((clients, ada, last));
    gateway.settle()?;
    Ok(String::new())
}

/// Puts until it is refused; how many were taken.
fn put_all(gateway: &Gateway, user: &str, count: usize, body: &[u8]) -> Result<usize> {
    let mut taken = 0;
    for number in 0..count {
        let status = users::http(gateway.address("http")?, user, "PUT", &format!("/topics/{user}/{number}"), body)?;
        ensure!(matches!(status, 201 | 204 | 429 | 503 | 507), "PUT is answered {status}");
        taken += usize::from(status < 300);
    }
    Ok(taken)
}

fn retained_messages() -> Result<String> {
    let gateway = start(&["bus.retained_messages_max=40", "mqtt.sys_interval=0s"])?;
    let dev = put_all(&gateway, "dev", 60, b"x")?;
    ensure!(dev == 40, "dev has {dev} of 40");
    let ada = put_all(&gateway, "ada", 10, b"x")?;
    ensure!(ada >= 2, "ada has {ada} beside {dev} of dev");
    // The anonymous are one principal.
    let nobody = put_all(&gateway, "", 10, b"x")?;
    ensure!(nobody >= 1, "nobody has {nobody} beside {dev} and {ada}");
    // A value may follow another whatever the share, and what is cleared makes room for others.
    ensure!(put_all(&gateway, "dev", 1, b"y")? == 1, "a value did not follow another");
    for number in 0..20 {
        let target = format!("/topics/dev/{number}");
        ensure!(users::http(gateway.address("http")?, "dev", "DELETE", &target, b"")? == 204);
    }
    ensure!(put_all(&gateway, "ada", 20, b"x")? >= 15, "what dev has given up is not there for ada");
    ensure!(metric(&gateway, "fogmux_share_refused_total{table=\"retained\"}")? > 0.0);
    Ok(format!("{dev}, {ada} and {nobody} of 40"))
}

fn retained_bytes() -> Result<String> {
    let gateway = start(&["bus.retained_bytes_max=256KiB", "mqtt.sys_interval=0s"])?;
    let body = vec![b'x'; 2000];
    let dev = put_all(&gateway, "dev", 150, &body)?;
    ensure!((80..120).contains(&dev), "dev has {dev}");
    let ada = put_all(&gateway, "ada", 20, &body)?;
    ensure!(ada >= 5, "ada has {ada} beside {dev} of dev");
    Ok(format!("{dev} and {ada}"))
}

fn restart() -> Result<String> {
    let settings = ["bus.retained_messages_max=40", "mqtt.sys_interval=0s", "store.durability=always"];
    let home = tempfile::tempdir()?;
    std::fs::write(home.path().join("users.toml"), users::file(&["dev", "ada"]))?;
    let plan = fogmux_tests::gateway::Plan { settings: &settings, data: Some(home.path()), ..Default::default() };
    let mut gateway = Gateway::start_as(plan)?;
    let dev = put_all(&gateway, "dev", 60, b"x")?;
    gateway.signal(rustix::process::Signal::TERM)?;
    gateway.wait_exit(tcp::PATIENCE)?;
    let gateway = Gateway::start_as(plan)?;
    let status = users::http(gateway.address("http")?, "dev", "PUT", "/topics/dev/more", b"x")?;
    ensure!(matches!(status, 429 | 503 | 507), "dev has one more after a restart: {status}");
    let ada = put_all(&gateway, "ada", 10, b"x")?;
    ensure!(ada >= 2, "ada has {ada} beside {dev} of dev");
    Ok(format!("{dev} and {ada}"))
}

/// Subscribes to so many filters; how many were granted.
fn subscribe_all(gateway: &Gateway, user: &str, count: usize, tail: &str) -> Result<(Connection, usize)> {
    let login = Login { clean: true, expiry: 0, ..Login::of(user, user) };
    let (mut client, _, reason) = login.connect(gateway.address("mqtt")?)?;
    ensure!(reason == 0, "{user} was refused: {reason:#x}");
    let mut granted = 0;
    for number in 0..count {
        let reasons = client.subscribe(1, &[&format!("{user}/{number}{tail}")], 0)?;
        // Behind a Reason String, if there is one.
        let reason = reasons.last().copied().context("no reason code")?;
        ensure!(matches!(reason, 0 | 0x97), "{reason:#x} in SUBACK");
        granted += usize::from(reason == 0);
    }
    Ok((client, granted))
}

fn subscriptions() -> Result<String> {
    let mut gateway = start(&["bus.subscriptions_max=40"])?;
    let (first, dev) = subscribe_all(&gateway, "dev", 60, "")?;
    ensure!(dev == 40, "dev has {dev} of 40");
    let (second, ada) = subscribe_all(&gateway, "ada", 10, "")?;
    ensure!(ada >= 2, "ada has {ada} beside {dev} of dev");
    ensure!(metric(&gateway, "fogmux_share_refused_total{table=\"subscriptions\"}")? > 0.0);
    // Places that were given back can be had again.
    drop((first, second));
    gateway.settle()?;
    let (third, again) = subscribe_all(&gateway, "dev", 60, "")?;
    ensure!(again == dev, "{again} after {dev}");
    drop(third);
    gateway.settle()?;
    Ok(format!("{dev} and {ada} of 40"))
}

fn subscription_bytes() -> Result<String> {
    let mut gateway = start(&["bus.subscriptions_bytes_max=256KiB"])?;
    let (first, dev) = subscribe_all(&gateway, "dev", 200, &"/x".repeat(20))?;
    ensure!((20..100).contains(&dev), "dev has {dev}");
    let (second, ada) = subscribe_all(&gateway, "ada", 5, &"/x".repeat(20))?;
    ensure!(ada >= 2, "ada has {ada} beside {dev} of dev");
    drop((first, second));
    gateway.settle()?;
    Ok(format!("{dev} and {ada}"))
}

fn wills() -> Result<String> {
    let mut gateway = start(&["mqtt.wills_bytes_max=1MiB"])?;
    let login = |user: &str, number: usize| {
        Login { clean: true, expiry: 0, will_bytes: 20_000, ..Login::of(user, &format!("{user}{number}")) }
            .connect(gateway.address("mqtt")?)
    };
    let mut clients = Vec::new();
    let mut taken = [0, 0];
    for (user, taken) in ["dev", "ada"].into_iter().zip(&mut taken) {
        for number in 0..60 {
            let (client, _, reason) = login(user, number)?;
            ensure!(matches!(reason, 0 | 0x97), "CONNACK {reason:#x}");
            *taken += usize::from(reason == 0);
            clients.push(client);
        }
    }
    let [dev, ada] = taken;
    ensure!((50..=53).contains(&dev) && ada >= 2, "{taken:?}");
    drop(clients);
    gateway.wait_metric("fogmux_mqtt_wills_bytes", tcp::PATIENCE, |bytes| bytes == 0.0)?;
    gateway.settle()?;
    Ok(format!("{dev} and {ada}"))
}

fn observations() -> Result<String> {
    let mut gateway = start(&["coap.observers_max=40", "workers.count=1"])?;
    let observe = |number: u16| {
        let token = number.to_be_bytes();
        (token, coap::request(coap::CON, coap::GET, number, &token, &format!("o/{number}"), &[(6, b"")], b""))
    };
    let socket = coap::endpoint(gateway.address("coap")?)?;
    let mut strangers = 0;
    for number in 1..=60 {
        let (token, request) = observe(number);
        let answer = coap::Message::of_datagram(&coap::exchange(&socket, &request, &token)?)?;
        strangers += usize::from(answer.uint(6).is_some());
    }
    ensure!(strangers == 40, "strangers have {strangers} of 40");
    let own = coap::endpoint(gateway.address("coaps")?)?;
    let mut device = dtls::Session::open(&dtls::psk("sensor", PSK)?, own)?;
    let mut taken = 0;
    for number in 1..=5 {
        let (_, request) = observe(number);
        let answer = coap::Message::of_datagram(&device.exchange(&request)?)?;
        taken += usize::from(answer.uint(6).is_some());
    }
    ensure!(taken >= 2, "the device has {taken} beside {strangers} of strangers");
    ensure!(metric(&gateway, "fogmux_share_refused_total{table=\"observations\"}")? > 0.0);
    gateway.check_alive()?;
    Ok(format!("{strangers} and {taken} of 40"))
}

fn nodes() -> Result<String> {
    let gateway = start(&["xmpp.nodes_max=40"])?;
    let config = tls::config(gateway.ca())?;
    let mut taken = [0, 0];
    for (user, taken) in ["dev", "ada"].into_iter().zip(&mut taken) {
        let stream = tcp::connect(gateway.address("xmpps")?)?;
        let mut session = xmpp::Session::plain_password(stream, &config, &users::sasl_plain(user), "r")?;
        for number in 0..60 {
            let answer = session.entity("set", &format!("<create node='{user}/{number}'/>"))?;
            *taken += usize::from(answer.contains("type='result'"));
        }
    }
    let [dev, ada] = taken;
    ensure!(dev == 40 && ada >= 2, "{taken:?}");
    ensure!(metric(&gateway, "fogmux_share_refused_total{table=\"nodes\"}")? > 0.0);
    Ok(format!("{dev} and {ada} of 40"))
}

/// A session of a user over XMPP.
fn xmpp_session(gateway: &Gateway, user: &str) -> Result<xmpp::Session> {
    let config = tls::config(gateway.ca())?;
    let stream = tcp::connect(gateway.address("xmpps")?)?;
    xmpp::Session::plain_password(stream, &config, &users::sasl_plain(user), "r")
}

/// Has a user make so many nodes; how many are made.
fn make_nodes(session: &mut xmpp::Session, prefix: &str, count: usize) -> Result<usize> {
    let mut made = 0;
    for number in 0..count {
        let answer = session.entity("set", &format!("<create node='{prefix}/{number}'/>"))?;
        made += usize::from(answer.contains("type='result'"));
    }
    Ok(made)
}

fn given_away() -> Result<String> {
    let gateway = users::gateway(&["xmpp.nodes_max=40"], &["dev", "ada", "new"], &[])?;
    let mut dev = xmpp_session(&gateway, "dev")?;
    let mut made = 0;
    for number in 0..100 {
        let node = format!("dev/{number}");
        if !dev.entity("set", &format!("<create node='{node}'/>"))?.contains("type='result'") {
            break;
        }
        made += 1;
        let give = "<affiliation jid='ada@localhost' affiliation='owner'/>\
                    <affiliation jid='dev@localhost' affiliation='none'/>";
        let answer = dev.owner("set", &format!("<affiliations node='{node}'>{give}</affiliations>"))?;
        ensure!(answer.contains("type='result'"), "{answer}");
    }
    ensure!(made == 40, "dev has made {made} of 40");
    ensure!(metric(&gateway, "fogmux_share_largest{table=\"nodes\"}")? == 40.0);
    for user in ["ada", "new"] {
        let made = make_nodes(&mut xmpp_session(&gateway, user)?, user, 1)?;
        ensure!(made == 1, "the first node of {user} is refused");
    }
    // Ada has got them and may delete them, which makes room again.
    let mut ada = xmpp_session(&gateway, "ada")?;
    for number in 0..10 {
        let answer = ada.owner("set", &format!("<delete node='dev/{number}'/>"))?;
        ensure!(answer.contains("type='result'"), "{answer}");
    }
    ensure!(make_nodes(&mut dev, "again", 1)? == 1, "what is deleted does not count any more");
    Ok(String::new())
}

/// All that an owner may ask for in the name of another leaves that one as much as the same in the name of a stranger:
/// nodes, bytes of them, and subscriptions.
fn requests_of_owners() -> Result<String> {
    let left = |named: &str| -> Result<[usize; 2]> {
        let settings = ["xmpp.nodes_max=64", "xmpp.nodes_bytes_max=64KiB", "xmpp.subscriptions_bytes_max=64KiB"];
        let gateway = start(&settings)?;
        let mut dev = xmpp_session(&gateway, "dev")?;
        let (title, tail) = ("t".repeat(500), "x".repeat(500));
        for number in 0..200 {
            let node = format!("dev/{number}");
            let config = xmpp::form("node_config", &[("pubsub#title", &*title)]);
            dev.entity("set", &format!("<create node='{node}'/>"))?;
            let affiliations = |list: &[(&str, &str)]| -> String {
                let one = |(jid, kind): &(&str, &str)| format!("<affiliation jid='{jid}' affiliation='{kind}'/>");
                format!("<affiliations node='{node}'>{}</affiliations>", list.iter().map(one).collect::<String>())
            };
            let stranger = format!("{tail}@localhost");
            dev.owner("set", &affiliations(&[(named, "member"), (&stranger, "outcast")]))?;
            dev.owner("set", &format!("<configure node='{node}'>{config}</configure>"))?;
            let subscribed = format!("<subscription jid='{named}' subscription='subscribed'/>");
            dev.owner("set", &format!("<subscriptions node='{node}'>{subscribed}</subscriptions>"))?;
            dev.entity("set", &format!("<publish node='{node}'><item><x xmlns='y'/></item></publish>"))?;
            dev.entity("set", &format!("<publish node='implied/{node}'><item><x xmlns='y'/></item></publish>"))?;
            dev.owner("set", &affiliations(&[(named, "owner"), ("dev@localhost", "none")]))?;
        }
        ensure!(metric(&gateway, "fogmux_share_refused_total{table=\"nodes\"}")? > 0.0, "there was room for all");
        let mut ada = xmpp_session(&gateway, "ada")?;
        let nodes = make_nodes(&mut ada, "ada", 30)?;
        let mut subscriptions = 0;
        for number in 0..300 {
            let subscribe = format!("<subscribe node='s/{number}' jid='ada@localhost'/>");
            subscriptions += usize::from(ada.entity("set", &subscribe)?.contains("type='result'"));
        }
        Ok([nodes, subscriptions])
    };
    let (own, other) = (left("ada@localhost")?, left("nob@localhost")?);
    ensure!(own == other && own[0] > 0 && own[1] > 10, "{own:?} are left, {other:?} where dev names a stranger");
    Ok(format!("{} nodes and {} subscriptions", own[0], own[1]))
}

/// Opens an event stream; `None` when it is refused.
fn event_stream(gateway: &Gateway, user: &str) -> Result<Option<TcpStream>> {
    let mut stream = tcp::connect(gateway.address("http")?)?;
    let authorization = users::authorization(user);
    write!(stream, "GET /subscribe?filter={user} HTTP/1.1\r\nHost: localhost\r\n{authorization}\r\n")?;
    let mut status = [0; 12];
    std::io::Read::read_exact(&mut stream, &mut status)?;
    match status.get(9..) {
        Some(b"200") => Ok(Some(stream)),
        Some(b"503") => Ok(None),
        status => anyhow::bail!("{status:?}"),
    }
}

fn event_streams() -> Result<String> {
    let mut gateway = start(&["http.event_streams_max=20", "http.event_stream_grace=0s"])?;
    let mut open = Vec::new();
    let mut taken = [0, 0];
    for (user, taken) in ["dev", "ada"].into_iter().zip(&mut taken) {
        for _ in 0..20 {
            let stream = event_stream(&gateway, user)?;
            *taken += usize::from(stream.is_some());
            open.extend(stream);
        }
    }
    let [dev, ada] = taken;
    ensure!(dev == 20 && ada >= 2, "{taken:?}");
    drop(open);
    gateway.settle()?;
    Ok(format!("{dev} and {ada} of 20"))
}
