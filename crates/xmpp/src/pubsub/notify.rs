//! Notifications (XEP-0060 §7.1.2.1 and others): `<message/>` with `<event/>`.
//!
//! A notification is written in two parts, so that the part that is the same for all subscribers is written once: the
//! head with the address, and the rest from `<event` on.

use super::affiliation::SubscriptionState;
use super::config::NodeConfig;
use crate::ns;
use crate::payload;
use crate::shim;
use crate::writer::Writer;

/// `<message …>`, which differs between subscribers. Both addresses are in their normal form.
pub fn write_head(out: &mut Vec<u8>, from: &str, to: &str) {
    // §7.1.2.1 leaves the type open; headlines are never stored for later (RFC 6121 §5.2.2).
    let mut w = Writer::new(out);
    w.start("message").attr("type", "headline").attr("from", from).attr("to", to);
    w.raw(&[]);
}

/// `</message>`, with the headers of XEP-0131 before it.
pub fn write_event_tail<'h>(out: &mut Vec<u8>, headers: impl Iterator<Item = (&'h str, &'h str)>) {
    let mut w = Writer::new(out);
    shim::write(&mut w, headers);
    out.extend_from_slice(b"</message>");
}

/// §12.7: text for people beside the event.
pub fn write_body(out: &mut Vec<u8>, text: &str) {
    Writer::new(out).leaf("body", text);
}

/// §7.1.2.2: a notification without item and payload.
pub fn write_notice(out: &mut Vec<u8>, node: &str) {
    event(out, |w| {
        w.start("items").attr("node", node).end("items");
    });
}

/// §7.1.2.1: an item, with its payload unless the node leaves it out.
pub fn write_item(out: &mut Vec<u8>, node: &str, id: &str, content: Option<(Option<&str>, &[u8])>) {
    event(out, |w| {
        w.start("items").attr("node", node).start("item").attr("id", id);
        if let Some((content_type, bytes)) = content {
            w.raw_with(|out| payload::write(out, content_type, bytes));
        }
        w.end("item").end("items");
    });
}

/// §7.2.2.1: an item is gone.
pub fn write_retracted(out: &mut Vec<u8>, node: &str, id: &str) {
    event(out, |w| {
        w.start("items").attr("node", node).start("retract").attr("id", id).end("retract").end("items");
    });
}

/// §8.5.3: all items are gone.
pub fn write_purged(out: &mut Vec<u8>, node: &str) {
    event(out, |w| {
        w.start("purge").attr("node", node).end("purge");
    });
}

/// §8.4.3: the node is gone.
pub fn write_deleted(out: &mut Vec<u8>, node: &str) {
    event(out, |w| {
        w.start("delete").attr("node", node).end("delete");
    });
}

/// §8.2.5.5: the configuration has changed.
pub fn write_configuration(out: &mut Vec<u8>, node: &str, config: &NodeConfig) {
    event(out, |w| {
        w.start("configuration").attr("node", node);
        config.write(w, "result");
        w.end("configuration");
    });
}

/// §8.8.4: an owner has changed somebody's subscription.
pub fn write_subscription_notice(out: &mut Vec<u8>, node: &str, jid: &str, state: SubscriptionState) {
    event(out, |w| {
        w.start("subscription").attr("node", node).attr("jid", jid).attr("subscription", state.as_str());
        w.end("subscription");
    });
}

fn event(out: &mut Vec<u8>, body: impl FnOnce(&mut Writer<'_>)) {
    let mut w = Writer::new(out);
    w.start_ns("event", ns::PUBSUB_EVENT);
    body(&mut w);
    w.end("event");
}
