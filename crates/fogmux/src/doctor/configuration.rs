//! The configuration, as `fogmux check` reads it.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::finding::Report;
use crate::check::directory::OSCORE;
use crate::check::{self, ReadError};
use crate::config::{Config, Problems};
use crate::modes::quoted;

/// The parts that are not examined without the right to read the configuration and the files that it names.
const AS_ROOT: &str = "listeners, rules and certificates are examined as root only";

/// Returns it if it can be examined: it is valid itself, and this user may read the files that it names.
pub(super) fn examine(file: Option<&Path>, directory: &Path, report: &mut Report) -> Option<Config> {
    let named = file.map_or_else(|| "the built-in defaults".to_owned(), |file| file.display().to_string());
    let mend = file.map(|file| format!("fogmux check {}", quoted(file))).unwrap_or_default();
    let owner = std::fs::metadata(directory).map(|found| found.uid());
    let foreign = owner.ok() != Some(rustix::process::geteuid().as_raw());
    let mut refuse = |problems: Problems| {
        for problem in problems.0 {
            if foreign && is_refused(&problem.found) {
                report.unknown("configuration", format!("{problem}; {AS_ROOT}"));
            } else {
                report.problem("configuration", problem.to_string(), mend.as_str());
            }
        }
    };
    let config = match check::read(file, &[]) {
        Ok(config) => config,
        Err(ReadError::Problems(problems)) => {
            refuse(problems);
            return None;
        }
        Err(ReadError::Unreadable(failure)) => {
            let said = failure.message().unwrap_or_default();
            if foreign && is_refused(&said) {
                report.unknown("configuration", format!("{said}; {AS_ROOT}"));
            } else {
                report.problem("configuration", said, mend);
            }
            return None;
        }
    };
    let mut judged = check::of_files(&config, Some(directory));
    // The others are examined with the certificates.
    judged.problems.extend(judged.tolerated.into_iter().filter(|problem| problem.key == OSCORE));
    let is_hidden = foreign && judged.problems.iter().any(|problem| is_refused(&problem.found));
    let is_refused = !judged.problems.is_empty();
    refuse(Problems(judged.problems));
    if let Some(closed) = judged.closed {
        report.unknown("configuration", closed);
    }
    if is_refused {
        return (!is_hidden).then_some(config);
    }
    report.ok("configuration", format!("{named}: valid"));
    for remark in check::remarks(&config, Some(directory)) {
        report.warning("configuration-remark", remark, "");
    }
    Some(config)
}

/// Whether a problem is that a file may not be read. Another user than the gateway's cannot tell whether that one may.
fn is_refused(found: &str) -> bool {
    found.contains(&std::io::Error::from(rustix::io::Errno::ACCESS).to_string())
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    #[test]
    fn what_another_user_than_the_gateways_may_not_read_is_unknown() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("fogmux.toml");
        let examined = |text: &str| {
            std::fs::write(&file, text).unwrap();
            let mut report = Report::default();
            assert!(examine(Some(&file), home.path(), &mut report).is_none());
            report.worst()
        };
        assert_eq!(examined("[tls]\nkey_file = \"/nowhere\"\n"), Level::Problem);
        let denied = std::io::Error::from_raw_os_error(13);
        assert!(is_refused(&format!("/etc/key.pem: {denied}")) && !is_refused("/etc/key.pem: No such file"));
        // Root may read everything.
        let key = home.path().join("key.pem");
        std::fs::write(&key, "x").unwrap();
        std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o000)).unwrap();
        if std::fs::File::open(&key).is_err() {
            let text = format!("[tls]\ncertificate_file = \"{0}\"\nkey_file = \"{0}\"\n", key.display());
            assert_eq!(examined(&text), Level::Problem, "the gateway's own user");
        }
    }
}
