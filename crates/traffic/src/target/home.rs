//! A data directory with one user who has every credential there is; made by the gateway's own commands.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::SystemTime;

use fogmux_net::channel::{Zeroizing, hex};
use fogmux_net::profile::{ClientCertificates, KeyKind};

use super::{Access, PrivateDirectory, TargetError, token};
use crate::experiment::{Credential, Door, Experiment, Rules, Security};

/// The user name of all clients.
pub(crate) const USER: &str = "bench";
/// The name in the server's certificate, and the XMPP domain.
const NAME: &str = "localhost";
const OPEN: &str = "[[allow]]\nauthenticated = true\nboth = [\"#\"]\n\n[[allow]]\nanonymous = true\nboth = [\"#\"]\n";
/// Bytes of the password and of the key of tokens, before they are written in hexadecimal digits.
const SECRET_BYTES: usize = 16;

/// Below the data directory.
const RULES: &str = "acl.toml";
const TOKEN_KEY: &str = "token.key";

/// Where topics are on our CoAP door.
const COAP_PREFIX: &str = "ps";

/// Credentials, for as long as this lives.
pub struct Home {
    directory: PathBuf,
    /// Where it is a temporary one.
    private: Option<PrivateDirectory>,
    binary: PathBuf,
    password: Zeroizing<String>,
    psk: Zeroizing<Vec<u8>>,
    token: Zeroizing<String>,
    certificates: BTreeSet<KeyKind>,
    contexts: BTreeSet<String>,
}

impl Home {
    /// As [`Self::make`], in a directory of its own.
    ///
    /// # Errors
    /// As there.
    pub fn temporary(binary: PathBuf) -> Result<Self, TargetError> {
        let private = PrivateDirectory::new()?;
        let mut home = Self::make(private.path().to_owned(), binary)?;
        home.private = Some(private);
        Ok(home)
    }

    /// Makes a user with a password, a pre-shared key and a token in a new directory; `binary` is `fogmux`.
    ///
    /// # Errors
    /// The directory cannot be written, or a command fails.
    pub fn make(directory: PathBuf, binary: PathBuf) -> Result<Self, TargetError> {
        let io = |error| TargetError::Io(directory.display().to_string(), error);
        fs::create_dir_all(directory.join("clients")).map_err(io)?;
        // Not to be guessed: behind an agent others may reach the gateway, too.
        let password = Zeroizing::new(hex(&secret(SECRET_BYTES)?));
        // As digits it has the 32 bytes that HS256 asks for (RFC 7518 §3.2).
        let token_key = Zeroizing::new(hex(&secret(SECRET_BYTES)?));
        let token = token::made(&token_key, USER, SystemTime::now());
        let (certificates, contexts) = (BTreeSet::new(), BTreeSet::new());
        let psk = Zeroizing::default();
        let mut home = Self { directory, private: None, binary, password, psk, token, certificates, contexts };
        home.run(&["passwd", USER], Some(&home.password))?;
        // The command chooses the key: in its arguments others would see one.
        let printed = home.run(&["pki", "psk", USER], None)?;
        let none = || TargetError::Command("pki psk".to_owned(), "it printed no key".to_owned());
        home.psk = printed.trim().rsplit_once(':').and_then(|(_, digits)| unhex(digits)).ok_or_else(none)?;
        home.write(RULES, OPEN)?;
        home.write(TOKEN_KEY, &token_key)?;
        Ok(home)
    }

    /// The gateway's data directory.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.directory.join("data")
    }

    /// The file of the key that verifies tokens.
    pub(super) fn token_key(&self) -> PathBuf {
        self.data().join(TOKEN_KEY)
    }

    /// The pre-shared key of clients and server.
    pub(super) fn shared_key(&self) -> &[u8] {
        &self.psk
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
                let key = kind.name();
                self.run(&["pki", "client", USER, "--renew", "--key", key, "--xmpp", &jid, "--out", &base], None)?;
            }
        }
        self.write(RULES, &rules(experiment))?;
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

    /// Returns the access of clients to a door at this host and port.
    #[must_use]
    pub fn access(&self, experiment: &Experiment, door: Door, host: String, port: u16) -> Access {
        let security = experiment.security;
        let credential = experiment.credential;
        let kind = security.profile.client_key.unwrap_or(KeyKind::EcdsaP256);
        let base = self.certificate_base(kind);
        let certificate = shows_certificate(security, credential)
            .then(|| (base.with_added_extension("pem"), base.with_added_extension("key")));
        let psk = experiment.is_by_key().then(|| (USER.to_owned(), self.psk.clone()));
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
            token: (credential == Credential::Token).then(|| self.token.clone()),
            prefix: matches!(door, Door::Coap | Door::CoapTcp).then(|| COAP_PREFIX.to_owned()),
            key_log: None,
            group: None,
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
        self.directory.join("clients").join(kind.name())
    }

    /// A file of the data directory, for the gateway alone.
    fn write(&self, name: &str, text: &str) -> Result<(), TargetError> {
        let path = self.data().join(name);
        let io = |error| TargetError::Io(path.display().to_string(), error);
        // Replaced where it is one of an earlier repetition.
        let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&path).map_err(io)?;
        file.write_all(text.as_bytes()).map_err(io)
    }

    /// Runs a command of `fogmux` and returns its output.
    fn run(&self, arguments: &[&str], input: Option<&str>) -> Result<Zeroizing<String>, TargetError> {
        let name = || arguments.join(" ");
        let failed = |error| TargetError::Io(name(), error);
        let mut command = Command::new(&self.binary);
        command.args(arguments).arg("--data").arg(self.data());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(input.unwrap_or_default().as_bytes()).map_err(failed)?;
        }
        let output = child.wait_with_output().map_err(failed)?;
        if output.status.success() {
            return Ok(Zeroizing::new(String::from_utf8_lossy(&output.stdout).into_owned()));
        }
        Err(TargetError::Command(name(), String::from_utf8_lossy(&output.stderr).trim().to_owned()))
    }
}

impl fmt::Debug for Home {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Home").field("directory", &self.directory).finish_non_exhaustive()
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // It holds secrets that nobody needs any more. If it cannot be removed there is nobody to tell.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// The access rules of a gateway for this experiment.
fn rules(experiment: &Experiment) -> String {
    match experiment.rules {
        Rules::Open => OPEN.to_owned(),
        Rules::ByIdentity => {
            let topics = (0..experiment.topics).map(|number| experiment.topic.replace("{}", &number.to_string()));
            let rule = |topic: String| format!("[[allow]]\nuser = \"{USER}\"\nboth = [{topic:?}]\n\n");
            topics.map(rule).collect()
        }
    }
}

/// Random bytes.
pub(super) fn secret(bytes: usize) -> Result<Zeroizing<Vec<u8>>, TargetError> {
    let mut secret = Zeroizing::new(vec![0; bytes]);
    let filled = getrandom::fill(&mut secret);
    filled.map_err(|error| TargetError::Start(format!("no random numbers: {error}")))?;
    Ok(secret)
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

/// The bytes of an even number of hexadecimal digits.
pub(super) fn unhex(digits: &str) -> Option<Zeroizing<Vec<u8>>> {
    let pairs = (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok());
    let bytes = pairs.collect::<Option<Vec<u8>>>().filter(|bytes| !bytes.is_empty())?;
    Some(Zeroizing::new(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_name_the_identity_and_each_topic() {
        let experiment = Experiment { rules: Rules::ByIdentity, topics: 2, ..Experiment::default() };
        let rule = |topic| format!("[[allow]]\nuser = \"bench\"\nboth = [\"{topic}\"]\n\n");
        assert_eq!(rules(&experiment), rule("bench/0") + &rule("bench/1"));
        assert!(rules(&Experiment::default()).contains("anonymous"));
    }

    #[test]
    fn a_key_is_read_as_it_was_printed() {
        assert_eq!(unhex("00c0ffee").as_deref(), Some(&vec![0, 0xc0, 0xff, 0xee]));
        for wrong in ["", "0", "0g", "µµ"] {
            assert!(unhex(wrong).is_none(), "{wrong}");
        }
    }
}
