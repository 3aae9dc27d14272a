//! The generator's end: an agent elsewhere, and the gateway that it has started.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::{self, ErrorKind, Write as _};
use std::net::{IpAddr, TcpStream, ToSocketAddrs as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use fogmux_net::channel::Zeroizing;
use rustls::{ClientConnection, StreamOwned};

use super::channel::{REPLY_BYTES_MAX, REQUEST_BYTES_MAX, Until, prepare, receive, send};
use super::message::{Reply, Request, Started, VERSION, Way};
use super::session::contexts;
use super::{AgentError, keys};
use crate::experiment::Experiment;
use crate::measure::environment::Environment;
use crate::outcome::ProcessUse;
use crate::target::{Access, PrivateDirectory};

/// In which the other host has to answer at all.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// In which anything has to be done. A slow machine makes keys of RSA for minutes.
const ANSWER_MAX: Duration = Duration::from_secs(600);

/// An agent.
pub struct Remote {
    line: Rc<Line>,
    address: IpAddr,
    software: String,
    directory: Credentials,
}

/// The connection, which whoever looks at the gateway's process uses too.
struct Line {
    stream: RefCell<StreamOwned<ClientConnection, TcpStream>>,
    /// Why it is over.
    broken: RefCell<Option<AgentError>>,
    /// The processor time of other processes on that machine at the last query, in seconds.
    others_cpu_s: Cell<f64>,
}

/// The directory of the clients' files, removed on drop.
struct Credentials(PrivateDirectory);

/// A gateway that an agent has started. Dropped, it is ended.
pub struct RemoteGateway {
    line: Rc<Line>,
    settings: Vec<String>,
}

/// Looks at the gateway's process from here.
pub struct RemoteProbe(Rc<Line>);

impl Remote {
    /// Connects to `HOST:PORT` with the file that the agent has made.
    ///
    /// # Errors
    /// The file is none, nobody answers there, or it is another agent.
    pub fn connect(address: &str, bundle: &Path) -> Result<Self, AgentError> {
        let config = keys::client(bundle)?;
        let failed = || AgentError::io(format!("the agent at {address}"));
        let stream = reach(address).map_err(failed())?;
        let peer = stream.peer_addr().map_err(failed())?.ip().to_canonical();
        let connection = ClientConnection::new(config, keys::server_name()?);
        let mut connection = connection.map_err(|error| AgentError::keys(bundle.display().to_string(), error))?;
        connection.complete_io(&mut Until(&stream, Instant::now() + CONNECT_MAX)).map_err(failed())?;
        stream.set_read_timeout(Some(ANSWER_MAX)).map_err(failed())?;
        stream.set_write_timeout(Some(CONNECT_MAX)).map_err(failed())?;
        let stream = RefCell::new(StreamOwned::new(connection, stream));
        let line = Rc::new(Line { stream, broken: RefCell::default(), others_cpu_s: Cell::default() });
        let (software, _) = line.greet()?;
        Ok(Self { line, address: peer, software, directory: Credentials(PrivateDirectory::new()?) })
    }

    /// The gateway's version.
    #[must_use]
    pub fn software(&self) -> &str {
        &self.software
    }

    /// The gateway's machine, now; nothing if the agent has gone.
    #[must_use]
    pub fn environment(&self) -> Option<Environment> {
        self.line.greet().ok().map(|(_, environment)| environment)
    }

    /// Has a gateway started for an experiment; with how its publishers, and its subscribers, reach it.
    ///
    /// # Errors
    /// The agent refuses, or has gone; its credentials cannot be kept here.
    pub fn start(&self, experiment: &Experiment) -> Result<(RemoteGateway, Access, Access), AgentError> {
        let reply = self.line.ask(&Request::Start { experiment: Box::new(experiment.clone()) })?;
        let Reply::Started(started) = reply else { return Err(AgentError::Unexpected) };
        let Started { publishers, subscribers, settings } = *started;
        let gateway = RemoteGateway { line: Rc::clone(&self.line), settings };
        let publishers = self.access(experiment, publishers, "publishers")?;
        let subscribers = self.access(experiment, subscribers, "subscribers")?;
        Ok((gateway, publishers, subscribers))
    }

    /// A probe for the gateway's process.
    #[must_use]
    pub fn probe(&self) -> RemoteProbe {
        RemoteProbe(Rc::clone(&self.line))
    }

    /// The processor time of other processes on that machine during the measurement, in seconds.
    #[must_use]
    pub fn others_cpu_s(&self) -> f64 {
        self.line.others_cpu_s.get()
    }

    /// Whether everything that was to be looked at has been.
    ///
    /// # Errors
    /// The reason why the connection failed.
    pub fn check(&self) -> Result<(), AgentError> {
        self.line.broken.borrow_mut().take().map_or(Ok(()), Err)
    }

    /// Returns the access of local clients. Received file contents are written to local files with local names.
    fn access(&self, experiment: &Experiment, way: Way, role: &str) -> Result<Access, AgentError> {
        let keep = |name: &str, text: &str| self.directory.keep(&format!("{role}-{name}"), text);
        let certificate = |(certificate, key): (String, String)| {
            Ok::<_, AgentError>((keep("certificate.pem", &certificate)?, keep("certificate.key", &key)?))
        };
        let names: Vec<String> = if experiment.security.oscore { contexts(experiment).collect() } else { Vec::new() };
        for name in &names {
            let text = way.oscore.get(name).ok_or(AgentError::Unexpected)?;
            // Beside it stands how far its numbers are used: what is there already stays.
            self.directory.keep_first(&format!("{name}.toml"), text)?;
        }
        Ok(Access {
            host: self.address.to_string(),
            port: way.port,
            name: way.name,
            authority: way.authority.map(|text| keep("authority.pem", &text)).transpose()?,
            password: way.password.map(|(user, password)| (user, Zeroizing::new(password))),
            certificate: way.certificate.map(certificate).transpose()?,
            psk: way.psk.map(|(identity, key)| (identity, Zeroizing::new(key))),
            oscore: experiment.security.oscore.then(|| self.directory.0.path().to_owned()),
            token: way.token.map(Zeroizing::new),
            prefix: way.prefix,
            key_log: None,
            group: None,
        })
    }
}

impl Line {
    fn greet(&self) -> Result<(String, Environment), AgentError> {
        match self.ask(&Request::Greet { version: VERSION })? {
            Reply::Greeting { software, environment } => Ok((software, *environment)),
            Reply::Started(_) | Reply::Used { .. } | Reply::Stopped | Reply::Refused { .. } => {
                Err(AgentError::Unexpected)
            }
        }
    }

    fn ask(&self, request: &Request) -> Result<Reply, AgentError> {
        self.tell(request)?;
        let reply = receive::<Reply>(&mut *self.stream.borrow_mut(), REPLY_BYTES_MAX);
        match self.note(reply)? {
            Some(Reply::Refused { why }) => Err(AgentError::Refused(why)),
            Some(reply) => Ok(reply),
            None => Err(AgentError::Over),
        }
    }

    fn tell(&self, request: &Request) -> Result<(), AgentError> {
        let sent = send(&mut *self.stream.borrow_mut(), request, REQUEST_BYTES_MAX);
        self.note(sent)
    }

    fn note<T>(&self, done: io::Result<T>) -> Result<T, AgentError> {
        done.map_err(AgentError::io("the connection to the agent"))
    }
}

impl RemoteProbe {
    /// Begins an interval. Nothing is waited for: it begins when this has arrived.
    pub fn start(&self) {
        let told = self.0.tell(&Request::Observe);
        self.remember(told);
    }

    /// Reads the resources used since the start of the measurement.
    #[must_use]
    pub fn read(&self) -> ProcessUse {
        let read = match self.0.ask(&Request::Read) {
            Ok(Reply::Used { gateway: Some(gateway), others_cpu_s }) => {
                self.0.others_cpu_s.set(others_cpu_s);
                Ok(ProcessUse { elsewhere: true, ..gateway })
            }
            Ok(_) => Err(AgentError::Unexpected),
            Err(error) => Err(error),
        };
        self.remember(read).unwrap_or_default()
    }

    /// Stores an error, since a measurement cannot stop; [`Remote::check`] reports it afterwards.
    fn remember<T>(&self, done: Result<T, AgentError>) -> Option<T> {
        match done {
            Ok(done) => Some(done),
            Err(error) => {
                self.0.broken.borrow_mut().get_or_insert(error);
                None
            }
        }
    }
}

impl RemoteGateway {
    /// The settings of the gateway, as the agent reports them.
    #[must_use]
    pub fn settings(&self) -> &[String] {
        &self.settings
    }
}

impl Drop for RemoteGateway {
    fn drop(&mut self) {
        // Without an agent there is no gateway either.
        let _ = self.line.ask(&Request::Stop);
    }
}

impl Credentials {
    fn keep(&self, name: &str, text: &str) -> Result<PathBuf, AgentError> {
        let path = self.0.path().join(name);
        let write = || {
            File::options().write(true).create(true).truncate(true).mode(0o600).open(&path)?.write_all(text.as_bytes())
        };
        write().map_err(AgentError::io(path.display().to_string()))?;
        Ok(path)
    }

    fn keep_first(&self, name: &str, text: &str) -> Result<(), AgentError> {
        if self.0.path().join(name).exists() { Ok(()) } else { self.keep(name, text).map(drop) }
    }
}

/// The first of a name's addresses that answers.
fn reach(address: &str) -> io::Result<TcpStream> {
    let mut last = io::Error::new(ErrorKind::NotFound, "the name has no address");
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT_MAX) {
            Ok(stream) => {
                prepare(&stream)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}
