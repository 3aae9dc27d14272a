//! Authentication and authorisation: users, rules and policy, replaced as a whole on reload.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::sync::watch;

use crate::{
    access::of_rules,
    acl::{Action, Decision, Door, View},
    password::{PASSWORD_BYTES_MAX, Scratch},
    principal::Principal,
    refused::Refused,
    remembered::Remembered,
    rules::{AnonymousPolicy, Rules},
    scram::{ScramHash, ScramKeys},
    source::{
        Credential, Grant, SourceKind, SourceSet, Verified, certificate::CertificateIdentity, password::enabled,
        psk::PskSecret, vouched,
    },
};

/// The current users, rules and policy. One for the whole process, shared as `Arc<Authority>`.
pub struct Authority {
    rules: RwLock<Arc<Rules>>,
    generation: AtomicU64,
    changes: watch::Sender<()>,
    remembered: Mutex<Remembered>,
}

impl Authority {
    /// An authority with these rules.
    ///
    /// # Panics
    /// When the operating system gives no random numbers.
    #[must_use]
    pub fn new(rules: Rules) -> Self {
        Self {
            rules: RwLock::new(Arc::new(rules)),
            generation: AtomicU64::new(1),
            changes: watch::Sender::new(()),
            remembered: Mutex::new(Remembered::new()),
        }
    }

    /// Replaces all rules; every [`crate::Access`] follows at its next question. Logins of users that have not changed
    /// stay remembered.
    pub fn replace(&self, mut rules: Rules) {
        let before = {
            let mut current = self.rules.write().unwrap_or_else(PoisonError::into_inner);
            rules.users.keep_unchanged(&current.users);
            std::mem::replace(&mut *current, Arc::new(rules))
        };
        self.next_generation();
        drop(before);
        self.remembered.lock().unwrap_or_else(PoisonError::into_inner).forget_gone();
    }

    /// Makes every connection check whether its credentials are still valid, as after [`Self::replace`]: the clock was
    /// set.
    pub fn look_again(&self) {
        self.next_generation();
    }

    fn next_generation(&self) {
        self.generation.fetch_add(1, Ordering::Release);
        self.changes.send_replace(());
    }

    /// Grows with every [`Self::replace`] and [`Self::look_again`].
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Notices each time that [`Self::generation`] grows from now on.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// The current rules.
    #[must_use]
    pub fn rules(&self) -> Arc<Rules> {
        Arc::clone(&self.rules.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The anonymous principal, if the policy admits it: by default on loopback listeners and on those that the
    /// operator opened.
    #[must_use]
    pub fn anonymous(&self, listener_is_loopback: bool) -> Option<Principal> {
        let allowed = match self.rules().anonymous {
            AnonymousPolicy::Never => false,
            AnonymousPolicy::Loopback => listener_is_loopback,
            AnonymousPolicy::Everywhere => true,
        };
        allowed.then(Principal::anonymous)
    }

    /// The result of a login that is known without work, because the same login succeeded a while ago. Does not block,
    /// so that an I/O thread can ask before it hands [`Self::password`] to another thread.
    #[must_use]
    pub fn recall(&self, user: &str, password: &[u8]) -> Option<Principal> {
        let rules = self.rules();
        let user = enabled(&rules.users, user)?;
        let known = self.remembered.lock().unwrap_or_else(PoisonError::into_inner).knows(user, password);
        known.then(|| user.principal.clone())
    }

    /// Verifies a password. Blocks for about a tenth of a second on a small machine, as long for an unknown user, and
    /// takes 7 MiB of `scratch`: to be called on a thread for such work.
    ///
    /// # Errors
    /// [`Refused::Credentials`], or [`Refused::Busy`] when there is no memory for it.
    pub fn password(&self, user: &str, password: &[u8], scratch: &mut Scratch) -> Result<Principal, Refused> {
        if let Some(principal) = self.recall(user, password) {
            return Ok(principal);
        }
        if password.len() > PASSWORD_BYTES_MAX {
            return Err(Refused::Credentials);
        }
        let rules = self.rules();
        let verified = rules.verify_password(user, password, scratch)?;
        if let Some(user) = enabled(&rules.users, user) {
            self.remembered.lock().unwrap_or_else(PoisonError::into_inner).remember(user, password);
        }
        Ok(verified.principal)
    }

    /// The principal that a user of the callback would become, without asking it: for explanations of rules.
    ///
    /// # Errors
    /// The name cannot be a user's, or the user is disabled.
    pub fn vouched_elsewhere(&self, user: &str, groups: &[String]) -> Result<Principal, Refused> {
        let groups = groups.iter().map(|group| Arc::from(group.as_str())).collect();
        vouched(&self.rules().users, SourceKind::Callback, user, Grant { groups, variables: None })
    }

    /// The sources of a listener that are configured: no tokens without keys, no callback without an address.
    #[must_use]
    pub fn offered(&self, sources: SourceSet) -> SourceSet {
        let rules = self.rules();
        let behind = |kind: &SourceKind| match kind {
            SourceKind::Token => rules.takes_tokens(),
            SourceKind::Psk => rules.has_psks(),
            SourceKind::Callback => rules.callback.is_some(),
            SourceKind::Password | SourceKind::Certificate | SourceKind::Oscore => true,
            SourceKind::Link => false,
        };
        sources.iter().filter(behind).collect()
    }

    /// The principal of a client certificate. The handshake has verified chain, dates and revocation.
    ///
    /// # Errors
    /// The certificate maps to no user, or the user is disabled.
    pub fn certificate(&self, certificate: &CertificateIdentity<'_>) -> Result<Principal, Refused> {
        self.rules().judge(&Credential::Certificate(certificate)).map(|verified| verified.principal)
    }

    /// The pre-shared key for a handshake. An unknown identity gets a key that nobody has, so that the handshake fails
    /// as with a wrong key. `None` if no keys are configured.
    #[must_use]
    pub fn psk_secret(&self, identity: &[u8]) -> Option<PskSecret> {
        self.rules().psks.secret(identity)
    }

    /// Whether any pre-shared keys are configured.
    #[must_use]
    pub fn has_psks(&self) -> bool {
        self.rules().has_psks()
    }

    /// The principal of the identity that completed a handshake with the key of that mark ([`PskSecret::mark`]).
    ///
    /// # Errors
    /// The identity is gone or has another key by now, or the user is disabled.
    pub fn psk(&self, identity: &[u8], mark: u64) -> Result<Principal, Refused> {
        self.rules().judge(&Credential::Psk { identity, mark: Some(mark) }).map(|verified| verified.principal)
    }

    /// Whether an identity still has the key of that mark, whoever its user is.
    #[must_use]
    pub fn holds_psk(&self, identity: &[u8], mark: u64) -> bool {
        self.rules().psks.holds(identity, mark)
    }

    /// The principal of an identity by whichever key it has: for explanations of rules.
    ///
    /// # Errors
    /// The identity is not there, or the user is disabled.
    pub(crate) fn psk_user(&self, identity: &[u8]) -> Result<Principal, Refused> {
        self.rules().judge(&Credential::Psk { identity, mark: None }).map(|verified| verified.principal)
    }

    /// The principal of the user whose OSCORE context a message was verified under.
    ///
    /// # Errors
    /// The name cannot be a user's, or the user is disabled.
    pub fn oscore(&self, user: &str) -> Result<Principal, Refused> {
        self.rules().judge(&Credential::Oscore(user)).map(|verified| verified.principal)
    }

    /// The principal of a token. Verification takes about a tenth of a millisecond.
    ///
    /// # Errors
    /// The token is malformed, not signed by a key of ours, expired, or for others.
    pub fn token(&self, token: &str, now_unix_s: u64) -> Result<Verified, Refused> {
        self.rules().judge(&Credential::Token { token, now_unix_s })
    }

    /// The user that a well-formed token claims to be of, for a log: nothing of it is verified.
    #[must_use]
    pub fn claimed_user(&self, token: &str) -> Option<String> {
        self.rules().claimed_user(token)
    }

    /// The SCRAM keys of a user. For an unknown user, keys that look alike on the wire, always the same for the same
    /// name, and that no proof matches.
    #[must_use]
    pub fn scram_keys(&self, hash: ScramHash, user: &str) -> ScramKeys {
        let rules = self.rules();
        let known = enabled(&rules.users, user).and_then(|user| user.scram(hash)).cloned();
        known.unwrap_or_else(|| ScramKeys::decoy(hash, &rules.users.decoy_secret, user))
    }

    /// The principal of a user whose identity was proven; `None` if the user is gone.
    #[must_use]
    pub fn principal(&self, user: &str) -> Option<Principal> {
        enabled(&self.rules().users, user).map(|user| user.principal.clone())
    }

    /// Whether a principal that logged in earlier would still be admitted, with the password of that time.
    #[must_use]
    pub fn admits(&self, principal: &Principal) -> bool {
        self.rules().admits(principal)
    }

    /// The same of a principal whose login may have been before this process began ([`Principal::returned`]): then its
    /// user has to be there, and of its credentials one of that kind.
    #[must_use]
    pub fn admits_returned(&self, principal: &Principal) -> bool {
        self.rules().admits_returned(principal)
    }

    /// One decision with its reason.
    #[must_use]
    pub fn may(&self, principal: &Principal, client: &str, action: Action, door: Door, topic: &str) -> Decision {
        let client = of_rules(client, door);
        self.view(principal, client, door).1.decide_for(action, topic, client, door)
    }

    /// The generation is read first: a view of newer rules under an older number is only renewed once more than needed.
    pub(crate) fn view(&self, principal: &Principal, client: &str, door: Door) -> (u64, Arc<View>) {
        let generation = self.generation();
        (generation, self.rules().view(principal, client, door))
    }
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").field("generation", &self.generation()).finish_non_exhaustive()
    }
}
