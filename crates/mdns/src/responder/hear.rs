//! Messages of others: their queries, their probes for our names (RFC 6762 §8.2), and records that contradict ours or
//! would have ours forgotten (RFC 6762 §6.6, §7.4, §9).

use std::net::SocketAddr;

use fogmux_time::Timestamp;

use super::{
    LinkId, MESSAGE_BYTES_MAX, PORT, Renamed, Responder, Verdict, answer,
    link::{Link, State},
};
use crate::message::{CLASS_IN, Kind, Message, Record};
use crate::name::Name;

/// The delay of a record that another host would have forgotten, in milliseconds.
const RESCUE_MS: (u64, u64) = (20, 120);

impl Responder {
    /// Takes a datagram that came to the group on a link, from a host of that link.
    pub fn handle(&mut self, now: Timestamp, id: LinkId, from: SocketAddr, datagram: &[u8]) -> Verdict {
        if datagram.len() > MESSAGE_BYTES_MAX {
            return Verdict::Ignored;
        }
        let Ok(message) = Message::decode(datagram) else { return Verdict::Ignored };
        if !message.flags.is_standard() {
            return Verdict::Ignored;
        }
        if !message.flags.is_response() {
            return self.hear_query(now, id, from, &message);
        }
        // RFC 6762 §6: a response comes from the port of multicast DNS.
        if from.port() != PORT {
            return Verdict::Ignored;
        }
        self.hear_response(now, id, &message);
        Verdict::Heard
    }

    fn hear_query(&mut self, now: Timestamp, id: LinkId, from: SocketAddr, message: &Message) -> Verdict {
        if !message.authorities.is_empty() {
            self.hear_probe(now, id, &message.authorities);
        }
        let Some(link) = self.links.iter_mut().find(|link| link.id == id) else { return Verdict::Ignored };
        let (verdict, transmit) = answer::query(link, now, from, message, (&mut self.hosts, &mut self.random));
        self.out.extend(transmit);
        verdict
    }

    /// Compares the records of a probe with ours for the same names while both are probed for (RFC 6762 §8.2). The
    /// host whose records come later in the order of their bytes goes on.
    fn hear_probe(&mut self, now: Timestamp, id: LinkId, theirs: &[Record]) {
        let Some(link) = self.links.iter().find(|link| link.id == id) else { return };
        if link.is_claimed() {
            return;
        }
        let loses = |name: &Name| {
            let of_name = || theirs.iter().filter(|record| record.name == *name);
            // Our own probe, on this link or from another interface of ours on it, or of a host that says the same.
            if of_name().all(|record| self.is_ours(record)) {
                return false;
            }
            ordered(link.unique(name).map(|entry| &entry.record)) < ordered(of_name())
        };
        if link.entries.iter().any(|entry| entry.is_unique() && !entry.is_denial() && loses(&entry.record.name))
            && let Some(link) = self.links.iter_mut().find(|link| link.id == id)
        {
            link.defer(now);
        }
    }

    fn hear_response(&mut self, now: Timestamp, id: LinkId, message: &Message) {
        let Some(at) = self.links.iter().position(|link| link.id == id) else { return };
        let rescue = now + self.random.millis(RESCUE_MS.0, RESCUE_MS.1);
        let host = self.names.host_name();
        let mut taken = Renamed::default();
        for record in message.answers.iter().chain(&message.additionals).filter(|record| record.class == CLASS_IN) {
            let Some(link) = self.links.get_mut(at) else { return };
            if notice(link, record, rescue) {
                continue;
            }
            let Some(link) = self.links.get(at) else { return };
            if contradicts(link, record) && !self.is_ours(record) {
                taken.host |= Some(&record.name) == host.as_ref();
                taken.instance |= Some(&record.name) != host.as_ref();
            }
        }
        if taken == Renamed::default() {
            return;
        }
        match self.links.get(at).map(|link| link.state) {
            // Another host has had it before us.
            Some(State::Probing { .. }) => self.probe_again(now, taken, id),
            // RFC 6762 §9: both probe, and one finds that the other defends it.
            Some(State::Announcing { .. } | State::Established) => self.probe_again(now, Renamed::default(), id),
            None => {}
        }
    }

    /// Whether a record is one of ours, on whatever link.
    fn is_ours(&self, record: &Record) -> bool {
        self.links.iter().any(|link| link.says(record))
    }
}

/// Notices that a record of ours was sent; returns whether it is one.
fn notice(link: &mut Link, record: &Record, rescue: Timestamp) -> bool {
    let is_claimed = link.is_claimed();
    let Some(entry) = link.entries.iter_mut().find(|entry| entry.says(record)) else { return false };
    if is_claimed && record.ttl < entry.record.ttl / 2 {
        // RFC 6762 §6.6: others would forget it.
        let at = rescue.max(entry.earliest(false));
        entry.due = Some(entry.due.map_or(at, |before| before.min(at)));
        entry.asker = None;
    } else if record.ttl >= entry.record.ttl {
        // RFC 6762 §7.4: whoever asked has heard it.
        entry.due = None;
    }
    true
}

/// Whether a record that is not ours has a name that is, or will be, ours alone. Of a name that is probed for, any
/// record is a sign of its owner; later only one of a type that we have as well (RFC 6762 §9).
fn contradicts(link: &Link, record: &Record) -> bool {
    let kind = record.data.kind();
    if record.ttl == 0 || kind == Kind::NSEC {
        return false;
    }
    let is_claimed = link.is_claimed();
    link.unique(&record.name).any(|entry| !is_claimed || entry.record.data.kind() == kind)
}

/// Records in the order in which they are compared: by class, type and data (RFC 6762 §8.2).
fn ordered<'a>(records: impl Iterator<Item = &'a Record>) -> Vec<(u16, Kind, Vec<u8>)> {
    let key = |record: &Record| (record.class, record.data.kind(), record.data.to_wire());
    let mut keys: Vec<_> = records.map(key).collect();
    keys.sort();
    keys
}
