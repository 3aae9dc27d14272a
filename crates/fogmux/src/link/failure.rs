//! Why a link has no connection, in words for its operator.

use std::fmt;

use fogmux_mqtt::ReasonCode;

use super::mapping::Direction;
use crate::terminal::is_hidden;

/// The longest text of a broker that is told, in characters.
pub(super) const TEXT_MAX: usize = 256;

/// The reason why a link has no connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub(super) struct Failure {
    text: String,
    pub(super) kind: Kind,
}

/// The kinds of failures that are followed by something else than the next attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The other broker has ended the connection, and may have done so because of a message.
    Closed,
    /// The gateway refuses a subscription.
    Forbidden,
    /// The link has looked for a message that the other broker does not take, and goes on as usual.
    Searched,
    Other,
}

impl Failure {
    pub(super) fn new(text: impl fmt::Display) -> Self {
        Self { text: text.to_string(), kind: Kind::Other }
    }

    /// The side that a packet came from broke the protocol.
    pub(super) fn misbehaved(from: Direction, what: impl fmt::Display) -> Self {
        Self::new(format_args!("{}: {what}", side(from)))
    }

    /// A side ended the connection with DISCONNECT.
    pub(super) fn disconnected(from: Direction, reason: ReasonCode, text: Option<&str>) -> Self {
        let failure = Self::new(format_args!("{} ended the connection: {}", side(from), said(reason, text)));
        if from == Direction::In && is_about_a_packet(reason) { failure.of(Kind::Closed) } else { failure }
    }

    /// A side refused CONNECT.
    pub(super) fn refused(by: Direction, reason: ReasonCode, text: Option<&str>) -> Self {
        Self::new(format_args!("{} refuses the connection: {}", side(by), said(reason, text)))
    }

    /// A side refused a subscription.
    pub(super) fn not_subscribed(by: Direction, filter: &str, reason: ReasonCode) -> Self {
        let text = format!("{} refuses the subscription to {filter:?}: {}", side(by), said(reason, None));
        Self::new(text).of(if by == Direction::Out { Kind::Forbidden } else { Kind::Other })
    }

    /// The stream from a side has ended.
    pub(super) fn closed(from: Direction) -> Self {
        let failure = Self::new(format_args!("{} closed the connection", side(from)));
        if from == Direction::In { failure.of(Kind::Closed) } else { failure }
    }

    /// Nothing more is to be found.
    pub(super) fn searched() -> Self {
        Self::new("the search for a message that the other broker does not take is over").of(Kind::Searched)
    }

    fn of(self, kind: Kind) -> Self {
        Self { kind, ..self }
    }
}

/// Whether a broker may end a connection so because of a message that it was sent. Other reasons (§3.14.2.1) are about
/// the connection, the client or the broker.
fn is_about_a_packet(reason: ReasonCode) -> bool {
    [
        ReasonCode::UNSPECIFIED_ERROR,
        ReasonCode::MALFORMED_PACKET,
        ReasonCode::PROTOCOL_ERROR,
        ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR,
        ReasonCode::NOT_AUTHORIZED,
        ReasonCode::TOPIC_NAME_INVALID,
        ReasonCode::PACKET_TOO_LARGE,
        ReasonCode::PAYLOAD_FORMAT_INVALID,
        ReasonCode::RETAIN_NOT_SUPPORTED,
        ReasonCode::QOS_NOT_SUPPORTED,
    ]
    .contains(&reason)
}

/// The side that messages of a direction come from.
pub(super) const fn side(from: Direction) -> &'static str {
    match from {
        Direction::Out => "the gateway",
        Direction::In => "the other broker",
    }
}

fn said(reason: ReasonCode, text: Option<&str>) -> String {
    let code = format!("{} (0x{:02x})", reason.name(), reason.0);
    match text {
        Some(text) => format!("{code}: {}", told(text, TEXT_MAX)),
        None => code,
    }
}

/// The beginning of a text of a peer as one line, in which nothing is hidden.
pub(super) fn told(text: &str, characters_max: usize) -> String {
    let mut chars = text.chars();
    let mut line = String::new();
    for char in chars.by_ref().take(characters_max) {
        if is_hidden(char) {
            line.extend(char.escape_default());
        } else {
            line.push(char);
        }
    }
    if !chars.as_str().is_empty() {
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_of_the_other_broker_is_short_and_hides_nothing() {
        let text = format!("\u{1b}[31m\u{202e}\n{}", "ä".repeat(60_000));
        for failure in [
            Failure::refused(Direction::In, ReasonCode::NOT_AUTHORIZED, Some(&text)),
            Failure::disconnected(Direction::In, ReasonCode::NOT_AUTHORIZED, Some(&text)),
        ] {
            let said = failure.to_string();
            assert!(said.contains(": \\u{1b}[31m\\u{202e}\\nää") && said.ends_with("ä…"), "{said}");
            assert!(said.chars().count() < 400 && !said.contains(is_hidden), "{said}");
        }
        assert_eq!(told("short", 5), "short");
    }
}
