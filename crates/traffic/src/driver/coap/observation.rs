//! What is known of an observation (RFC 7641): the newest notification, and what of it is still being fetched.

use fogmux_coap::Timestamp;
use fogmux_coap::client::Freshness;

use super::exchanges::Number;

/// One observation.
#[derive(Debug, Default)]
pub(super) struct Observation {
    /// Of the newest notification; none while there was only the registration's answer, without a number.
    freshness: Option<Freshness>,
    /// The request for the rest of a notification that did not fit into a message.
    pub(super) fetch: Option<Number>,
    /// A newer notification came meanwhile; it is fetched when that is done.
    pub(super) superseded: bool,
}

impl Observation {
    /// Whether a notification is newer than all before (RFC 7641 §3.4). Of a reliable transport all are, for their order
    /// is that of the server (RFC 8323 §7.1).
    pub(super) fn admit(&mut self, sequence: u32, now: Timestamp, reliable: bool) -> bool {
        match &mut self.freshness {
            Some(freshness) => freshness.admit(sequence, now) || reliable,
            None => {
                self.freshness = Some(Freshness::new(sequence, now));
                true
            }
        }
    }
}
