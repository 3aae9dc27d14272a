//! The bounds of an endpoint, and its counters.

use std::time::Duration;

use crate::{Suite, Suite13};

/// Bounds of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointConfig {
    /// Suites of DTLS 1.2, best first.
    pub suites: Vec<Suite>,
    /// Suites of DTLS 1.3, best first; without any it is not spoken.
    pub suites_13: Vec<Suite13>,
    /// Sessions. One more takes the place of one without a credential; if there is none, of one of the principal that
    /// has most, which has rested long, preferably at an address with more than its share.
    pub sessions_max: usize,
    /// The share of one address, whatever its ports: the most sessions without a credential, and the number of sessions
    /// above which it makes room before others do. An IPv6 host is its /64. Loopback is not bounded so: behind it are
    /// proxies and the operator.
    pub sessions_per_address_max: usize,
    /// Sessions without a credential; one more takes the place of one of them that has rested long. They never take the
    /// place of a session with a credential.
    pub anonymous_sessions_max: usize,
    /// Handshakes under way; one more takes the place of the oldest from where most are under way.
    pub handshakes_max: usize,
    /// Handshakes under way from one address, whatever its ports; one more is not begun. An IPv6 host is its /64.
    pub handshakes_per_address_max: usize,
    /// How long a handshake may take.
    pub handshake_timeout: Duration,
    /// How long a session may say and hear nothing.
    pub idle_timeout: Duration,
    /// The same for a session without a credential.
    pub anonymous_idle_timeout: Duration,
}

impl Default for EndpointConfig {
    fn default() -> Self {
        Self {
            suites: Suite::ALL.to_vec(),
            suites_13: Suite13::ALL.to_vec(),
            sessions_max: 32_768,
            sessions_per_address_max: 1000,
            anonymous_sessions_max: 4096,
            handshakes_max: 1024,
            handshakes_per_address_max: 256,
            // Six repeats, which are 63 seconds (RFC 6347 §4.2.4.1), and the answer to the last.
            handshake_timeout: Duration::from_secs(90),
            // Devices that report once a day need no handshake for each report.
            idle_timeout: Duration::from_secs(25 * 3600),
            // Longer than CoAP may repeat a message (RFC 7252 §4.8.2, EXCHANGE_LIFETIME).
            anonymous_idle_timeout: Duration::from_secs(600),
        }
    }
}

impl EndpointConfig {
    pub(super) const fn idle_timeout_of(&self, is_anonymous: bool) -> Duration {
        if is_anonymous { self.anonymous_idle_timeout } else { self.idle_timeout }
    }
}

/// Counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// ClientHellos answered without keeping anything.
    pub hellos: u64,
    /// Handshakes begun.
    pub begun: u64,
    /// Handshakes finished.
    pub finished: u64,
    /// Handshakes that failed.
    pub failed: u64,
    /// Handshakes not begun, given up, or finished in vain, for want of room.
    pub crowded: u64,
    /// Records dropped: forged, repeated, of nobody we know.
    pub dropped: u64,
    /// Sessions that ended for others.
    pub evicted: Evicted,
}

/// Sessions that ended for others, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evicted {
    /// Their principal had most.
    pub principal: u64,
    /// From their address there were too many.
    pub address: u64,
    /// They had no credential.
    pub anonymous: u64,
    /// They had rested long, and no principal had more than one.
    pub rest: u64,
}

/// The reason why a session ends for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    Principal,
    Address,
    Anonymous,
    Rest,
}

impl Evicted {
    pub(super) const fn count(&mut self, reason: Reason) {
        *match reason {
            Reason::Principal => &mut self.principal,
            Reason::Address => &mut self.address,
            Reason::Anonymous => &mut self.anonymous,
            Reason::Rest => &mut self.rest,
        } += 1;
    }
}
