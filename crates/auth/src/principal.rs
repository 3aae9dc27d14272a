//! Who somebody is, once believed: the one identity that every door hands to the rules.

use std::sync::{Arc, LazyLock};

/// The name that all who gave no credentials share. No user may be called so.
pub const ANONYMOUS: &str = "anonymous";

/// An authenticated (or admittedly anonymous) party. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Principal {
    /// The user's name; [`ANONYMOUS`] when `anonymous`.
    pub name: Arc<str>,
    /// The groups at the time of login, sorted. Rules look at the present ones.
    pub groups: Arc<[Arc<str>]>,
    /// No credentials were given.
    pub anonymous: bool,
}

impl Principal {
    /// Somebody without credentials.
    #[must_use]
    pub fn anonymous() -> Self {
        // One for all, because there may be many thousands of them.
        static ANYBODY: LazyLock<Principal> =
            LazyLock::new(|| Principal { name: ANONYMOUS.into(), groups: [].into(), anonymous: true });
        ANYBODY.clone()
    }

    /// A named user and the groups that user is in.
    #[must_use]
    pub fn user(name: &str, groups: impl IntoIterator<Item = Arc<str>>) -> Self {
        let mut groups: Vec<Arc<str>> = groups.into_iter().collect();
        groups.sort();
        groups.dedup();
        Self { name: name.into(), groups: groups.into(), anonymous: false }
    }
}
