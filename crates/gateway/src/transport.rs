//! The byte streams below connections: TCP, TLS, and those that a door carries for another.

use std::time::Duration;

use fogmux_net::listener;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};

/// A byte stream below a connection.
pub trait Transport: AsyncRead + AsyncWrite + Unpin {
    /// Limits how long sent bytes may stay unacknowledged, if the stream has a TCP socket of its own.
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

impl<T: Transport + ?Sized> Transport for Box<T> {
    fn set_user_timeout(&self, limit: Duration) {
        T::set_user_timeout(self, limit);
    }
}

/// Between a link to another broker and the MQTT door.
impl Transport for tokio::io::DuplexStream {}
