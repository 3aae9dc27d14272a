//! The outcomes of requests, as a machine reports them: borrowed from the datagram, nothing allocated.

use std::borrow::Cow;

use crate::code::Code;
use crate::message::Message;
use crate::option::OptionNumber;

/// Takes the events of a [`Machine`](super::Machine).
pub trait Events {
    /// An event of the request that was given this tag.
    fn event(&mut self, tag: u64, event: Event<'_>);
}

/// The outcome of a request. After [`Event::Sent`], [`Event::Failed`], [`Event::Ended`], an answer without an
/// established observation and a notification that is an error, nothing more comes for its tag.
#[derive(Debug)]
pub enum Event<'a> {
    /// A request without answer is on its way; a Confirmable one has arrived.
    Sent,
    /// The answer.
    Answered {
        /// The whole of it.
        representation: Representation<'a>,
        /// Whether notifications follow.
        registration: Registration,
    },
    /// A notification newer than all before of the same resource (RFC 7641 §3.4). An error ends the observation
    /// (RFC 7641 §3.2).
    Notified {
        /// The whole of it.
        representation: Representation<'a>,
        /// Whether the server wanted an acknowledgement.
        confirmable: bool,
    },
    /// No answer will come.
    Failed(CallFailed),
    /// No further notification will come.
    Ended(CallFailed),
}

/// The server's answer to the wish for an observation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registration {
    /// There was no such wish.
    NotRequested,
    /// The server answered, but does not notify (RFC 7641 §4.1).
    Declined,
    /// The server notifies.
    Established,
}

/// An answer or a notification, put together from its blocks.
#[derive(Clone, Debug)]
pub struct Representation<'a> {
    /// Code and options; of several blocks those of the last.
    pub message: Message<'a>,
    /// The payload of all blocks.
    pub body: Cow<'a, [u8]>,
    /// Location-Path of a notification that came in blocks: only the first names it.
    location: Vec<String>,
}

impl<'a> Representation<'a> {
    /// Of one message.
    pub(super) const fn whole(message: Message<'a>) -> Self {
        Self { message, body: Cow::Borrowed(message.payload()), location: Vec::new() }
    }

    /// Of several.
    pub(super) const fn joined(message: Message<'a>, body: Cow<'a, [u8]>, location: Vec<String>) -> Self {
        Self { message, body, location }
    }

    /// The levels of Location-Path: the resource of a notification, or one that a request has created.
    #[must_use]
    pub fn location(&self) -> Vec<String> {
        if self.location.is_empty() { location(&self.message) } else { self.location.clone() }
    }
}

/// The levels of Location-Path. Allocates nothing when there are none.
pub(super) fn location(message: &Message<'_>) -> Vec<String> {
    let levels = message.options().take_while(|option| option.number <= OptionNumber::LOCATION_PATH);
    let levels = levels.filter(|option| option.number == OptionNumber::LOCATION_PATH);
    levels.filter_map(|option| option.text().map(str::to_owned)).collect()
}

/// Why there is no answer, or no further notification.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallFailed {
    /// Nothing came, however often it was asked.
    #[error("no answer")]
    TimedOut,
    /// The server does not understand the message at all.
    #[error("the server rejected the message")]
    Reset,
    /// The blocks do not fit together, or are too many.
    #[error("the blocks of the request or of the answer do not make a whole")]
    Blocks,
    /// A critical option in the answer is unknown (RFC 7252 §5.4.1).
    #[error("the answer has a critical option that is unknown")]
    BadOption,
    /// The server sent a state without Observe: it does not notify any more (RFC 7641 §3.2).
    #[error("the server has ended the observation")]
    Ended,
    /// The server answered a protected request without protection, because it could not open it (RFC 8613 §8.2).
    #[error("{code} without protection: {text}")]
    Unprotected {
        /// The code of the answer.
        code: Code,
        /// Its diagnostic payload. Nobody has verified it.
        text: String,
    },
    /// A further message of the request cannot be protected.
    #[error("{0}")]
    Unsealed(String),
}

/// Why a request was not begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError<E> {
    /// As many are under way as there may be: 32 768.
    #[error("too many requests are under way")]
    TooMany,
    /// The request cannot be protected.
    #[error("{0}")]
    Unsealed(E),
}
