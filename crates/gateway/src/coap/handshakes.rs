//! The queue of DTLS handshakes: records of sessions are handled first, and handshakes share the remaining time. And
//! the log of those that are refused.

use std::{collections::VecDeque, net::SocketAddr};

use fogmux_auth::Door;
use fogmux_dtls::{Alert, Refused};
use fogmux_net::RefusedCertificate;

use super::transport::Path;
use crate::{
    Shared,
    audit::RefusedLogin,
    psk_guard::{REPLACED, WRONG_KEY},
};

/// Datagrams in the queue. One more is dropped, and its sender repeats it (RFC 6347 §4.2.4).
const DATAGRAMS_MAX: usize = 1024;

/// Places that the queue keeps when it is empty; after a flood it holds no more memory than these.
const PLACES_KEPT: usize = 16;

/// Bytes in the queue.
const BYTES_MAX: usize = 1 << 20;

/// The datagrams, oldest first.
#[derive(Debug, Default)]
pub(super) struct Handshakes {
    steps: VecDeque<(Path, Box<[u8]>)>,
    bytes: usize,
}

impl Handshakes {
    /// Adds a datagram; `false` when there is no room.
    pub(super) fn push(&mut self, path: Path, datagram: &[u8]) -> bool {
        let fits = self.steps.len() < DATAGRAMS_MAX && self.bytes + datagram.len() <= BYTES_MAX;
        if fits {
            self.bytes += datagram.len();
            self.steps.push_back((path, datagram.into()));
        }
        fits
    }

    pub(super) fn pop(&mut self) -> Option<(Path, Box<[u8]>)> {
        let step = self.steps.pop_front()?;
        self.bytes = self.bytes.saturating_sub(step.1.len());
        if self.steps.is_empty() {
            self.steps.shrink_to(PLACES_KEPT);
        }
        Some(step)
    }

    pub(super) fn len(&self) -> usize {
        self.steps.len()
    }
}

/// Logs a handshake that was refused for its credential.
pub(super) fn log_refused(shared: &Shared, from: SocketAddr, alert: Alert, refused: &Refused) {
    if let Some(certificate) = RefusedCertificate::of_dtls(alert, refused) {
        RefusedLogin::of_certificate(from, Door::Coap, &certificate).log(shared);
        return;
    }
    let psk = match refused {
        Refused::Identity(identity) if alert == Alert::DecryptError => Some((identity, WRONG_KEY)),
        Refused::Replaced(identity) => Some((identity, REPLACED)),
        Refused::Identity(_) | Refused::Certificate(..) | Refused::Unproven(_) | Refused::NoCertificate => None,
    };
    if let Some((identity, reason)) = psk {
        let claimed = &*String::from_utf8_lossy(identity);
        RefusedLogin { from, door: Door::Coap, by: "psk", claimed, token: None, client: "", reason }.log(shared);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_bounded_and_come_in_their_order() {
        let path = Path { remote: "127.0.0.1:5".parse().unwrap(), local: None, association: 0 };
        for size in [1, 100, 2000] {
            let mut handshakes = Handshakes::default();
            let waiting = (0..5000).filter(|_| handshakes.push(path, &vec![0; size])).count();
            assert_eq!(waiting, DATAGRAMS_MAX.min(BYTES_MAX / size));
            let (_, first) = handshakes.pop().unwrap();
            assert_eq!((first.len(), handshakes.push(path, b"x")), (size, true));
            while handshakes.pop().is_some() {}
            assert_eq!((handshakes.bytes, handshakes.len()), (0, 0));
        }
    }
}
