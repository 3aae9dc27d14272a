//! Topic aliases we give out (§3.3.2.3.4): a small table, two neighbouring places per hash, bounded by what the peer
//! accepts.
//!
//! A topic gets a place that is free at once, and another's when it comes twice in a row as a candidate: many topics
//! that are used once cost no allocation and push nothing out.

/// Topics longer than this get no alias: keeping them costs more than they save in bytes.
const TOPIC_BYTES_MAX: usize = 256;

#[derive(Clone, Debug, Default)]
struct Place {
    topic: Box<str>,
    candidate: u64,
}

/// Which alias the peer knows for which topic.
#[derive(Clone, Debug, Default)]
pub(crate) struct OutgoingAliases {
    places: Box<[Place]>,
    max: u16,
}

/// The encoding of a message's topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aliasing {
    /// Send the topic.
    None,
    /// Send the topic and the alias that from now on stands for it.
    Establish(u16),
    /// Send only the alias.
    Known(u16),
}

impl OutgoingAliases {
    pub(crate) fn new(max: u16) -> Self {
        Self { places: Box::default(), max }
    }

    /// How to send `topic`. An `Establish` must reach the peer, or be followed by [`forget`](Self::forget).
    pub(crate) fn choose(&mut self, topic: &str) -> Aliasing {
        if self.max == 0 || topic.is_empty() || topic.len() > TOPIC_BYTES_MAX {
            return Aliasing::None;
        }
        if self.places.is_empty() {
            self.places = (0..self.max).map(|_| Place::default()).collect();
        }
        let hash = hash(topic);
        let (first, second) = (self.index(hash), self.index(hash.wrapping_add(1)));
        let mut free = None;
        for index in [first, second] {
            let Some(place) = self.places.get(index) else { return Aliasing::None };
            if *place.topic == *topic {
                return Self::alias(index).map_or(Aliasing::None, Aliasing::Known);
            }
            if place.topic.is_empty() && free.is_none() {
                free = Some(index);
            }
        }
        let index = free.unwrap_or(first);
        let Some(place) = self.places.get_mut(index) else { return Aliasing::None };
        if free.is_none() && place.candidate != hash {
            place.candidate = hash;
            return Aliasing::None;
        }
        place.topic = Box::from(topic);
        Self::alias(index).map_or(Aliasing::None, Aliasing::Establish)
    }

    fn index(&self, hash: u64) -> usize {
        usize::try_from(hash % u64::from(self.max)).unwrap_or(0)
    }

    fn alias(index: usize) -> Option<u16> {
        u16::try_from(index + 1).ok()
    }

    /// The message that established the alias was not sent.
    pub(crate) fn forget(&mut self, alias: u16) {
        if let Some(place) = self.places.get_mut(usize::from(alias).wrapping_sub(1)) {
            *place = Place::default();
        }
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        self.places.len() * size_of::<Place>() + self.places.iter().map(|place| place.topic.len()).sum::<usize>()
    }
}

/// FNV-1a over eight bytes at a time, with a final mix; collisions only cost a missed alias.
fn hash(topic: &str) -> u64 {
    let (chunks, tail) = topic.as_bytes().as_chunks::<8>();
    let mut hash = 0xCBF2_9CE4_8422_2325_u64;
    let mut step = |word: u64| hash = (hash ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    for chunk in chunks {
        step(u64::from_le_bytes(*chunk));
    }
    for &byte in tail {
        step(u64::from(byte) | 0x100);
    }
    (hash ^ (hash >> 32)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_gets_a_free_place_at_once_and_a_taken_one_at_the_second_time() {
        let mut aliases = OutgoingAliases::new(1);
        assert_eq!(aliases.choose("a/b"), Aliasing::Establish(1));
        assert_eq!(aliases.choose("a/b"), Aliasing::Known(1));
        assert_eq!(aliases.choose("c"), Aliasing::None);
        assert_eq!(aliases.choose("c"), Aliasing::Establish(1));
        assert_eq!(aliases.choose("a/b"), Aliasing::None);
        aliases.forget(1);
        assert_eq!(aliases.choose("a/b"), Aliasing::Establish(1));
        assert_eq!(OutgoingAliases::new(0).choose("a"), Aliasing::None);
    }

    #[test]
    fn many_topics_once_each_push_nothing_out() {
        let mut aliases = OutgoingAliases::new(1);
        assert_eq!(aliases.choose("kept"), Aliasing::Establish(1));
        for number in 0..1000 {
            assert_eq!(aliases.choose(&format!("topic/{number}")), Aliasing::None);
        }
        assert_eq!(aliases.choose("kept"), Aliasing::Known(1));
        assert!(aliases.bytes() <= 100);
    }
}
