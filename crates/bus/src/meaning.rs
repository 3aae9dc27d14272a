//! The meaning of a message for its topic. It is set where the message comes in, and no door guesses it again.

/// How a topic was cleared. Each door shows it as its protocol can.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Clearing {
    /// By an empty retained message (MQTT 5.0 §3.3.1.3) or DELETE.
    Cleared,
    /// Its item was retracted (XEP-0060 §7.2).
    Retracted,
    /// All items were purged (XEP-0060 §8.5).
    Purged,
    /// Its node was deleted (XEP-0060 §8.4).
    Deleted,
    /// As one of the three before, of a node whose configuration disallows the notification. Doors that have no nodes
    /// show it as [`Cleared`](Self::Cleared).
    Unannounced,
}

/// The meaning of a message; see the module's documentation. One byte, so that a delivery compares no more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Meaning {
    /// A transient event: only present subscribers get it.
    #[default]
    Event,
    /// The value of its topic, which is retained. It may be empty.
    Value,
    /// The topic has no value any more. The payload is empty.
    Clearing(Clearing),
}

const _: () = assert!(size_of::<Meaning>() == 1);

impl Meaning {
    /// That of a message with a retain flag and no other way to clear a topic (MQTT 5.0 §3.3.1.3).
    #[must_use]
    pub const fn of_flag(retain: bool, payload: &[u8]) -> Self {
        match (retain, payload.is_empty()) {
            (false, _) => Self::Event,
            (true, false) => Self::Value,
            (true, true) => Self::Clearing(Clearing::Cleared),
        }
    }

    /// That of a message with a retain flag, of a door that clears by a request of its own.
    #[must_use]
    pub const fn value_if(retain: bool) -> Self {
        if retain { Self::Value } else { Self::Event }
    }

    /// Whether it changes what is retained: a value or a clearing. MQTT's retain flag, as it was published.
    #[inline]
    #[must_use]
    pub const fn is_state(self) -> bool {
        !matches!(self, Self::Event)
    }

    /// Whether the topic has no value any more.
    #[must_use]
    pub const fn is_clearing(self) -> bool {
        matches!(self, Self::Clearing(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s3_3_1_3_an_empty_retained_message_clears() {
        let cleared = Meaning::Clearing(Clearing::Cleared);
        for (retain, payload, meaning) in [
            (false, &b""[..], Meaning::Event),
            (false, b"1", Meaning::Event),
            (true, b"1", Meaning::Value),
            (true, b"", cleared),
        ] {
            assert_eq!(Meaning::of_flag(retain, payload), meaning);
            assert_eq!((meaning.is_state(), meaning.is_clearing()), (retain, meaning == cleared));
        }
        assert_eq!((Meaning::value_if(true), Meaning::value_if(false)), (Meaning::Value, Meaning::Event));
    }
}
