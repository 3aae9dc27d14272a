//! Users, rules, keys and policy that belong together: read and replaced as a whole.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use foldhash::quality::RandomState;
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use crate::{
    acl::{Acl, Action, Common, Decision, Door, View},
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

/// Whether anonymous, the groups, and the door: principals with the same share their common rules.
type Together = (bool, Arc<[Arc<str>]>, Door);

/// Where anonymous clients are admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AnonymousPolicy {
    /// On no listener.
    Never,
    /// On listeners of the loopback interface.
    #[default]
    Loopback,
    /// On every listener. Needs an access file that says what they may do.
    Everywhere,
}

/// The files of the rules, and the policy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sources {
    /// The users file. A missing file has no users.
    pub users: Option<PathBuf>,
    /// The access file. A missing file is a problem.
    pub acl: Option<PathBuf>,
    /// The pre-shared keys. A missing file has none.
    pub psk: Option<PathBuf>,
    /// The mapping of certificates to users. A missing file maps none.
    pub certificates: Option<PathBuf>,
    /// Whether certificates admit only users of the users file.
    pub certificate_users_only: bool,
    /// Which tokens are believed.
    pub tokens: TokenSettings,
    /// Where anonymous clients are admitted.
    pub anonymous: AnonymousPolicy,
}

/// The text of a file that is tried before it is written.
#[derive(Debug, Clone, Copy)]
pub enum Draft<'a> {
    /// Of the users file.
    Users(&'a str),
    /// Of the access file.
    Acl(&'a str),
}

impl Sources {
    /// The files, so that a gateway can notice that `fogmux passwd` changed one.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        let tokens = &self.tokens;
        let files = [&self.users, &self.acl, &self.psk, &self.certificates, &tokens.jwks_file, &tokens.key_file];
        files.into_iter().filter_map(Option::as_deref)
    }
}

/// Users, rules and policy that belong together.
#[derive(Default)]
pub struct Rules {
    pub(crate) users: Users,
    acl: Option<Acl>,
    pub(crate) anonymous: AnonymousPolicy,
    passwords: PasswordSource,
    pub(crate) certificates: CertificateRules,
    pub(crate) psks: Psks,
    tokens: Tokens,
    pub(crate) callback: Option<Callback>,
    views: Mutex<HashMap<(Principal, Door), Arc<View>, RandomState>>,
    common: Mutex<HashMap<Together, Arc<Common>, RandomState>>,
}

impl Rules {
    /// Creates rules without keys, tokens or a callback.
    #[must_use]
    pub fn new(users: Users, acl: Option<Acl>, anonymous: AnonymousPolicy) -> Self {
        Self { users, acl, anonymous, ..Self::default() }
    }

    /// With these pre-shared keys.
    #[must_use]
    pub fn with_psks(self, psks: Psks) -> Self {
        Self { psks, ..self }
    }

    /// With this mapping of certificates.
    #[must_use]
    pub fn with_certificates(self, certificates: CertificateRules) -> Self {
        Self { certificates, ..self }
    }

    /// With these tokens.
    #[must_use]
    pub fn with_tokens(self, tokens: Tokens) -> Self {
        Self { tokens, ..self }
    }

    /// With a callback for names that the users file does not have.
    #[must_use]
    pub fn with_callback(self, callback: Option<Callback>) -> Self {
        Self { callback, ..self }
    }

    /// Reads all files.
    ///
    /// # Errors
    /// All problems in all files.
    pub fn load(sources: &Sources) -> Result<Self, Problems> {
        Self::load_with(sources, None)
    }

    /// Reads all files, with a text in place of what is in one of them.
    ///
    /// # Errors
    /// All problems in all files and in the text.
    pub fn load_with(sources: &Sources, draft: Option<Draft<'_>>) -> Result<Self, Problems> {
        let read_users = |path: &Path| match draft {
            Some(Draft::Users(text)) => Users::parse(path, text),
            Some(Draft::Acl(_)) | None => Users::load(path),
        };
        let read_acl = |path: &Path| match draft {
            Some(Draft::Acl(text)) => Acl::parse(path, text),
            Some(Draft::Users(_)) | None => Acl::load(path),
        };
        let mut problems = Problems::default();
        let mut note = |found: Problems| problems.0.extend(found.0);
        let users = sources.users.as_deref().map(read_users).transpose();
        let users = users.map_err(&mut note).ok().flatten().unwrap_or_default();
        let acl = sources.acl.as_deref().map(read_acl).transpose().map_err(&mut note).ok().flatten();
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

    /// The sources that decide without waiting.
    fn sources(&self) -> [&dyn Source; 5] {
        [&self.passwords, &self.certificates, &self.psks, &OscoreSource, &self.tokens]
    }

    /// Lets the sources judge a credential.
    pub(crate) fn judge(&self, credential: &Credential<'_>) -> Result<Verified, Refused> {
        let judged = self.sources().into_iter().find_map(|source| source.judge(credential, &self.users));
        judged.unwrap_or(Err(Refused::Credentials))
    }

    /// Verifies a name and a password. Blocks.
    pub(crate) fn verify_password(
        &self,
        user: &str,
        password: &[u8],
        scratch: &mut Scratch,
    ) -> Result<Verified, Refused> {
        self.passwords.verify(user, password, &self.users, scratch)
    }

    /// Whether tokens are configured.
    #[must_use]
    pub fn takes_tokens(&self) -> bool {
        self.tokens.is_configured()
    }

    /// The user that a token claims to be of.
    pub(crate) fn claimed_user(&self, token: &str) -> Option<String> {
        self.tokens.claimed_user(token)
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

    /// The principal as the current files have it; `None` if it is no longer admitted.
    pub(crate) fn present(&self, principal: &Principal) -> Option<Principal> {
        if principal.anonymous {
            return (self.anonymous != AnonymousPolicy::Never).then(|| principal.clone());
        }
        let known = self.users.get(&principal.name);
        if known.is_some_and(|user| user.disabled) {
            return None;
        }
        if principal.source == SourceKind::Link {
            return Some(principal.renewed(known.map(|user| &user.principal)));
        }
        let mut sources = self.sources().into_iter();
        // The callback is no [`Source`]: principals it admitted stay as long as a callback is configured.
        let admits = sources
            .find(|source| source.kind() == principal.source)
            .map_or_else(|| self.callback.is_some(), |source| source.admits(principal, &self.users));
        let of_users = known.map(|user| &user.principal);
        match of_users {
            Some(user) if admits && principal.source == SourceKind::Password => Some(user.clone()),
            Some(_) | None => admits.then(|| principal.renewed(of_users)),
        }
    }

    /// Whether the principal would be admitted again by the credential it used. This is for connections; sessions
    /// belong to the user, whatever the password.
    pub(crate) fn admits(&self, principal: &Principal) -> bool {
        let same = match principal.source {
            SourceKind::Password => {
                self.users.get(&principal.name).is_none_or(|user| user.principal.proof == principal.proof)
            }
            SourceKind::Token => self.tokens.holds_key_of(principal),
            SourceKind::Certificate
            | SourceKind::Psk
            | SourceKind::Oscore
            | SourceKind::Callback
            | SourceKind::Link => true,
        };
        same && self.present(principal).is_some()
    }

    /// The same, where the login may have been before this process began, whose password or key is not known any more:
    /// then its user has to be there, and of its credentials one of that kind.
    pub(crate) fn admits_returned(&self, principal: &Principal) -> bool {
        if principal.proof == 0 { self.present(principal).is_some() } else { self.admits(principal) }
    }

    /// The decision that these rules would make about a principal that logged in under others; `None` if they do not
    /// admit it any more.
    #[must_use]
    pub fn would(&self, principal: &Principal, action: Action, door: Door, topic: &str) -> Option<Decision> {
        self.present(principal)?;
        Some(self.view(principal, "", door).decide_for(action, topic, "", door))
    }

    /// The access rules, if there are any.
    #[must_use]
    pub fn acl(&self) -> Option<&Acl> {
        self.acl.as_ref()
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
        // All principals that are not admitted, or have no rules, share one view.
        let whose = match (present.clone(), &self.acl) {
            (Some(present), Some(_)) => present,
            (Some(_), None) => Principal::anonymous(),
            (None, _) => return Arc::new(build()),
        };
        Arc::clone(views.entry((whose, door)).or_insert_with(|| Arc::new(build())))
    }

    /// The rules that principals with the same groups share, built once.
    fn common(&self, acl: &Acl, principal: &Principal, door: Door) -> Arc<Common> {
        let together = (principal.anonymous, Arc::clone(&principal.groups), door);
        let mut common = self.common.lock().unwrap_or_else(PoisonError::into_inner);
        if common.len() >= COMMON_MAX && !common.contains_key(&together) {
            common.clear();
        }
        Arc::clone(common.entry(together).or_insert_with(|| Arc::new(acl.common(principal, door))))
    }

    /// A digest that changes with the user's password and reveals nothing of it; `None` if there is no password.
    #[must_use]
    pub fn password_digest(&self, user: &str) -> Option<[u8; 32]> {
        let stored = self.users.get(user)?.password.as_ref()?;
        Some(Sha256::digest(Zeroizing::new(stored.to_text())).into())
    }
}
