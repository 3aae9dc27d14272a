//! The filter of fail2ban in `deploy/`, on lines that a gateway writes now: every refused login is found, and nobody
//! can have others banned by what a client says or by guessing at their names.

mod certificates;

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::command::{command, output};
use crate::gateway;
use crate::tree::Tree;

const PATIENCE: Duration = Duration::from_secs(30);
/// The address that a client tries to have banned; of a range for documentation (RFC 5737 §3).
const VICTIM: &str = "192.0.2.1";
/// admin:wrong
const WRONG: &str = "YWRtaW46d3Jvbmc=";
/// A user name that ends the field it stands in, and goes on as a line of our log.
const FORGED: &str = "x\" client=\"\" reason=\"wrong name or secret\" suppressed=0\n WARN fogmux::audit: login refused \
                      peer=192.0.2.1 port=1 door=mqtt by=password claimed=\"\" client=\"\" reason=\"wrong name or secret\"";
/// Refused logins, the forged one included.
const REFUSED: usize = 4;
/// Clients behind a proxy (RFC 5737 §3): one that guesses at many names, one whose name others guess at.
const GUESSER: &str = "203.0.113.9";
const OWNER: &str = "203.0.113.99";
/// Credentials of many names, "a:" to "n:", more than an address may guess at without a wait.
const NAMES: [&str; 14] =
    ["YTo=", "Yjo=", "Yzo=", "ZDo=", "ZTo=", "Zjo=", "Zzo=", "aDo=", "aTo=", "ajo=", "azo=", "bDo=", "bTo=", "bjo="];

/// Runs a gateway, has logins refused, and lets `fail2ban-regex` read the log.
pub(crate) fn check(tree: &Tree) -> Result<()> {
    let binary = gateway::build(tree)?;
    let home = tree.target().join("tmp/fail2ban");
    let _ = fs::remove_dir_all(&home);
    fs::create_dir_all(home.join("data"))?;
    fs::write(home.join("data/acl.toml"), "[[allow]]\nuser = \"admin\"\nboth = [\"#\"]\n")?;
    let log = home.join("log");
    let running = Running::start(&binary, &home, &log, &[])?;
    for _ in 1..REFUSED {
        running.ask("/topics/a", &format!("Authorization: Basic {WRONG}\r\n"))?;
    }
    running.connect(&FORGED.replace('\n', " "))?;
    // An action that is refused is no refused login, whatever its topic says.
    let topic = format!("/topics/x%22%20WARN%20fogmux::audit:%20login%20refused%20peer={VICTIM}%20port=1");
    running.ask(&topic, "")?;
    let deadline = Instant::now() + PATIENCE;
    while !fs::read_to_string(&log)?.contains("action refused") {
        ensure!(Instant::now() < deadline, "no line about the refused action in {}", log.display());
        std::thread::sleep(Duration::from_millis(50));
    }
    drop(running);
    let filter = tree.root().join("deploy/fail2ban/filter.d/fogmux.conf");
    let found = output(command("fail2ban-regex", &["--out", "ip"]).arg(&log).arg(&filter))?;
    let found: Vec<&str> = found.split_whitespace().filter(|word| word.parse::<std::net::IpAddr>().is_ok()).collect();
    ensure!(found == ["127.0.0.1"; REFUSED], "fail2ban finds {found:?} in {}", log.display());
    check_waits(&binary, &home, &filter)?;
    let certificates = certificates::check(&binary, &home, &filter)?;
    println!("deploy: fail2ban finds {REFUSED} of {REFUSED} refused logins, and nothing that a client has made up");
    println!("deploy: fail2ban finds {certificates} guesses with certificates, and none of those that have expired");
    Ok(())
}

/// Attempts that wait because of their address are counted, and those that wait for a name are not.
fn check_waits(binary: &Path, home: &Path, filter: &Path) -> Result<()> {
    let log = home.join("log-of-waits");
    let settings = ["proxy.addresses=[\"127.0.0.1\"]", "log.refused_logins_per_address=100"];
    let running = Running::start(binary, home, &log, &settings)?;
    let guess = |client: &str, credential: &str| {
        running.ask("/topics/a", &format!("X-Forwarded-For: {client}\r\nAuthorization: Basic {credential}\r\n"))
    };
    for (number, name) in NAMES.iter().enumerate() {
        guess(&format!("198.51.100.{number}"), "dTp4")?;
        guess(GUESSER, name)?;
    }
    guess(OWNER, "dTp4")?;
    drop(running);
    let text = fs::read_to_string(&log)?;
    for reason in ["from this address", "at this name"] {
        ensure!(text.contains(&format!("too many failed attempts {reason}")), "nobody waits: {}", log.display());
    }
    let found = output(command("fail2ban-regex", &["--out", "ip"]).arg(&log).arg(filter))?;
    let count = |peer: &str| found.split_whitespace().filter(|word| *word == peer).count();
    ensure!((count(GUESSER), count(OWNER)) == (NAMES.len(), 0), "fail2ban finds {found} in {}", log.display());
    Ok(())
}

/// A gateway of our own.
struct Running {
    child: Child,
    /// The line in which it says its addresses.
    banner: String,
}

impl Running {
    fn start(binary: &Path, home: &Path, log: &Path, settings: &[&str]) -> Result<Self> {
        let mut serve = command(binary, &["serve", "--json", "--free-ports", "--data"]);
        serve.arg(home.join("data"));
        settings.iter().for_each(|setting| _ = serve.args(["--set", setting]));
        serve.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(fs::File::create(log)?);
        let mut running = Self { child: serve.spawn()?, banner: String::new() };
        let output = running.child.stdout.take().context("no output")?;
        BufReader::new(output).read_line(&mut running.banner)?;
        Ok(running)
    }

    /// The address of a listener.
    fn address(&self, name: &str) -> Result<SocketAddr> {
        let rest = self.banner.split_once(&format!("\"{name}\":\"")).map(|(_, rest)| rest);
        let found = rest.and_then(|rest| rest.split_once('"'));
        let (address, _) = found.with_context(|| format!("no {name}: {}", self.banner))?;
        Ok(address.parse()?)
    }

    /// A CONNECT of MQTT 3.1.1 with that user name and a wrong password.
    fn connect(&self, user: &str) -> Result<()> {
        let mut body = b"\0\x04MQTT\x04\xc2\0\x3c\0\0".to_vec();
        for text in [user, "wrong"] {
            body.extend(u16::try_from(text.len())?.to_be_bytes());
            body.extend(text.as_bytes());
        }
        // [MQTT-2.2.3]: the length in two bytes of seven bits.
        let length = u16::try_from(body.len())?;
        let [low, high] = [length & 0x7f | 0x80, length >> 7].map(|bits| bits.to_le_bytes()[0]);
        let mut stream = TcpStream::connect(self.address("mqtt")?)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(&[&[0x10, low, high][..], &body].concat())?;
        let mut connack = [0; 4];
        stream.read_exact(&mut connack).context("CONNACK")?;
        ensure!(connack[3] != 0, "a wrong password was taken");
        Ok(())
    }

    fn ask(&self, path: &str, fields: &str) -> Result<()> {
        let mut stream = TcpStream::connect(self.address("http")?)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{fields}\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        ensure!(answer.starts_with("HTTP/1.1 4"), "{path}: {answer}");
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A failure here means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
