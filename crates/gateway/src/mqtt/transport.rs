//! The streams that MQTT runs on.

use std::time::Duration;

use fogmux_net::listener;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};

use super::MqttConfig;

/// Longest time in which a client's host may acknowledge nothing: about what the system would wait by itself.
const USER_TIMEOUT_MAX: Duration = Duration::from_secs(15 * 60);

/// A byte stream under a connection.
pub trait Transport: AsyncRead + AsyncWrite + Unpin {
    /// Bounds the time in which the peer's host acknowledges what was sent, where there is a socket of its own below.
    fn set_user_timeout(&self, _limit: Duration) {}
}

impl Transport for TcpStream {
    fn set_user_timeout(&self, limit: Duration) {
        listener::set_user_timeout(self, limit);
    }
}

impl Transport for fogmux_net::Stream {
    fn set_user_timeout(&self, limit: Duration) {
        Self::set_user_timeout(self, limit);
    }
}

#[cfg(test)]
impl Transport for tokio::io::DuplexStream {}

/// TCP's user timeout for a client. It also ends connections whose peer does not read, which is allowed for a while: so a
/// short keep alive does not shorten it, and is judged by itself.
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
