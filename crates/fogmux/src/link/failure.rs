//! Why a link has no connection, in words for its operator.

use std::fmt;

use fogmux_mqtt::ReasonCode;

use super::mapping::Direction;

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
        // One line, without control characters.
        Some(text) => format!("{code}: {}", fogmux_client::printable(text)),
        None => code,
    }
}
