//! Client certificates that a gateway refuses over TLS and DTLS: guesses are banned. Owners are not, who come back with
//! a new certificate, or when the operator has signed a new list. Each client has an address of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::{PATIENCE, Running};
use crate::command::{command, output, succeeds};

const SETTINGS: [&str; 3] = [
    "listeners.https.client_certificates=\"required\"",
    "listeners.coaps.client_certificates=\"required\"",
    "tls.crl_expiry=\"refuse\"",
];
/// For `openssl ca`, which wants a database of what it has signed.
const CONFIGURATION: &str = "[req]\ndistinguished_name = name\n[name]\n[ca]\ndefault_ca = own\n[own]\ndatabase = index\n\
    new_certs_dir = .\nrand_serial = yes\ndefault_md = sha256\npolicy = any\nunique_subject = no\n\
    x509_extensions = device\ncrlnumber = number\ncrl_extensions = list\n[any]\ncommonName = supplied\n\
    [device]\nbasicConstraints = critical, CA:FALSE\n[list]\nauthorityKeyIdentifier = keyid\n";
const CA: &str = "ca -config configuration -batch -cert ours.pem -keyfile ours.key";
const P256: &str = "P-256";
const P521: &str = "P-521";
/// Validity of certificates, from and until (RFC 5280 §4.1.2.5).
const NOW: [&str; 2] = ["20200101000000Z", "20991231000000Z"];
const OVER: [&str; 2] = ["20200101000000Z", "20200201000000Z"];
const TO_COME: [&str; 2] = ["20981231000000Z", "20991231000000Z"];

/// A client that is refused.
struct Client {
    /// The last byte of its address.
    host: u8,
    /// The certificate that it shows.
    shows: Option<&'static str>,
    /// The authority that it trusts.
    trusts: &'static str,
    /// The reason in the log; `None`: the gateway refuses nobody.
    reason: Option<&'static str>,
    /// Whether it is banned.
    is_guess: bool,
}

impl Client {
    const fn showing(host: u8, name: &'static str, reason: &'static str, is_guess: bool) -> Self {
        Self { host, shows: Some(name), trusts: "ours", reason: Some(reason), is_guess }
    }
}

const CLIENTS: [Client; 7] = [
    // It refuses the gateway's certificate, and says so by an alert of its own.
    Client { host: 1, shows: Some("good"), trusts: "theirs", reason: None, is_guess: false },
    Client { host: 2, shows: None, trusts: "ours", reason: Some("no certificate shown"), is_guess: false },
    Client::showing(3, "theirs", "unknown certificate authority", true),
    Client::showing(4, "revoked", "certificate revoked", true),
    Client::showing(5, "over", "certificate expired", false),
    Client::showing(6, "to-come", "certificate not yet valid", false),
    Client::showing(7, "p521", "the certificate's key or algorithm is not accepted", false),
];
/// After the revocation list has expired.
const LATER: Client = Client::showing(8, "good", "the revocation list has expired", false);

/// The listener, the version of its protocol, and the network of its clients.
const LISTENERS: [(&str, &str, &str); 2] = [("https", "-tls1_2", "127.0.7"), ("coaps", "-dtls1_2", "127.0.8")];

/// Has clients refused by a gateway, and lets `fail2ban-regex` read the log. Returns how many are banned.
pub(super) fn check(binary: &Path, home: &Path, filter: &Path) -> Result<usize> {
    let log = home.join("log-of-certificates");
    let running = Running::start(binary, home, &log, &SETTINGS)?;
    let authority = Authority { place: home.join("authority"), pki: home.join("data/pki") };
    authority.open()?;
    for (name, curve, dates) in [
        ("good", P256, NOW),
        ("revoked", P256, NOW),
        ("over", P256, OVER),
        ("to-come", P256, TO_COME),
        ("p521", P521, NOW),
    ] {
        authority.sign(name, curve, dates)?;
    }
    authority.revoke("revoked")?;
    authority.list(NOW)?;
    for client in &CLIENTS {
        authority.refuse(&running, client, &log)?;
    }
    authority.list(OVER)?;
    authority.refuse(&running, &LATER, &log)?;
    drop(running);
    let found = output(command("fail2ban-regex", &["--out", "ip"]).arg(&log).arg(filter))?;
    let mut found: Vec<&str> = found.split_whitespace().filter(|word| word.starts_with("127.0.")).collect();
    found.sort_unstable();
    let guesses = CLIENTS.iter().filter(|client| client.is_guess);
    let mut expected: Vec<_> =
        guesses.flat_map(|client| LISTENERS.map(|(_, _, network)| format!("{network}.{}", client.host))).collect();
    expected.sort_unstable();
    ensure!(found == expected, "fail2ban finds {found:?} and not {expected:?} in {}", log.display());
    Ok(found.len())
}

/// The gateway's authority, operated by OpenSSL, and another.
struct Authority {
    /// Where OpenSSL keeps its database.
    place: PathBuf,
    /// That of the gateway.
    pki: PathBuf,
}

impl Authority {
    /// Runs `openssl` with words that have no spaces in them.
    fn run(&self, words: &str) -> Result<()> {
        let words: Vec<&str> = words.split_whitespace().collect();
        let done = command("openssl", &words).current_dir(&self.place).output().context("openssl")?;
        ensure!(done.status.success(), "openssl {words:?}: {}", String::from_utf8_lossy(&done.stderr));
        Ok(())
    }

    /// Makes the database, and the other authority.
    fn open(&self) -> Result<()> {
        fs::create_dir_all(&self.place)?;
        for (file, text) in [("configuration", CONFIGURATION), ("index", ""), ("number", "01\n")] {
            fs::write(self.place.join(file), text)?;
        }
        fs::copy(self.pki.join("ca.pem"), self.place.join("ours.pem"))?;
        fs::copy(self.pki.join("ca.key"), self.place.join("ours.key"))?;
        self.request("theirs", P256, "-x509 -extensions device -days 2 -out theirs.pem")
    }

    /// Makes a key NAME.key, and a request or a certificate for it.
    fn request(&self, name: &str, curve: &str, what: &str) -> Result<()> {
        let key = format!("-newkey ec -pkeyopt ec_paramgen_curve:{curve} -nodes -keyout {name}.key");
        self.run(&format!("req -config configuration {key} -subj /CN={name} {what}"))
    }

    /// Signs a certificate NAME.pem, and makes its key.
    fn sign(&self, name: &str, curve: &str, [from, until]: [&str; 2]) -> Result<()> {
        self.request(name, curve, "-new -out request")?;
        self.run(&format!("{CA} -notext -in request -out {name}.pem -startdate {from} -enddate {until}"))
    }

    fn revoke(&self, name: &str) -> Result<()> {
        self.run(&format!("{CA} -revoke {name}.pem"))
    }

    /// Signs the revocation list, and puts it in its place.
    fn list(&self, [from, until]: [&str; 2]) -> Result<()> {
        self.run(&format!("{CA} -gencrl -crl_lastupdate {from} -crl_nextupdate {until} -out list"))?;
        // A list that is half written would be none.
        let beside = self.pki.join("crl.new");
        fs::copy(self.place.join("list"), &beside)?;
        fs::rename(beside, self.pki.join("crl.pem")).context("crl.pem")
    }

    /// Lets a client be refused at each listener, and waits for the lines about it.
    fn refuse(&self, running: &Running, client: &Client, log: &Path) -> Result<()> {
        for (listener, version, network) in LISTENERS {
            let (address, own) = (running.address(listener)?.to_string(), format!("{network}.{}", client.host));
            let (trusted, bound) = (format!("{}.pem", client.trusts), format!("{own}:0"));
            let mut shake = command("timeout", &["20", "openssl", "s_client", version, "-connect", &address]);
            shake.args(["-bind", &bound, "-quiet", "-verify_return_error", "-CAfile", &trusted]);
            if let Some(name) = client.shows {
                shake.args(["-cert", &format!("{name}.pem"), "-key", &format!("{name}.key")]);
            }
            ensure!(!succeeds(shake.current_dir(&self.place)), "{own} was let in at {listener}");
            let Some(reason) = client.reason else { continue };
            let words = [format!("login refused peer={own} "), format!("reason=\"{reason}\"")];
            let is_there = |text: &str| text.lines().any(|line| words.iter().all(|word| line.contains(word)));
            let deadline = Instant::now() + PATIENCE;
            while !is_there(&fs::read_to_string(log)?) {
                ensure!(Instant::now() < deadline, "no line with {words:?} in {}", log.display());
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        Ok(())
    }
}
