//! The files of links in the data directory: an identifier of this gateway for client identifiers, and for each link
//! the broker session that goes with its session here.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::data;

/// The identifier of the gateway.
const ID: &str = "id";
/// Bytes of it, as hexadecimal digits twice as many.
const ID_BYTES: usize = 6;

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
        match std::fs::read_to_string(self.0.join(ID)) {
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

    /// Whether this is the session at a broker that a link had last, with the session here that it has now. If not, the
    /// one at the broker may hold packet identifiers of messages that are none of the present ones.
    pub(super) fn is_session(&self, link: &str, session: &str) -> bool {
        std::fs::read_to_string(self.session(link)).is_ok_and(|known| known == session)
    }

    /// Notes the session that a link has at a broker.
    pub(super) fn set_session(&self, link: &str, session: &str) -> std::io::Result<()> {
        if self.is_session(link, session) { Ok(()) } else { self.write(&file(link), session) }
    }

    /// Forgets it: the session here is a new one.
    pub(super) fn forget_session(&self, link: &str) -> std::io::Result<()> {
        match std::fs::remove_file(self.session(link)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn session(&self, link: &str) -> PathBuf {
        self.0.join(file(link))
    }

    fn write(&self, name: &str, text: &str) -> std::io::Result<()> {
        data::make(&self.0)?;
        data::replace_private(&self.0.join(name), text.as_bytes())
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
        assert!(!known.is_session("north", "a"));
        known.set_session("north", "a").unwrap();
        assert!(known.is_session("north", "a") && !known.is_session("north", "b") && !known.is_session("id", "a"));
        known.forget_session("north").unwrap();
        known.forget_session("north").unwrap();
        assert!(!known.is_session("north", "a"));
    }
}
