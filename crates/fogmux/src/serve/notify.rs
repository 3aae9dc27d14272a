//! Notifications to systemd (sd_notify(3)): one datagram of text to the socket that it passed. The gateway never waits
//! for whoever reads them: a service manager that has stopped reading must not stop what supervises the gateway.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// Notifications that wait at most, two for each reload.
const UNSENT_MAX: usize = 16;

/// The service manager that started the gateway, if any (sd_notify).
pub(crate) struct ServiceManager {
    socket: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Duration>,
    /// Notifications that the socket has had no room for, the oldest first.
    unsent: VecDeque<String>,
}

impl ServiceManager {
    /// Finds it by the environment.
    pub(crate) fn from_environment() -> Self {
        let socket = std::env::var("NOTIFY_SOCKET").ok().and_then(|path| {
            let address = match path.strip_prefix('@') {
                Some(name) => SocketAddr::from_abstract_name(name),
                None => SocketAddr::from_pathname(&path),
            };
            let socket = UnixDatagram::unbound().ok()?;
            socket.set_nonblocking(true).ok()?;
            Some((socket, address.ok()?))
        });
        // systemd expects a notification within this time; half of it is what sd_watchdog_enabled(3) recommends.
        let microseconds = std::env::var("WATCHDOG_USEC").ok().and_then(|text| text.parse().ok());
        let watchdog = microseconds.filter(|_| socket.is_some()).map(|whole: u64| Duration::from_micros(whole / 2));
        Self { socket, watchdog: watchdog.filter(|every| !every.is_zero()), unsent: VecDeque::new() }
    }

    /// The interval of [`Self::alive`].
    pub(crate) fn watchdog(&self) -> Option<Duration> {
        self.watchdog
    }

    /// Reports that every listener is open.
    pub(crate) fn ready(&mut self) {
        self.report("READY=1".to_owned());
    }

    /// Reports a reload; [`Self::reloaded`] follows. The time tells systemd that this reload began after its signal
    /// (`Type=notify-reload`, from systemd 253); older versions ignore it.
    pub(crate) fn reloading(&mut self) {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let now = Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs().try_into().unwrap_or_default());
        self.report(format!("RELOADING=1\nMONOTONIC_USEC={}", now.as_micros()));
    }

    /// Reports the end of a reload, and its outcome in the unit's status: systemd knows no failed reload of a running
    /// service.
    pub(crate) fn reloaded(&mut self, outcome: &str) {
        self.report(format!("READY=1\nSTATUS={outcome}"));
    }

    /// Reports the shutdown.
    pub(crate) fn stopping(&mut self) {
        self.report("STOPPING=1".to_owned());
    }

    /// Sends the watchdog notification. One for which there is no room is left out: those before it are not read yet.
    pub(crate) fn alive(&mut self) {
        if self.unsent.is_empty() {
            let _sent = self.send("WATCHDOG=1");
        }
    }

    /// Sends notifications that there was no room for.
    pub(crate) fn retry(&mut self) {
        while let Some(state) = self.unsent.pop_front() {
            if !self.send(&state) {
                return self.unsent.push_front(state);
            }
        }
    }

    /// Sends a notification behind those that wait. The oldest gives way: the newest say how things are.
    fn report(&mut self, state: String) {
        if self.unsent.len() == UNSENT_MAX {
            self.unsent.pop_front();
        }
        self.unsent.push_back(state);
        self.retry();
    }

    /// Whether it was sent, or never can be.
    fn send(&self, state: &str) -> bool {
        let Some((socket, address)) = &self.socket else { return true };
        match socket.send_to_addr(state.as_bytes(), address) {
            Ok(_) => true,
            Err(error) if error.kind() == ErrorKind::WouldBlock => false,
            Err(error) => {
                tracing::debug!(%error, "cannot notify the service manager");
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manager_that_reads_nothing_stops_nobody_and_is_told_the_newest_when_it_reads() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let read = UnixDatagram::bind(&path).unwrap();
        read.set_nonblocking(true).unwrap();
        let socket = UnixDatagram::unbound().unwrap();
        socket.set_nonblocking(true).unwrap();
        let socket = Some((socket, SocketAddr::from_pathname(&path).unwrap()));
        let mut manager = ServiceManager { socket, watchdog: None, unsent: VecDeque::new() };
        // Many times what the system keeps (net.unix.max_dgram_qlen).
        for number in 0..10_000 {
            manager.reloaded(&number.to_string());
            manager.alive();
        }
        let mut last = String::new();
        let mut buffer = [0; 256];
        loop {
            manager.retry();
            let Ok(length) = read.recv(&mut buffer) else { break };
            last = String::from_utf8_lossy(&buffer[..length]).into_owned();
        }
        assert_eq!(last, "READY=1\nSTATUS=9999");
        assert!(manager.unsent.is_empty());
    }
}
