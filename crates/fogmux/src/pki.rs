//! `fogmux pki`: the authority, certificates of servers and clients, pre-shared keys, and revocation.
//!
//! All files are in the data directory. A running gateway notices changes within seconds, and reads the revocation list
//! at every handshake. A secret is printed once, by the command that creates it.

mod list;
mod oscore;
mod psk;
mod rollover;

pub(crate) use psk::bytes;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fogmux_net::ClientCertificate;
use fogmux_net::pki::{self, Authority, Issued, PkiError, Purpose, Wanted};
use rustls::pki_types::ServerName;

use crate::cli::{Files, KeyChoice, Pki, PkiClient, PkiInit, PkiRevoke, PkiServer};
use crate::exit::{Failure, Status};
use crate::output::say;
use crate::passwd::enrol;
use crate::{data, installed};

/// The directory of client certificates, below that of the authority.
pub(crate) const CLIENTS: &str = "clients";
const DAY: Duration = Duration::from_secs(86_400);
/// RFC 5280 §4.1.2.2: 20 bytes.
const SERIAL_DIGITS_MAX: usize = 40;

/// Runs the subcommand.
pub(crate) fn run(command: &Pki) -> Result<(), Failure> {
    match command {
        Pki::Init(arguments) => init(arguments),
        Pki::Server(arguments) => server(arguments),
        Pki::Client(arguments) => client(arguments),
        Pki::Psk(arguments) => psk::run(arguments),
        Pki::Oscore(arguments) => oscore::run(arguments),
        Pki::Revoke(arguments) => revoke(arguments),
        Pki::List(arguments) => list::run(arguments),
        Pki::Rollover(command) => rollover::run(command),
    }
}

/// The directory of the authority.
fn directory(files: &Files) -> Result<PathBuf, Failure> {
    Ok(installed::find(files)?.writable()?.join(data::PKI))
}

fn failed(error: PkiError) -> Failure {
    Failure::new(status(&error), error)
}

/// Returns the code to end with.
pub(crate) fn status(error: &PkiError) -> Status {
    use std::io::ErrorKind::{InvalidData, IsADirectory, NotADirectory, NotFound, PermissionDenied};
    match error {
        PkiError::Io { source, .. } if source.kind() == PermissionDenied => Status::NoPerm,
        // Another attempt finds the same.
        PkiError::Io { source, .. }
            if [InvalidData, IsADirectory, NotADirectory, NotFound].contains(&source.kind()) =>
        {
            Status::Config
        }
        PkiError::Io { .. } | PkiError::Generate(_) => Status::IoErr,
        PkiError::Name(_) => Status::DataErr,
        PkiError::Kind(_) | PkiError::Exists(_) | PkiError::OutOfOrder(_) => Status::Usage,
        PkiError::Key { .. }
        | PkiError::Revocations(_)
        | PkiError::Certificate(_)
        | PkiError::Half { .. }
        | PkiError::Authority(_) => Status::Config,
    }
}

fn init(arguments: &PkiInit) -> Result<(), Failure> {
    let directory = directory(&arguments.files)?;
    let made = Authority::make(&directory, arguments.key.kind(), SystemTime::now()).map_err(failed)?;
    say!("{}\n", made.certificate().display())
}

/// Creates the gateway's certificate, or with `--out` one for another server.
fn server(arguments: &PkiServer) -> Result<(), Failure> {
    // A name that is left out is found by the device that does not connect.
    let names = server_names(&arguments.names)?;
    let directory = directory(&arguments.files)?;
    let Some(out) = &arguments.out else {
        let made = pki::ensure_server(&directory, arguments.key.kind(), &arguments.names, SystemTime::now());
        let made = made.map_err(failed)?;
        if !made.renewed {
            eprintln!("the existing certificate covers these names");
        }
        // A running gateway reads these again with it.
        pki::ensure_others(&directory, SystemTime::now()).map_err(failed)?;
        return say!("{}\n", made.certificate.display());
    };
    let first = arguments.names.first();
    let first = first.ok_or_else(|| Failure::new(Status::Usage, "the name of the server is missing"))?;
    let wanted = Wanted { names, validity: DAY * arguments.days, ..Wanted::new(Purpose::Server, first.as_str()) };
    let (certificate, key) = (out.with_added_extension("pem"), out.with_added_extension("key"));
    issue(&directory, &wanted, arguments.key, &certificate, &key).map(drop)
}

fn server_names(names: &[String]) -> Result<Vec<ServerName<'static>>, Failure> {
    let name = |name: &String| {
        let bad = || Failure::new(Status::Usage, format!("{name:?} is neither a DNS name nor an address"));
        pki::server_name(name).map_err(|_| bad())
    };
    names.iter().map(name).collect()
}

fn client(arguments: &PkiClient) -> Result<(), Failure> {
    // Checks all arguments before anything is created.
    let names = server_names(&arguments.dns)?;
    if arguments.pkcs12.is_some() && (arguments.password_file.is_none() || !cfg!(feature = "tls-openssl")) {
        let error = "--pkcs12 needs --password-file, and a build with the feature tls-openssl";
        return Err(Failure::new(Status::Usage, error));
    }
    let found = installed::find(&arguments.files)?;
    let directory = found.writable()?.join(data::PKI);
    let name = &arguments.name;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._@-".contains(&byte);
    if name.is_empty() || name.starts_with('.') || !name.bytes().all(plain) {
        return Err(Failure::new(Status::Usage, format!("{name:?}: a name may contain only letters, digits and ._@-")));
    }
    let base = arguments.out.clone().unwrap_or_else(|| directory.join(CLIENTS).join(name));
    let (clients, certificate) = (directory.join(CLIENTS), base.with_added_extension("pem"));
    if arguments.renew && !certificate.exists() && serials_of_client(&clients, name)?.is_empty() {
        // Scripts renew what need not be there yet; an operator may have mistyped the name.
        eprintln!("there was no certificate of a client {name:?} to be renewed: it is made");
    }
    if let Some(parent) = base.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        data::create(parent)?;
    }
    let key = base.with_added_extension("key");
    if certificate.exists() && arguments.renew {
        // The old one can still be revoked, under its serial number.
        let old = pki::inspect(&certificate).map_err(failed)?;
        let aside = base.with_added_extension(format!("{}.pem", old.serial));
        fs::rename(&certificate, &aside).map_err(|error| Failure::io(aside.display(), &error))?;
    } else if certificate.exists() {
        let error = format!("{} exists already; --renew replaces it", certificate.display());
        return Err(Failure::new(Status::Usage, error));
    }
    let wanted = Wanted {
        names,
        emails: arguments.email.clone(),
        uris: arguments.uri.clone(),
        xmpp_addresses: arguments.xmpp.clone(),
        validity: DAY * arguments.days,
        ..Wanted::new(Purpose::Client, name.as_str())
    };
    enrol(name, &arguments.groups, &found)?;
    let issued = issue(&directory, &wanted, arguments.key, &certificate, &key)?;
    if arguments.out.is_some() {
        // Without its key, so that it is listed, can be revoked by its name, and is known to a rollover.
        data::create(&clients)?;
        let serial = pki::inspect(&certificate).map_err(failed)?.serial;
        issued.write_certificate(&clients.join(format!("{name}.{serial}.pem"))).map_err(failed)?;
    }
    match &arguments.pkcs12 {
        Some(file) => pkcs12(arguments, &directory, &certificate, &key, file),
        None => Ok(()),
    }
}

fn issue(
    directory: &Path,
    wanted: &Wanted,
    key: KeyChoice,
    certificate: &Path,
    key_file: &Path,
) -> Result<Issued, Failure> {
    let authority = match wanted.purpose {
        Purpose::Server => Authority::open_or_make(directory, SystemTime::now()),
        Purpose::Client => Authority::for_devices(directory, SystemTime::now()),
    };
    let authority = authority.map_err(failed)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let issued = authority.issue(wanted, key.kind(), now).map_err(failed)?;
    issued.write(certificate, key_file).map_err(failed)?;
    say!("{}\n{}\n", certificate.display(), key_file.display())?;
    Ok(issued)
}

#[cfg(feature = "tls-openssl")]
fn pkcs12(arguments: &PkiClient, directory: &Path, certificate: &Path, key: &Path, file: &Path) -> Result<(), Failure> {
    let read = |file: &Path| fs::read_to_string(file).map_err(|error| Failure::io(file.display(), &error));
    let password = arguments.password_file.as_deref().map(crate::client::password_from).transpose()?;
    let password = password.unwrap_or_default();
    let (certificate, key, ca) = (read(certificate)?, read(key)?, read(&directory.join("ca.pem"))?);
    let made = fogmux_net::openssl::pkcs12(&arguments.name, &certificate, &key, &ca, &password);
    let made = made.map_err(|error| Failure::new(Status::IoErr, error))?;
    data::write_private(file, &made).map_err(|error| Failure::io(file.display(), &error))?;
    say!("{}\n", file.display())
}

#[cfg(not(feature = "tls-openssl"))]
fn pkcs12(_: &PkiClient, _: &Path, _: &Path, _: &Path, _: &Path) -> Result<(), Failure> {
    Err(Failure::new(Status::Usage, "--pkcs12 needs a build with the feature tls-openssl"))
}

/// Revokes by client name, file, or serial number.
fn revoke(arguments: &PkiRevoke) -> Result<(), Failure> {
    let directory = directory(&arguments.files)?;
    let serials = serials(&directory.join(CLIENTS), &arguments.certificate)?;
    for (serial, certificate) in serials {
        let mut is_new = false;
        for authority in rollover::that_signed(&directory, certificate.as_ref())? {
            is_new |= authority.revoke(&serial, SystemTime::now()).map_err(failed)?;
        }
        let done = if is_new { "is revoked" } else { "was revoked already" };
        eprintln!("{serial} {done}; effective from the next handshake, unless tls.crl_file names another list");
    }
    Ok(())
}

/// Returns the serial numbers to revoke: every certificate of a client of that name, else that of a file, else the
/// number itself. Each with its certificate, if there is one.
fn serials(clients: &Path, which: &str) -> Result<Vec<(String, Option<ClientCertificate>)>, Failure> {
    let serials = serials_of_client(clients, which)?;
    if !serials.is_empty() {
        return Ok(serials);
    }
    let file = Path::new(which);
    if file.is_file() {
        return Ok(vec![with_serial(pki::inspect(file).map_err(failed)?)]);
    }
    let is_serial = which.len().is_multiple_of(2)
        && (2..=SERIAL_DIGITS_MAX).contains(&which.len())
        && which.bytes().all(|digit| digit.is_ascii_hexdigit());
    if is_serial {
        return Ok(vec![(which.to_ascii_lowercase(), None)]);
    }
    let error = format!("{which:?} is neither a client, a file nor a serial number");
    Err(Failure::new(Status::DataErr, error))
}

/// Returns `NAME.pem` and each `NAME.SERIAL.pem` that `--renew` replaced, because that one may be the stolen one.
fn serials_of_client(clients: &Path, name: &str) -> Result<Vec<(String, Option<ClientCertificate>)>, Failure> {
    let io = |error| Failure::io(clients.display(), &error);
    let entries = match fs::read_dir(clients) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(io(error)),
    };
    let mut serials = Vec::new();
    for entry in entries {
        let path = entry.map_err(io)?.path();
        let rest = path.file_name().and_then(|file| file.to_str()?.strip_suffix(".pem")?.strip_prefix(name));
        let Some(rest) = rest else { continue };
        if rest.is_empty() {
            serials.push(with_serial(pki::inspect(&path).map_err(failed)?));
        } else if let Some(serial) = rest.strip_prefix('.')
            && let Ok(aside) = pki::inspect(&path)
            // Otherwise it is another client, whose name begins in the same way.
            && *aside.serial == *serial
        {
            serials.push(with_serial(aside));
        }
    }
    Ok(serials)
}

fn with_serial(certificate: ClientCertificate) -> (String, Option<ClientCertificate>) {
    (certificate.serial.to_string(), Some(certificate))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn serials(clients: &Path, which: &str) -> Result<Vec<String>, Failure> {
        Ok(super::serials(clients, which)?.into_iter().map(|(serial, _)| serial).collect())
    }

    #[test]
    fn a_client_is_revoked_with_what_was_set_aside_and_no_other() {
        let directory = tempfile::tempdir().unwrap();
        let clients = directory.path().join(CLIENTS);
        data::create(&clients).unwrap();
        let authority = Authority::open_or_make(directory.path(), SystemTime::now()).unwrap();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let make = |name: &str| {
            let wanted = Wanted::new(Purpose::Client, name);
            let issued = authority.issue(&wanted, KeyChoice::default().kind(), now).unwrap();
            let file = clients.join(name).with_added_extension("pem");
            issued.write(&file, &file.with_extension("key")).unwrap();
            (pki::inspect(&file).unwrap().serial.into_string(), file)
        };
        let (old, file) = make("ada");
        fs::rename(file, clients.join(format!("ada.{old}.pem"))).unwrap();
        let (new, file) = make("ada");
        let (other, _) = make("ada.beef");
        make("adam");
        let mut both = serials(&clients, "ada").unwrap();
        both.sort();
        let mut wanted = vec![old, new.clone()];
        wanted.sort();
        assert_eq!(both, wanted);
        assert_eq!(serials(&clients, "ada.beef").unwrap(), [other]);
        assert_eq!(serials(&clients, file.to_str().unwrap()).unwrap(), [new]);
        assert_eq!(serials(&clients, "0A0b").unwrap(), ["0a0b"]);
        assert!(serials(&clients, "nobody").is_err());
    }
}
