//! The data directory of a gateway, and its creation at the first start: an authority with a certificate, and an
//! administrator with a random password.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fogmux_auth::{AnonymousPolicy, Rules, Sources, Users};
use fogmux_net::pki::{self, PkiError};
use fogmux_net::{ClientCertificates, ClientTrust, KeyKind, TlsConfig};

use crate::acme;
use crate::admin_password::{ADMIN, FILE as ADMIN_PASSWORD};
use crate::callback;
use crate::client::password_from;
use crate::config::{Config, Listener, Tls};
use crate::exit::{Failure, OrFail as _, Status};
use crate::pki::status;
use crate::{clock, data, disk};

/// A prepared data directory.
#[derive(Debug)]
pub(crate) struct Home {
    pub(crate) directory: PathBuf,
    /// The authority for clients to trust; `None` if the operator has configured a certificate.
    pub(crate) authority: Option<PathBuf>,
    /// `None` if a first start could not write keys to the disk: listeners that need TLS stay closed then.
    pub(crate) tls: Option<TlsConfig>,
    pub(crate) admin: Option<Admin>,
}

/// The administrator created by this start.
#[derive(Debug)]
pub(crate) struct Admin {
    pub(crate) user: &'static str,
    /// The file of the password.
    pub(crate) password_file: PathBuf,
}

/// Creates missing files. A disk that cannot be written does not keep the gateway from starting: everything that needs
/// no new file works.
pub(crate) fn prepare(config: &Config, directory: &Path) -> Result<Home, Failure> {
    match data::make(directory) {
        Err(error) if fogmux_store::is_unwritable(&error) => {
            tracing::error!(%error, directory = %directory.display(), "the data directory cannot be created");
        }
        made => made.map_err(|error| Failure::io(directory.display(), &error))?,
    }
    let directory = std::path::absolute(directory).map_err(|error| Failure::io(directory.display(), &error))?;
    // In a running gateway the previous list stays in force; at a start there is none.
    if let Some(file) = &config.tls.crl_file
        && !file.try_exists().map_err(|error| Failure::io(file.display(), &error))?
    {
        let file = file.display();
        return Err(Failure::new(
            Status::Config,
            format!("tls.crl_file: {file} does not exist; no certificate would be revoked"),
        ));
    }
    let made = go_on(certificate(config, &directory), "there is no certificate: TLS and DTLS listeners stay closed")?;
    let (tls, authority) = made.map_or((None, None), |(tls, authority)| (Some(tls), authority));
    warn_of_authority(config, &directory);
    let admin = go_on(administrator(config, &directory), "there are no users: nobody can log in with a password")?;
    Ok(Home { directory, authority, tls, admin: admin.flatten() })
}

/// Logs a failure caused by the disk, and continues without the result.
fn go_on<T>(done: Result<T, Failure>, consequence: &str) -> Result<Option<T>, Failure> {
    match done {
        Err(failure) if disk::caused(&failure) => {
            tracing::error!("{}; {consequence}", failure.message().unwrap_or_default());
            Ok(None)
        }
        done => done.map(Some),
    }
}

/// Prepares everything for handshakes except pre-shared keys: the operator's certificate, or the gateway's own, created
/// or renewed; others where a profile needs another key type; and the trust in client certificates.
pub(crate) fn certificate(config: &Config, directory: &Path) -> Result<(TlsConfig, Option<PathBuf>), Failure> {
    let (tls, authority) = match (&config.tls.certificate_file, &config.tls.key_file) {
        (Some(certificate), Some(key)) => {
            (TlsConfig::load(certificate, key).or_fail(Status::Config, "tls.certificate_file")?, None)
        }
        (Some(_), None) | (None, Some(_)) | (None, None) => {
            let (pki, names) = (directory.join(data::PKI), names(config));
            let now = time(config, directory, &pki, SystemTime::now());
            let made = ensure(&pki, KeyKind::EcdsaP256, &names, now)?;
            // A file that is damaged is so at the next start as well.
            let mut tls = TlsConfig::load(&made.certificate, &made.key).or_fail(Status::Config, OWN)?;
            for kind in other_keys(config) {
                let more = ensure(&pki, kind, &names, now)?;
                tls = tls.with_certificate(&more.certificate, &more.key).or_fail(Status::Config, OWN)?;
            }
            (tls, Some(made.ca))
        }
    };
    let own = match (&authority, &config.tls.client_ca_file) {
        (Some(own), _) => Some(own.clone()),
        (None, Some(_)) => None,
        // The operator's certificate for the gateway, the gateway's own authority for its clients.
        (None, None) => own_authority(config, directory)?,
    };
    let tls = own.iter().fold(tls, |tls, own| tls.with_own_authority(own));
    let tls = if config.acme.domains.is_empty() { tls } else { tls.with_named(&acme::files(directory).certificate) };
    let Some(believed) = config.tls.client_ca_file.clone().or(own) else { return Ok((tls, authority)) };
    let revoked = lists(config, directory);
    let clients = ClientTrust::load_with(&believed, &revoked, config.tls.crl_expiry)
        .or_fail(Status::Config, "client certificates")?;
    Ok((tls.with_clients(clients, config.tls.cut_revoked), authority))
}

/// Returns the file of revocation lists.
pub(crate) fn lists(config: &Config, directory: &Path) -> PathBuf {
    config.tls.crl_file.clone().unwrap_or_else(|| directory.join(data::REVOCATIONS))
}

const OWN: &str = "the gateway's own certificate";

/// Returns the time by which the gateway's own certificates are judged: the clock's, or if that is in the past, the one
/// at which they become valid. Clients have the right time, and would not accept others that are made by a wrong one.
fn time(config: &Config, directory: &Path, pki: &Path, now: SystemTime) -> SystemTime {
    let since_1970 = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let files = fs::read_dir(pki).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_server = |file: &PathBuf| {
        let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("server") && name.ends_with(".pem")
    };
    let dates = files.filter(is_server).flat_map(|file| pki::dates(&file).unwrap_or_default());
    let Some(valid_from) = dates.map(|dates| Duration::from_secs(dates.not_before_unix_s)).max() else { return now };
    if !clock::is_behind(since_1970, valid_from, &store(config, directory)) {
        return now;
    }
    let behind = (valid_from - since_1970).as_secs();
    tracing::warn!(
        "the clock is in the past, {behind} seconds or more: {OWN} becomes valid only later by it, and is kept"
    );
    UNIX_EPOCH + valid_from
}

/// Returns the directory of the store.
pub(crate) fn store(config: &Config, directory: &Path) -> PathBuf {
    config.store.path.clone().unwrap_or_else(|| directory.join(data::STORE))
}

/// Returns the gateway's own authority, for client certificates beside an operator's certificate. It is created if a
/// listener asks for client certificates. If the disk does not allow that, there is none, and listeners on which client
/// certificates are optional do not ask for them.
fn own_authority(config: &Config, directory: &Path) -> Result<Option<PathBuf>, Failure> {
    let asks = |tls: &Tls| tls.security().client_certificates != ClientCertificates::No;
    let listeners = config.listeners.each();
    let asked =
        listeners.filter(|(_, listener)| listener.enabled).any(|(_, listener)| listener.tls().is_some_and(asks));
    let found = data::found(directory.join(data::AUTHORITY))?;
    if found.is_some() || !asked {
        return Ok(found);
    }
    let directory = directory.join(data::PKI);
    let first = !directory.exists();
    let made = pki::Authority::open_or_make(&directory, SystemTime::now());
    match of_pki(made, "the gateway's own authority") {
        Ok(made) => {
            tracing::info!(file = %made.certificate().display(), "created an authority for client certificates");
            Ok(Some(made.certificate().to_owned()))
        }
        Err(failure) if disk::caused(&failure) => {
            if first {
                // The part that was written.
                let _ = fs::remove_dir_all(&directory);
            }
            tracing::error!("{}; client certificates are not asked for", failure.message().unwrap_or_default());
            Ok(None)
        }
        Err(failure) => Err(failure),
    }
}

/// Returns the failure with the status that `fogmux pki` and `check` give it.
fn of_pki<T>(done: Result<T, PkiError>, doing: &str) -> Result<T, Failure> {
    done.map_err(|error| {
        let status = status(&error);
        // Nothing was typed.
        let status = if matches!(status, Status::Usage | Status::DataErr) { Status::Config } else { status };
        Failure { status, error: anyhow::Error::new(error).context(doing.to_owned()) }
    })
}

/// Warns at the start of an authority that cannot sign: the certificates that it has signed are good for years, and end
/// all at once.
fn warn_of_authority(config: &Config, directory: &Path) {
    let directory = directory.join(data::PKI);
    if config.tls.certificate_file.is_some() || !directory.join("ca.pem").exists() {
        return;
    }
    if let Err(error) = pki::Authority::open(&directory) {
        tracing::error!("{error}; {OWN} cannot be renewed, and nothing can be issued or revoked, until this is mended");
    }
}

/// Creates or renews a certificate of the gateway's own. If renewal fails, the old certificate is used for as long as
/// it is valid, and beyond that if the disk does not allow renewal; if the disk does not allow creation, nothing
/// incomplete remains for the next start.
fn ensure(directory: &Path, kind: KeyKind, names: &[String], now: SystemTime) -> Result<pki::Pki, Failure> {
    let old = pki::Pki::of(directory, kind);
    let (first, had_one) = (!directory.exists(), old.certificate.exists());
    let failure = match of_pki(pki::ensure_server(directory, kind, names, now), OWN) {
        Ok(made) => {
            if made.renewed && !first && (had_one || kind == KeyKind::EcdsaP256) {
                tracing::warn!(
                    "{OWN} was missing, damaged or about to expire, and was made anew; an old one is kept beside it"
                );
            }
            return Ok(made);
        }
        Err(failure) => failure,
    };
    if first && disk::caused(&failure) {
        // The part that was written.
        let _ = fs::remove_dir_all(directory);
        return Err(failure);
    }
    let are_there = || [&old.ca, &old.certificate, &old.key].into_iter().all(|file| file.exists());
    if !(disk::caused(&failure) && are_there() || old.is_usable(now)) {
        return Err(failure);
    }
    tracing::error!("{}; the old one is used", failure.message().unwrap_or_default());
    Ok(old)
}

/// Returns the additional key types that profiles need.
fn other_keys(config: &Config) -> Vec<KeyKind> {
    let enabled = config.listeners.each().filter(|(_, listener)| listener.enabled);
    let mut kinds: Vec<_> = enabled.filter_map(|(_, listener)| listener.tls()?.profile.server_key).collect();
    kinds.retain(|kind| *kind != KeyKind::EcdsaP256);
    // The shorter first: it is used by profiles that require no more.
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

/// Returns the names of this gateway for clients, besides localhost and the host's name.
fn names(config: &Config) -> Vec<String> {
    let addresses = config.listeners.each().flat_map(|(_, listener)| &listener.addresses).map(SocketAddr::ip);
    let mut names = vec![config.xmpp_domain().to_owned()];
    // Clients that find it by multicast DNS connect to this name.
    names.extend(config.discovery.of_gateway().map(|discovery| format!("{}.local", discovery.host)));
    for ip in addresses.filter(|ip| !ip.is_loopback() && !ip.is_unspecified()).map(|ip| ip.to_string()) {
        if !names.contains(&ip) {
            names.push(ip);
        }
    }
    names
}

/// Returns the files of users and rules, and the policy for anonymous clients.
pub(crate) fn sources(config: &Config, directory: Option<&Path>) -> Result<Sources, Failure> {
    let directory = data::directory(directory)?;
    let acl = match &config.auth.acl_file {
        Some(file) => Some(file.clone()),
        None => data::found(directory.join(data::ACL))?,
    };
    Ok(Sources {
        users: Some(users_file(config, &directory)),
        acl,
        anonymous: anonymous(config),
        psk: Some(config.auth.psk_file.clone().unwrap_or_else(|| directory.join(data::PSK))),
        certificates: Some(config.auth.certificates_file.clone().unwrap_or_else(|| directory.join(data::CERTIFICATES))),
        certificate_users_only: config.auth.certificate_users_only,
        tokens: config.auth.token.settings(),
    })
}

/// Returns a listener that needs access rules, because it admits anonymous clients of other machines.
pub(crate) fn needs_rules(config: &Config) -> Option<&str> {
    let opens = |listener: &Listener| {
        let mut open = listener.addresses.iter().filter(|address| listener.lets_anonymous_in(**address));
        listener.enabled && open.any(|address| !address.ip().is_loopback())
    };
    config.listeners.each().find(|(_, listener)| opens(listener)).map(|(name, _)| name)
}

/// Returns the widest policy for anonymous clients of all listeners; each listener applies its own as well.
fn anonymous(config: &Config) -> AnonymousPolicy {
    let sockets = config.listeners.each().flat_map(|(_, one)| one.addresses.iter().map(move |at| (one, *at)));
    let open = sockets.filter(|(listener, address)| listener.lets_anonymous_in(*address));
    let policy = open.map(|(listener, address)| match address.ip().is_loopback() || !listener.enabled {
        true => AnonymousPolicy::Loopback,
        false => AnonymousPolicy::Everywhere,
    });
    policy.reduce(|a, b| if a == AnonymousPolicy::Everywhere { a } else { b }).unwrap_or(AnonymousPolicy::Never)
}

/// Reads users and rules.
pub(crate) fn rules(config: &Config, directory: &Path) -> Result<Rules, Failure> {
    let rules = Rules::load(&sources(config, Some(directory))?);
    let rules = rules.map_err(|problems| Failure::new(Status::Config, problems))?;
    Ok(rules.with_callback(callback::configured(&config.auth.callback)))
}

fn users_file(config: &Config, directory: &Path) -> PathBuf {
    config.auth.users_file.clone().unwrap_or_else(|| directory.join(data::USERS))
}

/// Creates a users file with an administrator if there is none.
fn administrator(config: &Config, directory: &Path) -> Result<Option<Admin>, Failure> {
    let file = users_file(config, directory);
    if data::found(file.clone())?.is_some() {
        let has_rules = || config.auth.acl_file.clone().unwrap_or_else(|| directory.join(data::ACL)).exists();
        // Without rules that user alone administers. A file with mistakes is for the rules to refuse.
        let lacks = || Users::load(&file).is_ok_and(|users| !users.contains(ADMIN)) && !has_rules();
        if !store(config, directory).exists() && lacks() {
            tracing::warn!(
                "no user administers this gateway: {} has no {ADMIN}, whom `fogmux passwd {ADMIN}` adds",
                file.display(),
            );
        }
        return Ok(None);
    }
    if store(config, directory).exists() || directory.join(ADMIN_PASSWORD).exists() {
        tracing::warn!(
            file = %file.display(),
            "there is no users file, though this data directory has been in use: its users cannot log in; a new one is \
             created, with a new administrator",
        );
    }
    let (password, password_file) = match &config.auth.admin_password_file {
        Some(named) => (password_from(named)?, named.clone()),
        None => {
            let password = random_password()?;
            let beside = directory.join(ADMIN_PASSWORD);
            let written = data::write_private(&beside, format!("{password}\n").as_bytes());
            written.or_fail(Status::IoErr, ADMIN_PASSWORD)?;
            (password, beside)
        }
    };
    let made = Users::update(&file, |users| {
        users.set_password(ADMIN, password.as_bytes())?;
        users.set_groups(ADMIN, &[ADMIN])
    });
    made.or_fail(Status::IoErr, "the users file").inspect_err(|_| {
        // The password belongs to no user.
        if config.auth.admin_password_file.is_none() {
            let _ = fs::remove_file(&password_file);
        }
    })?;
    Ok(Some(Admin { user: ADMIN, password_file }))
}

/// 120 bits in letters that are hard to confuse: no vowels, which form words, and no 0, 1 or l.
fn random_password() -> Result<String, Failure> {
    const LETTERS: &[u8; 32] = b"bcdfghjkmnpqrstvwxzBCDFGHJKLMNPQ";
    let mut bytes = [0; 24];
    getrandom::fill(&mut bytes)
        .map_err(|error| Failure::new(Status::IoErr, format!("cannot get random numbers: {error}")))?;
    let letters = bytes.iter().filter_map(|byte| LETTERS.get(usize::from(byte % 32)));
    Ok(letters.map(|letter| char::from(*letter)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Source, load};

    #[test]
    fn anonymous_access_beyond_loopback_needs_rules() {
        use AnonymousPolicy::{Everywhere, Loopback, Never};
        let remote = "[listeners.mqtts]\naddress = \"0.0.0.0:8883\"\nallow_remote_anonymous = true\n";
        let listeners = Config::default().listeners;
        let closed: String =
            listeners.each().map(|(name, _)| format!("[listeners.{name}]\nanonymous = false\n")).collect();
        let cases = [
            ("", Loopback),
            (&*closed, Never),
            (remote, Everywhere),
            (&format!("{remote}enabled = false\n"), Loopback),
        ];
        for (text, expected) in cases {
            let config = load(&[Source::new("f.toml", text)]).unwrap_or_else(|problems| panic!("{text}: {problems}"));
            assert_eq!(anonymous(&config), expected, "{text}");
            assert_eq!(needs_rules(&config).is_some(), expected == Everywhere, "{text}");
            let directory = tempfile::tempdir().unwrap();
            assert_eq!(rules(&config, directory.path()).is_ok(), expected != Everywhere, "{text}");
            fs::write(directory.path().join(data::ACL), "[[allow]]\nanonymous = true\nread = [\"open/#\"]\n").unwrap();
            assert!(rules(&config, directory.path()).is_ok(), "{text}");
        }
    }
}
