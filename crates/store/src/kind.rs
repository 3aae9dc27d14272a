//! The kinds of records in the journal: the only place where their numbers are.

/// The kind of a record. Its number is on the disk, so none is ever used for something else.
///
/// A record of a kind that is not listed here was written by a newer release. It is never dropped: a store that has one
/// is not opened, and left as it is (ADR 0041).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Says nothing: written to learn whether the disk takes something.
    Trial = 0,
    /// A retained message: the length of its topic (2 bytes), the topic, and a [`crate::record`].
    Retained = 1,
    /// A record that a door keeps: the length of its key (2 bytes), the key, and the door's bytes.
    Door = 2,
    /// A session that outlives its connection. This and the following are [`fogmux_bus::durable::Record`]s.
    Session = 32,
    /// A subscription of a session.
    Subscription = 33,
    /// A message that sessions wait for.
    Message = 34,
    /// A delivery of a message to a session.
    Delivery = 35,
    /// A delivery of QoS 2 for which PUBREC has come.
    Released = 36,
    /// An identifier of a message of QoS 2 that waits for PUBREL.
    Received = 37,
    /// A will.
    Will = 38,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 10] = [
        Self::Trial,
        Self::Retained,
        Self::Door,
        Self::Session,
        Self::Subscription,
        Self::Message,
        Self::Delivery,
        Self::Released,
        Self::Received,
        Self::Will,
    ];

    /// Whether its records are those of sessions.
    #[must_use]
    pub const fn is_of_session(self) -> bool {
        fogmux_bus::durable::Record::is_kind(self as u8)
    }

    /// The kind with this number, if this release knows it.
    #[must_use]
    pub fn from_u8(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == number)
    }
}

/// A record that has a name: the length of the name, the name, and a value of about `room` bytes.
pub(crate) fn named(name: &str, room: usize, value: impl FnOnce(&mut Vec<u8>) -> Option<()>) -> Option<Vec<u8>> {
    let length = u16::try_from(name.len()).ok()?;
    let mut bytes = Vec::with_capacity(2 + name.len() + room);
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(name.as_bytes());
    value(&mut bytes)?;
    Some(bytes)
}

/// The name and the value of a record, or `None` if it is not one.
pub(crate) fn split(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    let (name, value) = rest.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
    Some((std::str::from_utf8(name).ok()?, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    // The numbers are on disks out there.
    #[test]
    fn a_kind_has_the_number_that_it_always_had() {
        assert_eq!(Kind::ALL.map(|kind| kind as u8), [0, 1, 2, 32, 33, 34, 35, 36, 37, 38]);
        assert!(Kind::ALL.into_iter().all(|kind| Kind::from_u8(kind as u8) == Some(kind)));
        assert_eq!(Kind::from_u8(200), None);
    }

    #[test]
    fn a_name_and_a_value_come_back() {
        for (name, value) in [("a/b", &b"x"[..]), ("", b""), (&"n".repeat(65_535), b"\0")] {
            let bytes = named(name, value.len(), |out| {
                out.extend_from_slice(value);
                Some(())
            });
            let bytes = bytes.unwrap();
            assert_eq!(split(&bytes), Some((name, value)));
            assert_eq!(split(&bytes[..name.len() + 1]), None);
        }
        assert_eq!(named(&"n".repeat(65_536), 0, |_| Some(())), None);
        assert_eq!(split(&[1, 0, 0xff]), None);
    }
}
