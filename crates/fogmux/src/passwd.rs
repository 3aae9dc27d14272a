//! `fogmux passwd`: adds, changes, disables or removes a user.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use fogmux_auth::{UserError, Users};

use crate::admin_password::{self, ADMIN};
use crate::cli::Passwd;
use crate::exit::{Failure, Status};
use crate::installed::{self, Found};
use crate::{data, terminal};

/// Runs the command and tells when a running gateway applies the change.
pub(crate) fn run(arguments: &Passwd) -> Result<(), Failure> {
    let found = installed::find(&arguments.files)?;
    let file = users_file(&found)?;
    if arguments.delete {
        remove(&file, &arguments.user)?;
        forget_first(&arguments.user, &found);
        return Ok(());
    }
    if arguments.disable || arguments.enable {
        return set_disabled(&file, &arguments.user, arguments.disable);
    }
    let password = password()?;
    let groups: Vec<_> = arguments.groups.iter().map(String::as_str).collect();
    let changed = Users::update(&file, |users| {
        users.set_password(&arguments.user, password.as_bytes())?;
        if !groups.is_empty() {
            users.set_groups(&arguments.user, &groups)?;
        }
        Ok(users.is_disabled(&arguments.user))
    });
    let disabled = changed.map_err(|error| failed(&file, error))?;
    forget_first(&arguments.user, &found);
    let may = if disabled { "has a new password and stays disabled until --enable" } else { "may log in" };
    eprintln!("{}: {} {may}; a running gateway notices within seconds", file.display(), arguments.user);
    Ok(())
}

/// Deletes the administrator's first password once another is set.
fn forget_first(user: &str, found: &Found) {
    if user == ADMIN
        && let Ok(directory) = found.directory()
    {
        admin_password::delete(&directory);
    }
}

fn remove(file: &Path, user: &str) -> Result<(), Failure> {
    let removed = Users::update(file, |users| Ok(users.remove(user))).map_err(|error| failed(file, error))?;
    if !removed {
        return Err(Failure::new(Status::DataErr, format!("{}: there is no user {user:?}", file.display())));
    }
    eprintln!("{}: {user} is removed; a running gateway notices within seconds", file.display());
    Ok(())
}

fn set_disabled(file: &Path, user: &str, disabled: bool) -> Result<(), Failure> {
    let changed = Users::update(file, |users| users.set_disabled(user, disabled));
    changed.map_err(|error| match error {
        UserError::Unknown => Failure::new(Status::DataErr, unknown(file, user, disabled)),
        error @ (UserError::Name
        | UserError::Link
        | UserError::Psk
        | UserError::Password(_)
        | UserError::File(_)
        | UserError::Io(_)) => failed(file, error),
    })?;
    let may = if disabled { "may no longer" } else { "may" };
    eprintln!("{}: {user} {may} log in; a running gateway notices within seconds", file.display());
    Ok(())
}

/// A user without a password may have other credentials.
fn unknown(file: &Path, user: &str, disabled: bool) -> String {
    let file = file.display();
    let hint = "; to refuse certificates, keys and tokens of that name, add an entry with disabled = true";
    format!("{file}: there is no user {user:?}{}", if disabled { hint } else { "" })
}

/// Puts the user of a device into groups, before the device has its credential. Without groups nothing changes.
pub(crate) fn enrol(user: &str, groups: &[String], found: &Found) -> Result<(), Failure> {
    if groups.is_empty() {
        return Ok(());
    }
    let groups: Vec<_> = groups.iter().map(String::as_str).collect();
    let file = users_file(found)?;
    Users::update(&file, |users| users.enrol(user, &groups)).map_err(|error| failed(&file, error))?;
    eprintln!("{}: {user} is in {}", file.display(), groups.join(", "));
    Ok(())
}

fn users_file(found: &Found) -> Result<PathBuf, Failure> {
    match &found.config.auth.users_file {
        Some(file) => Ok(file.clone()),
        None => Ok(found.writable()?.join(data::USERS)),
    }
}

/// Why a users or keys file was not changed.
pub(crate) fn failed(file: &Path, error: UserError) -> Failure {
    match error {
        UserError::Io(error) => Failure::io(file.display(), &error),
        UserError::File(problems) => Failure::new(Status::Config, problems),
        error @ (UserError::Name | UserError::Link | UserError::Unknown | UserError::Psk | UserError::Password(_)) => {
            Failure::new(Status::DataErr, error)
        }
    }
}

/// Asks twice on a terminal, without echo; otherwise reads the first line of standard input.
fn password() -> Result<String, Failure> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        let mut line = String::new();
        stdin.lock().read_line(&mut line).map_err(|error| Failure::io("standard input", &error))?;
        return Ok(line.trim_end_matches(['\n', '\r']).to_owned());
    }
    let first = hidden("Password: ")?;
    if first != hidden("Again: ")? {
        return Err(Failure::new(Status::DataErr, "the passwords do not match"));
    }
    Ok(first)
}

fn hidden(prompt: &str) -> Result<String, Failure> {
    let failed = |error| Failure::io("the terminal", &error);
    eprint!("{prompt}");
    std::io::stderr().flush().map_err(failed)?;
    let _quiet = terminal::silence();
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).map_err(failed)?;
    eprintln!();
    Ok(line.trim_end_matches(['\n', '\r']).to_owned())
}
