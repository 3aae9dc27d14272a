//! Requests whose answers are thousands of times as large: answered in turn, one output at a time.

use anyhow::{Context, Result, ensure};
use fogmux_tests::xmpp::Via;

use super::Setup;

const REQUESTS: usize = 300;
const ITEM_BYTES: usize = 256 << 10;
/// A tenth of all answers.
const MORE_BYTES: u64 = 8_000_000;

/// Requests for a large item, one behind the other.
fn requests() -> String {
    let request = |number| {
        format!(
            "<iq type='get' id='r{number}' to='pubsub.localhost'>\
             <pubsub xmlns='http://jabber.org/protocol/pubsub'><items node='large'/></pubsub></iq>"
        )
    };
    (0..REQUESTS).map(request).collect()
}

/// Every request of one read is answered, in order, and the gateway holds few of the answers at a time.
pub(super) fn pipelined() -> Result<String> {
    let mut setup = Setup::start(&[])?;
    setup.retain([("large".to_owned(), vec![b'x'; ITEM_BYTES].as_slice())].into_iter())?;
    let mut session = setup.session(Via::DirectTls)?;
    // The first shows what one answer takes.
    session.entity("get", "<items node='large'/>")?;
    let idle = setup.gateway.peak_resident_bytes()?;
    session.send(&requests())?;
    for number in 0..REQUESTS {
        let answer = session.until("</iq>").with_context(|| format!("answer {number}"))?;
        ensure!(answer.contains(&format!("id='r{number}'")), "not the answer to {number}: {:.200}", answer);
        ensure!(answer.len() > ITEM_BYTES, "answer {number} has {} bytes", answer.len());
    }
    // A request behind them is answered, too, though no more input arrives.
    session.entity("get", "<items node='large'/>")?;
    let peak = setup.gateway.peak_resident_bytes()?;
    ensure!(peak <= idle + MORE_BYTES, "it grew from {} to {} MB", idle / 1_000_000, peak / 1_000_000);
    drop(session);
    setup.gateway.settle()?;
    Ok(format!("{} kB more for {REQUESTS} answers of {ITEM_BYTES} bytes", peak.saturating_sub(idle) / 1000))
}

/// Lists of names that are as long as they may be, and that XML makes five times longer: no answer is longer than a
/// page, all names are there on the pages, and clients that do not read make the gateway hold a page each.
pub(super) fn lists() -> Result<String> {
    const TOPICS: usize = 100;
    const READERS: usize = 8;
    /// Two pages for each reader, and all names for the one that is being answered.
    const LIST_BYTES: u64 = 40_000_000;
    let mut setup = Setup::start(&[])?;
    let name = "&".repeat(60_000);
    setup.retain((0..TOPICS).map(|topic| (format!("{topic:04}/{name}"), b"x".as_slice())))?;
    let idle = setup.gateway.resident_bytes()?;
    let query = |page: &str| format!("<query xmlns='http://jabber.org/protocol/disco#items'>{page}</query>");
    let mut deaf = Vec::new();
    for _ in 0..READERS {
        let mut session = setup.narrow_session(Via::Plain)?;
        session.send(&format!("<iq type='get' id='l' to='pubsub.localhost'>{}</iq>", query("")))?;
        deaf.push(session);
    }
    setup.wait_until_stuck()?;
    let peak = setup.gateway.peak_resident_bytes()?;
    ensure!(peak <= idle + LIST_BYTES, "it grew from {} to {} MB", idle / 1_000_000, peak / 1_000_000);
    let mut reader = setup.session(Via::Plain)?;
    let (mut found, mut pages, mut after) = (0, 0, String::new());
    while found < TOPICS {
        let page = format!("<set xmlns='http://jabber.org/protocol/rsm'><max>500</max>{after}</set>");
        let answer = reader.ask("get", &query(&page))?;
        ensure!(answer.len() < 1 << 20, "a page of {} bytes", answer.len());
        found += answer.matches("<item ").count();
        let last = answer.split("<last>").nth(1).and_then(|rest| rest.split("</last>").next());
        after = format!("<after>{}</after>", last.with_context(|| format!("no last of {found} on page {pages}"))?);
        pages += 1;
    }
    ensure!(found == TOPICS, "{found} names");
    drop((deaf, reader));
    setup.gateway.settle()?;
    Ok(format!("{pages} pages"))
}

/// Items that clients have asked for and do not take: beyond the bound the ones of the client with most end, and others
/// are answered.
pub(super) fn untaken() -> Result<String> {
    const READERS: usize = 24;
    let settings = ["xmpp.open_stanzas_bytes_max=4MiB", "xmpp.stanza_bytes_max=1MiB"];
    let mut setup = Setup::start(&settings)?;
    setup.retain([("large".to_owned(), vec![b'x'; ITEM_BYTES].as_slice())].into_iter())?;
    let mut deaf = Vec::new();
    for _ in 0..READERS {
        let mut session = setup.narrow_session(Via::Plain)?;
        session.send(&requests())?;
        deaf.push(session);
    }
    let gone = "fogmux_share_gave_way_total{table=\"xmpp_stanzas\"}";
    let gone = setup.gateway.wait_metric(gone, fogmux_tests::tcp::PATIENCE, |count| count > 0.0)?;
    let waits = setup.gateway.wait_metric("fogmux_xmpp_unfinished_bytes", fogmux_tests::tcp::PATIENCE, |_| true)?;
    ensure!(waits <= 4_194_304.0, "{waits} bytes are not taken");
    let mut reader = setup.session(Via::Plain)?;
    let answer = reader.entity("get", "<items node='large'/>")?;
    ensure!(answer.len() > ITEM_BYTES, "a reader is answered with {} bytes", answer.len());
    drop((deaf, reader));
    setup.gateway.wait_metric("fogmux_xmpp_unfinished_bytes", fogmux_tests::tcp::PATIENCE, |bytes| bytes == 0.0)?;
    setup.gateway.settle()?;
    Ok(format!("{gone} of {READERS} gave way"))
}

/// Large messages for many clients that read slowly, into small buffers: each gets them, and none is cut for others.
pub(super) fn crowd() -> Result<String> {
    const READERS: usize = 24;
    /// More than the socket of a client takes.
    const MESSAGES: usize = 12;
    let settings = ["xmpp.open_stanzas_bytes_max=4MiB", "xmpp.stanza_bytes_max=1MiB"];
    let mut setup = Setup::start(&settings)?;
    let mut readers = Vec::new();
    for _ in 0..READERS {
        let mut session = setup.narrow_session(Via::Plain)?;
        let action = format!("<subscribe node='crowd' jid='{}'/>", session.bare());
        let answer = session.entity("set", &action)?;
        ensure!(answer.contains("type='result'"), "{answer}");
        session.send("<presence/>")?;
        readers.push(session);
    }
    let large = vec![b'x'; ITEM_BYTES];
    setup.retain((0..MESSAGES).map(|_| ("crowd".to_owned(), large.as_slice())))?;
    std::thread::sleep(std::time::Duration::from_millis(300));
    let readers: Vec<_> = readers
        .into_iter()
        .map(|mut session| {
            std::thread::spawn(move || {
                session.until_count("</message>", MESSAGES).map(|events| (events.len(), session))
            })
        })
        .collect();
    let mut kept = Vec::new();
    for reader in readers {
        let (length, session) = reader.join().map_err(|_| anyhow::anyhow!("a reader has panicked"))??;
        ensure!(length > MESSAGES * ITEM_BYTES, "messages of {length} bytes");
        kept.push(session);
    }
    drop(kept);
    setup.gateway.settle()?;
    Ok(String::new())
}
