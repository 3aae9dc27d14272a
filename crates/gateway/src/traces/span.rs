//! Spans: what one hop of a message took.

use fogmux_bus::Door;

use super::identifiers::{SpanId, TraceId};

/// Longer topics and client identifiers are cut, so that a span has a bound.
const TEXT_BYTES_MAX: usize = 512;

/// The part that a program has in an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// Answers a request.
    Server,
    /// Sends a message whose receiver nobody waits for.
    Producer,
    /// Handles a message.
    Consumer,
}

/// The kinds of hops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A door took a publication, until the bus had delivered it to all mailboxes.
    Publish,
    /// A message for a client of a door, from when the bus took it until it was written.
    Deliver,
    /// A client read a message that was retained.
    Read,
}

impl Operation {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Publish => "publish",
            Self::Deliver => "deliver",
            Self::Read => "read",
        }
    }
}

/// The span that a span is a part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parent {
    /// Its identifier.
    pub id: SpanId,
    /// Whether it is of another program.
    pub is_remote: bool,
}

/// A span that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// The trace that it belongs to.
    pub trace: TraceId,
    /// Its identifier.
    pub id: SpanId,
    /// `None` for the first of a trace.
    pub parent: Option<Parent>,
    /// `tracestate`, empty if there is none.
    pub state: Box<str>,
    /// The operation.
    pub operation: Operation,
    /// The door of the client.
    pub door: Door,
    /// When it began, in microseconds since 1970.
    pub start_unix_us: u64,
    /// When it ended.
    pub end_unix_us: u64,
    /// The topic, or the beginning of a long one.
    pub topic: Box<str>,
    /// The identifier of the publisher or the subscriber, or the beginning of a long one; may be empty.
    pub client: Box<str>,
    /// The length of the payload in bytes.
    pub body_bytes: usize,
    /// Whether the publication was refused.
    pub refused: bool,
}

impl Span {
    /// Its kind: doors of requests and answers are servers of publications.
    #[must_use]
    pub const fn kind(&self) -> SpanKind {
        match (self.operation, self.door) {
            (Operation::Publish, Door::Mqtt) => SpanKind::Producer,
            (Operation::Publish, Door::Coap | Door::Http | Door::Xmpp) => SpanKind::Server,
            (Operation::Deliver | Operation::Read, _) => SpanKind::Consumer,
        }
    }
}

/// A text as a span has it.
pub(super) fn cut(text: &str) -> Box<str> {
    text.get(..text.floor_char_boundary(TEXT_BYTES_MAX)).unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(&*cut("a/b"), "a/b");
        assert_eq!(cut(&"x".repeat(65_000)).len(), 512);
        assert_eq!(cut(&format!("x{}", "\u{e9}".repeat(1000))).len(), 511);
    }
}
