//! Stream management (XEP-0198) without resumption: counting what arrived, in both directions.

use crate::element::Element;
use crate::error::{StreamCondition, StreamError};
use crate::ns;
use crate::writer::Writer;

/// Stanzas that the client may not have read, after which nothing more should be sent: a client that answers requests
/// but is slow is slowed down here instead of in the kernel's buffers.
const UNREAD_MAX: u32 = 1024;

/// Stanzas after which an acknowledgement is asked for (XEP-0198 §4 leaves it to us).
const REQUEST_EVERY: u32 = 64;

/// The counters of one stream; all of them wrap at 2^32 (XEP-0198 §4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StreamManagement {
    enabled: bool,
    handled: u32,
    sent: u32,
    acknowledged: u32,
    /// The count of `sent` that the client is known to have read: by its own count, or because it answered an `<r/>`
    /// that stood behind them. Clients exist that leave stanzas out of their count: `@xmpp/client` 0.14 all IQ results.
    read: u32,
    /// The count of `sent` when an acknowledgement was last asked for.
    asked_at: u32,
    /// Requests for an acknowledgement that have no answer yet.
    unanswered: u32,
}

/// The outcome of an element of the stream management namespace.
pub(super) enum Managed {
    /// The element was processed.
    Done,
    /// The element is not one of stream management.
    Unknown,
}

impl StreamManagement {
    /// Whether the client enabled stream management.
    #[must_use]
    pub const fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// Stanzas that the client has not said to have.
    #[must_use]
    pub const fn unacknowledged(&self) -> u32 {
        self.sent.wrapping_sub(self.acknowledged)
    }

    /// Whether more may be sent now. Where it may not, an `<r/>` is unanswered, for one follows every 64 stanzas.
    #[must_use]
    pub const fn has_room(&self) -> bool {
        !self.enabled || self.unread() < UNREAD_MAX
    }

    const fn unread(&self) -> u32 {
        self.sent.wrapping_sub(self.read)
    }

    pub(super) fn handled_one(&mut self) {
        if self.enabled {
            self.handled = self.handled.wrapping_add(1);
        }
    }

    /// Counts stanzas that were written, and asks for an acknowledgement when it is time.
    pub(super) fn sent(&mut self, stanzas: u32, out: &mut Vec<u8>) {
        if !self.enabled {
            return;
        }
        self.sent = self.sent.wrapping_add(stanzas);
        if self.sent.wrapping_sub(self.asked_at) >= REQUEST_EVERY {
            self.asked_at = self.sent;
            self.unanswered = self.unanswered.saturating_add(1);
            Writer::new(out).start_ns("r", ns::SM).end("r");
        }
    }

    /// Takes `<enable/>`, `<r/>`, `<a/>` or `<resume/>`.
    pub(super) fn handle(&mut self, element: &Element<'_>, out: &mut Vec<u8>) -> Result<Managed, StreamError> {
        match element.name {
            // §3: a second one is an error of the client's, and answered as such.
            "enable" if self.enabled => failed(out, "unexpected-request"),
            "enable" => {
                *self = Self { enabled: true, ..Self::default() };
                Writer::new(out).start_ns("enabled", ns::SM).end("enabled");
            }
            // §5: resumption is not offered, so there is nothing to resume.
            "resume" => failed(out, "item-not-found"),
            "r" if self.enabled => {
                Writer::new(out).start_ns("a", ns::SM).attr("h", &self.handled.to_string()).end("a");
            }
            "a" if self.enabled => self.acknowledge(element)?,
            _ => return Ok(Managed::Unknown),
        }
        Ok(Managed::Done)
    }

    /// §4: the peer must not have more than was sent. It has to answer each `<r/>`, so what was sent before the last
    /// one has been read when all are answered, whatever it counts. An `<a/>` that nobody asked for may make that a
    /// little early; the kernel's buffers are the bound then.
    fn acknowledge(&mut self, element: &Element<'_>) -> Result<(), StreamError> {
        let count = element.attr("h").and_then(|h| h.trim().parse::<u32>().ok());
        let count = count.ok_or(StreamError::new(StreamCondition::BadFormat, "an acknowledgement without count"))?;
        if count.wrapping_sub(self.acknowledged) > self.unacknowledged() {
            return Err(StreamError::new(StreamCondition::UndefinedCondition, "handled-count-too-high"));
        }
        self.acknowledged = count;
        self.unanswered = self.unanswered.saturating_sub(1);
        if self.unanswered == 0 {
            self.read = self.asked_at;
        }
        if self.unacknowledged() < self.unread() {
            self.read = count;
        }
        Ok(())
    }
}

fn failed(out: &mut Vec<u8>, condition: &str) {
    let mut w = Writer::new(out);
    w.start_ns("failed", ns::SM).start_ns(condition, ns::STANZA_ERRORS).end(condition).end("failed");
}
