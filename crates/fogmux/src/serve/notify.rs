//! Notifications to systemd (sd_notify(3)): one datagram of text to the socket that it passed.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// The service manager that started the gateway, if any (sd_notify).
pub(crate) struct ServiceManager {
    socket: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Duration>,
}

impl ServiceManager {
    /// Finds it by the environment.
    pub(crate) fn from_environment() -> Self {
        let socket = std::env::var("NOTIFY_SOCKET").ok().and_then(|path| {
            let address = match path.strip_prefix('@') {
                Some(name) => SocketAddr::from_abstract_name(name),
                None => SocketAddr::from_pathname(&path),
            };
            Some((UnixDatagram::unbound().ok()?, address.ok()?))
        });
        // systemd expects a notification within this time; half of it is what sd_watchdog_enabled(3) recommends.
        let microseconds = std::env::var("WATCHDOG_USEC").ok().and_then(|text| text.parse().ok());
        let watchdog = microseconds.filter(|_| socket.is_some()).map(|whole: u64| Duration::from_micros(whole / 2));
        Self { socket, watchdog: watchdog.filter(|every| !every.is_zero()) }
    }

    /// The interval of [`Self::alive`].
    pub(crate) fn watchdog(&self) -> Option<Duration> {
        self.watchdog
    }

    /// Reports that every listener is open.
    pub(crate) fn ready(&self) {
        self.send("READY=1");
    }

    /// Reports a reload; [`Self::ready`] follows.
    pub(crate) fn reloading(&self) {
        self.send("RELOADING=1");
    }

    /// Reports the shutdown.
    pub(crate) fn stopping(&self) {
        self.send("STOPPING=1");
    }

    /// Sends the watchdog notification.
    pub(crate) fn alive(&self) {
        self.send("WATCHDOG=1");
    }

    fn send(&self, state: &str) {
        if let Some((socket, address)) = &self.socket
            && let Err(error) = socket.send_to_addr(state.as_bytes(), address)
        {
            tracing::debug!(%error, "cannot notify the service manager");
        }
    }
}
