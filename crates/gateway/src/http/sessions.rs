//! Sessions of people, as the workers of the door share them.

use fogmux_auth::{Principal, Rules, SourceKind, Verified};
use fogmux_http::session::Key;

/// The user who logged in, and a key of the password at that time.
#[derive(Clone, Debug)]
pub(super) struct Session {
    pub(super) who: Verified,
    /// Key of the password at login; none for users of the callback.
    password: Option<Key>,
}

impl Session {
    /// A session that begins under these rules.
    pub(super) fn new(who: Verified, rules: &Rules) -> Self {
        Self { password: password(rules, &who.principal), who }
    }

    /// Whether the password is the one that the session began with.
    pub(super) fn has_same_password(&self, rules: &Rules) -> bool {
        self.password == password(rules, &self.who.principal)
    }
}

fn password(rules: &Rules, principal: &Principal) -> Option<Key> {
    rules.password_digest(&principal.name).filter(|_| principal.source == SourceKind::Password)
}
