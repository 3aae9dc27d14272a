//! The presence of a connected resource, as far as it decides what reaches it (RFC 6121 §8.5.2).

/// The presence of a resource, as far as it decides what messages to the bare address reach it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Presence {
    /// None was sent. Devices mostly send none; they are reached.
    #[default]
    Unsaid,
    /// Available, with a priority of 0 or more.
    Available,
    /// Available, with a negative priority (RFC 6121 §8.5.2.1.1).
    Negative,
    /// It said that it is not available.
    Unavailable,
}

impl Presence {
    /// Whether messages to the bare address are delivered to the resource.
    pub(super) const fn takes_bare(self) -> bool {
        match self {
            Self::Unsaid | Self::Available => true,
            Self::Negative | Self::Unavailable => false,
        }
    }

    /// Whether the resource is available (RFC 6121 §4.2).
    pub(super) const fn is_available(self) -> bool {
        match self {
            Self::Available | Self::Negative => true,
            Self::Unsaid | Self::Unavailable => false,
        }
    }
}
