//! The requests of one client that are under way, found by number: the message ID, which is also part of the token.
//!
//! Numbers count up, so live ones lie close together: a ring of at least twice as many places finds each by its lowest
//! bits. A number that stays long – an observation, a request that is sent again – is stepped over. Places keep their
//! buffers, so that a request allocates nothing once the ring has grown.
//!
//! RFC 7252 §4.4 forbids a message ID to be used again within EXCHANGE_LIFETIME (247 s), which allows 265 requests a
//! second from one endpoint. A load generator has to break that; numbers of live requests are never used twice.

use std::time::Duration;

use super::blockwise::{Download, Upload};
use super::observation::Observation;
use crate::Timestamp;

/// A message ID; the last two bytes of the request's token.
pub(super) type Number = u16;

/// Requests that may be under way; the other half of the numbers is there so that a free one is found.
const LIVE_MAX: usize = 32_768;
/// Places of a ring to begin with.
const PLACES_MIN: usize = 2;

/// The purpose of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Purpose {
    /// One answer, whole or in blocks.
    #[default]
    Request,
    /// An observation, from its registration on: notifications bear its token.
    Observe,
    /// The rest of a notification that did not fit into one message.
    Rest(Number),
    /// Registers an observation again, with its token (RFC 7641 §3.3.1).
    Again(Number),
    /// Deregisters an observation, with its token (RFC 7641 §3.6).
    End(Number),
}

/// The progress of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    /// In the queue.
    #[default]
    Waiting,
    /// Sent; sent again when no acknowledgement comes (RFC 7252 §4.2).
    Unacknowledged {
        /// Retransmissions so far.
        repeats: u8,
        /// The present timeout.
        timeout: Duration,
        /// The end of the present timeout.
        due: Timestamp,
    },
    /// Nothing more is sent, but an answer will come: it was acknowledged, or need not be.
    Unanswered {
        /// When it is given up.
        due: Timestamp,
    },
    /// An observation that the server has answered: no timeout.
    Established,
}

/// One request. `O` opens its protected answers.
#[derive(Debug)]
pub(super) struct Exchange<O> {
    /// The caller's name for it.
    pub(super) tag: u64,
    pub(super) purpose: Purpose,
    pub(super) stage: Stage,
    pub(super) confirmable: bool,
    /// No answer is waited for: done when it is sent, a Confirmable when it is acknowledged.
    pub(super) unanswered: bool,
    /// It asked for an observation that the server did not grant.
    pub(super) declined: bool,
    /// An Echo was sent back (RFC 9175 §2.3); a second one is not believed.
    pub(super) echoed: bool,
    /// The message before protection. The next message of the exchange is made of it ([`super::amend`]).
    pub(super) plain: Vec<u8>,
    /// The message under protection; a retransmission is the same bytes (RFC 8613 §8.1).
    pub(super) sealed: Vec<u8>,
    pub(super) opener: Option<O>,
    pub(super) upload: Option<Box<Upload>>,
    pub(super) download: Option<Box<Download>>,
    pub(super) observation: Option<Box<Observation>>,
}

impl<O> Default for Exchange<O> {
    fn default() -> Self {
        Self {
            tag: 0,
            purpose: Purpose::default(),
            stage: Stage::default(),
            confirmable: false,
            unanswered: false,
            declined: false,
            echoed: false,
            plain: Vec::new(),
            sealed: Vec::new(),
            opener: None,
            upload: None,
            download: None,
            observation: None,
        }
    }
}

impl<O> Exchange<O> {
    /// When it is sent again or given up.
    pub(super) const fn due(&self) -> Option<Timestamp> {
        match self.stage {
            Stage::Unacknowledged { due, .. } | Stage::Unanswered { due } => Some(due),
            Stage::Waiting | Stage::Established => None,
        }
    }

    /// The request that registers this observation again or ends it.
    pub(super) fn follow_up(&self) -> Option<Number> {
        self.observation.as_ref()?.follow_up
    }

    /// The message as it travels.
    pub(super) fn datagram(&self) -> &[u8] {
        if self.sealed.is_empty() { &self.plain } else { &self.sealed }
    }

    /// As new, with its buffers; piece by piece, for as a whole it costs as much as parsing an answer.
    fn clear(&mut self) {
        (self.tag, self.purpose, self.stage) = (0, Purpose::default(), Stage::default());
        (self.confirmable, self.unanswered, self.declined, self.echoed) = (false, false, false, false);
        self.plain.clear();
        self.sealed.clear();
        self.opener = None;
        (self.upload, self.download, self.observation) = (None, None, None);
    }
}

#[derive(Debug)]
struct Place<O> {
    number: Number,
    live: bool,
    exchange: Exchange<O>,
}

impl<O> Default for Place<O> {
    fn default() -> Self {
        Self { number: 0, live: false, exchange: Exchange::default() }
    }
}

/// All requests of one client.
#[derive(Debug)]
pub(super) struct Exchanges<O> {
    places: Vec<Place<O>>,
    live: usize,
    next: Number,
}

impl<O> Exchanges<O> {
    /// No requests; numbers count up from the one behind `first`.
    pub(super) const fn new(first: Number) -> Self {
        Self { places: Vec::new(), live: 0, next: first }
    }

    /// The number of requests under way, established observations included.
    pub(super) const fn len(&self) -> usize {
        self.live
    }

    /// Begins a request; `None` when [`LIVE_MAX`] are under way.
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

    /// Gives a request a new number, for its next block or an Echo. The old one is free.
    pub(super) fn renew(&mut self, number: Number) -> Option<Number> {
        let old = self.get_mut(number).map(std::mem::take)?;
        self.end(number);
        let new = self.begin()?;
        *self.get_mut(new)? = old;
        Some(new)
    }

    /// Ends a request.
    pub(super) fn end(&mut self, number: Number) {
        let at = self.place(number);
        if let Some(place) = self.places.get_mut(at).filter(|place| place.live && place.number == number) {
            place.live = false;
            place.exchange.clear();
            self.live -= 1;
        }
    }

    pub(super) fn get(&self, number: Number) -> Option<&Exchange<O>> {
        let place = self.places.get(self.place(number))?;
        (place.live && place.number == number).then_some(&place.exchange)
    }

    pub(super) fn get_mut(&mut self, number: Number) -> Option<&mut Exchange<O>> {
        let at = self.place(number);
        let place = self.places.get_mut(at)?;
        (place.live && place.number == number).then_some(&mut place.exchange)
    }

    /// All of them, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Number, &Exchange<O>)> {
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
    fn a_number_that_stays_long_is_stepped_over_and_found_again() {
        let mut exchanges: Exchanges<()> = Exchanges::new(65_000);
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
        let mut exchanges: Exchanges<()> = Exchanges::new(0);
        let numbers: std::collections::HashSet<_> = std::iter::from_fn(|| exchanges.begin()).collect();
        assert_eq!(numbers.len(), LIVE_MAX);
        assert!(exchanges.begin().is_none());
        assert_eq!(exchanges.iter().count(), LIVE_MAX);
    }
}
