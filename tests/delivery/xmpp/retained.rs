//! Retained items reach a new subscription whatever their number, their size, the transport and the pace of the reader.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fogmux_tests::xmpp::{Session, Via};

use super::{Setup, expect_in, follow, nodes, ping};

/// Around the chunks and buffers of a walk over retained messages: 32 looked up at once, 64 KiB of output (192 small
/// notifications), 1 024 without acknowledgement.
const NUMBERS: [usize; 15] = [0, 1, 2, 3, 31, 32, 33, 63, 64, 65, 97, 192, 193, 1_000, 5_000];

/// Reads `count` notifications and checks that they are of different nodes; a ping shows that no more follow.
fn read_items(session: &mut Session, count: usize) -> Result<()> {
    let events = session.until_count("</message>", count)?;
    let found: BTreeSet<&str> = nodes(&events).into_iter().collect();
    ensure!(found.len() == count, "{} of {count} nodes", found.len());
    let rest = ping(session)?;
    ensure!(!rest.contains("<message"), "more than {count} items: {rest}");
    Ok(())
}

/// The payload of retained item `n` of so many bytes.
fn payload(n: usize, bytes: usize) -> Vec<u8> {
    format!("{n:06}").bytes().chain(std::iter::repeat(b'x')).take(bytes).collect()
}

pub(super) fn any_number() -> Result<String> {
    let mut setup = Setup::start(&[])?;
    let topics = NUMBERS.iter().flat_map(|count| (0..*count).map(move |n| format!("n{count}/{n:05}")));
    setup.retain(topics.map(|topic| (topic, &b"x"[..])))?;
    for via in Via::ALL {
        for count in NUMBERS {
            let mut session = setup.session(via)?;
            let answer = follow(&mut session, &format!("n{count}/#"))?;
            expect_in(&answer, "subscription='subscribed'")?;
            read_items(&mut session, count).with_context(|| format!("{count} items, {via:?}"))?;
        }
    }
    setup.gateway.settle()?;
    Ok(format!("{} numbers over {} transports", NUMBERS.len(), Via::ALL.len()))
}

pub(super) fn large() -> Result<String> {
    let mut setup = Setup::start(&[])?;
    let shapes = [(3, 16_383), (3, 16_384), (20, 17_000), (60, 100_000), (12, 900_000)];
    for (count, bytes) in shapes {
        let bodies: Vec<Vec<u8>> = (0..count).map(|n| payload(n, bytes)).collect();
        setup.retain((0..count).map(|n| format!("b{bytes}/{n}")).zip(bodies.iter().map(Vec::as_slice)))?;
    }
    for via in Via::ALL {
        for (count, bytes) in shapes {
            let mut session = setup.narrow_session(via)?;
            follow(&mut session, &format!("b{bytes}/#"))?;
            setup.wait_until_stuck()?;
            read_items(&mut session, count).with_context(|| format!("{count} items of {bytes} bytes, {via:?}"))?;
        }
    }
    setup.gateway.settle()?;
    Ok(format!("{} sizes", shapes.len()))
}

pub(super) fn paused() -> Result<String> {
    let mut setup = Setup::start(&[])?;
    let body = payload(0, 1024);
    setup.retain((0..3_000).map(|n| (format!("p/{n}"), body.as_slice())))?;
    for via in Via::ALL {
        let mut session = setup.narrow_session(via)?;
        follow(&mut session, "p/#")?;
        setup.wait_until_stuck()?;
        // It goes on in the midst of the walk: a value that is new must come, too.
        setup.retain([("p/new".to_owned(), &b"new"[..])].into_iter())?;
        let events = session.until_count("</message>", 3_000)?;
        let mut seen: BTreeSet<String> = nodes(&events).into_iter().map(str::to_owned).collect();
        let deadline = Instant::now() + Duration::from_secs(10);
        while seen.len() < 3_001 {
            ensure!(Instant::now() < deadline, "{} of 3 001 nodes, {via:?}", seen.len());
            let more = session.until("</message>").with_context(|| format!("{} of 3 001, {via:?}", seen.len()))?;
            seen.extend(nodes(&more).into_iter().map(str::to_owned));
        }
        setup.retain([("p/new".to_owned(), &b""[..])].into_iter())?;
    }
    setup.gateway.settle()?;
    Ok(String::new())
}

pub(super) fn acknowledged() -> Result<String> {
    let mut setup = Setup::start(&[])?;
    setup.retain((0..5_000).map(|n| (format!("a/{n}"), &b"x"[..])))?;
    for via in Via::ALL {
        let mut session = setup.session(via)?;
        session.send("<enable xmlns='urn:xmpp:sm:3'/>")?;
        session.until("<enabled xmlns='urn:xmpp:sm:3'/>")?;
        follow(&mut session, "a/#")?;
        // One answer was counted; whoever is owed an acknowledgement waits after at least 1 024.
        let mut seen: BTreeSet<String> = BTreeSet::new();
        let mut stanzas = 1;
        while seen.len() < 5_000 {
            let text = session.until("<r xmlns='urn:xmpp:sm:3'/>").with_context(|| format!("{} items", seen.len()))?;
            stanzas += text.matches("</message>").count();
            seen.extend(nodes(&text).into_iter().map(str::to_owned));
            // Once it acknowledges only when the gateway does not go on by itself.
            if !(1_000..=1_500).contains(&stanzas) {
                session.send(&format!("<a xmlns='urn:xmpp:sm:3' h='{stanzas}'/>"))?;
            }
            let near_the_end = 5_000 - seen.len();
            if (1..64).contains(&near_the_end) {
                let rest = session.until_count("</message>", near_the_end)?;
                seen.extend(nodes(&rest).into_iter().map(str::to_owned));
            }
        }
    }
    setup.gateway.settle()?;
    Ok(String::new())
}

pub(super) fn converges() -> Result<String> {
    let mut setup = Setup::start(&["xmpp.mailbox_messages_max=100"])?;
    let body = payload(0, 16_000);
    for via in Via::ALL {
        let mut session = setup.narrow_session(via)?;
        follow(&mut session, "c/#")?;
        // More than the sockets hold, so that the mailbox is where the rest waits.
        setup.retain((0..1_000).map(|_| ("c/loud".to_owned(), body.as_slice())))?;
        setup.retain([("c/quiet".to_owned(), &b"the last of quiet"[..])].into_iter())?;
        setup.retain((0..1_000).map(|_| ("c/loud".to_owned(), body.as_slice())))?;
        setup.retain([("c/loud".to_owned(), &b"the last of loud"[..])].into_iter())?;
        let mut last = [false; 2];
        while last != [true; 2] {
            let event = session.until("</message>").with_context(|| format!("quiet, loud: {last:?}, {via:?}"))?;
            match nodes(&event).as_slice() {
                ["c/quiet"] => last[0] = event.contains("the last of quiet"),
                ["c/loud"] => last[1] = event.contains("the last of loud"),
                other => anyhow::bail!("an event of {other:?}"),
            }
        }
        drop(session);
        setup.retain(["c/quiet", "c/loud"].into_iter().map(|topic| (topic.to_owned(), &b""[..])))?;
    }
    setup.gateway.settle()?;
    Ok(String::new())
}

/// A client that answers every request for an acknowledgement, but leaves IQ results out of its count, as
/// `@xmpp/client` 0.14 does: more of them than may be sent ahead of acknowledgements, then events.
pub(super) fn miscounted() -> Result<String> {
    const REQUEST: &str = "<r xmlns='urn:xmpp:sm:3'/>";
    let mut setup = Setup::start(&[])?;
    for via in Via::ALL {
        let mut session = setup.session(via)?;
        session.send("<enable xmlns='urn:xmpp:sm:3'/>")?;
        session.until("<enabled xmlns='urn:xmpp:sm:3'/>")?;
        follow(&mut session, "w/#")?;
        for _ in 0..1_200 {
            let requests = ping(&mut session)?.matches(REQUEST).count();
            session.send(&"<a xmlns='urn:xmpp:sm:3' h='0'/>".repeat(requests))?;
        }
        setup.retain((0..3_000).map(|n| (format!("w/{n}"), &b"x"[..])))?;
        let (mut events, mut requests) = (0, 0);
        while events < 3_000 {
            let text = session.until(">").with_context(|| format!("{events} of 3 000 events, {via:?}"))?;
            events += usize::from(text.ends_with("</message>"));
            if text.ends_with(REQUEST) {
                requests += 1;
                session.send(&format!("<a xmlns='urn:xmpp:sm:3' h='{events}'/>"))?;
            }
        }
        ensure!(requests > 0, "{events} events without a request");
        drop(session);
        setup.retain((0..3_000).map(|n| (format!("w/{n}"), &b""[..])))?;
    }
    setup.gateway.settle()?;
    Ok(String::new())
}

/// Readers over every transport, which join, pause, send presence and leave as a seeded sequence has it, while one
/// publisher counts up on many topics: no reader sees an older value after a newer one, and at the end each holds the
/// last of all.
#[expect(clippy::indexing_slicing, reason = "each index was picked below the length")]
pub(super) fn many_readers() -> Result<String> {
    const TOPICS: usize = 40;
    let mut seed = 0x5eed_u64;
    let mut pick = move |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(seed >> 33).unwrap_or_default() % below
    };
    let mut setup = Setup::start(&["xmpp.mailbox_messages_max=20"])?;
    let topics: Vec<String> = (0..TOPICS).map(|n| format!("m/{n:02}")).collect();
    let mut values = vec![0_usize; TOPICS];
    let mut readers: Vec<Reader> = Vec::new();
    for round in 0..40 {
        if readers.len() < 9 {
            let via = Via::ALL[pick(3)];
            let mut session = if pick(2) == 0 { setup.session(via)? } else { setup.narrow_session(via)? };
            follow(&mut session, "m/#")?;
            readers.push(Reader { session, seen: vec![0; TOPICS] });
        }
        let mut burst = Vec::new();
        for _ in 0..pick(600) {
            let topic = pick(TOPICS);
            values[topic] += 1;
            let body = format!("[{:08}]{}", values[topic], "x".repeat([1, 100, 300][pick(3)]));
            burst.push((topics[topic].clone(), body));
        }
        setup.retain(burst.iter().map(|(topic, body)| (topic.clone(), body.as_bytes())))?;
        let reader = pick(readers.len());
        match pick(8) {
            0 => drop(readers.swap_remove(reader)),
            1 => readers[reader].session.send("<presence type='unavailable'/><presence/>")?,
            2..5 => readers[reader].read_some().with_context(|| format!("round {round}"))?,
            _ => {}
        }
    }
    for reader in &mut readers {
        // Topics that were never published to are not waited for.
        while reader.seen != values {
            reader.read_some().with_context(|| format!("{:?} of {values:?}", reader.seen))?;
        }
    }
    let count = readers.len();
    drop(readers);
    setup.retain(topics.iter().map(|topic| (topic.clone(), &b""[..])))?;
    setup.gateway.settle()?;
    Ok(format!("{count} readers at the end"))
}

struct Reader {
    session: Session,
    /// The last value of each topic.
    seen: Vec<usize>,
}

impl Reader {
    /// Reads what a ping brings along, and one event more if it brought none.
    fn read_some(&mut self) -> Result<()> {
        let mut events = ping(&mut self.session)?;
        if !events.contains("</message>") {
            events += &self.session.until("</message>")?;
        }
        for event in events.split("</message>").filter(|event| event.contains("<items node='m/")) {
            let nodes = nodes(event);
            let topic: usize = nodes.first().and_then(|node| node.strip_prefix("m/")).context("a node")?.parse()?;
            let value = event.split_once('[').and_then(|(_, rest)| rest.split_once(']')).context("a value")?;
            let value: usize = value.0.parse()?;
            let seen = self.seen.get_mut(topic).context("a topic")?;
            ensure!(value >= *seen, "value {value} of topic {topic} after {seen}");
            *seen = value;
        }
        Ok(())
    }
}

pub(super) fn command() -> Result<String> {
    let mut setup = Setup::start(&[])?;
    setup.retain((0..1_000).map(|n| (format!("k/{n}"), &b"x"[..])))?;
    let binary = std::env::var("FOGMUX_BIN").context("FOGMUX_BIN names no gateway")?;
    for (scheme, listener) in [("xmpp", "xmpp"), ("xmpps", "xmpps")] {
        let url = format!("{scheme}://localhost:{}/k/%23", setup.gateway.address(listener)?.port());
        let mut command = Command::new(&binary);
        command.arg("sub").arg(&url).args(["--count", "1000", "--ca"]).arg(setup.gateway.ca());
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let mut out = child.stdout.take().context("no standard output")?;
        let reader = std::thread::spawn(move || {
            let mut text = String::new();
            std::io::Read::read_to_string(&mut out, &mut text).map(|_| text)
        });
        let deadline = Instant::now() + Duration::from_secs(20);
        while child.try_wait()?.is_none() {
            if Instant::now() > deadline {
                child.kill()?;
                child.wait()?;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let text = reader.join().map_err(|_| anyhow::anyhow!("the reader panicked"))??;
        ensure!(text.lines().count() == 1_000, "{} of 1 000 lines by {url}", text.lines().count());
    }
    setup.gateway.settle()?;
    Ok(String::new())
}
