//! Users, rules, keys and policy that belong together: read as a whole, replaced as a whole.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use crate::{
    acl::{Acl, Common, Door, View},
    password::Scratch,
    principal::Principal,
    problem::{Problem, Problems},
    refused::Refused,
    source::{
        Credential, Source, SourceKind, Verified,
        callback::Callback,
        certificate::CertificateRules,
        oscore::OscoreSource,
        password::PasswordSource,
        psk::Psks,
        token::{TokenSettings, Tokens},
    },
    users::Users,
};

/// Views kept for principals whose rules do not depend on the client identifier.
const VIEWS_MAX: usize = 1024;

/// Sets of groups, for each door, whose common rules are kept.
const COMMON_MAX: usize = 64;

/// Those without credentials, or everybody of these groups, by one door.
type Together = (bool, Arc<[Arc<str>]>, Door);

/// Where those without credentials are let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AnonymousPolicy {
    /// Nowhere.
    Never,
    /// On listeners of the loopback interface.
    #[default]
    Loopback,
    /// Everywhere. Needs an access file, which says what they may do.
    Everywhere,
}

/// Which files hold the rules, and the policy beside them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sources {
    /// The users file; one that does not exist holds nobody.
    pub users: Option<PathBuf>,
    /// The access file; one that does not exist is a problem.
    pub acl: Option<PathBuf>,
    /// The pre-shared keys; a file that does not exist holds none.
    pub psk: Option<PathBuf>,
    /// Which certificate is whose; a file that does not exist maps none.
    pub certificates: Option<PathBuf>,
    /// Certificates let in users of the users file only.
    pub certificate_users_only: bool,
    /// Which tokens are believed.
    pub tokens: TokenSettings,
    /// Where those without credentials are let in.
    pub anonymous: AnonymousPolicy,
}

/// How the files of [`Sources`] looked at one moment: two that are equal need no reading again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamp([Option<(std::time::SystemTime, u64)>; 6]);

impl Sources {
    /// Looks at the files without reading them, so that a gateway can notice that `fogmux passwd` changed one.
    #[must_use]
    pub fn stamp(&self) -> Stamp {
        let look = |path: &Option<PathBuf>| {
            let metadata = std::fs::metadata(path.as_deref()?).ok()?;
            Some((metadata.modified().ok()?, metadata.len()))
        };
        let tokens = [&self.tokens.jwks_file, &self.tokens.key_file].map(look);
        let [jwks, key] = tokens;
        Stamp([look(&self.users), look(&self.acl), look(&self.psk), look(&self.certificates), jwks, key])
    }
}

/// Users, rules and policy that belong together.
#[derive(Default)]
pub struct Rules {
    pub(crate) users: Users,
    acl: Option<Acl>,
    pub(crate) anonymous: AnonymousPolicy,
    passwords: PasswordSource,
    certificates: CertificateRules,
    pub(crate) psks: Psks,
    tokens: Tokens,
    pub(crate) callback: Option<Callback>,
    views: Mutex<HashMap<(Principal, Door), Arc<View>>>,
    common: Mutex<HashMap<Together, Arc<Common>>>,
}

impl Rules {
    /// Rules from what was read elsewhere, without keys, tokens or a callback.
    #[must_use]
    pub fn new(users: Users, acl: Option<Acl>, anonymous: AnonymousPolicy) -> Self {
        Self { users, acl, anonymous, ..Self::default() }
    }

    /// These rules, and such pre-shared keys.
    #[must_use]
    pub fn with_psks(self, psks: Psks) -> Self {
        Self { psks, ..self }
    }

    /// These rules, and such a mapping of certificates.
    #[must_use]
    pub fn with_certificates(self, certificates: CertificateRules) -> Self {
        Self { certificates, ..self }
    }

    /// These rules, and such tokens.
    #[must_use]
    pub fn with_tokens(self, tokens: Tokens) -> Self {
        Self { tokens, ..self }
    }

    /// These rules, and somebody to ask about names that the users file does not know.
    #[must_use]
    pub fn with_callback(self, callback: Option<Callback>) -> Self {
        Self { callback, ..self }
    }

    /// Reads all files.
    ///
    /// # Errors
    /// Everything that is wrong in any of them.
    pub fn load(sources: &Sources) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        let mut note = |found: Problems| problems.0.extend(found.0);
        let users = sources.users.as_deref().map(Users::load).transpose();
        let users = users.map_err(&mut note).ok().flatten().unwrap_or_default();
        let acl = sources.acl.as_deref().map(Acl::load).transpose().map_err(&mut note).ok().flatten();
        let psks = sources.psk.as_deref().map(Psks::load).transpose();
        let psks = psks.map_err(&mut note).ok().flatten().unwrap_or_default();
        let certificates = sources.certificates.as_deref().map(CertificateRules::load).transpose();
        let mut certificates = certificates.map_err(&mut note).ok().flatten().unwrap_or_default();
        certificates.users_only = sources.certificate_users_only;
        let tokens = Tokens::load(&sources.tokens).map_err(&mut note).unwrap_or_default();
        if sources.anonymous == AnonymousPolicy::Everywhere && sources.acl.is_none() {
            let message = "anonymous access beyond loopback needs an access file that says what is allowed".into();
            problems.0.push(Problem { file: Path::new("auth").into(), line: 0, message });
        }
        let rules = Self::new(users, acl, sources.anonymous).with_psks(psks).with_certificates(certificates);
        problems.unless_any(rules.with_tokens(tokens))
    }

    /// The sources that answer at once, or after a computation.
    fn sources(&self) -> [&dyn Source; 5] {
        [&self.passwords, &self.certificates, &self.psks, &OscoreSource, &self.tokens]
    }

    /// Asks the sources about a credential.
    pub(crate) fn judge(&self, credential: &Credential<'_>) -> Result<Verified, Refused> {
        let judged = self.sources().into_iter().find_map(|source| source.judge(credential, &self.users));
        judged.unwrap_or(Err(Refused::Credentials))
    }

    /// Asks about a name and a password; blocks.
    pub(crate) fn verify_password(
        &self,
        user: &str,
        password: &[u8],
        scratch: &mut Scratch,
    ) -> Result<Verified, Refused> {
        self.passwords.verify(user, password, &self.users, scratch)
    }

    /// Whether any token can be believed.
    #[must_use]
    pub fn takes_tokens(&self) -> bool {
        self.tokens.is_configured()
    }

    /// Whether there are pre-shared keys.
    #[must_use]
    pub fn has_psks(&self) -> bool {
        !self.psks.is_empty()
    }

    /// The users.
    #[must_use]
    pub fn users(&self) -> &Users {
        &self.users
    }

    /// The principal as the files know it now; nothing when it is no longer admitted.
    pub(crate) fn present(&self, principal: &Principal) -> Option<Principal> {
        if principal.anonymous {
            return (self.anonymous != AnonymousPolicy::Never).then(|| principal.clone());
        }
        let known = self.users.get(&principal.name);
        if known.is_some_and(|user| user.disabled) {
            return None;
        }
        let mut sources = self.sources().into_iter();
        // The callback is no source like the others: who was let in by it stays as long as there is one.
        let admits = sources
            .find(|source| source.kind() == principal.source)
            .map_or_else(|| self.callback.is_some(), |source| source.admits(principal, &self.users));
        let of_users = known.map(|user| &user.principal);
        match of_users {
            Some(user) if admits && principal.source == SourceKind::Password => Some(user.clone()),
            Some(_) | None => admits.then(|| principal.renewed(of_users)),
        }
    }

    /// Whether the principal would be let in again by what it was let in by. Sessions and what they keep are the user's,
    /// whatever the password: this is for connections.
    pub(crate) fn admits(&self, principal: &Principal) -> bool {
        let known = self.users.get(&principal.name).filter(|_| principal.source == SourceKind::Password);
        let same = known.is_none_or(|user| user.principal.password == principal.password);
        same && self.present(principal).is_some()
    }

    pub(crate) fn view(&self, principal: &Principal, client: &str, door: Door) -> Arc<View> {
        let present = self.present(principal);
        let shared = match (&present, &self.acl) {
            (Some(principal), Some(acl)) => !acl.depends_on_client(principal, door),
            (Some(_) | None, _) => true,
        };
        let build = || match (&present, &self.acl) {
            (None, _) => View::closed(),
            (Some(_), None) => View::unruled(),
            (Some(principal), Some(acl)) => {
                View::new(acl, principal, client, door, shared, self.common(acl, principal, door))
            }
        };
        if !shared {
            return Arc::new(build());
        }
        let mut views = self.views.lock().unwrap_or_else(PoisonError::into_inner);
        if views.len() >= VIEWS_MAX {
            views.clear();
        }
        // Who is not admitted or meets no rules shares one view with everybody like that.
        let whose = match (present.clone(), &self.acl) {
            (Some(present), Some(_)) => present,
            (Some(_), None) => Principal::anonymous(),
            (None, _) => return Arc::new(build()),
        };
        Arc::clone(views.entry((whose, door)).or_insert_with(|| Arc::new(build())))
    }

    /// The rules that everybody of the same groups has, made once for all of them.
    fn common(&self, acl: &Acl, principal: &Principal, door: Door) -> Arc<Common> {
        let mut common = self.common.lock().unwrap_or_else(PoisonError::into_inner);
        if common.len() >= COMMON_MAX {
            common.clear();
        }
        let together = (principal.anonymous, Arc::clone(&principal.groups), door);
        Arc::clone(common.entry(together).or_insert_with(|| Arc::new(acl.common(principal, door))))
    }

    /// Tells one password of a user from the next, and says nothing of either; nothing where there is none.
    #[must_use]
    pub fn password_digest(&self, user: &str) -> Option<[u8; 32]> {
        let stored = self.users.get(user)?.password.as_ref()?;
        Some(Sha256::digest(Zeroizing::new(stored.to_text())).into())
    }
}
