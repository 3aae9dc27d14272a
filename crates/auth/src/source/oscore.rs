//! OSCORE contexts as credentials: a message verified under a context comes from the context's user. RFC 8613.
//!
//! The contexts themselves – keys, sequence numbers, replay windows – are kept where OSCORE is spoken.

use super::{Credential, Grant, Source, SourceKind, Verified, vouched};
use crate::{principal::Principal, refused::Refused, users::Users};

#[derive(Debug)]
pub(crate) struct OscoreSource;

impl Source for OscoreSource {
    fn kind(&self) -> SourceKind {
        SourceKind::Oscore
    }

    fn judge(&self, credential: &Credential<'_>, users: &Users) -> Option<Result<Verified, Refused>> {
        match credential {
            Credential::Oscore(user) => {
                Some(vouched(users, SourceKind::Oscore, user, Grant::default()).map(Verified::from))
            }
            Credential::Certificate(_) | Credential::Psk { .. } | Credential::Token { .. } => None,
        }
    }

    /// A withdrawn context ends where it is kept.
    fn admits(&self, _: &Principal, _: &Users) -> bool {
        true
    }
}
