//! Stateless Echo values (RFC 9175 §2), bound to an address and a time (appendix A, item 2).

use std::time::Duration;

use crate::Timestamp;
use crate::peer::Peer;

/// A keyed hash that authenticates Echo values. The key belongs to the caller of the state machine.
pub trait EchoKey {
    /// Returns an authentication code of 8 bytes over `input`, for example a truncated HMAC-SHA256.
    fn code(&self, input: &[u8]) -> [u8; 8];
}

impl<F: Fn(&[u8]) -> [u8; 8]> EchoKey for F {
    fn code(&self, input: &[u8]) -> [u8; 8] {
        self(input)
    }
}

/// The size of an Echo value in bytes: four of time and eight of authentication code.
pub(crate) const ECHO_BYTES: usize = 12;

/// The value to send to this peer now.
pub(crate) fn make<P: Peer>(key: &dyn EchoKey, now: Timestamp, peer: &P) -> [u8; ECHO_BYTES] {
    seal(key, clock(now), peer)
}

/// Whether this value was sent to this peer not long ago.
pub(crate) fn is_fresh<P: Peer>(key: &dyn EchoKey, now: Timestamp, peer: &P, value: &[u8], lifetime: Duration) -> bool {
    let Some(time) = value.first_chunk::<4>().copied().map(u32::from_be_bytes) else { return false };
    let age = clock(now).wrapping_sub(time);
    let expected = seal(key, time, peer);
    // Every byte is looked at, so that the time taken tells nothing.
    let difference = expected.iter().zip(value).fold(0, |sum, (a, b)| sum | (a ^ b));
    value.len() == ECHO_BYTES && difference == 0 && Duration::from_secs(age.into()) <= lifetime
}

/// Seconds, which wrap after 136 years.
fn clock(now: Timestamp) -> u32 {
    u32::try_from((now.as_millis() / 1000) & u64::from(u32::MAX)).unwrap_or(0)
}

fn seal<P: Peer>(key: &dyn EchoKey, time: u32, peer: &P) -> [u8; ECHO_BYTES] {
    let mut input = [0; 22];
    let bytes = time.to_be_bytes().into_iter().chain(peer.identity());
    input.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
    let mut value = [0; ECHO_BYTES];
    let bytes = time.to_be_bytes().into_iter().chain(key.code(&input));
    value.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
    value
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    /// Good enough to tell inputs apart.
    fn sum(input: &[u8]) -> [u8; 8] {
        input.iter().fold(7_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte))).to_be_bytes()
    }

    #[test]
    fn s2_a_value_is_good_for_its_address_and_its_time() {
        let peer: SocketAddr = "192.0.2.1:5683".parse().unwrap();
        let other: SocketAddr = "192.0.2.1:5684".parse().unwrap();
        let (now, lifetime) = (Timestamp::from_millis(5_000_000), Duration::from_secs(300));
        let value = make(&sum, now, &peer);
        let fresh = |when, peer, value: &[u8]| is_fresh(&sum, when, &peer, value, lifetime);
        assert!(fresh(now, peer, &value));
        assert!(fresh(now + lifetime, peer, &value));
        assert!(!fresh(now + lifetime * 2, peer, &value));
        assert!(!fresh(now, other, &value));
        assert!(!fresh(now, peer, &value[..11]));
        assert!(!fresh(now, peer, b"abc"));
    }
}
