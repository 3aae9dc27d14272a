//! Events: their content, their recipients and their order.

use std::io::Read as _;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fogmux_tests::xmpp::{Via, form};
use fogmux_tests::{coap, tcp};

use super::{Setup, expect_in, expect_not_in, follow, ping, subscribe};

pub(super) fn result_first() -> Result<String> {
    // The answer waits for the disk or does not.
    for durability in ["none", "group"] {
        result_first_with(&format!("store.durability={durability}")).with_context(|| durability)?;
    }
    Ok(String::new())
}

fn result_first_with(setting: &str) -> Result<()> {
    let mut setup = Setup::start(&[setting])?;
    setup.retain((0..300).map(|n| (format!("r/{n}"), &b"x"[..])))?;
    for via in Via::ALL {
        for options in [false, true] {
            let mut session = setup.session(via)?;
            let before = if options { follow(&mut session, "r/#")? } else { subscribe(&mut session, "r/0")? };
            expect_in(&before, "subscription='subscribed'")?;
            expect_not_in(&before, "<message")?;
            expect_in(&session.until("</message>")?, "<items node='r/")?;
        }
    }
    // A publisher that follows its own node learns first that it has published.
    let mut session = setup.session(Via::Plain)?;
    subscribe(&mut session, "own")?;
    for n in 0..20 {
        let answer =
            session.entity("set", &format!("<publish node='own'><item><n xmlns='u'>{n}</n></item></publish>"))?;
        expect_in(&answer, "<publish node='own'>")?;
        expect_not_in(&answer, "<message")?;
        expect_in(&session.until("</message>")?, &format!(">{n}</n>"))?;
    }
    drop(session);
    setup.gateway.settle()
}

pub(super) fn empty_value() -> Result<String> {
    let mut setup = Setup::start(&[])?;
    let mut session = setup.session(Via::DirectTls)?;
    for node in ["e/coap", "e/http"] {
        subscribe(&mut session, node)?;
    }
    let socket = coap::endpoint(setup.gateway.address("coap")?)?;
    let put = coap::request(coap::CON, coap::PUT, 1, b"t1", "e/coap", &[], &[]);
    let code = coap::dotted(&coap::exchange(&socket, &put, b"t1")?);
    ensure!(code == "2.01", "PUT without a body: {code}");
    let empty = "<item id='current'><data xmlns='urn:fogmux:0' encoding='utf8'></data></item>";
    expect_in(&session.until("</message>")?, &format!("<items node='e/coap'>{empty}</items>"))?;
    let put = b"PUT /topics/e/http HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    let answer = tcp::ask(setup.gateway.address("http")?, put)?;
    ensure!(answer.starts_with(b"HTTP/1.1 201"), "{}", String::from_utf8_lossy(&answer));
    expect_in(&session.until("</message>")?, &format!("<items node='e/http'>{empty}</items>"))?;
    expect_in(&session.entity("get", "<items node='e/coap'/>")?, empty)?;
    // A new subscriber finds the empty value; a topic that was cleared has none, and tells so.
    let mut late = setup.session(Via::Plain)?;
    follow(&mut late, "e/#")?;
    let found = late.until_count("</message>", 2)?;
    ensure!(found.matches(empty).count() == 2, "{found}");
    setup.retain([("e/coap".to_owned(), &b""[..])].into_iter())?;
    for session in [&mut session, &mut late] {
        expect_in(&session.until("</message>")?, "<items node='e/coap'><retract id='current'/></items>")?;
    }
    // The CoAP client stays a peer for EXCHANGE_LIFETIME (RFC 7252 §4.8.2), so the counts do not settle.
    setup.gateway.check_alive()?;
    Ok(String::new())
}

pub(super) fn item_ids() -> Result<String> {
    let mut setup = Setup::start(&[])?;
    let (mut ada, mut bob) = (setup.session(Via::Plain)?, setup.session(Via::DirectTls)?);
    subscribe(&mut bob, "ids")?;
    let publish =
        |id: &str, text: &str| format!("<publish node='ids'><item id='{id}'><e xmlns='u'>{text}</e></item></publish>");
    expect_in(&ada.entity("set", &publish("bnd81g37", "1"))?, "<item id='bnd81g37'/>")?;
    expect_in(&bob.until("</message>")?, "<items node='ids'><item id='bnd81g37'><e xmlns='u'>1</e></item></items>")?;
    for asked in ["", "<item id='bnd81g37'/>", "<item id='current'/>"] {
        let answer = bob.entity("get", &format!("<items node='ids'>{asked}</items>"))?;
        expect_in(&answer, "<item id='bnd81g37'><e xmlns='u'>1</e></item>")?;
    }
    expect_not_in(&bob.entity("get", "<items node='ids'><item id='other'/></items>")?, "<item ")?;
    let items = bob.ask("get", "<query xmlns='http://jabber.org/protocol/disco#items' node='ids'/>")?;
    expect_in(&items, "name='bnd81g37'")?;
    // Somebody who comes late, and the same id once more: it is written over.
    let mut late = setup.session(Via::StartTls)?;
    subscribe(&mut late, "ids")?;
    expect_in(&late.until("</message>")?, "<item id='bnd81g37'>")?;
    ada.entity("set", &publish("bnd81g37", "2"))?;
    expect_in(&late.until("</message>")?, "<item id='bnd81g37'><e xmlns='u'>2</e></item>")?;
    bob.until("</message>")?;
    // Retracted by its id, and by the name that every latest item answers to.
    expect_in(&ada.entity("set", "<retract node='ids'><item id='other'/></retract>")?, "<item-not-found")?;
    ada.entity("set", "<retract node='ids'><item id='bnd81g37'/></retract>")?;
    expect_in(&bob.until("</message>")?, "<items node='ids'><retract id='bnd81g37'/></items>")?;
    ada.entity("set", &publish("second", "3"))?;
    bob.until("</message>")?;
    expect_in(&ada.entity("set", "<retract node='ids'><item id='current'/></retract>")?, "/>")?;
    expect_in(&bob.until("</message>")?, "<items node='ids'><retract id='second'/></items>")?;
    // One that passes has its id, too; one without is the current one, as at every other door.
    let passing = form("publish-options", &[("pubsub#persist_items", "0")]);
    ada.entity("set", &format!("{}<publish-options>{passing}</publish-options>", publish("passing", "4")))?;
    expect_in(&bob.until("</message>")?, "<item id='passing'>")?;
    let unnamed = "<publish node='ids'><item><e xmlns='u'/></item></publish>";
    expect_in(&ada.entity("set", unnamed)?, "<item id='current'/>")?;
    expect_in(&bob.until("</message>")?, "<item id='current'>")?;
    ada.owner("set", "<delete node='ids'/>")?;
    drop((ada, bob, late));
    setup.gateway.settle()?;
    Ok(String::new())
}

/// XEP-0060 §4.3, §7.1.3.6 and §12.10.
pub(super) fn event_types() -> Result<String> {
    let mut setup = Setup::start(&[])?;
    let (mut ada, mut bob) = (setup.session(Via::Plain)?, setup.session(Via::DirectTls)?);
    let flags = |payloads, persist| [("pubsub#deliver_payloads", payloads), ("pubsub#persist_items", persist)];
    for (node, fields) in [("pure", flags("0", "0")), ("light", flags("0", "1")), ("full", flags("1", "1"))] {
        let config = form("node_config", &fields);
        ada.entity("set", &format!("<create node='{node}'/><configure>{config}</configure>"))?;
        subscribe(&mut bob, node)?;
    }
    let item = "<item><e xmlns='u'/></item>";
    let cases = [
        ("pure", item, "<item-forbidden"),
        ("pure", "<item/>", "<item-forbidden"),
        ("light", "", "<item-required"),
        ("full", "", "<item-required"),
        ("full", "<item/>", "<payload-required"),
    ];
    for (node, items, condition) in cases {
        let answer = ada.entity("set", &format!("<publish node='{node}'>{items}</publish>"))?;
        expect_in(&answer, "<error type='modify'><bad-request")?;
        expect_in(&answer, condition)?;
    }
    let two = ada.entity("set", &format!("<publish node='full'>{item}{item}</publish>"))?;
    expect_in(&two, "<not-allowed")?;
    expect_in(&two, "<max-items-exceeded")?;
    let config = form("node_config", &flags("1", "0"));
    ada.entity("set", &format!("<create node='transient'/><configure>{config}</configure>"))?;
    for (count, answer) in [(64, "type='result'"), (65, "<max-items-exceeded")] {
        let items = item.repeat(count);
        expect_in(&ada.entity("set", &format!("<publish node='transient'>{items}</publish>"))?, answer)?;
    }
    expect_in(&ada.entity("set", "<publish node='pure'/>")?, "<publish node='pure'/>")?;
    expect_in(&bob.until("</message>")?, "<items node='pure'/>")?;
    ada.entity("set", &format!("<publish node='light'>{item}</publish>"))?;
    expect_in(&bob.until("</message>")?, "<items node='light'><item id='current'/></items>")?;
    ada.entity("set", "<publish node='light'><item id='bare'/></publish>")?;
    expect_in(&bob.until("</message>")?, "<items node='light'><item id='bare'/></items>")?;
    for node in ["pure", "light", "full"] {
        ada.owner("set", &format!("<delete node='{node}'/>"))?;
    }
    drop((ada, bob));
    setup.gateway.settle()?;
    Ok(String::new())
}

/// An owner's change of a node holds for messages that others have received before it.
pub(super) fn reconfigured() -> Result<String> {
    let mut setup = Setup::start(&["workers.count=1"])?;
    let (mut ada, mut bob) = (setup.session(Via::Plain)?, setup.session(Via::Plain)?);
    let config = |payloads| form("node_config", &[("pubsub#deliver_payloads", payloads)]);
    ada.entity("set", &format!("<create node='node'/><configure>{}</configure>", config("1")))?;
    ada.entity("set", "<publish node='node'><item><e xmlns='u'/></item></publish>")?;
    for (payloads, expected) in [("1", "<item id='current'><e xmlns='u'/></item>"), ("0", "<item id='current'/>")] {
        ada.owner("set", &format!("<configure node='node'>{}</configure>", config(payloads)))?;
        subscribe(&mut bob, "node")?;
        expect_in(&bob.until("</message>")?, expected)?;
        bob.entity("set", &format!("<unsubscribe node='node' jid='{}'/>", bob.bare()))?;
    }
    drop((ada, bob));
    setup.gateway.settle()?;
    Ok(String::new())
}

/// XEP-0060 §4.3: `on_sub_and_presence` is the default, and owners may change it.
pub(super) fn presence() -> Result<String> {
    let mut setup = Setup::start(&[])?;
    let (mut ada, mut bob) = (setup.session(Via::Plain)?, setup.session(Via::DirectTls)?);
    let mut came = String::new();
    expect_in(&ada.owner("get", "<default/>")?, "<value>on_sub_and_presence</value><option>")?;
    for (node, when) in [("p/default", None), ("p/sub", Some("on_sub")), ("p/never", Some("never"))] {
        let config = form(
            "node_config",
            &when.map(|when| ("pubsub#send_last_published_item", when)).into_iter().collect::<Vec<_>>(),
        );
        ada.entity("set", &format!("<create node='{node}'/><configure>{config}</configure>"))?;
        ada.entity("set", &format!("<publish node='{node}'><item><e xmlns='u'/></item></publish>"))?;
        came += &subscribe(&mut bob, node)?;
    }
    came += &ping(&mut bob)?;
    ensure!(super::nodes(&came) == ["p/default", "p/sub"], "on subscribing: {came}");
    bob.send("<presence/>")?;
    let came = ping(&mut bob)? + &ping(&mut bob)?;
    ensure!(super::nodes(&came) == ["p/default"], "on presence: {came}");
    // Presence that goes on is no new one (RFC 6121 §4.4); presence that comes back is.
    bob.send("<presence><show>away</show></presence>")?;
    let came = ping(&mut bob)? + &ping(&mut bob)?;
    expect_not_in(&came, "<message")?;
    bob.send("<presence type='unavailable'/><presence/>")?;
    let came = ping(&mut bob)? + &ping(&mut bob)?;
    ensure!(super::nodes(&came) == ["p/default"], "on presence again: {came}");
    for node in ["p/default", "p/sub", "p/never"] {
        ada.owner("set", &format!("<delete node='{node}'/>"))?;
    }
    drop((ada, bob));
    setup.gateway.settle()?;
    Ok(String::new())
}

/// Each presence moves all subscriptions of a client, and brings their last items.
pub(super) fn presence_flood() -> Result<String> {
    let mut setup = Setup::start(&[])?;
    let (mut flood, mut other) = (setup.session(Via::Plain)?, setup.session(Via::DirectTls)?);
    let jid = flood.bare();
    for n in 0..500 {
        flood.entity("set", &format!("<subscribe node='flood/{n}' jid='{jid}'/>"))?;
    }
    let before = setup.gateway.resident_bytes()?;
    flood.send(&"<presence type='unavailable'/><presence/>".repeat(20_000))?;
    ping(&mut other)?;
    // A request that follows presence sees what it did.
    expect_in(&flood.entity("get", "<subscriptions/>")?, "node='flood/499'")?;
    let grown = setup.gateway.resident_bytes()?.saturating_sub(before) >> 20;
    ensure!(grown < 24, "{grown} MiB more");
    drop((flood, other));
    setup.gateway.settle()?;
    Ok(format!("{grown} MiB more"))
}

/// RFC 6121 §8.5.2.1.1
pub(super) fn negative_priority() -> Result<String> {
    let mut setup = Setup::start(&[])?;
    let (mut ada, mut bob) = (setup.session(Via::Plain)?, setup.session(Via::DirectTls)?);
    let (bare, full) = (bob.bare(), bob.jid.clone());
    subscribe(&mut bob, "x/bare")?;
    bob.entity("set", &format!("<subscribe node='x/full' jid='{full}'/>"))?;
    let mut publish = |n: u32| -> Result<()> {
        for node in ["x/bare", "x/full"] {
            let options = form("publish-options", &[("pubsub#persist_items", "0")]);
            let publish = format!("<publish node='{node}'><item><n xmlns='u'>{n}</n></item></publish>");
            ada.entity("set", &format!("{publish}<publish-options>{options}</publish-options>"))?;
        }
        Ok(())
    };
    let turns = [
        ("", &["x/bare", "x/full"][..]),
        ("<presence><priority>-1</priority></presence>", &["x/full"]),
        ("<presence><priority>0</priority></presence>", &["x/bare", "x/full"]),
        ("<presence><priority>-128</priority></presence>", &["x/full"]),
        ("<presence/>", &["x/bare", "x/full"]),
        ("<presence type='unavailable'/>", &["x/full"]),
    ];
    for (n, (presence, expected)) in (0..).zip(turns) {
        bob.send(&format!("{presence} "))?;
        ping(&mut bob)?;
        publish(n)?;
        // The event of the full address comes last.
        let mut events = String::new();
        while !super::nodes(&events).contains(&"x/full") {
            events += &bob.until("</message>")?;
        }
        ensure!(super::nodes(&events) == expected, "after {presence:?}: {events}");
        ensure!(!events.contains(&format!("to='{bare}'")) || expected.contains(&"x/bare"), "{events}");
    }
    drop((ada, bob));
    setup.gateway.settle()?;
    Ok(String::new())
}

pub(super) fn counted() -> Result<String> {
    let setup = Setup::start(&["limits.connections_max=8"])?;
    let sample = |name: &str, door: &str| -> Result<f64> {
        let metrics = setup.gateway.metrics()?;
        let wanted = format!("door=\"{door}\"");
        let found = metrics.iter().find(|(key, _)| key.starts_with(name) && key.contains(&wanted));
        found.map(|(_, value)| *value).with_context(|| format!("no {name} of {door}"))
    };
    let sessions = Via::ALL.map(|via| setup.session(via));
    let open = sample("fogmux_door_connections", "xmpp")?;
    let accepted = sample("fogmux_door_accepted", "xmpp")?;
    ensure!((open - 3.0).abs() < 0.5, "{open} connections of 3");
    ensure!((accepted - 3.0).abs() < 0.5, "{accepted} accepted of 3");
    drop(sessions);
    for (door, listener) in [("xmpp", "xmpp"), ("mqtt", "mqtt"), ("coap", "coap_tcp"), ("http", "http")] {
        setup
            .gateway
            .wait_metric("fogmux_door_connections{door=\"xmpp\"}", Duration::from_secs(10), |open| open < 0.5)?;
        let address = setup.gateway.address(listener)?;
        let mut held = Vec::new();
        // Beyond eight the gateway resets a connection: what is read from it then is an error or the end.
        let refused = loop {
            ensure!(held.len() < 20, "twenty connections of eight at {listener}");
            // A reset may come before the connection is known to be there.
            let Ok(mut stream) = tcp::connect(address) else { break held.len() };
            stream.set_read_timeout(Some(Duration::from_millis(200)))?;
            match stream.read(&mut [0; 512]) {
                Ok(0) => break held.len(),
                Ok(_) => held.push(stream),
                Err(error) if tcp::is_timeout(error.kind()) => held.push(stream),
                Err(_) => break held.len(),
            }
        };
        ensure!(refused <= 8, "{refused} were accepted");
        drop(held);
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            match sample("fogmux_door_rejected", door) {
                Ok(count) if count > 0.5 => break,
                other => ensure!(Instant::now() < deadline, "rejected at {door}: {other:?}"),
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    Ok(String::new())
}
