//! Changes of users, rules and the log that administrators ask for while the gateway runs.
//!
//! The files belong to the process around the gateway. It takes one command after the other, between its reloads, so
//! that no two changes meet, and puts a change in place as a reload does.

#[cfg(feature = "http")]
pub mod bench;
#[cfg(feature = "http")]
mod download;
mod refusal;

use std::{
    path::{Path, PathBuf},
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

#[cfg(feature = "http")]
pub use download::{Download, Upload, download};
use fogmux_auth::{Action, Authority, Decision, Door, HashedPassword, Principal, Rules, SourceKind};
pub use refusal::{Answer, Refusal};
use tokio::sync::{mpsc, oneshot};

/// The topic that rules name to grant administration: to read it is to look, to write it is to change something.
pub(crate) const TOPIC: &str = "$fogmux/admin";
/// The user that the first start creates, with a password of its own.
const ADMIN: &str = "admin";
/// Commands that wait at most: people give few.
const COMMANDS_MAX: usize = 16;
/// The largest text of rules, in bytes: some ten thousand rules.
pub const RULES_BYTES_MAX: usize = 1 << 20;

/// The way of commands to the process around the gateway.
#[derive(Debug, Default)]
pub struct Administration {
    /// Whether users and rules may be changed.
    changes: AtomicBool,
    commands: OnceLock<mpsc::Sender<Command>>,
    /// The data directory, whose disk is shown.
    #[cfg_attr(not(feature = "http"), expect(dead_code, reason = "requests over HTTP ask for it"))]
    data: Option<PathBuf>,
}

/// A command of an administrator.
#[derive(Debug)]
pub enum Command {
    /// Reads the file of the access rules.
    ReadRules(Answer<RulesFile>),
    /// Replaces it.
    WriteRules(WriteRules, Answer<RulesFile>),
    /// Adds or changes a user. Answers whether it was added.
    PutUser(Box<PutUser>, Answer<bool>),
    /// Removes a user.
    DeleteUser(DeleteUser, Answer<()>),
    /// Asks for the filter of the log.
    LogFilter(Answer<String>),
    /// Sets it until the next start or reload.
    SetLogFilter(String, Requester, Answer<String>),
    /// Has a backup made and sent.
    #[cfg(feature = "http")]
    Backup(Requester, Answer<Download>),
    /// Has something to do with measurements.
    #[cfg(feature = "http")]
    Bench(Box<bench::BenchCommand>),
}

/// The file of the access rules.
#[derive(Debug)]
pub struct RulesFile {
    /// Its path.
    pub file: PathBuf,
    /// Its text; empty if there is none.
    pub text: String,
    /// Whether there is one.
    pub exists: bool,
    /// Why it cannot be changed.
    pub unchangeable: Option<String>,
}

impl RulesFile {
    /// The entity tag of its text. No file and an empty one differ: the one allows everything, the other nothing.
    #[must_use]
    pub fn tag(&self) -> u64 {
        fogmux_bus::etag(self.text.as_bytes(), self.exists.then_some("application/toml"))
    }
}

/// New access rules.
#[derive(Debug)]
pub struct WriteRules {
    /// The text.
    pub text: String,
    /// The tag of the text that it replaces.
    pub replaces: u64,
    /// The requester.
    pub by: Requester,
}

/// A change of a user.
#[derive(Debug)]
pub struct PutUser {
    /// The name.
    pub name: String,
    /// A new password.
    pub password: Option<HashedPassword>,
    /// The only groups from now on.
    pub groups: Option<Vec<String>>,
    /// Whether the user is shut out.
    pub disabled: Option<bool>,
    /// The requester.
    pub by: Requester,
}

/// The end of a user.
#[derive(Debug)]
pub struct DeleteUser {
    /// The name.
    pub name: String,
    /// The requester.
    pub by: Requester,
}

/// The client that asks for a change.
#[derive(Debug)]
pub struct Requester {
    /// The principal.
    pub principal: Principal,
    /// Whether it gives up its own right to administer if need be.
    pub force: bool,
}

impl Requester {
    /// Whether the requester still has the right that it was asked for when the request began: until its body has come,
    /// and commands before it are carried out, the right may have been taken back.
    ///
    /// # Errors
    /// [`Refusal::Forbidden`].
    pub fn check(&self, authority: &Authority) -> Result<(), Refusal> {
        let decision = authority.may(&self.principal, "", Action::Write, Door::Http, TOPIC);
        let may = authority.admits(&self.principal) && changes_access(&decision, &self.principal);
        if may { Ok(()) } else { Err(Refusal::Forbidden) }
    }

    /// Whether the change may be made as far as the requester is concerned: it could still take it back under these
    /// rules, or does not mind.
    #[must_use]
    pub fn accepts(&self, rules: &Rules) -> bool {
        let keeps = || {
            let decision = rules.would(&self.principal, Action::Write, Door::Http, TOPIC)?;
            Some(changes_access(&decision, &self.principal))
        };
        self.force || keeps() == Some(true)
    }
}

/// Whether a decision about [`TOPIC`] lets a principal administer the gateway; `local`: it is on this machine; `open`:
/// its listener admits anonymous clients there.
#[must_use]
pub(crate) fn administers(decision: &Decision, who: &Principal, local: bool, open: bool) -> bool {
    match (is_ruled(decision), who.anonymous) {
        (true, anonymous) => decision.allowed && (local || !anonymous),
        (false, true) => local,
        (false, false) => (who.source == SourceKind::Password && &*who.name == ADMIN) || (local && open),
    }
}

/// Whether a decision about [`TOPIC`] lets a principal change users and rules. That this machine may administer does
/// not count: any program on it could give itself rights that it has everywhere, and keeps.
#[must_use]
pub(crate) fn changes_access(decision: &Decision, who: &Principal) -> bool {
    !who.anonymous && administers(decision, who, false, false)
}

/// Whether a rule of the access file decided. Without an access file everybody may do everything, which is not meant
/// for administration.
pub(crate) fn is_ruled(decision: &Decision) -> bool {
    decision.rule.as_ref().is_some_and(|rule| rule.line() > 0)
}

impl Administration {
    /// Of a gateway whose data directory is named, and whose users and rules may be changed from its first request on,
    /// or not.
    #[must_use]
    pub fn new(changes: bool, data: PathBuf) -> Self {
        Self { changes: changes.into(), data: Some(data), ..Self::default() }
    }

    /// Begins to take commands; `None` if that was done before.
    pub fn open(&self) -> Option<mpsc::Receiver<Command>> {
        let (sender, commands) = mpsc::channel(COMMANDS_MAX);
        self.commands.set(sender).ok().map(|()| commands)
    }

    /// Allows or forbids to change users and rules.
    pub fn allow_changes(&self, allowed: bool) {
        self.changes.store(allowed, Relaxed);
    }

    /// Whether users and rules may be changed.
    #[must_use]
    pub fn allows_changes(&self) -> bool {
        self.changes.load(Relaxed)
    }

    /// The data directory, if there is one.
    #[cfg(feature = "http")]
    pub(crate) fn data(&self) -> Option<&Path> {
        self.data.as_deref()
    }

    /// Gives a command and waits for its answer.
    ///
    /// # Errors
    /// [`Refusal`]; [`Refusal::Busy`] also if nobody takes commands.
    pub async fn ask<T>(&self, command: impl FnOnce(Answer<T>) -> Command) -> Result<T, Refusal> {
        let (answer, answered) = oneshot::channel();
        let sent = self.commands.get().is_some_and(|commands| commands.try_send(command(answer)).is_ok());
        if !sent {
            return Err(Refusal::Busy);
        }
        answered.await.unwrap_or(Err(Refusal::Busy))
    }
}
