//! The files of the other broker: those of the command line, and those that mosquitto.conf and its `include_dir` name.

use std::cmp::Ordering;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::bridges::Bridges;
use super::read_text;
use super::report::Report;
use crate::exit::{Failure, Status};

/// Keys of mosquitto.conf whose files are imported.
const FILES: [&str; 4] = ["acl_file", "password_file", "psk_file", "plugin_opt_config_file"];
/// The plugin whose file is imported, by a part of its path.
const DYNAMIC: &str = "dynamic_security";
/// The key of a directory of further files.
const INCLUDE: &str = "include_dir";
/// How the names of these files end.
const ENDING: &[u8] = b".conf";

/// The files of the other broker.
pub(super) struct Given {
    pub(super) acl: Option<PathBuf>,
    pub(super) dynamic: Option<PathBuf>,
    pub(super) passwords: Option<PathBuf>,
    pub(super) psk: Option<PathBuf>,
}

/// A file with lines of mosquitto.conf.
pub(super) struct Conf {
    pub(super) bridges: Bridges,
    pub(super) report: Report,
}

impl Given {
    pub(super) const fn is_empty(&self) -> bool {
        self.acl.is_none() && self.dynamic.is_none() && self.passwords.is_none() && self.psk.is_none()
    }

    /// Takes the files that mosquitto.conf and the files of its directories name, and returns the bridges of each.
    /// Other lines are reported as ignored.
    pub(super) fn take_from(&mut self, file: &Path) -> Result<Vec<Conf>, Failure> {
        let (main, directories) = self.take_lines(file)?;
        let mut confs = vec![main];
        for directory in directories {
            for file in conf_files(&directory).map_err(|error| Failure::io(directory.display(), &error))? {
                let (mut conf, further) = self.take_lines(&file)?;
                if !further.is_empty() {
                    // mosquitto.conf(5): so there is no circle either.
                    conf.report.lost(0, "its include_dir is ignored, as by Mosquitto: only the main file has one");
                }
                confs.push(conf);
            }
        }
        if self.is_empty()
            && confs.iter().all(|conf| conf.bridges.is_empty())
            && let Some(main) = confs.first_mut()
        {
            main.report.lost(0, format!("it names none of {}", FILES.join(", ")));
        }
        Ok(confs)
    }

    /// Takes the lines of one file, and returns the directories that it includes.
    fn take_lines(&mut self, file: &Path) -> Result<(Conf, Vec<PathBuf>), Failure> {
        let (mut bridges, mut report, mut directories) = (Bridges::default(), Report::new(file), Vec::new());
        let beside = file.parent().unwrap_or(Path::new(""));
        let mut of_dynamic = false;
        for (index, line) in read_text(file)?.lines().enumerate() {
            let line = line.trim();
            let (key, value) = line.split_once([' ', '\t']).map_or((line, ""), |(key, value)| (key, value.trim()));
            if key.is_empty() || key.starts_with('#') || bridges.take(index + 1, key, value, &mut report) {
                continue;
            }
            if value.is_empty() && (FILES.contains(&key) || key == INCLUDE) {
                let message = format!("{}:{}: {key} has no value", file.display(), index + 1);
                return Err(Failure::new(Status::DataErr, message));
            }
            let target = match key {
                INCLUDE => {
                    directories.push(beside.join(value));
                    continue;
                }
                "acl_file" => &mut self.acl,
                "password_file" => &mut self.passwords,
                "psk_file" => &mut self.psk,
                "plugin" | "global_plugin" | "plugin_load" if value.contains(DYNAMIC) => {
                    of_dynamic = true;
                    continue;
                }
                "plugin_opt_config_file" if of_dynamic => &mut self.dynamic,
                other => {
                    report.lost(index + 1, format!("{other} is not imported; see config/fogmux.toml"));
                    continue;
                }
            };
            if target.is_some() {
                report.lost(index + 1, "another file was named before");
            } else {
                *target = Some(beside.join(value));
            }
        }
        Ok((Conf { bridges, report }, directories))
    }
}

impl Conf {
    /// The report, with the bridges that do not become links.
    pub(super) fn without_links(&self) -> Report {
        let mut report = self.report.clone();
        for line in self.bridges.lines() {
            report.lost(line, "--links FILE writes this bridge as a link, such as to conf.d/links.toml");
        }
        report
    }
}

/// The files of an `include_dir` in the order in which Mosquitto reads them.
fn conf_files(directory: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let name = entry?.file_name();
        if name.len() > ENDING.len() && name.as_bytes().ends_with(ENDING) {
            files.push(name);
        }
    }
    files.sort_by(|a, b| in_order(a.as_bytes(), b.as_bytes()));
    Ok(files.into_iter().map(|name| directory.join(name)).collect())
}

/// The order of mosquitto.conf(5): alphabetical, and the upper case of a letter before its lower case.
fn in_order(a: &[u8], b: &[u8]) -> Ordering {
    let key = |byte: &u8| (byte.to_ascii_uppercase(), *byte);
    a.iter().map(key).cmp(b.iter().map(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of mosquitto.conf(5).
    #[test]
    fn included_files_are_in_the_order_of_mosquitto() {
        let home = tempfile::tempdir().unwrap();
        for name in ["b.conf", "A.conf", "01.conf", "a.conf", "B.conf", "00.conf", ".conf", "c.conf.bak", "d.CONF"] {
            std::fs::write(home.path().join(name), "").unwrap();
        }
        let names: Vec<_> =
            conf_files(home.path()).unwrap().into_iter().map(|file| file.file_name().unwrap().to_owned()).collect();
        assert_eq!(names, ["00.conf", "01.conf", "A.conf", "a.conf", "B.conf", "b.conf"]);
        assert!(conf_files(&home.path().join("none")).is_err());
    }
}
