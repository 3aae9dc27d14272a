//! `fogmux check`: reports every error of a configuration at once.

mod dates;
pub(crate) mod directory;

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use fogmux_auth::{Acl, CertificateRules, Psks, SourceSet, Tokens, Users};
use fogmux_net::{ClientTrust, ListExpiry, TlsConfig, TlsError};

use crate::cli::{Check, Files};
use crate::config::{Config, Listener, Location, Problem, Problems, REFERENCE, load, sources};
use crate::data;
use crate::exit::{Failure, Status};
use crate::home;
use crate::installed;
use crate::memory_limit;
use crate::output::say;

/// Validates a file, or prints the reference configuration.
pub(crate) fn run(arguments: &Check) -> Result<(), Failure> {
    let Some(file) = &arguments.file else {
        return say!("{REFERENCE}");
    };
    let checked = read(Some(file), &[]).and_then(|config| {
        let directory = directory_of(arguments, file);
        let mut judged = of_files(&config, directory.as_deref());
        judged.add(dates::judge(&config, SystemTime::now()));
        let Judged { mut problems, tolerated, mut warnings, closed } = judged;
        match arguments.reload {
            true => warnings.extend(tolerated.iter().map(ToString::to_string)),
            false => problems.extend(tolerated),
        }
        if !problems.is_empty() {
            return Err(ReadError::Problems(Problems(problems)));
        }
        Ok(remarks(&config, directory.as_deref()).into_iter().chain(warnings).chain(closed).collect::<Vec<_>>())
    });
    match checked {
        Ok(warnings) if arguments.json => {
            say!("{}\n", serde_json::json!({"valid": true, "problems": [], "warnings": warnings}))?;
        }
        Ok(warnings) => {
            for warning in &warnings {
                say!("{}: warning: {warning}\n", file.display())?;
            }
            say!("{}: valid\n", file.display())?;
        }
        Err(ReadError::Problems(problems)) if arguments.json => {
            let list: Vec<_> = problems.0.iter().map(|problem| problem.to_json()).collect();
            say!("{}\n", serde_json::json!({"valid": false, "problems": list}))?;
            return Err(invalid(&problems));
        }
        Err(ReadError::Problems(problems)) => {
            say!("{problems}\n")?;
            return Err(invalid(&problems));
        }
        Err(ReadError::Unreadable(failure)) => return Err(failure),
    }
    Ok(())
}

/// Returns the data directory of the gateway that the file is for. Where there may be several, it is not known.
fn directory_of(arguments: &Check, file: &Path) -> Option<PathBuf> {
    let (directory, config) = (arguments.directory.clone(), Some(file.to_owned()));
    installed::locate(&Files { directory, config, root: "/".into() }).and_then(|located| located.directory()).ok()
}

/// Returns remarks on a valid configuration that probably has another effect than intended: the warnings of a start,
/// and notes on the files of credentials and rules, which are in the data directory – the default one if it is `None` –
/// unless the configuration names others.
pub(crate) fn remarks(config: &Config, directory: Option<&Path>) -> Vec<String> {
    let mut remarks = warnings(config, directory);
    remarks.extend(config.listeners.each().filter_map(|(name, listener)| silent_groups(name, listener)));
    remarks.extend(config.listeners.each().filter_map(|(name, listener)| no_logins(name, listener)));
    remarks.extend(nothing_told(config));
    remarks.extend(no_lists(config, directory));
    let file = |named: &Option<PathBuf>, name: &str| {
        named.clone().or_else(|| Some(data::directory(directory).ok()?.join(name)).filter(|file| file.is_file()))
    };
    if let Some(Ok(acl)) = file(&config.auth.acl_file, data::ACL).as_deref().map(Acl::load) {
        remarks.extend(acl.notes().iter().map(ToString::to_string));
    }
    if let Some(path) = file(&config.auth.psk_file, data::PSK)
        && let Ok(psks) = Psks::load(&path)
    {
        remarks.extend(psks.short_keys().map(|identity| {
            let identity = String::from_utf8_lossy(identity);
            format!("{}: the key of {identity:?} is shorter than 16 bytes (RFC 9257 §6)", path.display())
        }));
    }
    remarks
}

/// Remarks on a listener that answers requests to groups, and has nothing to tell at any of its addresses: what such an
/// answer shows is what a client without any credential may read.
fn silent_groups(name: &str, listener: &Listener) -> Option<String> {
    let is_silent = !listener.addresses.iter().any(|address| listener.lets_anonymous_in(*address));
    (listener.enabled && listener.multicast == Some(true) && is_silent).then(|| {
        format!(
            "listeners.{name}.multicast: no request to a group is answered, because clients without credentials are \
             admitted at none of its addresses"
        )
    })
}

/// Warns of a gateway that nobody can reach; its links pass messages on between other brokers.
fn nothing_listens(config: &Config) -> Option<String> {
    let is_silent = !config.listeners.each().any(|(_, listener)| listener.enabled);
    is_silent.then(|| "listeners: none is enabled, so only the brokers of links reach the gateway".to_owned())
}

/// Remarks on multicast DNS without a listener that other hosts reach.
fn nothing_told(config: &Config) -> Option<String> {
    let is_told = |listener: &Listener| {
        listener.enabled && listener.beyond_loopback().is_some() && listener.proxy_protocol != Some(true)
    };
    (config.discovery.mdns && !config.listeners.each().any(|(_, listener)| is_told(listener))).then(|| {
        "discovery.mdns: nothing is told, because no listener is reached from beyond this machine but by proxies"
            .to_owned()
    })
}

/// Remarks on a listener at which no credential is accepted.
fn no_logins(name: &str, listener: &Listener) -> Option<String> {
    let is_closed = listener.enabled && listener.auth == SourceSet::NONE;
    is_closed.then(|| format!("listeners.{name}.auth: no credential is accepted, so nobody can log in"))
}

/// Remarks on a policy for lists that have expired where there is no list.
fn no_lists(config: &Config, directory: Option<&Path>) -> Option<String> {
    let file = home::lists(config, &data::directory(directory).ok()?);
    let is_missing = matches!(file.try_exists(), Ok(false));
    (is_missing && config.tls.crl_expiry == ListExpiry::Refuse).then(|| {
        format!(
            "tls.crl_expiry: there is no revocation list ({}), and without one every certificate of the authority is \
             accepted",
            file.display()
        )
    })
}

/// Warns of proxies that are everybody.
fn proxies_of_all(config: &Config) -> Option<String> {
    let is_all =
        |network: &&String| network.rsplit_once('/').is_some_and(|(_, bits)| bits.trim_matches('0').is_empty());
    config.proxy.addresses.iter().find(is_all).map(|network| {
        format!(
            "proxy.addresses: {network:?} is every address, so each client is believed what it says of its own address, \
             and can avoid the limits and waiting times of an address"
        )
    })
}

/// Returns warnings about a configuration that grants more than it seems to or nothing at all, or marks that do not fit
/// the memory there is. `directory` is the data directory, or the default.
pub(crate) fn warnings(config: &Config, directory: Option<&Path>) -> Vec<String> {
    let marks = memory_limit::warnings(config, memory_limit::of_control_group());
    let warnings = [nothing_listens(config), open_to_all(config, directory), proxies_of_all(config)];
    warnings.into_iter().flatten().chain(marks).collect()
}

/// Warns of listeners that other hosts reach when there is no access file.
fn open_to_all(config: &Config, directory: Option<&Path>) -> Option<String> {
    let has_rules = config.auth.acl_file.is_some()
        || data::directory(directory).is_ok_and(|directory| directory.join(data::ACL).exists());
    let each = config.listeners.each();
    let open: Vec<&str> =
        each.filter(|(_, listener)| listener.enabled && !listener.is_loopback()).map(|(name, _)| name).collect();
    if has_rules || open.is_empty() {
        return None;
    }
    Some(format!(
        "listeners.{}: there is no {}, so every user, certificate, key and token that is let in may read and write \
         all topics; an access file says who may do what (auth.acl_file)",
        open.join(", listeners."),
        data::ACL,
    ))
}

/// The findings on the files of a configuration.
#[derive(Debug, Default)]
pub(crate) struct Judged {
    /// The problems for which a start or a reload would be refused.
    pub(crate) problems: Vec<Problem>,
    /// Problems with which a gateway starts, and takes its files at a reload.
    pub(crate) tolerated: Vec<Problem>,
    /// Problems to come.
    pub(crate) warnings: Vec<String>,
    /// Why the files of the data directory could not be judged.
    pub(crate) closed: Option<String>,
}

impl Judged {
    fn add(&mut self, more: Self) {
        let Self { problems, tolerated, warnings, closed } = more;
        self.problems.extend(problems);
        self.tolerated.extend(tolerated);
        self.warnings.extend(warnings);
        self.closed = self.closed.take().or(closed);
    }
}

/// Judges the files that a configuration names, and those of the data directory that stand in for files it does not
/// name. Their dates are left out.
pub(crate) fn of_files(config: &Config, directory: Option<&Path>) -> Judged {
    let mut judged = Judged { problems: problems_of_files(config, directory).0, ..Judged::default() };
    judged.add(directory.map(|directory| directory::judge(config, directory)).unwrap_or_default());
    judged
}

/// Returns the problems inside the files that a configuration names, and of what it needs in the data directory.
fn problems_of_files(config: &Config, directory: Option<&Path>) -> Problems {
    let mut problems = Vec::new();
    let mut note = |key: &str, found: fogmux_auth::Problems| {
        problems.extend(found.0.into_iter().map(|found| problem(key, found)));
    };
    if let Some(Err(found)) = config.auth.acl_file.as_deref().map(Acl::load) {
        note("auth.acl_file", found);
    }
    if let Some(Err(found)) = config.auth.users_file.as_deref().map(Users::load) {
        note("auth.users_file", found);
    }
    if let Some(Err(found)) = config.auth.psk_file.as_deref().map(Psks::load) {
        note("auth.psk_file", found);
    }
    if let Some(Err(found)) = config.auth.certificates_file.as_deref().map(CertificateRules::load) {
        note("auth.certificates_file", found);
    }
    if let Err(found) = Tokens::load(&config.auth.token.settings()) {
        note("auth.token", found);
    }
    problems_of_certificates(config, &mut note);
    problems.extend(lack_of_rules(config, directory));
    Problems(problems)
}

/// Returns a problem of a file that a key names, or would name if it were not at its usual place.
fn problem(key: &str, found: fogmux_auth::Problem) -> Problem {
    Problem {
        location: Some(Location { file: found.file, line: found.line }),
        key: key.to_owned(),
        found: found.message,
        accepted: String::new(),
    }
}

/// Finds anonymous access beyond loopback without access rules, which a start refuses.
fn lack_of_rules(config: &Config, directory: Option<&Path>) -> Option<Problem> {
    let name = home::needs_rules(config).filter(|_| config.auth.acl_file.is_none())?;
    let usual = data::directory(directory).ok()?.join(data::ACL);
    // A directory that is closed to this user may have one.
    let is_missing = matches!(data::found(usual.clone()), Ok(None));
    is_missing.then(|| Problem {
        location: Some(Location { file: usual, line: 0 }),
        key: format!("listeners.{name}.allow_remote_anonymous"),
        found: "anonymous access beyond loopback needs an access file that says what is allowed".to_owned(),
        accepted: "this file, another by auth.acl_file, or the data directory that has it by --data".to_owned(),
    })
}

/// Finds what a start would refuse in the files of `tls`.
fn problems_of_certificates(config: &Config, note: &mut dyn FnMut(&str, fogmux_auth::Problems)) {
    let tls = &config.tls;
    if let (Some(certificate), Some(key)) = (&tls.certificate_file, &tls.key_file) {
        let mut refuse = |key: &str, error: TlsError| note(key, of_file(certificate, error));
        match TlsConfig::load(certificate, key) {
            Ok(loaded) => {
                for (name, listener) in config.listeners.each() {
                    let profile = listener.tls().filter(|_| listener.enabled).map(|tls| tls.profile);
                    if let Some(Err(error)) = profile.map(|profile| loaded.certificate(profile)) {
                        refuse(&format!("listeners.{name}.profile"), error);
                    }
                }
            }
            Err(error) => {
                let of_key = matches!(&error, TlsError::File { file, .. } if file == key);
                refuse(if of_key { "tls.key_file" } else { "tls.certificate_file" }, error);
            }
        }
    }
    let lists = tls.crl_file.as_deref();
    if let Some(file) = lists.filter(|file| matches!(file.try_exists(), Ok(false))) {
        note("tls.crl_file", fogmux_auth::Problems::of_file(file, "does not exist; no certificate would be revoked"));
    }
    // Without a file of authorities the gateway has one of its own in the data directory.
    let read = match &tls.client_ca_file {
        Some(file) => ClientTrust::load_with(file, lists.unwrap_or(Path::new("")), tls.crl_expiry).map(drop),
        None => lists.map_or(Ok(()), ClientTrust::check_lists),
    };
    if let Err(error) = read {
        let of_lists = matches!(&error, TlsError::File { file, .. } if Some(&**file) == lists);
        let key = if of_lists { "tls.crl_file" } else { "tls.client_ca_file" };
        note(key, of_file(tls.client_ca_file.as_deref().or(lists).unwrap_or(Path::new("")), error));
    }
}

/// Returns the error as a problem of the file that it names, or of `file`.
fn of_file(file: &Path, error: TlsError) -> fogmux_auth::Problems {
    if let TlsError::File { file, why } = error {
        return fogmux_auth::Problems::of_file(&file, why);
    }
    fogmux_auth::Problems::of_file(file, error.to_string())
}

/// Why no configuration could be read.
#[derive(Debug)]
pub(crate) enum ReadError {
    /// The configuration has problems.
    Problems(Problems),
    /// A file cannot be read.
    Unreadable(Failure),
}

/// Reads files and command line into one configuration.
pub(crate) fn read(file: Option<&Path>, settings: &[String]) -> Result<Config, ReadError> {
    let sources = sources(file, settings)
        .map_err(|unreadable| ReadError::Unreadable(Failure::new(Status::Config, unreadable.to_string())))?;
    load(&sources).map_err(ReadError::Problems)
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Problems(problems) => {
                Self::new(Status::Config, format!("the configuration is invalid\n{problems}"))
            }
            ReadError::Unreadable(failure) => failure,
        }
    }
}

fn invalid(problems: &Problems) -> Failure {
    let count = problems.0.len();
    Failure::new(Status::Config, if count == 1 { "1 problem".to_owned() } else { format!("{count} problems") })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Source;

    const LINK_ALONE: &str = "[listeners.defaults]\nenabled = false\n[links.north]\nurl = \"mqtts://north.example\"\n\
                              out = [{ filter = \"#\" }]\n";

    #[test]
    fn what_has_another_effect_than_intended_is_remarked() {
        let directory = tempfile::tempdir().unwrap();
        let said = |text: &str| {
            let config = load(&[Source::new("f.toml", text)]).unwrap_or_else(|problems| panic!("{text}: {problems}"));
            remarks(&config, Some(directory.path())).join("\n")
        };
        assert_eq!(said(""), "");
        for (text, key) in [
            ("[proxy]\naddresses = [\"192.0.2.1\", \"0.0.0.0/0\"]\n", "proxy.addresses"),
            ("[proxy]\naddresses = [\"::/00\"]\n", "proxy.addresses"),
            ("[listeners.mqtts]\nauth = []\n", "listeners.mqtts.auth"),
            ("[tls]\ncrl_expiry = \"refuse\"\n", "tls.crl_expiry"),
            ("[discovery]\nmdns = true\n", "discovery.mdns"),
            (LINK_ALONE, "listeners: none is enabled"),
        ] {
            assert!(said(text).starts_with(key), "{text}: {}", said(text));
        }
        for text in ["[proxy]\naddresses = [\"10.0.0.0/8\", \"192.0.2.0/10\"]\n", "[tls]\ncrl_expiry = \"warn\"\n"] {
            assert_eq!(said(text), "", "{text}");
        }
        let told = said("[discovery]\nmdns = true\n[listeners.mqtts]\naddress = \"0.0.0.0:8883\"\n");
        assert!(!told.contains("discovery"), "{told}");
        std::fs::create_dir(directory.path().join(data::PKI)).unwrap();
        std::fs::write(directory.path().join(data::REVOCATIONS), "").unwrap();
        assert_eq!(said("[tls]\ncrl_expiry = \"refuse\"\n"), "");
    }
}
