//! What a gateway finds in its data directory, and what the first start puts there: an authority with a certificate, and
//! an administrator with a random password.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use fogmux_auth::{AnonymousPolicy, Rules, Sources, Users};
use fogmux_net::{TlsConfig, pki};

use crate::client::password_from;
use crate::config::Config;
use crate::data;
use crate::exit::{Failure, OrFail as _, Status};

/// The user that the first start makes.
const ADMIN: &str = "admin";
/// Where its password is left, for its owner only.
const ADMIN_PASSWORD: &str = "admin-password";

/// A data directory that is ready.
#[derive(Debug)]
pub(crate) struct Home {
    pub(crate) directory: PathBuf,
    /// The authority that clients are to trust; none when the operator brought a certificate.
    pub(crate) authority: Option<PathBuf>,
    pub(crate) tls: TlsConfig,
    pub(crate) admin: Option<Admin>,
}

/// The administrator whom this start made.
#[derive(Debug)]
pub(crate) struct Admin {
    pub(crate) user: &'static str,
    /// Where the password is.
    pub(crate) password_file: PathBuf,
}

/// Makes what is missing.
pub(crate) fn prepare(config: &Config, directory: &Path) -> Result<Home, Failure> {
    data::create(directory)?;
    let directory = std::path::absolute(directory).map_err(|error| Failure::io(directory.display(), &error))?;
    let (tls, authority) = certificate(config, &directory)?;
    let admin = administrator(config, &directory)?;
    Ok(Home { directory, authority, tls, admin })
}

/// The operator's certificate, or our own, made or renewed.
pub(crate) fn certificate(config: &Config, directory: &Path) -> Result<(TlsConfig, Option<PathBuf>), Failure> {
    if let (Some(certificate), Some(key)) = (&config.tls.certificate_file, &config.tls.key_file) {
        let tls = TlsConfig::load(certificate, key).or_fail(Status::Config, "tls.certificate_file")?;
        return Ok((tls, None));
    }
    let made = pki::ensure(&directory.join(data::PKI), &names(config), SystemTime::now());
    let made = made.or_fail(Status::IoErr, "the gateway's own certificate")?;
    let tls = TlsConfig::load(&made.certificate, &made.key).or_fail(Status::IoErr, "the gateway's own certificate")?;
    Ok((tls, Some(made.ca)))
}

/// What clients call this gateway, beside localhost and the host's name.
fn names(config: &Config) -> Vec<String> {
    let addresses = config.listeners.each().into_iter().map(|(_, listener)| listener.address.ip());
    let mut names = vec![config.xmpp_domain().to_owned()];
    names.extend(addresses.filter(|ip| !ip.is_loopback() && !ip.is_unspecified()).map(|ip| ip.to_string()));
    names.dedup();
    names
}

/// Where users and rules are, and who is let in without credentials.
pub(crate) fn sources(config: &Config, directory: Option<&Path>) -> Result<Sources, Failure> {
    let directory = data::directory(directory)?;
    let acl = match &config.auth.acl_file {
        Some(file) => Some(file.clone()),
        None => Some(directory.join(data::ACL)).filter(|file| file.exists()),
    };
    let anonymous = config.listeners.each().into_iter().any(|(_, listener)| listener.lets_anonymous_in());
    Ok(Sources {
        users: Some(users_file(config, &directory)),
        acl,
        // Each listener says for itself; this is whether any of them may.
        anonymous: if anonymous { AnonymousPolicy::Loopback } else { AnonymousPolicy::Never },
    })
}

/// Users and rules as the files have them now.
pub(crate) fn rules(config: &Config, directory: &Path) -> Result<Rules, Failure> {
    Rules::load(&sources(config, Some(directory))?).map_err(|problems| Failure::new(Status::Config, problems))
}

fn users_file(config: &Config, directory: &Path) -> PathBuf {
    config.auth.users_file.clone().unwrap_or_else(|| directory.join(data::USERS))
}

/// On first start, when there is no users file: one with an administrator in it.
fn administrator(config: &Config, directory: &Path) -> Result<Option<Admin>, Failure> {
    let file = users_file(config, directory);
    if file.exists() {
        return Ok(None);
    }
    let (password, password_file) = match &config.auth.admin_password_file {
        Some(named) => (password_from(named)?, named.clone()),
        None => {
            let password = random_password()?;
            let beside = directory.join(ADMIN_PASSWORD);
            leave(&beside, &password).map_err(|error| Failure::io(beside.display(), &error))?;
            (password, beside)
        }
    };
    let made = Users::update(&file, |users| {
        users.set_password(ADMIN, password.as_bytes())?;
        users.set_groups(ADMIN, &[ADMIN])
    });
    made.or_fail(Status::IoErr, "the users file")?;
    Ok(Some(Admin { user: ADMIN, password_file }))
}

/// 120 bits in letters that nobody confuses: neither vowels, which make words, nor 0, 1, l, which look alike.
fn random_password() -> Result<String, Failure> {
    const LETTERS: &[u8; 32] = b"bcdfghjkmnpqrstvwxzBCDFGHJKLMNPQ";
    let mut bytes = [0; 24];
    getrandom::fill(&mut bytes).map_err(|error| Failure::new(Status::IoErr, format!("no random numbers: {error}")))?;
    let letters = bytes.iter().filter_map(|byte| LETTERS.get(usize::from(byte % 32)));
    Ok(letters.map(|letter| char::from(*letter)).collect())
}

/// Writes a file that only its owner can read, whatever was there before.
fn leave(file: &Path, text: &str) -> std::io::Result<()> {
    match std::fs::remove_file(file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut open = File::options().write(true).create_new(true).mode(0o600).open(file)?;
    open.write_all(text.as_bytes())?;
    open.write_all(b"\n")?;
    open.sync_all()
}
