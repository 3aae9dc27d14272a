//! Why a link has no connection, in words for its operator.

use std::fmt;

use fogmux_mqtt::ReasonCode;

use super::mapping::Direction;
use crate::terminal::is_hidden;

/// The longest text of a broker that is told, in characters.
pub(super) const TEXT_MAX: usize = 256;

/// The reason why a link has no connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct Failure(String);

impl Failure {
    pub(super) fn new(text: impl fmt::Display) -> Self {
        Self(text.to_string())
    }

    /// The side that a packet came from broke the protocol.
    pub(super) fn misbehaved(from: Direction, what: impl fmt::Display) -> Self {
        Self(format!("{}: {what}", side(from)))
    }

    /// A side ended the connection with DISCONNECT.
    pub(super) fn disconnected(from: Direction, reason: ReasonCode, text: Option<&str>) -> Self {
        Self(format!("{} ended the connection: {}", side(from), said(reason, text)))
    }

    /// A side refused CONNECT.
    pub(super) fn refused(by: Direction, reason: ReasonCode, text: Option<&str>) -> Self {
        Self(format!("{} refuses the connection: {}", side(by), said(reason, text)))
    }

    /// A side refused a subscription.
    pub(super) fn not_subscribed(by: Direction, filter: &str, reason: ReasonCode) -> Self {
        Self(format!("{} refuses the subscription to {filter:?}: {}", side(by), said(reason, None)))
    }
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
