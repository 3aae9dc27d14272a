//! TCP's user timeout below MQTT.

use std::time::Duration;

use super::MqttConfig;

/// The longest user timeout: about the time for which the system itself retransmits.
const USER_TIMEOUT_MAX: Duration = Duration::from_secs(15 * 60);

/// TCP's user timeout for a client. It also ends connections whose peer does not read, which is tolerated for a while:
/// so a short keep alive, which has a deadline of its own, does not shorten it.
pub(super) fn user_timeout(config: &MqttConfig, keep_alive: u16) -> Duration {
    let silence = Duration::from_millis(u64::from(keep_alive) * 1500);
    silence.min(USER_TIMEOUT_MAX).max(config.unacknowledged_max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_timeout_follows_long_keep_alives_within_bounds() {
        let config = MqttConfig::default();
        let seconds = |keep_alive| user_timeout(&config, keep_alive).as_secs();
        assert_eq!([0, 1, 40, 41, 60, 600, 601, u16::MAX].map(seconds), [60, 60, 60, 61, 90, 900, 900, 900]);
    }
}
