//! Mapping between XMPP and the bus: messages as notifications.
//!
//! All but the head of a notification is the same for all subscribers, so a worker writes it once and keeps it for a
//! while.

use std::{
    borrow::Cow,
    cell::RefCell,
    hash::{BuildHasher as _, RandomState},
    sync::LazyLock,
};

use fogmux_bus::{Clearing, Meaning, Message, MessageId};
use fogmux_xmpp::pubsub;

use super::nodes::Nodes;
use crate::encodings::{Encodings, Key};

/// The notification of a longer payload is written anew for each subscriber.
const KEPT_PAYLOAD_BYTES_MAX: usize = 4096;

/// The item id of a message: the publisher's choice; otherwise `current` if it is retained, or an id of its own.
pub(super) fn item_id(message: &Message) -> Cow<'_, str> {
    match chosen_id(message) {
        Some(id) => id.into(),
        None if message.meaning.is_state() => pubsub::CURRENT.into(),
        None => generated_id(message.id).into(),
    }
}

/// The item id of a transient message whose publisher has chosen none.
pub(super) fn generated_id(id: MessageId) -> String {
    format!("{:016x}", id.0 ^ *RUN)
}

/// Tells the generated ids of this run of the gateway from those of earlier ones: subscribers may remember them.
static RUN: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(0));

fn chosen_id(message: &Message) -> Option<&str> {
    message.properties.as_deref()?.item_id.as_deref()
}

/// Appends a notification: `head`, a body if the subscriber wants one, and the event. Returns `false` if there is
/// nothing to notify of.
pub(super) fn notify(
    out: &mut Vec<u8>,
    (head, include_body): (&[u8], bool),
    message: &Message,
    nodes: &Nodes,
    encodings: &RefCell<Encodings>,
) -> bool {
    let length = out.len();
    out.extend_from_slice(head);
    if include_body && !message.meaning.is_clearing() && nodes.config(&message.topic).deliver_payloads {
        write_body(out, message);
    }
    let told = if message.payload.len() > KEPT_PAYLOAD_BYTES_MAX {
        write(out, message, nodes)
    } else {
        let key = Key { message: message.id, form: nodes.changes() };
        encodings.borrow_mut().append(out, key, |out| {
            write(out, message, nodes);
        })
    };
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

/// Writes everything behind the head of the `<message/>`. Returns `false` when nobody is to be notified, or the topic
/// contains a control character that XML cannot represent.
fn write(out: &mut Vec<u8>, message: &Message, nodes: &Nodes) -> bool {
    let topic = message.topic.as_str();
    let config = nodes.config(topic);
    let told = match message.meaning {
        Meaning::Value | Meaning::Event => config.deliver_notifications,
        // Another door knows no node.
        Meaning::Clearing(Clearing::Cleared) => config.notify_retract,
        Meaning::Clearing(Clearing::Retracted | Clearing::Purged | Clearing::Deleted) => true,
        Meaning::Clearing(Clearing::Unannounced) => false,
    };
    if !told || !fogmux_xmpp::writer::is_representable(topic) {
        return false;
    }
    match message.meaning {
        // §4.3: without payloads, a transient event has no item either.
        Meaning::Event if !config.deliver_payloads => pubsub::write_notice(out, topic),
        Meaning::Event | Meaning::Value => {
            let content = (message.content_type.as_deref(), &*message.payload);
            pubsub::write_item(out, topic, &item_id(message), config.deliver_payloads.then_some(content));
        }
        Meaning::Clearing(Clearing::Cleared | Clearing::Retracted | Clearing::Unannounced) => {
            pubsub::write_retracted(out, topic, chosen_id(message).unwrap_or(pubsub::CURRENT));
        }
        Meaning::Clearing(Clearing::Purged) => pubsub::write_purged(out, topic),
        Meaning::Clearing(Clearing::Deleted) => pubsub::write_deleted(out, topic),
    }
    let user = message.properties.as_deref().map_or(&[][..], |properties| &properties.user);
    pubsub::write_event_tail(out, user.iter().map(|(name, value)| (&**name, &**value)));
    true
}
