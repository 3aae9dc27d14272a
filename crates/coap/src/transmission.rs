//! Transmission parameters and the times derived from them (RFC 7252 §4.8).

use std::time::Duration;

use crate::jitter::Jitter;

/// The parameters of RFC 7252 table 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmission {
    /// The shortest wait for an acknowledgement.
    pub ack_timeout: Duration,
    /// ACK_RANDOM_FACTOR in hundredths: 150 for 1.5.
    pub ack_random_percent: u32,
    /// How often a Confirmable is sent again.
    pub max_retransmit: u8,
    /// How many Confirmables may be outstanding to one peer (RFC 7252 §4.7).
    pub nstart: usize,
}

/// RFC 7252 table 2.
impl Default for Transmission {
    fn default() -> Self {
        Self { ack_timeout: Duration::from_secs(2), ack_random_percent: 150, max_retransmit: 4, nstart: 1 }
    }
}

/// The longest that a datagram is taken to be under way (RFC 7252 §4.8.2).
pub const MAX_LATENCY: Duration = Duration::from_secs(100);

/// The longest that a server takes before it acknowledges (RFC 7252 §4.8.2, PROCESSING_DELAY).
pub const PROCESSING_DELAY: Duration = Duration::from_secs(2);

impl Transmission {
    /// The first wait: between ACK_TIMEOUT and ACK_TIMEOUT × ACK_RANDOM_FACTOR (RFC 7252 §4.2).
    pub(crate) fn first_timeout(&self, jitter: &mut Jitter) -> Duration {
        let low = u64::try_from(self.ack_timeout.as_millis()).unwrap_or(u64::MAX / 400);
        Duration::from_millis(jitter.between(low, low * u64::from(self.ack_random_percent) / 100))
    }

    /// From the first transmission of a Confirmable to the last (RFC 7252 §4.8.2, MAX_TRANSMIT_SPAN).
    #[must_use]
    pub fn max_transmit_span(&self) -> Duration {
        self.ack_timeout * ((1 << self.max_retransmit.min(16)) - 1) * self.ack_random_percent / 100
    }

    /// For how long a message identifier must not be used again (RFC 7252 §4.8.2, EXCHANGE_LIFETIME).
    #[must_use]
    pub fn exchange_lifetime(&self) -> Duration {
        self.max_transmit_span() + 2 * MAX_LATENCY + PROCESSING_DELAY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s4_8_2_derived_times() {
        let default = Transmission::default();
        assert_eq!(default.max_transmit_span(), Duration::from_secs(45));
        assert_eq!(default.exchange_lifetime(), Duration::from_secs(247));
    }

    #[test]
    fn s4_2_first_timeout_lies_between_two_and_three_seconds() {
        let mut jitter = Jitter::new(7);
        for _ in 0..1000 {
            let timeout = Transmission::default().first_timeout(&mut jitter);
            assert!((Duration::from_secs(2)..=Duration::from_secs(3)).contains(&timeout));
        }
    }
}
