//! The one place that believes or refuses: users, rules and policy, replaced as a whole on reload.

use std::{
    collections::HashMap,
    fmt,
    path::{Path, PathBuf},
    sync::{
        Arc, Condvar, Mutex, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::{
    access::Access,
    acl::{Acl, Action, Decision, Door, View},
    password::{PASSWORD_BYTES_MAX, StoredPassword, prepare_text},
    principal::Principal,
    problem::{Problem, Problems},
    remembered::Remembered,
    scram::{ScramHash, ScramKeys},
    users::{User, Users, random},
};

/// Passwords that may wait for a verification at once; the next is refused as busy.
const WAITING_MAX: usize = 256;
/// Views kept for principals whose rules do not depend on the client identifier.
const VIEWS_MAX: usize = 1024;

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
    /// Where those without credentials are let in.
    pub anonymous: AnonymousPolicy,
}

/// How the files of [`Sources`] looked at one moment: two that are equal need no reading again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamp([Option<(std::time::SystemTime, u64)>; 2]);

impl Sources {
    /// Looks at the files without reading them, so that a gateway can notice that `fogmux passwd` changed one.
    #[must_use]
    pub fn stamp(&self) -> Stamp {
        let look = |path: &Option<PathBuf>| {
            let metadata = std::fs::metadata(path.as_deref()?).ok()?;
            Some((metadata.modified().ok()?, metadata.len()))
        };
        Stamp([look(&self.users), look(&self.acl)])
    }
}

/// Users, rules and policy that belong together.
#[derive(Default)]
pub struct Rules {
    users: Users,
    acl: Option<Acl>,
    anonymous: AnonymousPolicy,
    views: Mutex<HashMap<(Principal, Door), Arc<View>>>,
}

impl Rules {
    /// Rules from what was read elsewhere.
    #[must_use]
    pub fn new(users: Users, acl: Option<Acl>, anonymous: AnonymousPolicy) -> Self {
        Self { users, acl, anonymous, views: Mutex::default() }
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
        if sources.anonymous == AnonymousPolicy::Everywhere && sources.acl.is_none() {
            let message = "anonymous access beyond loopback needs an access file that says what is allowed".into();
            problems.0.push(Problem { file: Path::new("auth").into(), line: 0, message });
        }
        problems.unless_any(Self::new(users, acl, sources.anonymous))
    }

    /// The users.
    #[must_use]
    pub fn users(&self) -> &Users {
        &self.users
    }

    /// The principal as the files know it now; nothing when it is no longer admitted.
    fn present(&self, principal: &Principal) -> Option<Principal> {
        if principal.anonymous {
            return (self.anonymous != AnonymousPolicy::Never).then(|| principal.clone());
        }
        let user = self.users.get(&principal.name).filter(|user| !user.disabled)?;
        Some(user.principal.clone())
    }

    fn view(&self, principal: &Principal, client: &str, door: Door) -> Arc<View> {
        let present = self.present(principal);
        let shared = match (&present, &self.acl) {
            (Some(principal), Some(acl)) => !acl.depends_on_client(principal, door),
            (Some(_) | None, _) => true,
        };
        let build = || match (&present, &self.acl) {
            (None, _) => View::closed(),
            (Some(_), None) => View::unruled(),
            (Some(principal), Some(acl)) => View::new(acl, principal, client, door),
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
}

/// Why a login was refused. None of them says whether the user exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Wrong name or password, or the user is disabled.
    #[error("not authorised")]
    Credentials,
    /// Too many logins are being checked; worth trying again later.
    #[error("too many logins at once")]
    Busy,
    /// The mechanism is unknown or not offered on this channel.
    #[error("mechanism not offered")]
    Mechanism,
    /// The message is not what the mechanism's grammar allows.
    #[error("malformed: {0}")]
    Malformed(&'static str),
    /// Logged in as one, asked to act as another.
    #[error("may not act as that identity")]
    Identity,
    /// Channel binding does not fit.
    #[error("channel binding does not fit")]
    ChannelBinding,
}

/// Users, rules and policy as they are now. One for the whole process, shared as `Arc<Authority>`.
pub struct Authority {
    rules: RwLock<Arc<Rules>>,
    generation: AtomicU64,
    remembered: Mutex<Remembered>,
    checks: Mutex<Checks>,
    check_ended: Condvar,
    running_max: usize,
    /// Verified against when there is no such user, so that the answer takes as long.
    decoy: StoredPassword,
}

#[derive(Default)]
struct Checks {
    running: usize,
    waiting: usize,
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
            remembered: Mutex::new(Remembered::new()),
            checks: Mutex::default(),
            check_ended: Condvar::new(),
            running_max: std::thread::available_parallelism().map_or(1, |cores| cores.get().div_ceil(2)),
            decoy: StoredPassword::decoy(random(), random()),
        }
    }

    /// Puts new rules in place of all that was; every [`Access`] follows at its next question.
    pub fn replace(&self, rules: Rules) {
        *self.rules.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(rules);
        self.generation.fetch_add(1, Ordering::Release);
        self.remembered.lock().unwrap_or_else(PoisonError::into_inner).forget_all();
    }

    /// Grows with every [`Self::replace`].
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// The rules of this moment.
    #[must_use]
    pub fn rules(&self) -> Arc<Rules> {
        Arc::clone(&self.rules.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Lets somebody in without credentials, where the policy allows it: by default on listeners that are loopback, or
    /// that the operator opened to them all the same.
    #[must_use]
    pub fn anonymous(&self, listener_is_loopback: bool) -> Option<Principal> {
        let allowed = match self.rules().anonymous {
            AnonymousPolicy::Never => false,
            AnonymousPolicy::Loopback => listener_is_loopback,
            AnonymousPolicy::Everywhere => true,
        };
        allowed.then(Principal::anonymous)
    }

    /// The answer when it is known without work: the same login succeeded a while ago. Never blocks for long, so an I/O
    /// thread may ask this before it sends [`Self::password`] elsewhere.
    #[must_use]
    pub fn recall(&self, user: &str, password: &[u8]) -> Option<Principal> {
        let rules = self.rules();
        let user = find(&rules, user)?;
        let known = self.remembered.lock().unwrap_or_else(PoisonError::into_inner).knows(user, password);
        known.then(|| user.principal.clone())
    }

    /// Verifies a password. Blocks for about a tenth of a second on a small machine, as long for a user who does not
    /// exist: call it from `spawn_blocking`.
    ///
    /// # Errors
    /// [`Refused::Credentials`], or [`Refused::Busy`] when too many wait already.
    pub fn password(&self, user: &str, password: &[u8]) -> Result<Principal, Refused> {
        if let Some(principal) = self.recall(user, password) {
            return Ok(principal);
        }
        if password.len() > PASSWORD_BYTES_MAX {
            return Err(Refused::Credentials);
        }
        let rules = self.rules();
        let known = find(&rules, user);
        let stored = known.and_then(|user| user.password.as_ref());
        let matches = {
            let _turn = self.turn()?;
            stored.unwrap_or(&self.decoy).matches(password)
        };
        match known {
            Some(user) if matches && stored.is_some() => {
                self.remembered.lock().unwrap_or_else(PoisonError::into_inner).remember(user, password);
                Ok(user.principal.clone())
            }
            Some(_) | None => Err(Refused::Credentials),
        }
    }

    /// The SCRAM keys of a user; for one who is not there, keys that look alike on the wire, always the same for the
    /// same name, and that no proof fits.
    #[must_use]
    pub fn scram_keys(&self, hash: ScramHash, user: &str) -> ScramKeys {
        let rules = self.rules();
        let known = find(&rules, user).and_then(|user| user.scram(hash)).cloned();
        known.unwrap_or_else(|| ScramKeys::decoy(hash, &rules.users.decoy_secret, user))
    }

    /// The principal behind a user name whose identity was proven; nothing for one who is gone.
    #[must_use]
    pub fn principal(&self, user: &str) -> Option<Principal> {
        find(&self.rules(), user).map(|user| user.principal.clone())
    }

    /// Whether somebody who logged in earlier would still be let in.
    #[must_use]
    pub fn admits(&self, principal: &Principal) -> bool {
        self.rules().present(principal).is_some()
    }

    /// What a connection may do. Keep it with the connection; it follows reloads by itself.
    #[must_use]
    pub fn access(self: &Arc<Self>, principal: &Principal, client: &str, door: Door) -> Access {
        Access::new(self, principal, client, door)
    }

    /// One decision with its reason.
    #[must_use]
    pub fn may(&self, principal: &Principal, client: &str, action: Action, door: Door, topic: &str) -> Decision {
        self.view(principal, client, door).1.decide(action, topic)
    }

    /// The generation is read first: a view of newer rules under an older number is only renewed once too often.
    pub(crate) fn view(&self, principal: &Principal, client: &str, door: Door) -> (u64, Arc<View>) {
        let generation = self.generation();
        (generation, self.rules().view(principal, client, door))
    }

    /// Waits for a turn to verify: each takes 7 MiB and a core.
    fn turn(&self) -> Result<Turn<'_>, Refused> {
        let mut checks = self.checks.lock().unwrap_or_else(PoisonError::into_inner);
        if checks.running >= self.running_max {
            if checks.waiting >= WAITING_MAX {
                return Err(Refused::Busy);
            }
            checks.waiting += 1;
            while checks.running >= self.running_max {
                checks = self.check_ended.wait(checks).unwrap_or_else(PoisonError::into_inner);
            }
            checks.waiting -= 1;
        }
        checks.running += 1;
        Ok(Turn(self))
    }
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").field("generation", &self.generation()).finish_non_exhaustive()
    }
}

/// A running verification.
struct Turn<'a>(&'a Authority);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.checks.lock().unwrap_or_else(PoisonError::into_inner).running -= 1;
        self.0.check_ended.notify_one();
    }
}

fn find<'a>(rules: &'a Rules, user: &str) -> Option<&'a Arc<User>> {
    let prepared = prepare_text(user)?;
    rules.users.get(&prepared).filter(|user| !user.disabled)
}
