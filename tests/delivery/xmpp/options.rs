//! Features and options: what is announced works, what does not work is refused.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use fogmux_tests::xmpp::{Session, Via, form};

use super::{Setup, expect_in, expect_not_in, ping, subscribe};

const PUBSUB: &str = "http://jabber.org/protocol/pubsub";

pub(super) fn features() -> Result<String> {
    let mut setup = Setup::start(&[])?;
    let mut session = setup.session(Via::DirectTls)?;
    let info = session.ask("get", "<query xmlns='http://jabber.org/protocol/disco#info'/>")?;
    for feature in ["publish", "subscribe", "item-ids", "last-published", "leased-subscription", "config-node-max"] {
        expect_in(&info, &format!("<feature var='{PUBSUB}#{feature}'/>"))?;
    }
    for feature in ["multi-items", "multi-subscribe", "collections", "presence-notifications", "get-pending"] {
        expect_not_in(&info, &format!("<feature var='{PUBSUB}#{feature}'/>"))?;
    }
    // The forms name what can be set, and what they show can be sent back.
    let default = session.entity("get", "<default/>")?;
    for field in ["deliver", "include_body", "expire"] {
        expect_in(&default, &format!("var='pubsub#{field}'"))?;
    }
    subscribe(&mut session, "f")?;
    let (jid, shown) = (session.bare(), session.owner("get", "<default/>")?);
    let start = shown.find("<x xmlns='jabber:x:data'").context("no form")?;
    let end = shown.find("</x>").context("no end of the form")?;
    let config = shown.get(start..end).unwrap_or_default().replace("type='form'", "type='submit'") + "</x>";
    let created = session.entity("set", &format!("<create node='f/new'/><configure>{config}</configure>"))?;
    expect_not_in(&created, "<error")?;
    let shown = session.entity("get", &format!("<options node='f' jid='{jid}'/>"))?;
    let start = shown.find("<x xmlns='jabber:x:data'").context("no form")?;
    let end = shown.find("</x>").context("no end of the form")?;
    let options = shown.get(start..end).unwrap_or_default().replace("type='form'", "type='submit'") + "</x>";
    let set = session.entity("set", &format!("<options node='f' jid='{jid}'>{options}</options>"))?;
    expect_not_in(&set, "<error")?;
    drop(session);
    setup.gateway.settle()?;
    Ok(String::new())
}

pub(super) fn refused() -> Result<String> {
    let mut setup = Setup::start(&[])?;
    let mut session = setup.session(Via::DirectTls)?;
    let jid = session.bare();
    let configs = [
        ("pubsub#max_items", "10"),
        ("pubsub#unknown", "1"),
        ("x-other", "1"),
        ("pubsub#presence_based_delivery", "1"),
        ("pubsub#node_type", "collection"),
        ("pubsub#send_last_published_item", "sometimes"),
    ];
    for (field, value) in configs {
        let config = form("node_config", &[(field, value)]);
        let answer = session.entity("set", &format!("<create node='c'/><configure>{config}</configure>"))?;
        expect_in(&answer, "<not-acceptable").with_context(|| field)?;
    }
    session.entity("set", "<create node='c'/>")?;
    let config = form("node_config", &[("pubsub#unknown", "1")]);
    expect_in(&session.owner("set", &format!("<configure node='c'>{config}</configure>"))?, "<not-acceptable")?;
    subscribe(&mut session, "c")?;
    let options = [
        ("pubsub#unknown", "1"),
        ("pubsub#digest", "1"),
        ("pubsub#show-values", "chat"),
        ("pubsub#subscription_type", "nodes"),
        ("pubsub#expire", "soon"),
        ("pubsub#expire", "2006-02-28T23:59:59Z"),
    ];
    for (field, value) in options {
        let options = form("subscribe_options", &[(field, value)]);
        let new = format!("<subscribe node='d' jid='{jid}'/><options>{options}</options>");
        let changed = format!("<options node='c' jid='{jid}'>{options}</options>");
        for request in [new, changed] {
            let answer = session.entity("set", &request)?;
            expect_in(&answer, "<error type='modify'><bad-request").with_context(|| field)?;
            expect_in(&answer, "<invalid-options").with_context(|| field)?;
        }
    }
    expect_not_in(&session.entity("get", "<subscriptions/>")?, "node='d'")?;
    for (field, value) in [("pubsub#unknown", "1"), ("pubsub#max_items", "5"), ("pubsub#access_model", "presence")] {
        let options = form("publish-options", &[(field, value)]);
        let publish = "<publish node='c'><item><e xmlns='u'/></item></publish>";
        let answer = session.entity("set", &format!("{publish}<publish-options>{options}</publish-options>"))?;
        expect_in(&answer, "<conflict")?;
        expect_in(&answer, "<precondition-not-met").with_context(|| field)?;
    }
    let met = [("pubsub#max_items", "max"), ("pubsub#access_model", "open"), ("pubsub#persist_items", "true")];
    let options = form("publish-options", &met);
    let publish = "<publish node='made'><item><e xmlns='u'/></item></publish>";
    let answer = session.entity("set", &format!("{publish}<publish-options>{options}</publish-options>"))?;
    expect_in(&answer, "<item id='current'/>")?;
    session.owner("set", "<delete node='made'/>")?;
    drop(session);
    setup.gateway.settle()?;
    Ok(String::new())
}

/// XEP-0060 §12.7
pub(super) fn include_body() -> Result<String> {
    let mut setup = Setup::start(&[])?;
    let mut session = setup.session(Via::DirectTls)?;
    let jid = session.bare();
    setup.retain([("b".to_owned(), &b"21.5 <C> & rising"[..])].into_iter())?;
    let with_body = |on| form("subscribe_options", &[("pubsub#include_body", on)]);
    session.entity("set", &format!("<subscribe node='b' jid='{jid}'/><options>{}</options>", with_body("1")))?;
    let text = "<body>21.5 &lt;C&gt; &amp; rising</body>";
    expect_in(&session.until("</message>")?, text)?;
    setup.retain([("b".to_owned(), &b"\xff\xfe"[..])].into_iter())?;
    expect_in(&session.until("</message>")?, "<body>2 bytes of application/octet-stream</body>")?;
    expect_in(&session.entity("get", &format!("<options node='b' jid='{jid}'/>"))?, "pubsub#include_body")?;
    let off = session.entity("set", &format!("<options node='b' jid='{jid}'>{}</options>", with_body("0")))?;
    expect_not_in(&off, "<error")?;
    setup.retain([("b".to_owned(), &b"22"[..])].into_iter())?;
    let event = session.until("</message>")?;
    expect_in(&event, ">22</data>")?;
    expect_not_in(&event, "<body>")?;
    expect_not_in(&ping(&mut session)?, "<message")?;
    setup.retain([("b".to_owned(), &b""[..])].into_iter())?;
    drop(session);
    setup.gateway.settle()?;
    Ok(String::new())
}

/// Seconds from now as XEP-0082 writes them.
fn moment(from_now: u64) -> Result<String> {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() + from_now;
    let (days, second) = (unix / 86_400, unix % 86_400);
    // Days since 0000-03-01, in eras of 400 years.
    let day = days + 719_468;
    let (era, day) = (day / 146_097, day % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = year + era * 400 + next;
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    Ok(format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z"))
}

fn lease(session: &mut Session, node: &str, end: &str) -> Result<()> {
    let (jid, options) = (session.bare(), form("subscribe_options", &[("pubsub#expire", end)]));
    let request = format!("<subscribe node='{node}' jid='{jid}'/><options>{options}</options>");
    expect_in(&session.entity("set", &request)?, "subscription='subscribed'")
}

/// XEP-0060 §12.4 and §12.18
pub(super) fn leases() -> Result<String> {
    let mut setup = Setup::start(&[])?;
    let mut session = setup.session(Via::DirectTls)?;
    let jid = session.bare();
    lease(&mut session, "l/short", &moment(2)?)?;
    lease(&mut session, "l/long", &moment(3600)?)?;
    lease(&mut session, "l/presence", "presence")?;
    let options = session.entity("get", &format!("<options node='l/long' jid='{jid}'/>"))?;
    let year = moment(3600)?.get(..4).unwrap_or_default().to_owned();
    expect_in(&options, &format!("<value>{year}-"))?;
    // The end of the short one is told.
    let event = session.until("</message>")?;
    expect_in(&event, &format!("<subscription node='l/short' jid='{jid}' subscription='none'/>"))?;
    setup.retain(["l/short", "l/long", "l/presence"].into_iter().map(|node| (node.to_owned(), &b"x"[..])))?;
    let events = session.until_count("</message>", 2)?;
    ensure!(super::nodes(&events) == ["l/long", "l/presence"], "{events}");
    session.send("<presence/>")?;
    session.until_count("</message>", 2)?;
    session.send("<presence type='unavailable'/>")?;
    let left = session.entity("get", "<subscriptions/>")?;
    expect_in(&left, "node='l/long'")?;
    expect_not_in(&left, "node='l/short'")?;
    expect_not_in(&left, "node='l/presence'")?;
    setup.gateway.wait_metric("fogmux_bus_subscriptions", Duration::from_secs(5), |count| count < 0.5)?;
    setup.retain(["l/short", "l/long", "l/presence"].into_iter().map(|node| (node.to_owned(), &b""[..])))?;
    drop(session);
    setup.gateway.settle()?;
    Ok(String::new())
}
