//! The files of links in the data directory: an identifier of this gateway for client identifiers, and for each link
//! the broker session that goes with its session here, with what it has done there.

use std::collections::BTreeSet;
use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::data;

/// The identifier of the gateway.
const ID: &str = "id";
/// Bytes of it, as hexadecimal digits twice as many.
const ID_BYTES: usize = 6;

/// The session of a link at a broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Session {
    pub(super) url: String,
    pub(super) client_id: String,
    /// Entries of `out` whose retained messages the broker has ([`Mapping::keys`](super::mapping::Mapping::keys)).
    pub(super) announced: BTreeSet<String>,
    /// Filters that the session may be subscribed to.
    pub(super) subscribed: BTreeSet<String>,
}

/// The directory of links.
#[derive(Clone, Debug)]
pub(super) struct Known(PathBuf);

impl Known {
    pub(super) fn new(data: &Path) -> Self {
        Self(data.join(data::LINKS))
    }

    /// The identifier of this gateway, made at its first use: two gateways must not have one client identifier at a
    /// broker, and it has to stay for the broker to find the session.
    pub(super) fn gateway(&self) -> std::io::Result<String> {
        match fogmux_file::read_to_string(&self.0.join(ID)) {
            Ok(id) if id.len() == 2 * ID_BYTES && id.bytes().all(|byte| byte.is_ascii_hexdigit()) => return Ok(id),
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            Ok(_) | Err(_) => {}
        }
        let mut random = [0; ID_BYTES];
        getrandom::fill(&mut random).map_err(|error| std::io::Error::other(error.to_string()))?;
        let id = data_encoding::HEXLOWER.encode(&random);
        self.write(ID, &id)?;
        Ok(id)
    }

    /// The session at a broker that a link had last, which goes with the session here that it has now; `None` if there
    /// is none.
    pub(super) fn session(&self, link: &str) -> Option<Session> {
        Session::parse(&fogmux_file::read_to_string(&self.path(link)).ok()?)
    }

    /// Notes the session that a link has at a broker.
    pub(super) fn set_session(&self, link: &str, session: &Session) -> std::io::Result<()> {
        self.write(&file(link), &session.to_string())
    }

    /// Says which session of a link stays at its broker: the credentials for it are gone with the configuration.
    pub(super) fn say_what_stays(&self, link: &str) {
        if let Some(Session { url, client_id, .. }) = self.session(link) {
            tracing::warn!(link, url, client_id, "this link has changed: its session at that broker stays there");
        }
    }

    /// Forgets it: the session here is a new one.
    pub(super) fn forget_session(&self, link: &str) -> std::io::Result<()> {
        match std::fs::remove_file(self.path(link)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn path(&self, link: &str) -> PathBuf {
        self.0.join(file(link))
    }

    fn write(&self, name: &str, text: &str) -> std::io::Result<()> {
        data::make(&self.0)?;
        data::replace_private(&self.0.join(name), text.as_bytes())
    }
}

impl Session {
    /// A session at this broker in which nothing has happened yet.
    pub(super) fn new(url: &str, client_id: &str) -> Self {
        let (announced, subscribed) = (BTreeSet::new(), BTreeSet::new());
        Self { url: url.to_owned(), client_id: client_id.to_owned(), announced, subscribed }
    }

    /// Whether it is this client's at this broker.
    pub(super) fn is_of(&self, url: &str, client_id: &str) -> bool {
        self.url == url && self.client_id == client_id
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let mut session = Self::new(lines.next()?, lines.next()?);
        for line in lines {
            match line.split_once(' ') {
                Some(("out", entry)) => session.announced.insert(entry.to_owned()),
                Some(("in", filter)) => session.subscribed.insert(filter.to_owned()),
                // Of another version.
                Some(_) | None => false,
            };
        }
        Some(session)
    }
}

/// A line for the broker, one for the client identifier, and one for each entry. None of them has control characters.
impl fmt::Display for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n{}", self.url, self.client_id)?;
        self.announced.iter().try_for_each(|entry| writeln!(f, "out {entry}"))?;
        self.subscribed.iter().try_for_each(|filter| writeln!(f, "in {filter}"))
    }
}

fn file(link: &str) -> String {
    format!("{link}{}", data::LINK_SESSION)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_identifier_stays_and_sessions_are_told_apart() {
        let home = tempfile::tempdir().unwrap();
        let known = Known::new(home.path());
        let id = known.gateway().unwrap();
        assert_eq!(known.gateway().unwrap(), id);
        assert_eq!(id.len(), 12);
        assert_eq!(known.session("north"), None);
        let mut session = Session::new("mqtts://north.example", "fogmux-north");
        session.announced = ["a/#\t\tb/".to_owned(), " ".to_owned()].into();
        session.subscribed = ["commands/#".to_owned(), "in out".to_owned()].into();
        known.set_session("north", &session).unwrap();
        assert_eq!(known.session("north"), Some(session.clone()));
        assert!(session.is_of("mqtts://north.example", "fogmux-north") && !session.is_of("mqtts://north.example", "x"));
        known.forget_session("north").unwrap();
        known.forget_session("north").unwrap();
        assert_eq!(known.session("north"), None);
    }
}
