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

    /// Reports a reload; [`Self::reloaded`] follows. The time tells systemd that this reload began after its signal
    /// (`Type=notify-reload`, from systemd 253); older versions ignore it.
    pub(crate) fn reloading(&self) {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let now = Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs().try_into().unwrap_or_default());
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={}", now.as_micros()));
    }

    /// Reports the end of a reload, and its outcome in the unit's status: systemd knows no failed reload of a running
    /// service.
    pub(crate) fn reloaded(&self, outcome: &str) {
        self.send(&format!("READY=1\nSTATUS={outcome}"));
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
