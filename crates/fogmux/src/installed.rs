//! The gateway whose files a command reads or changes: the one that its arguments name, else the one that is installed
//! as a service or that this container runs, else one of the user's own.
//!
//! A command never writes where the gateway that is meant would not read: if it cannot tell, it lists the choices and
//! ends.

use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use crate::check::read;
use crate::cli::Files;
use crate::config::Config;
use crate::data;
use crate::exit::{Failure, Status};

/// The configuration that the unit and the container image name, below the root.
const CONFIG: &str = "etc/fogmux/fogmux.toml";
/// The data directory of the unit, `StateDirectory=`, below the root.
const STATE: &str = "var/lib/fogmux";
/// The locations of the unit, below the root (systemd.unit(5)).
const UNITS: [&str; 3] =
    ["etc/systemd/system/fogmux.service", "usr/lib/systemd/system/fogmux.service", "lib/systemd/system/fogmux.service"];

/// The configuration of a gateway, and the location of its data directory.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) config: Config,
    pub(crate) located: Located,
}

/// The files of a gateway, of which none was read.
#[derive(Debug)]
pub(crate) struct Located {
    /// The configuration file; `None` for the built-in defaults.
    pub(crate) config: Option<PathBuf>,
    place: Place,
}

#[derive(Debug)]
enum Place {
    /// The command line or the environment names it, or it is the user's own.
    Named(Option<PathBuf>),
    /// The data directory of the service.
    Service(PathBuf),
}

/// Finds the gateway that the arguments mean, and reads its configuration.
pub(crate) fn find(files: &Files) -> Result<Found, Failure> {
    let located = locate(files)?;
    Ok(Found { config: read(located.config.as_deref(), &[])?, located })
}

/// Finds the gateway that the arguments mean.
pub(crate) fn locate(files: &Files) -> Result<Located, Failure> {
    let system = System { root: &files.root };
    let named = files.directory.clone();
    let service = system.service();
    // The service's own directory or configuration, named on the command line, means the service.
    let means_service = match (&named, &files.config) {
        (Some(directory), None) => is_same(directory, &system.state()),
        // systemd or the image has named the directory.
        (None, _) if is_set("STATE_DIRECTORY") => false,
        (None, Some(config)) => is_same(config, &system.config()),
        (None, None) => service.is_some(),
        (Some(_), Some(_)) => false,
    };
    if !means_service {
        // A container has the image's configuration, and STATE_DIRECTORY.
        let own =
            files.config.clone().or_else(|| named.is_none().then(|| system.config()).filter(|file| file.exists()));
        return Ok(Located { config: own, place: Place::Named(named) });
    }
    if let (None, None, Some(why)) = (&named, &files.config, &service)
        && let Ok(own) = data::default_directory()
        && own.exists()
    {
        let (state, own, why) = (system.state(), own.display(), why.display());
        return Err(Failure::new(
            Status::Usage,
            format!(
                "there are two gateways: {why} belongs to a service, whose data directory is {0}, and {own} is one \
                 of your own; choose with --data {0} or --data {own}",
                state.display()
            ),
        ));
    }
    let file = files.config.clone().unwrap_or_else(|| system.config());
    let there = file.try_exists().map_err(|error| Failure::io(file.display(), &error))?;
    let config = (there || files.config.is_some()).then_some(file);
    Ok(Located { config, place: Place::Service(system.state()) })
}

impl Located {
    /// Returns the data directory, whether or not it exists and this process may use it.
    pub(crate) fn directory(&self) -> Result<PathBuf, Failure> {
        match &self.place {
            Place::Named(named) => data::directory(named.as_deref()),
            Place::Service(state) => Ok(state.clone()),
        }
    }
}

impl Found {
    /// Returns the data directory. Whoever may not enter the service's, or write there, is told what to do.
    pub(crate) fn directory(&self) -> Result<PathBuf, Failure> {
        if let Place::Service(state) = &self.located.place {
            usable(state)?;
        }
        self.located.directory()
    }

    /// Returns the data directory, and creates it unless it is the service's, which the service manager creates.
    pub(crate) fn writable(&self) -> Result<PathBuf, Failure> {
        let directory = self.directory()?;
        data::create(&directory)?;
        Ok(directory)
    }
}

/// Checks that this process may use the service's directory.
fn usable(state: &Path) -> Result<(), Failure> {
    let shown = state.display();
    let other = "or name the data directory of another gateway with --data DIR";
    let refused = || {
        let error = format!("{shown} is the data directory of the service, and closed to you: use sudo, {other}");
        Failure::new(Status::NoPerm, error)
    };
    match fs::metadata(state) {
        Ok(_) => access(state, Access::EXEC_OK | Access::WRITE_OK).map_err(|_| refused()),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Err(refused()),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let error = format!(
                "fogmux is installed as a service, but its data directory {shown} does not exist; start it once \
                 (systemctl start fogmux), {other}"
            );
            Err(Failure::new(Status::Usage, error))
        }
        Err(error) => Err(Failure::io(shown, &error)),
    }
}

/// The system's files.
struct System<'a> {
    root: &'a Path,
}

impl System<'_> {
    fn config(&self) -> PathBuf {
        self.root.join(CONFIG)
    }

    fn state(&self) -> PathBuf {
        self.root.join(STATE)
    }

    /// Returns a file that shows that the service is installed.
    fn service(&self) -> Option<PathBuf> {
        let files = [CONFIG].into_iter().chain(UNITS).map(|file| self.root.join(file));
        // A file that may not be looked at is there.
        files.into_iter().find(|file| file.try_exists().unwrap_or(true))
    }
}

fn is_set(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|value| value != OsStr::new(""))
}

/// Returns whether both names lead to one file, or are equal.
fn is_same(a: &Path, b: &Path) -> bool {
    a == b || matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}
