//! Counts of failed handshakes, by door, transport and reason.

use fogmux_auth::Door;
use fogmux_net::HandshakeFailure;

use crate::counter::Counter;

const REASONS: usize = HandshakeFailure::ALL.len();

/// The counts.
#[derive(Debug, Default)]
pub struct HandshakeFailures {
    tls: [[Counter; REASONS]; Door::ALL.len()],
    dtls: [Counter; REASONS],
    quic: [Counter; REASONS],
}

impl HandshakeFailures {
    /// Counts one over TLS.
    pub(crate) fn note_tls(&self, door: Door, reason: HandshakeFailure) {
        note(self.tls.get(door.place()), reason);
    }

    /// Counts some over DTLS.
    pub(crate) fn note_dtls(&self, reason: HandshakeFailure, count: u64) {
        if let Some(counter) = self.dtls.get(reason as usize) {
            counter.add(count);
        }
    }

    /// Counts one over QUIC.
    pub(crate) fn note_quic(&self, reason: HandshakeFailure) {
        note(Some(&self.quic), reason);
    }

    /// Reads all of them: door, transport, reason and count.
    pub fn each(&self) -> impl Iterator<Item = (Door, &'static str, &'static str, u64)> {
        let tls = Door::ALL.into_iter().zip(&self.tls).map(|(door, counts)| (door, "tls", counts));
        let others = [(Door::Coap, "dtls", &self.dtls), (Door::Http, "quic", &self.quic)];
        tls.chain(others).flat_map(|(door, transport, counts)| {
            let each = HandshakeFailure::ALL.into_iter().zip(counts);
            each.map(move |(reason, count)| (door, transport, reason.name(), count.get()))
        })
    }
}

fn note(counts: Option<&[Counter; REASONS]>, reason: HandshakeFailure) {
    if let Some(counter) = counts.and_then(|counts| counts.get(reason as usize)) {
        counter.increment();
    }
}
