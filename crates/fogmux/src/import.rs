//! `fogmux import mosquitto`: imports users, keys and rules of another broker and reports what it could not import.
//!
//! Nothing is written that would allow more than before: a `deny` rule that cannot be translated stops the import. All
//! is tried before anything is written, so that an import which fails leaves nothing behind.

mod acl;
mod bridges;
mod dynamic;
mod given;
mod keys;
mod report;
mod rules;

use std::path::{Path, PathBuf};

use fogmux_auth::{Acl, Psks, Users, replace_file};

use self::bridges::Links;
use self::given::{Conf, Given};
use self::report::Report;
use self::rules::Translated;
use crate::cli::{Import, ImportMosquitto};
use crate::exit::{Failure, Status};
use crate::output::say;
use crate::passwd::failed;
use crate::{data, home, installed};

/// Runs the import.
pub(crate) fn run(command: &Import) -> Result<(), Failure> {
    let Import::Mosquitto(arguments) = command;
    let mut given = Given {
        acl: arguments.acl.clone(),
        dynamic: arguments.dynamic_security.clone(),
        passwords: arguments.passwords.clone(),
        psk: arguments.psk.clone(),
    };
    let confs = match &arguments.file {
        Some(file) => given.take_from(file)?,
        None => Vec::new(),
    };
    if given.is_empty() && confs.is_empty() {
        let message = "nothing to import: name mosquitto.conf, or files with --acl, --dynamic-security, \
                       --passwords or --psk";
        return Err(Failure::new(Status::Usage, message));
    }
    // Without other files the report says line by line that nothing in it has a counterpart.
    let targets = if given.is_empty() { None } else { Some(Targets::find(arguments)?) };
    let all = |written: bool| {
        let (links, mut reports) = import_links(&confs, arguments, written)?;
        let mut done = match &targets {
            Some(targets) => import(&given, targets, arguments, written, &mut reports)?,
            None => Vec::new(),
        };
        done.extend(links);
        Ok::<_, Failure>((done, reports))
    };
    let mut outcome = all(false)?;
    if !arguments.dry_run {
        outcome = all(true)?;
    }
    let (done, reports) = outcome;
    tell(&done, &reports, arguments.json)
}

/// The files of this gateway.
struct Targets {
    users: PathBuf,
    acl: PathBuf,
    psk: PathBuf,
}

impl Targets {
    fn find(arguments: &ImportMosquitto) -> Result<Self, Failure> {
        let found = installed::find(&arguments.files)?;
        let directory = if arguments.dry_run { found.directory()? } else { found.writable()? };
        let config = found.config;
        let sources = home::sources(&config, Some(&directory))?;
        Ok(Self {
            users: sources.users.unwrap_or_else(|| directory.join(data::USERS)),
            acl: config.auth.acl_file.unwrap_or_else(|| directory.join(data::ACL)),
            psk: sources.psk.unwrap_or_else(|| directory.join(data::PSK)),
        })
    }
}

/// An imported part and its file.
struct Done {
    what: &'static str,
    count: usize,
    into: PathBuf,
    written: bool,
}

fn import(
    given: &Given,
    targets: &Targets,
    arguments: &ImportMosquitto,
    written: bool,
    reports: &mut Vec<Report>,
) -> Result<Vec<Done>, Failure> {
    let mut done = Vec::new();
    // The rules first: if they cannot be imported, no new user is admitted either.
    if given.acl.is_some() && given.dynamic.is_some() {
        let message = "an access file and one of dynamic security cannot become one file of rules; name one of them";
        return Err(Failure::new(Status::DataErr, message));
    }
    if let Some(file) = &given.acl {
        let mut report = Report::new(file);
        let translated = acl::translate(&read_text(file)?, &mut report);
        let count = import_acl(&translated, &targets.acl, (arguments.replace, written), report, reports)?;
        done.push(Done { what: "rules", count, into: targets.acl.clone(), written });
    }
    if let Some(file) = &given.dynamic {
        let mut report = Report::new(file);
        let dynamic = dynamic::translate(&read_text(file)?, &mut report)
            .map_err(|reason| Failure::new(Status::DataErr, format!("{}: {reason}", file.display())))?;
        let count = import_acl(&dynamic.rules, &targets.acl, (arguments.replace, written), report, reports)?;
        done.push(Done { what: "rules", count, into: targets.acl.clone(), written });
        let mut report = Report::new(file);
        let count = change_users(targets, written, |users| dynamic.add_to(users, arguments.replace, &mut report))?;
        done.push(Done { what: "users", count, into: targets.users.clone(), written });
        reports.push(report);
    }
    if let Some(file) = &given.passwords {
        let mut report = Report::new(file);
        let text = read_text(file)?;
        let mut unusable = false;
        let take = |users: &mut Users| {
            let count = keys::passwords(&text, users, arguments.replace, &mut report);
            unusable = keys::is_unusable(&text, users);
            count
        };
        let count = change_users(targets, written, take)?;
        if unusable {
            eprint!("{report}");
            let message = format!("{}: none of its lines is a user that can be imported", file.display());
            return Err(Failure::new(Status::DataErr, message));
        }
        done.push(Done { what: "users", count, into: targets.users.clone(), written });
        reports.push(report);
    }
    if let Some(file) = &given.psk {
        let mut report = Report::new(file);
        let text = read_text(file)?;
        let mut take = |psks: &mut Psks| keys::psks(&text, psks, arguments.replace, &mut report);
        let count = if written {
            Psks::update(&targets.psk, |psks| Ok(take(psks))).map_err(|error| failed(&targets.psk, error))?
        } else {
            take(&mut Psks::load(&targets.psk).map_err(|problems| Failure::new(Status::Config, problems))?)
        };
        done.push(Done { what: "pre-shared keys", count, into: targets.psk.clone(), written });
        reports.push(report);
    }
    Ok(done)
}

/// Writes bridges as links into the file that was named for them; returns the reports on the files that have them.
fn import_links(
    confs: &[Conf],
    arguments: &ImportMosquitto,
    written: bool,
) -> Result<(Option<Done>, Vec<Report>), Failure> {
    let has_bridges = confs.iter().any(|conf| !conf.bridges.is_empty());
    let Some(target) = arguments.links.as_deref().filter(|_| has_bridges) else {
        return Ok((None, confs.iter().map(Conf::without_links).collect()));
    };
    let target = std::path::absolute(target).map_err(|error| Failure::io(target.display(), &error))?;
    if target.exists() && !arguments.replace {
        let message = format!("{}: there is such a file; --replace overwrites it", target.display());
        return Err(Failure::new(Status::DataErr, message));
    }
    // The gateway has to read the passwords, and nobody else.
    let found = installed::find(&arguments.files)?;
    let directory = found.directory()?.join(data::LINKS);
    let (mut links, mut reports) = (Links::default(), Vec::new());
    for Conf { bridges, report } in confs {
        let mut report = report.clone();
        bridges.translate(&directory, &mut links, &mut report);
        reports.push(report);
    }
    let written = written && links.count > 0;
    if written {
        found.writable()?;
        data::create(&directory)?;
        for (name, password) in &links.passwords {
            write(&directory.join(name), password)?;
        }
        let is_new = !target.exists();
        write(&target, &format!("# Bridges of Mosquitto, as `fogmux import mosquitto` brought them.\n{}", links.toml))?;
        #[cfg(unix)]
        if is_new {
            use std::os::unix::fs::PermissionsExt as _;
            let mode = std::fs::Permissions::from_mode(0o644);
            std::fs::set_permissions(&target, mode).map_err(|error| Failure::io(target.display(), &error))?;
        }
    }
    if let Some(report) = reports.first_mut() {
        report.differs(0, "links take effect when the configuration has this file, at SIGHUP");
    }
    Ok((Some(Done { what: "links", count: links.count, into: target, written }), reports))
}

/// Changes the users' file, or only says what would be changed.
fn change_users(targets: &Targets, written: bool, mut take: impl FnMut(&mut Users) -> usize) -> Result<usize, Failure> {
    if written {
        return Users::update(&targets.users, |users| Ok(take(users))).map_err(|error| failed(&targets.users, error));
    }
    Ok(take(&mut Users::load(&targets.users).map_err(|problems| Failure::new(Status::Config, problems))?))
}

fn import_acl(
    translated: &Translated,
    target: &Path,
    (replace, written): (bool, bool),
    mut report: Report,
    reports: &mut Vec<Report>,
) -> Result<usize, Failure> {
    if translated.deny_lost {
        eprint!("{report}");
        let message = "a deny rule cannot be translated, so more would be allowed than before; nothing was written";
        return Err(Failure::new(Status::DataErr, message));
    }
    if let Some(line) = translated.no_line {
        eprint!("{report}");
        let message =
            format!("line {line} is none of an access file, which Mosquitto refuses, too; nothing was written");
        return Err(Failure::new(Status::DataErr, message));
    }
    Acl::parse(target, &translated.toml).map_err(|problems| Failure::new(Status::DataErr, problems))?;
    if target.exists() && !replace {
        let message = format!("{}: rules exist already; --replace overwrites them", target.display());
        return Err(Failure::new(Status::DataErr, message));
    }
    report.differs(0, "a user without a rule has no access, as in Mosquitto; this includes the administrator");
    reports.push(report);
    if written {
        write(target, &translated.toml)?;
    }
    Ok(translated.rules)
}

/// Writes everything or nothing.
fn write(target: &Path, text: &str) -> Result<(), Failure> {
    replace_file(target, text.as_bytes()).map_err(|error| Failure::io(target.display(), &error))
}

fn read_text(file: &Path) -> Result<String, Failure> {
    fogmux_file::read_to_string(file).map_err(|error| Failure::io(file.display(), &error))
}

fn tell(done: &[Done], reports: &[Report], json: bool) -> Result<(), Failure> {
    if json {
        let imported: Vec<_> = done
            .iter()
            .map(|done| {
                let into = done.into.display().to_string();
                serde_json::json!({"what": done.what, "count": done.count, "into": into, "written": done.written})
            })
            .collect();
        let notes: Vec<_> = reports.iter().flat_map(Report::to_json).collect();
        return say!("{}\n", serde_json::json!({"imported": imported, "notes": notes}));
    }
    for report in reports {
        say!("{report}")?;
    }
    for done in done {
        let verb = if done.written { "imported into" } else { "would go into" };
        say!("{} {} {verb} {}\n", done.count, done.what, done.into.display())?;
    }
    let lost = reports.iter().flat_map(Report::lost_lines).filter(|line| *line > 0).count();
    if lost > 0 {
        let lines = if lost == 1 { "line was" } else { "lines were" };
        say!("{lost} {lines} left out\n")?;
    }
    if done.iter().any(|done| done.written && done.what != "links") {
        say!("a running gateway notices within seconds\n")?;
    }
    Ok(())
}
