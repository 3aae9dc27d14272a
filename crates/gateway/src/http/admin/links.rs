//! `GET /api/v1/links`: links to other brokers, and what waits for them.

use fogmux_http::api::{LinkDrop, LinkEntry, LinkFailure, LinkQueue, LinkWay, Links, Moment};

use super::super::conn::Conn;
use crate::links::{Dropped, Way};

/// All links.
pub(super) fn document(conn: &Conn) -> Vec<u8> {
    let links = &conn.ctx.shared.links;
    let each = links.each();
    let entries = each.iter().map(|link| {
        let (since, queue) = (link.connected_since_unix_ms(), links.queue(link));
        LinkEntry {
            name: &link.name,
            url: &link.url,
            connected: since.is_some(),
            since: since.map(Moment),
            last_error: link.last_error().map(|error| LinkFailure { text: error.text, at: Moment(error.at_unix_ms) }),
            out: way(&link.out),
            inward: way(&link.inward),
            queue: LinkQueue { messages: queue.messages, bytes: queue.bytes },
        }
    });
    Links { links: entries.collect() }.to_json()
}

fn way(way: &Way) -> LinkWay {
    let dropped = |reason: Dropped| LinkDrop { reason: reason.name(), count: way.dropped(reason).get() };
    LinkWay { messages: way.messages.get(), bytes: way.bytes.get(), dropped: Dropped::ALL.map(dropped).into() }
}
