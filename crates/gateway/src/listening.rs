//! The addresses of all listeners while the gateway runs: which are open, why others are not, and which admit anonymous
//! clients.

use std::{
    net::SocketAddr,
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicU8, Ordering},
    },
};

use crate::listener::{Listen, Listener};

/// The number of a listener's address in [`Listening`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place(u16);

/// Anonymous clients of this machine are admitted.
const HERE: u8 = 1;
/// Those of other machines are.
const REMOTE: u8 = 2;

/// The addresses of all listeners, one place for each.
#[derive(Debug, Default)]
pub struct Listening(Box<[Spot]>);

/// One address of a listener.
#[derive(Debug)]
pub struct Spot {
    /// The listener as it is configured.
    pub listen: Listen,
    /// Set once: an open listener stays open until the shutdown.
    opened: OnceLock<SocketAddr>,
    /// The system's last error.
    failure: Mutex<Option<String>>,
    /// [`HERE`] and [`REMOTE`].
    open_to_anonymous: AtomicU8,
}

impl Spot {
    /// The address with the port that it was given; `None` while it is not open.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.opened.get().copied()
    }

    /// Why it is not open; `None` if it is.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        if self.address().is_some() {
            return None;
        }
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Listening {
    /// None of them open yet. Each admits anonymous clients as it is configured.
    pub(crate) fn new(listen: Vec<Listen>) -> Self {
        let spot = |listen: Listen| Spot {
            open_to_anonymous: AtomicU8::new(flags(&listen)),
            listen,
            opened: OnceLock::new(),
            failure: Mutex::default(),
        };
        Self(listen.into_iter().map(spot).collect())
    }

    /// All addresses with their places, in the order of the configuration.
    pub fn each(&self) -> impl Iterator<Item = (Place, &Spot)> {
        (0..=u16::MAX).map(Place).zip(&self.0)
    }

    /// The addresses that are open.
    pub fn open(&self) -> impl Iterator<Item = (&Listen, SocketAddr)> {
        self.0.iter().filter_map(|spot| Some((&spot.listen, spot.address()?)))
    }

    /// The addresses that are not open, and why.
    pub fn shut(&self) -> impl Iterator<Item = (&Listen, String)> {
        self.0.iter().filter_map(|spot| Some((&spot.listen, spot.failure()?)))
    }

    /// One address.
    pub(crate) fn at(&self, place: Place) -> Option<&Spot> {
        self.0.get(usize::from(place.0))
    }

    /// The name of the listener at a place.
    pub(crate) fn name(&self, place: Place) -> Option<&str> {
        self.at(place).map(|spot| &*spot.listen.name)
    }

    /// Notes that an address is open.
    pub(crate) fn opened(&self, place: Place, address: SocketAddr) {
        if let Some(spot) = self.at(place) {
            // Opened once only.
            let _ = spot.opened.set(address);
        }
    }

    /// Notes why an address cannot be opened.
    pub(crate) fn failed(&self, place: Place, reason: String) {
        if let Some(spot) = self.at(place) {
            *spot.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason);
        }
    }

    /// The port that the listener before this one was given.
    pub(crate) fn port_before(&self, place: Place) -> Option<u16> {
        let before = self.at(Place(place.0.checked_sub(1)?))?;
        before.address().map(|address| address.port())
    }

    /// The HTTPS listener that an HTTP/3 listener stands beside, or the other way round.
    pub(crate) fn beside(&self, place: Place, kind: Listener) -> Option<&Spot> {
        let own = &self.at(place)?.listen;
        self.0.iter().find(|spot| {
            let Listen { listener, name, address, .. } = &spot.listen;
            *listener == kind && *address == own.address && base(name) == base(&own.name)
        })
    }

    /// Replaces who admits anonymous clients. An address that is not among these admits none from then on.
    pub fn admit_anonymous(&self, listen: &[Listen]) {
        for spot in &self.0 {
            let same = |other: &&Listen| other.name == spot.listen.name && other.address == spot.listen.address;
            let flags = listen.iter().find(same).map_or(0, flags);
            spot.open_to_anonymous.store(flags, Ordering::Release);
        }
    }

    /// Whether anonymous clients are admitted at a place.
    pub(crate) fn admits(&self, place: Place) -> bool {
        self.flags(place) & HERE != 0
    }

    /// Whether those of other machines are.
    pub(crate) fn admits_remote(&self, place: Place) -> bool {
        self.flags(place) & REMOTE != 0
    }

    /// Whether requests without OSCORE are refused at a place.
    pub(crate) fn oscore_only(&self, place: Place) -> bool {
        self.at(place).is_some_and(|spot| spot.listen.oscore_only)
    }

    fn flags(&self, place: Place) -> u8 {
        self.at(place).map_or(0, |spot| spot.open_to_anonymous.load(Ordering::Acquire))
    }
}

/// The suffix of HTTP/3 beside a listener of HTTPS that has a name of its own.
pub const HTTP3_SUFFIX: &str = ".http3";

/// The name of HTTP/3 beside a listener of HTTPS.
#[must_use]
pub fn http3_name(https: &str) -> String {
    if https == Listener::Https.name() { Listener::Http3.name().to_owned() } else { format!("{https}{HTTP3_SUFFIX}") }
}

/// The name of the section of the configuration that a listener is from.
#[must_use]
pub fn base(name: &str) -> &str {
    if name == Listener::Http3.name() {
        Listener::Https.name()
    } else {
        name.strip_suffix(HTTP3_SUFFIX).unwrap_or(name)
    }
}

fn flags(listen: &Listen) -> u8 {
    let here = if listen.anonymous { HERE } else { 0 };
    let remote = if listen.anonymous && listen.remote_anonymous { REMOTE } else { 0 };
    here | remote
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listen(name: &str, address: &str, anonymous: bool) -> Listen {
        let (name, address) = (name.into(), address.parse().unwrap());
        Listen { name, anonymous, ..Listen::new(Listener::Mqtts, address) }
    }

    #[test]
    fn an_address_that_is_not_named_again_admits_nobody() {
        let two = [listen("a", "127.0.0.1:1", true), listen("b", "127.0.0.1:2", true)];
        let listening = Listening::new(two.to_vec());
        assert!(listening.admits(Place(0)) && listening.admits(Place(1)));
        // The same address under another name, and the same name at another address.
        listening.admit_anonymous(&[listen("b", "127.0.0.1:1", true), listen("a", "127.0.0.1:2", true)]);
        assert!(!listening.admits(Place(0)) && !listening.admits(Place(1)));
        listening.admit_anonymous(&two);
        assert!(listening.admits(Place(0)) && !listening.admits_remote(Place(0)));
        assert!(!listening.admits(Place(2)), "no such place");
    }

    #[test]
    fn http3_stands_beside_https_of_the_same_name_and_address() {
        let https = |name: &str, address: &str| Listen { listener: Listener::Https, ..listen(name, address, false) };
        let http3 = |name: &str, address: &str| Listen { listener: Listener::Http3, ..listen(name, address, false) };
        let listening = Listening::new(vec![
            https("https", "127.0.0.1:0"),
            http3("http3", "127.0.0.1:0"),
            https("web", "127.0.0.1:0"),
            http3("web.http3", "127.0.0.1:0"),
        ]);
        let beside = |place| listening.beside(Place(place), Listener::Http3).map(|spot| spot.listen.name.to_string());
        assert_eq!((beside(0).as_deref(), beside(2).as_deref()), (Some("http3"), Some("web.http3")));
        let https = listening.beside(Place(3), Listener::Https).map(|spot| spot.listen.name.to_string());
        assert_eq!(https.as_deref(), Some("web"));
    }
}
