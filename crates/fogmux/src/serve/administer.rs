//! Commands of administrators: changes of the files of users and rules, and of the log's filter.
//!
//! They are carried out between reloads, and put in place as these are. A text is read by the code that reads the file
//! before it is written, so that a mistake changes neither the file nor what may be done.

use std::path::{Path, PathBuf};

use fogmux_auth::{Draft, EditError, Original, Problems, Rules, Sources, UserError, Users, UsersLock};
use fogmux_gateway::administration::{
    Command, DeleteUser, PutUser, RULES_BYTES_MAX, Refusal, Requester, RulesFile, WriteRules,
};

#[cfg(feature = "http")]
use fogmux_gateway::administration::Download;

use super::reload::Reloader;
#[cfg(feature = "http")]
use crate::backup::{control::Copies, send::Sent};
use crate::callback;
use crate::compose::Running;
use crate::data;
use crate::home;

/// The largest users file that is changed, in bytes: some ten thousand users.
const USERS_BYTES_MAX: u64 = 16 << 20;
/// The longest filter of the log, in bytes: some ten targets.
const FILTER_BYTES_MAX: usize = 1024;

impl Reloader {
    /// Carries out a command. Errors of an answer: nobody waits for it any more.
    pub(crate) fn administer(&mut self, running: &Running, command: Command) {
        match command {
            Command::ReadRules(answer) => drop(answer.send(self.read_rules().map(|(_, file)| file))),
            Command::WriteRules(write, answer) => drop(answer.send(self.write_rules(running, &write))),
            Command::PutUser(put, answer) => drop(answer.send(self.put_user(running, *put))),
            Command::DeleteUser(delete, answer) => drop(answer.send(self.delete_user(running, &delete))),
            Command::LogFilter(answer) => drop(answer.send(Ok(self.log.filter().to_owned()))),
            Command::SetLogFilter(filter, by, answer) => {
                drop(answer.send(by.check(&running.authority).and_then(|()| self.set_log_filter(&filter))));
            }
            #[cfg(feature = "http")]
            Command::Backup(by, answer) => drop(answer.send(self.backup(running, &by))),
            #[cfg(feature = "http")]
            Command::Bench(command) => {
                self.benches.command(&self.home.directory, &running.gateway.shared, *command);
            }
        }
    }

    #[cfg(feature = "http")]
    fn backup(&self, running: &Running, by: &Requester) -> Result<Download, Refusal> {
        by.check(&running.authority)?;
        let sent = Sent {
            config: self.config.clone(),
            file: self.config_file(),
            directory: self.home.directory.clone(),
            store: running.store(),
            copies: Copies::clone(&self.copies),
        };
        sent.begin()
    }

    fn sources(&self) -> Result<Sources, Refusal> {
        home::sources(&self.config, Some(&self.home.directory))
            .map_err(|failure| Refusal::Unchangeable(failure.message().unwrap_or_default()))
    }

    /// The file of the access rules: that of the configuration, else the one in the data directory, made there if need
    /// be.
    fn rules_path(&self, sources: &Sources) -> PathBuf {
        sources.acl.clone().unwrap_or_else(|| self.home.directory.join(data::ACL))
    }

    fn read_rules(&self) -> Result<(Original, RulesFile), Refusal> {
        let path = self.rules_path(&self.sources()?);
        let original = Original::read(&path, RULES_BYTES_MAX as u64).map_err(unchanged)?;
        let text = String::from_utf8(original.bytes().to_vec());
        let text = text.map_err(|_| Refusal::Unchangeable(format!("{}: not UTF-8", path.display())))?;
        // A file is made for this, which nobody needs where changes are switched off.
        let is_on = self.config.auth.api_changes;
        let unchangeable = if is_on { original.check().err().map(|error| error.to_string()) } else { None };
        let file = RulesFile { file: path, text, exists: original.exists(), unchangeable };
        Ok((original, file))
    }

    fn write_rules(&mut self, running: &Running, write: &WriteRules) -> Result<RulesFile, Refusal> {
        write.by.check(&running.authority)?;
        let (original, before) = self.read_rules()?;
        if before.tag() != write.replaces {
            return Err(Refusal::Changed);
        }
        let sources = Sources { acl: Some(before.file.clone()), ..self.sources()? };
        let rules = self.drafted(&sources, Draft::Acl(&write.text), &write.by)?;
        original.replace(write.text.as_bytes()).map_err(unchanged)?;
        self.put_rules_in_place(running, rules);
        Ok(RulesFile { text: write.text.clone(), exists: true, unchangeable: None, ..before })
    }

    fn put_user(&mut self, running: &Running, put: PutUser) -> Result<bool, Refusal> {
        let PutUser { name, password, groups, disabled, by } = put;
        self.change_users(running, &by, |users| {
            let is_new = !users.contains(&name);
            match password {
                Some(hashed) => users.set_hashed(&name, hashed)?,
                None if is_new => users.enrol(&name, &[])?,
                None => {}
            }
            if let Some(groups) = &groups {
                users.set_groups(&name, &groups.iter().map(String::as_str).collect::<Vec<_>>())?;
            }
            if let Some(disabled) = disabled {
                users.set_disabled(&name, disabled)?;
            }
            Ok(is_new)
        })
    }

    fn delete_user(&mut self, running: &Running, delete: &DeleteUser) -> Result<(), Refusal> {
        self.change_users(running, &delete.by, |users| {
            if users.remove(&delete.name) { Ok(()) } else { Err(UserError::Unknown) }
        })
    }

    /// Changes the users file under the lock that `fogmux passwd` takes as well.
    fn change_users<T>(
        &mut self,
        running: &Running,
        by: &Requester,
        change: impl FnOnce(&mut Users) -> Result<T, UserError>,
    ) -> Result<T, Refusal> {
        by.check(&running.authority)?;
        let sources = self.sources()?;
        let Some(path) = sources.users.clone() else { return Err(Refusal::Unchangeable("no users file".into())) };
        let original = Original::read(&path, USERS_BYTES_MAX).map_err(unchanged)?;
        original.check().map_err(unchanged)?;
        let _lock = UsersLock::try_take(&path).map_err(|error| {
            let is_held = error.kind() == std::io::ErrorKind::WouldBlock;
            if is_held { Refusal::Busy } else { Refusal::Unchangeable(format!("{}: {error}", path.display())) }
        })?;
        // Read again, now that nobody else may change it.
        let original = Original::read(&path, USERS_BYTES_MAX).map_err(unchanged)?;
        let mut users = parsed(&path, &original)?;
        let changed = change(&mut users).map_err(not_used)?;
        let text = users.to_text();
        let rules = self.drafted(&sources, Draft::Users(&text), by)?;
        original.replace(text.as_bytes()).map_err(unchanged)?;
        self.put_rules_in_place(running, rules);
        Ok(changed)
    }

    /// The rules as they would be, if they are valid and the requester could take them back.
    fn drafted(&self, sources: &Sources, draft: Draft<'_>, by: &Requester) -> Result<Rules, Refusal> {
        self.watch.check(sources).map_err(|failure| Refusal::Unchangeable(failure.message().unwrap_or_default()))?;
        let drafted = Rules::load_with(sources, Some(draft)).map_err(|problems| blame(sources, draft, problems))?;
        let rules = drafted.with_callback(callback::configured(&self.config.auth.callback));
        if by.accepts(&rules) { Ok(rules) } else { Err(Refusal::LosesAdministration) }
    }

    fn put_rules_in_place(&mut self, running: &Running, rules: Rules) {
        self.watch.put_in_place(running, rules, &self.config, &self.home);
    }

    fn set_log_filter(&mut self, filter: &str) -> Result<String, Refusal> {
        let unusable = |failure: crate::exit::Failure| Refusal::Unusable(failure.message().unwrap_or_default());
        if filter.len() > FILTER_BYTES_MAX {
            return Err(Refusal::Unusable(format!("a filter has at most {FILTER_BYTES_MAX} bytes")));
        }
        self.log.set_filter(filter).map_err(unusable)?;
        Ok(self.log.filter().to_owned())
    }
}

/// Mistakes of the draft are those of the requester; mistakes in other files keep a change from being made.
fn blame(sources: &Sources, draft: Draft<'_>, problems: Problems) -> Refusal {
    let of_acl = |file: &Path| Some(file) == sources.acl.as_deref();
    let is_own = matches!(draft, Draft::Acl(_)) && problems.0.iter().all(|problem| of_acl(&problem.file));
    if is_own { Refusal::Invalid(problems) } else { Refusal::Unchangeable(first(&problems)) }
}

fn parsed(path: &Path, original: &Original) -> Result<Users, Refusal> {
    if !original.exists() {
        return Ok(Users::default());
    }
    let text = std::str::from_utf8(original.bytes());
    let text = text.map_err(|_| Refusal::Unchangeable(format!("{}: not UTF-8", path.display())))?;
    Users::parse(path, text).map_err(|problems| Refusal::Unchangeable(first(&problems)))
}

fn first(problems: &Problems) -> String {
    problems.0.first().map(ToString::to_string).unwrap_or_default()
}

fn unchanged(error: EditError) -> Refusal {
    match error {
        EditError::Changed => Refusal::Changed,
        error @ EditError::Unchangeable { .. } => Refusal::Unchangeable(error.to_string()),
    }
}

fn not_used(error: UserError) -> Refusal {
    match error {
        UserError::Unknown => Refusal::Unknown,
        error @ (UserError::File(_) | UserError::Io(_)) => Refusal::Unchangeable(error.to_string()),
        error @ (UserError::Name | UserError::Link | UserError::Psk | UserError::Password(_)) => {
            Refusal::Unusable(error.to_string())
        }
    }
}
