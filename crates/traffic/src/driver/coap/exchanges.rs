//! Requests under way, found by the number that is both message ID and token of each.
//!
//! Numbers count up, so what is under way lies close together: a ring of twice its size finds it by its lowest bits.
//! Who stays long – an observation, a request that is repeated – is stepped over. Places keep their buffers.
//!
//! RFC 7252 §4.4 forbids a message ID to be used again within 247 seconds, which is 265 requests a second from one
//! address. A load generator has to break that; servers that remember so long answer from their memory, and want more
//! clients rather than faster ones.

use fogmux_coap::Timestamp;
use fogmux_oscore::Pending;
use std::time::Duration;

use super::blockwise::{Download, Upload};
use super::observation::Observation;

/// A message ID, and the token of two bytes that is the same.
pub(super) type Number = u16;

/// Requests that may be under way; the rest of the numbers is there so that one is found.
const LIVE_MAX: usize = 32_768;
/// Places of a ring to begin with.
const PLACES_MIN: usize = 2;

/// What a request is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A publication, whole or in blocks.
    #[default]
    Publish,
    /// A question for what is kept.
    Get,
    /// The wish to observe, not confirmed yet.
    Register,
    /// An observation: notifications bear its token.
    Observe,
    /// The rest of a notification that did not fit.
    Fetch(Number),
    /// The end of an observation.
    Deregister(Number),
}

/// How far it has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    /// It waits for its turn to be sent.
    #[default]
    Waiting,
    /// It is on its way, and sent again when nothing comes (RFC 7252 §4.2).
    Unacknowledged {
        /// How often it was sent again.
        repeats: u8,
        /// How long is waited this time.
        timeout: Duration,
        /// Until when.
        due: Timestamp,
    },
    /// Nothing more is sent, but an answer will come: it was acknowledged, or need not be.
    Unanswered {
        /// Until when.
        due: Timestamp,
    },
    /// An observation that was confirmed: it has all the time of the world.
    Established,
}

/// One request.
#[derive(Debug, Default)]
pub(super) struct Exchange {
    /// Comes back with its outcome.
    pub(super) tag: u64,
    pub(super) purpose: Purpose,
    pub(super) stage: Stage,
    pub(super) confirmable: bool,
    /// Nobody waits for an answer: it is done when it is sent.
    pub(super) fire_and_forget: bool,
    /// Which of the resources it is about.
    pub(super) resource: usize,
    /// The message before protection.
    pub(super) plain: Vec<u8>,
    /// The message under OSCORE; a repeat is the same bytes (RFC 8613 §8.1).
    pub(super) sealed: Vec<u8>,
    /// Opens what answers, with OSCORE.
    pub(super) opener: Option<Pending>,
    pub(super) upload: Option<Box<Upload>>,
    pub(super) download: Option<Box<Download>>,
    pub(super) observation: Option<Box<Observation>>,
    /// An Echo was sent back (RFC 9175 §2.3); a second one is not believed.
    pub(super) echoed: bool,
}

impl Exchange {
    /// When something is to be done about it.
    pub(super) fn due(&self) -> Option<Timestamp> {
        match self.stage {
            Stage::Unacknowledged { due, .. } | Stage::Unanswered { due } => Some(due),
            Stage::Waiting | Stage::Established => None,
        }
    }

    /// What travels.
    pub(super) fn datagram(&self) -> &[u8] {
        if self.sealed.is_empty() { &self.plain } else { &self.sealed }
    }

    /// As new, with its buffers; piece by piece, for as a whole it costs as much as parsing an answer.
    fn clear(&mut self) {
        let Self {
            tag,
            purpose,
            stage,
            confirmable,
            fire_and_forget,
            resource,
            plain,
            sealed,
            opener,
            upload,
            download,
            observation,
            echoed,
        } = self;
        (*tag, *purpose, *stage, *resource) = (0, Purpose::default(), Stage::default(), 0);
        (*confirmable, *fire_and_forget, *echoed) = (false, false, false);
        plain.clear();
        sealed.clear();
        *opener = None;
        (*upload, *download, *observation) = (None, None, None);
    }
}

#[derive(Debug, Default)]
struct Place {
    number: Number,
    live: bool,
    exchange: Exchange,
}

/// All requests of one client.
#[derive(Debug)]
pub(super) struct Exchanges {
    places: Vec<Place>,
    live: usize,
    next: Number,
}

impl Exchanges {
    /// None yet; numbers count up from `first`.
    pub(super) fn new(first: Number) -> Self {
        Self { places: Vec::new(), live: 0, next: first }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.live
    }

    /// A new one; none when there are too many.
    pub(super) fn begin(&mut self) -> Option<Number> {
        if self.live >= LIVE_MAX {
            return None;
        }
        if (self.live + 1) * 2 > self.places.len() {
            self.grow();
        }
        // Half of the places are free, and every one is met within as many numbers.
        loop {
            self.next = self.next.wrapping_add(1);
            let (number, at) = (self.next, self.place(self.next));
            let place = self.places.get_mut(at)?;
            if !place.live {
                (place.number, place.live) = (number, true);
                self.live += 1;
                return Some(number);
            }
        }
    }

    /// The same request under a new number, as its next block or with an Echo.
    pub(super) fn renew(&mut self, number: Number) -> Option<Number> {
        let old = self.get_mut(number).map(std::mem::take)?;
        self.end(number);
        let new = self.begin()?;
        *self.get_mut(new)? = old;
        Some(new)
    }

    /// It is over.
    pub(super) fn end(&mut self, number: Number) {
        let at = self.place(number);
        if let Some(place) = self.places.get_mut(at).filter(|place| place.live && place.number == number) {
            place.live = false;
            place.exchange.clear();
            self.live -= 1;
        }
    }

    pub(super) fn get(&self, number: Number) -> Option<&Exchange> {
        let place = self.places.get(self.place(number))?;
        (place.live && place.number == number).then_some(&place.exchange)
    }

    pub(super) fn get_mut(&mut self, number: Number) -> Option<&mut Exchange> {
        let at = self.place(number);
        let place = self.places.get_mut(at)?;
        (place.live && place.number == number).then_some(&mut place.exchange)
    }

    /// All of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Number, &Exchange)> {
        self.places.iter().filter(|place| place.live).map(|place| (place.number, &place.exchange))
    }

    fn place(&self, number: Number) -> usize {
        usize::from(number) & self.places.len().saturating_sub(1)
    }

    fn grow(&mut self) {
        let size = (self.places.len() * 2).max(PLACES_MIN);
        let old = std::mem::take(&mut self.places);
        self.places.resize_with(size, Place::default);
        // Two that had different places in the smaller ring have different ones in the larger.
        for place in old.into_iter().filter(|place| place.live) {
            let at = self.place(place.number);
            if let Some(empty) = self.places.get_mut(at) {
                *empty = place;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_stays_long_is_stepped_over_and_found_again() {
        let mut exchanges = Exchanges::new(65_000);
        let stays = exchanges.begin().unwrap();
        exchanges.get_mut(stays).unwrap().tag = 77;
        for tag in 0..200_000 {
            let number = exchanges.begin().unwrap();
            assert_ne!(number, stays);
            exchanges.get_mut(number).unwrap().tag = tag;
            exchanges.get_mut(number).unwrap().plain.extend_from_slice(&[1, 2, 3]);
            assert_eq!(exchanges.get(number).map(|exchange| exchange.tag), Some(tag));
            exchanges.end(number);
            assert!(exchanges.get(number).is_none());
        }
        assert_eq!(exchanges.get(stays).map(|exchange| exchange.tag), Some(77));
        assert_eq!((exchanges.len(), exchanges.places.len()), (1, 2 * PLACES_MIN));
    }

    #[test]
    fn as_many_as_there_may_be_have_numbers_of_their_own() {
        let mut exchanges = Exchanges::new(0);
        let numbers: std::collections::HashSet<_> = std::iter::from_fn(|| exchanges.begin()).collect();
        assert_eq!(numbers.len(), LIVE_MAX);
        assert!(exchanges.begin().is_none());
        assert_eq!(exchanges.iter().count(), LIVE_MAX);
    }
}
