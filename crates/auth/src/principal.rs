//! The authenticated identity that every door hands to the access rules.

use std::sync::{Arc, LazyLock};

use crate::source::{
    grant::{Grant, Variables},
    kind::SourceKind,
};

/// The name that all who gave no credentials share. No user may be called so.
pub const ANONYMOUS: &str = "anonymous";

/// The beginning of the names of links to other brokers, as rules name them. No user may be called so.
pub(crate) const LINK: &str = "link:";

/// An authenticated (or admittedly anonymous) party. Cheap to clone: all who logged in as the same user share the
/// facts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Principal(Arc<Facts>);

impl std::ops::Deref for Principal {
    type Target = Facts;

    fn deref(&self) -> &Facts {
        &self.0
    }
}

/// The facts about a [`Principal`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Facts {
    /// The user's name; [`ANONYMOUS`] when `anonymous`.
    pub name: Arc<str>,
    /// The groups at the time of login, sorted. Rules look at the present ones.
    pub groups: Arc<[Arc<str>]>,
    /// No credentials were given.
    pub anonymous: bool,
    /// The kind of credential.
    pub source: SourceKind,
    /// Claims of a token, for `%{claim}` in rules.
    pub variables: Option<Arc<Variables>>,
    /// The groups that the credential gave, whatever the users file says.
    granted: Arc<[Arc<str>]>,
    /// Tells the password of the login from the user's next one, and the key of a token or a handshake from other keys,
    /// within this process; 0 for other credentials, and of a login before this process began.
    pub(crate) proof: u64,
}

impl Principal {
    /// Somebody without credentials.
    #[must_use]
    pub fn anonymous() -> Self {
        // One for all, because there may be many thousands of them.
        static ANYBODY: LazyLock<Principal> =
            LazyLock::new(|| Principal::user(ANONYMOUS, []).with(|facts| facts.anonymous = true));
        ANYBODY.clone()
    }

    /// A named user of the users file and the groups that user is in.
    #[must_use]
    pub fn user(name: &str, groups: impl IntoIterator<Item = Arc<str>>) -> Self {
        Self(Arc::new(Facts {
            name: name.into(),
            groups: sorted(groups),
            anonymous: false,
            source: SourceKind::Password,
            variables: None,
            granted: no_groups(),
            proof: 0,
        }))
    }

    /// A link to another broker, named by the configuration.
    #[must_use]
    pub fn link(name: &str) -> Self {
        Self::vouched(&format!("{LINK}{name}"), SourceKind::Link, Grant::default(), None)
    }

    /// Somebody whom another source vouches for, with the groups that the users file has for the name.
    pub(crate) fn vouched(name: &str, source: SourceKind, grant: Grant, of_users: Option<&Self>) -> Self {
        let granted = if grant.groups.is_empty() { no_groups() } else { sorted(grant.groups) };
        let groups = united(&granted, of_users);
        let name = of_users.map_or_else(|| name.into(), |known| Arc::clone(&known.name));
        let variables = grant.variables;
        Self(Arc::new(Facts { name, groups, anonymous: false, source, variables, granted, proof: 0 }))
    }

    /// Somebody who logged in before this process began, by a credential of this kind that gave these groups. Rules and
    /// sources decide as they do about a connection that has stayed; what the claims of a token gave is not there.
    #[must_use]
    pub fn returned(name: &str, source: SourceKind, granted: impl IntoIterator<Item = Arc<str>>) -> Self {
        let grant = Grant { groups: granted.into_iter().collect(), ..Grant::default() };
        Self::vouched(name, source, grant, None)
    }

    /// The groups that the credential gave, whatever the users file says.
    #[must_use]
    pub fn granted(&self) -> &Arc<[Arc<str>]> {
        &self.granted
    }

    /// With the stamp of what proved it.
    pub(crate) fn proven_by(self, proof: u64) -> Self {
        self.with(|facts| facts.proof = proof)
    }

    /// Whether a credential that was judged again gives what it gave at the login: the user, and the groups that are
    /// its own. The users file may have put the user into others.
    #[must_use]
    pub fn is_same_login(&self, again: &Self) -> bool {
        let of = |one: &Self| (Arc::clone(&one.name), one.source, one.proof, Arc::clone(&one.granted));
        of(self) == of(again)
    }

    /// Whether rules decide about both alike: the same user, with the same groups and variables.
    #[must_use]
    pub fn has_same_rights(&self, other: &Self) -> bool {
        (&self.name, self.anonymous, &self.groups, &self.variables)
            == (&other.name, other.anonymous, &other.groups, &other.variables)
    }

    /// The same credential under a users file that was read again.
    pub(crate) fn renewed(&self, of_users: Option<&Self>) -> Self {
        self.clone().with(|facts| facts.groups = united(&facts.granted, of_users))
    }

    /// The same with a change.
    fn with(mut self, change: impl FnOnce(&mut Facts)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }
}

fn no_groups() -> Arc<[Arc<str>]> {
    static NONE: LazyLock<Arc<[Arc<str>]>> = LazyLock::new(|| [].into());
    Arc::clone(&NONE)
}

fn sorted(groups: impl IntoIterator<Item = Arc<str>>) -> Arc<[Arc<str>]> {
    let mut groups: Vec<Arc<str>> = groups.into_iter().collect();
    groups.sort();
    groups.dedup();
    groups.into()
}

fn united(granted: &Arc<[Arc<str>]>, of_users: Option<&Principal>) -> Arc<[Arc<str>]> {
    match of_users {
        None => Arc::clone(granted),
        Some(user) if granted.is_empty() => Arc::clone(&user.groups),
        Some(user) => sorted(granted.iter().chain(user.groups.iter()).cloned()),
    }
}
