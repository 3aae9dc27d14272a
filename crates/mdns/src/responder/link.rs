//! A link: its records, and how far they are claimed: three probes, then two announcements (RFC 6762 §8).

use std::{collections::VecDeque, time::Duration};

use fogmux_time::Timestamp;

use super::{LinkId, Offer, Transmit, answer, packet, records::Entry};
use crate::message::{Data, Record};
use crate::name::Name;

/// Probes, and the time after each (RFC 6762 §8.1).
const PROBES: u8 = 3;
const PROBE_PAUSE: Duration = Duration::from_millis(250);

/// Announcements, and the time between them (RFC 6762 §8.3).
const ANNOUNCEMENTS: u8 = 2;
const ANNOUNCEMENT_PAUSE: Duration = Duration::from_secs(1);

/// The wait of a host that has lost against another that probes at the same time (RFC 6762 §8.2).
const DEFERENCE: Duration = Duration::from_secs(1);

/// How far the names of a link are claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The next probe, or the end of the wait after the last, is at a time.
    Probing { sent: u8, at: Timestamp },
    /// The next announcement is at a time.
    Announcing { sent: u8, at: Timestamp },
    /// They are ours.
    Established,
}

/// A link.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) id: LinkId,
    pub(super) offer: Offer,
    pub(super) entries: Vec<Entry>,
    /// The records before the offer changed: an echo of one is no conflict while the names are probed for again.
    former: Vec<Record>,
    pub(super) state: State,
}

impl Link {
    pub(super) const fn new(id: LinkId, offer: Offer, entries: Vec<Entry>, at: Timestamp) -> Self {
        Self { id, offer, entries, former: Vec::new(), state: State::Probing { sent: 0, at } }
    }

    /// Probes for records of other names, or for the same ones again.
    pub(super) fn probe(&mut self, entries: Vec<Entry>, at: Timestamp) {
        self.entries = entries;
        self.state = State::Probing { sent: 0, at };
    }

    /// Offers something else.
    pub(super) fn replace(&mut self, offer: Offer, entries: Vec<Entry>, at: Timestamp) {
        self.former = self.entries.drain(..).map(|entry| entry.record).collect();
        self.offer = offer;
        self.probe(entries, at);
    }

    /// Whether the names are ours, so that questions are answered.
    pub(super) const fn is_claimed(&self) -> bool {
        matches!(self.state, State::Announcing { .. } | State::Established)
    }

    /// Lets another host have its turn that probes at the same time.
    pub(super) fn defer(&mut self, now: Timestamp) {
        self.state = State::Probing { sent: 0, at: now + DEFERENCE };
    }

    /// Whether a record is one of this link, or was one a moment ago.
    pub(super) fn says(&self, record: &Record) -> bool {
        let was = |former: &Record| former.name == record.name && former.data == record.data;
        self.entries.iter().any(|entry| entry.says(record)) || self.former.iter().any(was)
    }

    /// The unique records of a name, as they are probed for.
    pub(super) fn unique<'a>(&'a self, name: &'a Name) -> impl Iterator<Item = &'a Entry> {
        self.entries.iter().filter(move |entry| entry.is_unique() && !entry.is_denial() && entry.record.name == *name)
    }

    pub(super) fn next_timeout(&self) -> Option<Timestamp> {
        let step = match self.state {
            State::Probing { at, .. } | State::Announcing { at, .. } => Some(at),
            State::Established => None,
        };
        step.into_iter().chain(self.entries.iter().filter_map(|entry| entry.due)).min()
    }

    /// Does what is due.
    pub(super) fn advance(&mut self, now: Timestamp, out: &mut VecDeque<Transmit>) {
        match self.state {
            State::Probing { sent, at } if at <= now => {
                if sent < PROBES {
                    out.extend(self.to_all(packet::probes(&self.entries)));
                    self.state = State::Probing { sent: sent + 1, at: now + PROBE_PAUSE };
                } else {
                    self.former.clear();
                    self.announce(0, now, out);
                }
            }
            State::Announcing { sent, at } if at <= now => self.announce(sent, now, out),
            State::Probing { .. } | State::Announcing { .. } | State::Established => {}
        }
        out.extend(answer::due(self, now));
    }

    fn announce(&mut self, sent: u8, now: Timestamp, out: &mut VecDeque<Transmit>) {
        let announced = self.entries.iter_mut().filter(|entry| !entry.is_denial());
        let records: Vec<Record> = announced
            .map(|entry| {
                (entry.multicast, entry.due) = (Some(now), None);
                entry.record.clone()
            })
            .collect();
        out.extend(self.to_all(packet::answers(&records, &[])));
        self.state = match sent + 1 {
            ANNOUNCEMENTS => State::Established,
            sent => State::Announcing { sent, at: now + ANNOUNCEMENT_PAUSE },
        };
    }

    /// Takes back what was announced and is not in these records (RFC 6762 §10.1).
    pub(super) fn goodbyes(&self, kept: &[Entry]) -> Vec<Transmit> {
        if !self.is_claimed() {
            return Vec::new();
        }
        let is_gone = |record: &Record| !kept.iter().any(|kept| kept.says(record));
        let gone = self.entries.iter().map(|entry| &entry.record).filter(|record| is_gone(record));
        let told = gone.filter(|record| !matches!(record.data, Data::Nsec { .. }));
        let records: Vec<Record> = told.map(|record| Record { ttl: 0, ..record.clone() }).collect();
        self.to_all(packet::answers(&records, &[]))
    }

    pub(super) fn to_all(&self, packets: Vec<Vec<u8>>) -> Vec<Transmit> {
        packets.into_iter().map(|bytes| Transmit { link: self.id, to: None, bytes }).collect()
    }
}
