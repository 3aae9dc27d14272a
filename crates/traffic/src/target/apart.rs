//! The origin in a process of its own, so that its processor time and memory are known as the gateway's are. It gives
//! the answers that a gateway of ours does not, since that has its values at once.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use fogmux_net::channel::{Zeroizing, hex};
use serde::{Deserialize, Serialize};

use super::home::unhex;
use super::{Access, Home, TargetError};
use crate::experiment::{CoapAnswer, Experiment};
use crate::origin::{Keys, Origin, OriginConfig};

/// The words after the program's name that start an origin.
const COMMAND: [&str; 2] = ["bench", "origin"];

/// A running origin. Dropped, it is ended.
#[derive(Debug)]
pub struct Apart {
    child: Child,
    /// It ends when this is closed, also if this process is killed.
    stdin: Option<ChildStdin>,
    address: SocketAddr,
}

/// The order of an origin, on its standard input: in its arguments others would see a key.
#[derive(Serialize, Deserialize)]
struct Order {
    address: IpAddr,
    answer: CoapAnswer,
    delay_seconds: f64,
    /// Identity, and the key in hexadecimal digits.
    psk: Option<(String, String)>,
    /// Chain and key, as PEM.
    certificate: Option<(PathBuf, PathBuf)>,
}

impl Apart {
    /// Starts an origin in the calling thread's network namespace.
    ///
    /// # Errors
    /// Its credentials cannot be had, or it does not start.
    pub fn start(home: &mut Home, experiment: &Experiment, address: &str) -> Result<Self, TargetError> {
        home.furnish(experiment)?;
        let order = Order::of(home, experiment, address)?;
        let io = |error| TargetError::Io("fogmux bench origin".to_owned(), error);
        let order = Zeroizing::new(serde_json::to_string(&order).map_err(|error| io(error.into()))?);
        let mut command = Command::new(home.binary());
        command.args(COMMAND).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(io)?;
        let mut stdin = child.stdin.take();
        let said = child.stdout.take();
        if let Some(stdin) = &mut stdin {
            // One that has ended says why below.
            let _ = writeln!(stdin, "{}", order.as_str());
        }
        let mut line = String::new();
        if let Some(said) = said {
            BufReader::new(said).read_line(&mut line).map_err(io)?;
        }
        match line.trim().parse() {
            Ok(address) => Ok(Self { child, stdin, address }),
            Err(_) => Err(TargetError::Start(said_at_the_end(child, stdin))),
        }
    }

    /// Its process, as a list of one.
    #[must_use]
    pub fn pids(&self) -> Vec<u32> {
        vec![self.child.id()]
    }

    /// How its process ended; nothing while it runs.
    pub fn ended(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok().flatten()?;
        Some(format!("the origin ended ({status})"))
    }

    /// How clients reach it, and with what.
    #[must_use]
    pub fn access(&self, home: &Home, experiment: &Experiment) -> Access {
        let access = home.access(experiment, experiment.door, self.address.ip().to_string(), self.address.port());
        // Its paths are topics.
        Access { prefix: None, ..access }
    }
}

/// The last words of an origin that did not start.
fn said_at_the_end(mut child: Child, stdin: Option<ChildStdin>) -> String {
    drop(stdin);
    let mut said = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        // As much as can be read of it.
        let _ = stderr.read_to_string(&mut said);
    }
    let _ = child.wait();
    format!("the origin: {}", said.trim())
}

impl Drop for Apart {
    fn drop(&mut self) {
        drop(self.stdin.take());
        // It has no state that it would have to write.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Order {
    fn of(home: &Home, experiment: &Experiment, address: &str) -> Result<Self, TargetError> {
        let profile = experiment.security.profile;
        let (mut psk, mut certificate) = (None, None);
        match (profile.is_encrypted(), profile.psk) {
            (false, _) => {}
            (true, true) => psk = Some((super::home::USER.to_owned(), hex(home.shared_key()))),
            (true, false) => {
                certificate = Some(home.server_certificate(experiment.server_key.kind().or(profile.server_key))?)
            }
        }
        let address = address.parse().map_err(|_| TargetError::Start(format!("{address} is no address")))?;
        let (answer, delay_seconds) = (experiment.coap_answer, experiment.coap_delay_seconds);
        Ok(Self { address, answer, delay_seconds, psk, certificate })
    }

    fn config(&self) -> Result<OriginConfig, String> {
        let dtls = match (&self.psk, &self.certificate) {
            (Some((identity, key)), _) => Some(Keys::psk(identity, &unhex(key).ok_or("no key")?)),
            (None, Some((chain, key))) => Some(Keys::certificate(chain, key)?),
            (None, None) => None,
        };
        let delay = Duration::try_from_secs_f64(self.delay_seconds).map_err(|error| error.to_string())?;
        Ok(OriginConfig { answer: self.answer, delay, confirm_notifications: false, dtls })
    }
}

/// Serves as the process of an [`Apart`], until standard input is closed.
///
/// # Errors
/// There is no order, its credentials cannot be read, or the socket fails.
pub fn serve() -> Result<(), String> {
    let mut order = Zeroizing::new(String::new());
    io::stdin().read_line(&mut order).map_err(|error| error.to_string())?;
    let order: Order = serde_json::from_str(&order).map_err(|error| format!("no order: {error}"))?;
    let config = order.config()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| error.to_string())?.block_on(async {
        let origin = Origin::bind((order.address, 0).into(), config).await.map_err(|error| error.to_string())?;
        let address = origin.address().map_err(|error| error.to_string())?;
        writeln!(io::stdout(), "{address}").map_err(|error| error.to_string())?;
        std::thread::spawn(|| {
            // Whatever ends it, there is nobody left to serve.
            let _ = io::copy(&mut io::stdin(), &mut io::sink());
            std::process::exit(0);
        });
        origin.serve().await.map_err(|error| error.to_string())
    })
}
