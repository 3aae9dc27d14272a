//! The types of content of DTLS 1.3, and the place of the type in a record.

/// The type of a record's content (RFC 8446 §5.1, RFC 9147 §4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Alert,
    Handshake,
    ApplicationData,
    Ack,
    /// A type that nothing under keys has, or none at all: genuine, and against the protocol (RFC 8446 §5, §5.4).
    Unknown,
}

impl Content {
    pub(in crate::v13) const fn parse(byte: u8) -> Option<Self> {
        match byte {
            21 => Some(Self::Alert),
            22 => Some(Self::Handshake),
            23 => Some(Self::ApplicationData),
            26 => Some(Self::Ack),
            _ => None,
        }
    }

    pub(in crate::v13) const fn byte(self) -> u8 {
        match self {
            Self::Alert => 21,
            Self::Handshake => 22,
            Self::ApplicationData => 23,
            Self::Ack => 26,
            // Padding: never written.
            Self::Unknown => 0,
        }
    }
}

/// Takes type and padding off what was inside (RFC 8446 §5.4).
pub(super) fn take(start: usize, out: &mut Vec<u8>) -> Content {
    let end = out.get(start..).and_then(|inner| inner.iter().rposition(|byte| *byte != 0)).map(|at| start + at);
    let content = end.and_then(|end| out.get(end)).and_then(|byte| Content::parse(*byte));
    out.truncate(end.unwrap_or(start));
    content.unwrap_or(Content::Unknown)
}
