//! The heap that a retained message takes: what `retained_bytes_max` is about, and what its gauge says. Doors compute
//! with the same [`allocation`]s what they keep.

use std::sync::Arc;

use crate::{
    message::{Message, Properties},
    topic::Topic,
};

/// The two counts in front of what an `Arc` holds.
pub const COUNTS_BYTES: usize = 2 * size_of::<usize>();
/// The allocator's header of an allocation, and what it rounds up to.
const HEADER_BYTES: usize = size_of::<usize>();
const ALIGNMENT_BYTES: usize = 2 * size_of::<usize>();
/// An entry of the B-tree of topics, whose nodes have room for eleven and are half full when topics come in order; and
/// one of the table of messages with their hashes, which is half full after it has grown.
const ENTRY_BYTES: usize = 2 * size_of::<Topic>() + 2 * (size_of::<(u64, Arc<Message>)>() + 1);
/// The allocation that `Bytes` makes when it is shared for the first time.
const SHARED_BYTES: usize = 3 * size_of::<usize>();

/// Bytes of the heap that a retained message takes, its place in the map included. Its publisher is its connection's.
pub(crate) fn of(message: &Message) -> usize {
    ENTRY_BYTES + of_message(message)
}

/// Bytes of the heap that a message takes.
pub(crate) fn of_message(message: &Message) -> usize {
    let payload = match message.payload.len() {
        0 => 0,
        length => allocation(length) + allocation(SHARED_BYTES),
    };
    allocation(COUNTS_BYTES + size_of::<Message>())
        + allocation(COUNTS_BYTES + message.topic.len())
        + payload
        + message.content_type.as_ref().map_or(0, |name| allocation(COUNTS_BYTES + name.len()))
        + message.properties.as_deref().map_or(0, of_properties)
}

fn of_properties(properties: &Properties) -> usize {
    let Properties { utf8: _, reply_to, correlation, user, item_id } = properties;
    let text = |text: &Option<Box<str>>| text.as_ref().map_or(0, |text| allocation(text.len()));
    let pairs: usize = user.iter().map(|(name, value)| allocation(name.len()) + allocation(value.len())).sum();
    allocation(COUNTS_BYTES + size_of::<Properties>())
        + text(reply_to)
        + text(item_id)
        + correlation.as_ref().map_or(0, |bytes| allocation(bytes.len()))
        + allocation(user.capacity() * size_of::<(Box<str>, Box<str>)>())
        + pairs
}

/// The memory that an allocation of so many bytes takes; an empty one takes none.
#[must_use]
pub const fn allocation(bytes: usize) -> usize {
    if bytes == 0 { 0 } else { (bytes + HEADER_BYTES).next_multiple_of(ALIGNMENT_BYTES) }
}
