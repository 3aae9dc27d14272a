//! Mapping between XMPP and the bus: messages as notifications, and ways to clear a topic.
//!
//! All but the head of a notification is the same for all subscribers, so a worker writes it once and keeps it for a
//! while.

use std::{borrow::Cow, cell::RefCell, ops::Range, sync::Arc};

use fogmux_bus::{Door, Message, Publisher};
use fogmux_xmpp::pubsub;

use super::nodes::Nodes;

/// Notifications that a worker keeps. A publisher is read eight times 64 KiB, more than a thousand stanzas, before
/// its subscribers take the first; each of them takes all.
const KEPT: usize = 2048;
/// Bytes of kept notifications above which all are forgotten.
const ALL_KEPT_BYTES: usize = 512 << 10;
/// Longer notifications are written anew for each subscriber.
const KEPT_BYTES_MAX: usize = 4096;

/// How a topic was cleared by this door. Subscribers of this door are notified as XEP-0060 says; other doors see a
/// topic without a retained message. It travels in the publisher's name, which no client sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cleared {
    /// The item was retracted (§7.2).
    Retracted,
    /// All items were purged (§8.5).
    Purged,
    /// The node was deleted (§8.4).
    Deleted,
    /// One of these, but the node's configuration disallows a notification.
    Quietly,
}

impl Cleared {
    const ALL: [Self; 4] = [Self::Retracted, Self::Purged, Self::Deleted, Self::Quietly];

    /// No address begins so: a local part has no colon.
    const fn mark(self) -> &'static str {
        match self {
            Self::Retracted => "retract:",
            Self::Purged => "purge:",
            Self::Deleted => "delete:",
            Self::Quietly => "quiet:",
        }
    }

    /// The publisher for clearing in this way.
    pub(super) fn publisher(self, publisher: &Publisher) -> Arc<Publisher> {
        let client = format!("{}{}", self.mark(), publisher.client).into();
        Arc::new(Publisher { principal: Arc::clone(&publisher.principal), client, ..*publisher })
    }
}

/// The event that subscribers are notified of.
enum Event {
    Item,
    Gone(Cleared),
}

/// The event of a message. If it clears its topic, the publisher's name says how. An empty message that does not is an
/// item.
fn event(message: &Message) -> Event {
    let publisher = &message.publisher;
    if publisher.door == Some(Door::Xmpp) {
        let cleared = Cleared::ALL.into_iter().find(|c| publisher.client.starts_with(c.mark()));
        return cleared.map_or(Event::Item, Event::Gone);
    }
    if message.clears { Event::Gone(Cleared::Retracted) } else { Event::Item }
}

/// The item id of a message: the publisher's choice; otherwise `current` if it is retained, or an id of its own.
pub(super) fn item_id(message: &Message) -> Cow<'_, str> {
    match chosen_id(message) {
        Some(id) => id.into(),
        None if message.retain => pubsub::CURRENT.into(),
        None => format!("{:x}", message.id.0).into(),
    }
}

fn chosen_id(message: &Message) -> Option<&str> {
    message.properties.as_deref()?.item_id.as_deref()
}

/// Appends a notification: `head`, a body if the subscriber wants one, and the event. Returns `false` if there is
/// nothing to notify of.
pub(super) fn notify(out: &mut Vec<u8>, head: &[u8], include_body: bool, message: &Message, nodes: &Nodes) -> bool {
    let length = out.len();
    out.extend_from_slice(head);
    if include_body && matches!(event(message), Event::Item) && nodes.config(&message.topic).deliver_payloads {
        write_body(out, message);
    }
    let told = CACHE.with_borrow_mut(|cache| cache.append(out, message, nodes));
    if !told {
        out.truncate(length);
    }
    told
}

/// The longest text in a `<body/>`, in bytes; the whole payload is in the event.
const BODY_BYTES_MAX: usize = 1024;

/// Writes the `<body/>` of a notification (§12.7): the payload if it is text, truncated if it is long; otherwise its
/// size and type.
fn write_body(out: &mut Vec<u8>, message: &Message) {
    let text = std::str::from_utf8(&message.payload).ok().filter(|text| fogmux_xmpp::writer::is_representable(text));
    match text {
        Some(text) if text.len() <= BODY_BYTES_MAX => pubsub::write_body(out, text),
        Some(text) => {
            let end = text.floor_char_boundary(BODY_BYTES_MAX);
            pubsub::write_body(out, &format!("{}…", text.get(..end).unwrap_or_default()));
        }
        None => {
            let kind = message.content_type.as_deref().unwrap_or("application/octet-stream");
            let kind = if fogmux_xmpp::writer::is_representable(kind) { kind } else { "application/octet-stream" };
            pubsub::write_body(out, &format!("{} bytes of {kind}", message.payload.len()));
        }
    }
}

thread_local! {
    static CACHE: RefCell<Cache> = const { RefCell::new(Cache { kept: Vec::new(), bodies: Vec::new() }) };
}

/// The messages of another gateway on this thread have the same ids.
#[cfg(test)]
pub(crate) fn forget_cached() {
    CACHE.with_borrow_mut(Cache::clear);
}

/// The place of a notification in [`Cache::bodies`].
#[derive(Clone, Default)]
struct Kept {
    id: u64,
    /// [`Nodes::changes`] when it was written.
    changes: u64,
    body: Range<usize>,
}

struct Cache {
    /// By the message's id, modulo [`KEPT`].
    kept: Vec<Kept>,
    bodies: Vec<u8>,
}

impl Cache {
    fn append(&mut self, out: &mut Vec<u8>, message: &Message, nodes: &Nodes) -> bool {
        if message.payload.len() > KEPT_BYTES_MAX {
            return write(out, message, nodes);
        }
        if self.kept.is_empty() || self.bodies.len() > ALL_KEPT_BYTES {
            self.clear();
            self.kept.resize(KEPT, Kept::default());
        }
        let slot = usize::try_from(message.id.0).unwrap_or(usize::MAX) % KEPT;
        let Some(kept) = self.kept.get_mut(slot) else { return write(out, message, nodes) };
        let changes = nodes.changes();
        // Ids count from 1, so a slot that was never used matches nothing.
        if (kept.id, kept.changes) != (message.id.0, changes) || message.id.0 == 0 {
            let start = self.bodies.len();
            write(&mut self.bodies, message, nodes);
            *kept = Kept { id: message.id.0, changes, body: start..self.bodies.len() };
        }
        let body = self.bodies.get(kept.body.clone()).unwrap_or_default();
        out.extend_from_slice(body);
        !body.is_empty()
    }

    fn clear(&mut self) {
        self.kept.clear();
        self.bodies.clear();
        self.bodies.shrink_to(2 * ALL_KEPT_BYTES);
    }
}

/// Writes everything behind the head of the `<message/>`. Returns `false` when nobody is to be notified, or the topic
/// contains a control character that XML cannot represent.
fn write(out: &mut Vec<u8>, message: &Message, nodes: &Nodes) -> bool {
    let topic = message.topic.as_str();
    let config = nodes.config(topic);
    let event = event(message);
    let told = match event {
        Event::Item => config.deliver_notifications,
        Event::Gone(Cleared::Retracted | Cleared::Purged) => config.notify_retract,
        Event::Gone(Cleared::Deleted) => true,
        Event::Gone(Cleared::Quietly) => false,
    };
    if !told || !fogmux_xmpp::writer::is_representable(topic) {
        return false;
    }
    match event {
        // §4.3: without payloads, a transient event has no item either.
        Event::Item if !config.deliver_payloads && !message.retain => pubsub::write_notice(out, topic),
        Event::Item => {
            let content = (message.content_type.as_deref(), &*message.payload);
            pubsub::write_item(out, topic, &item_id(message), config.deliver_payloads.then_some(content));
        }
        Event::Gone(Cleared::Retracted) => {
            pubsub::write_retracted(out, topic, chosen_id(message).unwrap_or(pubsub::CURRENT));
        }
        Event::Gone(Cleared::Purged) => pubsub::write_purged(out, topic),
        Event::Gone(Cleared::Deleted | Cleared::Quietly) => pubsub::write_deleted(out, topic),
    }
    let user = message.properties.as_deref().map_or(&[][..], |properties| &properties.user);
    pubsub::write_event_tail(out, user.iter().map(|(name, value)| (&**name, &**value)));
    true
}
