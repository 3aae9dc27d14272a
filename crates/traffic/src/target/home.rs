//! A data directory with one user who has every credential there is; made by the gateway's own commands.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::SystemTime;

use fogmux_net::channel::Zeroizing;
use fogmux_net::profile::{ClientCertificates, KeyKind};

use super::{Access, TargetError};
use crate::experiment::{Credential, Door, Experiment, Security};

/// Whom all clients log in as.
pub(crate) const USER: &str = "bench";
/// What the server's certificate says, and the XMPP domain.
const NAME: &str = "localhost";
const RULES: &str = "[[allow]]\nauthenticated = true\nboth = [\"#\"]\n\n[[allow]]\nanonymous = true\nboth = [\"#\"]\n";
/// Of PSK-AES128-CCM8: as many bits as the cipher has.
const PSK: [u8; 16] = *b"bench-shared-key";

/// Where topics are on our CoAP door.
const COAP_PREFIX: &str = "ps";

/// Credentials, for as long as this lives.
#[derive(Debug)]
pub struct Home {
    directory: PathBuf,
    binary: PathBuf,
    password: Zeroizing<String>,
    certificates: BTreeSet<KeyKind>,
    contexts: BTreeSet<String>,
}

impl Home {
    /// Makes a user with a password and a pre-shared key in a new directory; `binary` is `fogmux`.
    ///
    /// # Errors
    /// The directory cannot be written, or a command fails.
    pub fn make(directory: PathBuf, binary: PathBuf) -> Result<Self, TargetError> {
        let io = |error| TargetError::Io(directory.display().to_string(), error);
        fs::create_dir_all(directory.join("clients")).map_err(io)?;
        // What is measured is the password's way through the door, not how hard it is to guess: loopback, and gone
        // with the directory.
        let password = Zeroizing::new(format!("bench-{}", std::process::id()));
        let home = Self { directory, binary, password, certificates: BTreeSet::new(), contexts: BTreeSet::new() };
        home.run(&["passwd", USER], Some(&home.password))?;
        home.run(&["pki", "psk", USER, "--key", &hex(&PSK)], None)?;
        let rules = home.data().join("acl.toml");
        fs::write(&rules, RULES).map_err(|error| TargetError::Io(rules.display().to_string(), error))?;
        Ok(home)
    }

    /// The gateway's data directory.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.directory.join("data")
    }

    /// Where the gateway's files of one run may go.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The program.
    #[must_use]
    pub fn binary(&self) -> &Path {
        &self.binary
    }

    /// Makes what the experiment's clients will show, as far as it is not there.
    ///
    /// # Errors
    /// A command fails.
    pub fn furnish(&mut self, experiment: &Experiment) -> Result<(), TargetError> {
        let profile = experiment.security.profile;
        if shows_certificate(experiment.security, experiment.credential) {
            let kind = profile.client_key.unwrap_or(KeyKind::EcdsaP256);
            if self.certificates.insert(kind) {
                let base = self.certificate_base(kind);
                let jid = format!("{USER}@{NAME}");
                let base = base.to_string_lossy();
                let key = key_name(kind);
                self.run(&["pki", "client", USER, "--renew", "--key", key, "--xmpp", &jid, "--out", &base], None)?;
            }
        }
        if experiment.security.oscore {
            let publishers = (0..experiment.publishers).map(|number| format!("publisher-{number}"));
            let subscribers = (0..experiment.subscribers).map(|number| format!("subscriber-{number}"));
            for name in publishers.chain(subscribers) {
                if self.contexts.insert(name.clone()) {
                    let out = self.directory.join("clients").join(format!("{name}.toml"));
                    self.run(&["pki", "oscore", USER, "--out", &out.to_string_lossy()], None)?;
                }
            }
        }
        Ok(())
    }

    /// What clients show at a door that listens there.
    #[must_use]
    pub fn access(&self, experiment: &Experiment, door: Door, host: String, port: u16) -> Access {
        let security = experiment.security;
        let credential = experiment.credential;
        let kind = security.profile.client_key.unwrap_or(KeyKind::EcdsaP256);
        let base = self.certificate_base(kind);
        let certificate = shows_certificate(security, credential)
            .then(|| (base.with_added_extension("pem"), base.with_added_extension("key")));
        let psk = security.profile.psk.then(|| (USER.to_owned(), Zeroizing::new(PSK.to_vec())));
        let named = certificate.is_some() || psk.is_some() || security.oscore;
        let is_xmpp = matches!(door, Door::Xmpp | Door::Xmpps);
        let asks_password = match credential {
            Credential::Password => true,
            // XMPP has no SASL mechanism that shows the key of the handshake (XEP-0178 knows certificates only).
            Credential::OfProfile => security.is_secure() && (!named || (psk.is_some() && is_xmpp)),
            Credential::Anonymous | Credential::Certificate | Credential::Token => false,
        };
        let has_place = !matches!(door, Door::Coap | Door::CoapTcp);
        Access {
            host,
            port,
            name: NAME.to_owned(),
            authority: Some(self.data().join("pki").join("ca.pem")),
            password: (asks_password && has_place).then(|| (USER.to_owned(), self.password.clone())),
            certificate,
            psk,
            oscore: security.oscore.then(|| self.directory.join("clients")),
            token: None,
            prefix: matches!(door, Door::Coap | Door::CoapTcp).then(|| COAP_PREFIX.to_owned()),
            key_log: None,
        }
    }

    /// The server's certificate and its key, made if there is none yet.
    ///
    /// # Errors
    /// It cannot be made.
    pub(super) fn server_certificate(&self, kind: Option<KeyKind>) -> Result<(PathBuf, PathBuf), TargetError> {
        let kind = kind.unwrap_or(KeyKind::EcdsaP256);
        let made = fogmux_net::pki::ensure_server(&self.data().join("pki"), kind, &[], SystemTime::now());
        let made = made.map_err(|error| TargetError::Start(error.to_string()))?;
        Ok((made.certificate, made.key))
    }

    fn certificate_base(&self, kind: KeyKind) -> PathBuf {
        self.directory.join("clients").join(key_name(kind))
    }

    fn run(&self, arguments: &[&str], input: Option<&str>) -> Result<(), TargetError> {
        let name = || arguments.join(" ");
        let failed = |error| TargetError::Io(name(), error);
        let mut command = Command::new(&self.binary);
        command.args(arguments).arg("--data").arg(self.data());
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(input.unwrap_or_default().as_bytes()).map_err(failed)?;
        }
        let output = child.wait_with_output().map_err(failed)?;
        if output.status.success() {
            return Ok(());
        }
        Err(TargetError::Command(name(), String::from_utf8_lossy(&output.stderr).trim().to_owned()))
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // It holds secrets that nobody needs any more. If it cannot be removed there is nobody to tell.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// The key that clients and servers share.
pub(crate) const fn shared_key() -> &'static [u8] {
    &PSK
}

/// Whether clients come with a certificate.
pub(crate) fn shows_certificate(security: Security, credential: Credential) -> bool {
    match credential {
        Credential::Certificate => true,
        Credential::OfProfile => {
            security.profile.client_certificates != ClientCertificates::No || security.profile.client_key.is_some()
        }
        Credential::Anonymous | Credential::Password | Credential::Token => false,
    }
}

fn key_name(kind: KeyKind) -> &'static str {
    match kind {
        KeyKind::EcdsaP256 => "ecdsa",
        KeyKind::Rsa2048 => "rsa2048",
        KeyKind::Rsa4096 => "rsa4096",
    }
}

fn hex(bytes: &[u8]) -> String {
    fogmux_net::channel::hex(bytes)
}
