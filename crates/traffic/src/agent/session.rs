//! One generator that was let in: its gateway, and what is said about it.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use super::message::{Reply, Request, Started, VERSION, Way};
use crate::experiment::{Door, Experiment};
use crate::measure::environment::Environment;
use crate::measure::process::{MachineProbe, ProcessProbe};
use crate::target::{Access, Apart, Gateway, Home, TargetError};

/// Clients that a gateway is made ready for.
const CLIENTS_MAX: u32 = 100_000;
/// Of these, such as need an OSCORE context each; making one takes a command.
const CONTEXTS_MAX: u32 = 4_000;
/// Of a payload: what it is made ready for takes memory that has been promised.
const PAYLOAD_BYTES_MAX: usize = 64 << 20;

/// Everything of one connection. Dropped, the gateway ends and its files are gone.
pub(super) struct Session {
    /// Of this host, as the generator has reached it: there the gateway is to be reached, too.
    address: IpAddr,
    binary: PathBuf,
    greeted: bool,
    // Ends before its home is removed.
    serving: Option<Serving>,
    home: Option<Home>,
    machine: MachineProbe,
}

struct Serving {
    target: Target,
    probe: Option<ProcessProbe>,
}

enum Target {
    Gateway(Gateway),
    Apart(Apart),
}

impl Target {
    /// How it ended, if it did.
    fn ended(&mut self) -> Option<String> {
        match self {
            Self::Gateway(gateway) => gateway.ended(),
            Self::Apart(origin) => origin.ended(),
        }
    }

    fn settings(&self) -> Vec<String> {
        match self {
            Self::Gateway(gateway) => gateway.settings(),
            Self::Apart(_) => Vec::new(),
        }
    }
}

impl Session {
    pub(super) fn new(address: IpAddr, binary: PathBuf) -> Self {
        let machine = MachineProbe::start();
        Self { address: address.to_canonical(), binary, greeted: false, serving: None, home: None, machine }
    }

    /// Does what is asked; nothing is said where nothing is awaited.
    pub(super) fn answer(&mut self, request: Request) -> Option<Reply> {
        if !self.greeted && !matches!(request, Request::Greet { .. }) {
            return Some(refused("who is that?"));
        }
        match request {
            Request::Greet { version: VERSION } => {
                self.greeted = true;
                let software = env!("CARGO_PKG_VERSION").to_owned();
                Some(Reply::Greeting { software, environment: Box::new(Environment::here()) })
            }
            Request::Greet { .. } => Some(refused("another version of fogmux")),
            Request::Start { experiment } => Some(match self.start(&experiment.normalized()) {
                Ok(started) => Reply::Started(Box::new(started)),
                Err(error) => refused(error),
            }),
            Request::Observe => {
                self.machine = MachineProbe::start();
                if let Some(probe) = self.serving.as_mut().and_then(|serving| serving.probe.as_mut()) {
                    probe.start();
                }
                None
            }
            Request::Read => {
                if let Some(ended) = self.serving.as_mut().and_then(|serving| serving.target.ended()) {
                    return Some(refused(ended));
                }
                let gateway = self.serving.as_ref().and_then(|serving| serving.probe.as_ref()).map(ProcessProbe::read);
                let others_cpu_s = self.machine.others_cpu_s(gateway.as_slice());
                Some(Reply::Used { gateway, others_cpu_s })
            }
            Request::Stop => {
                self.serving = None;
                Some(Reply::Stopped)
            }
        }
    }

    fn start(&mut self, experiment: &Experiment) -> Result<Started, TargetError> {
        check(experiment)?;
        self.serving = None;
        let home = match &mut self.home {
            Some(home) => home,
            none => none.insert(Home::temporary(self.binary.clone())?),
        };
        let address = match self.address {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) => format!("[{address}]"),
        };
        let (target, pids) = if experiment.has_origin() {
            let origin = Apart::start(home, experiment, &self.address.to_string())?;
            let pids = origin.pids();
            (Target::Apart(origin), pids)
        } else {
            let gateway = Gateway::start(home, &[experiment], &[], &address)?;
            let pids = gateway.pids();
            (Target::Gateway(gateway), pids)
        };
        let reached = |door: Door| -> Result<Way, TargetError> {
            let access = match &target {
                Target::Gateway(gateway) => gateway.access(home, experiment, door)?,
                Target::Apart(origin) => origin.access(home, experiment),
            };
            way(access, experiment)
        };
        let started = Started {
            publishers: reached(experiment.door)?,
            subscribers: reached(experiment.reader_door())?,
            settings: target.settings(),
        };
        let probe = (!pids.is_empty()).then(|| ProcessProbe::of(&pids));
        self.serving = Some(Serving { target, probe });
        Ok(started)
    }
}

fn refused(why: impl std::fmt::Display) -> Reply {
    Reply::Refused { why: why.to_string() }
}

/// Refuses experiments that would exceed the limits of this machine.
fn check(experiment: &Experiment) -> Result<(), TargetError> {
    let clients = experiment.publishers.saturating_add(experiment.subscribers);
    let most = if experiment.security.oscore { CONTEXTS_MAX } else { CLIENTS_MAX };
    let wrong = |what: String| Err(TargetError::Unsupported(what));
    if clients > most {
        return wrong(format!("an agent takes at most {most} such clients"));
    }
    if experiment.payload_bytes > PAYLOAD_BYTES_MAX {
        return wrong(format!("an agent takes payloads of at most {PAYLOAD_BYTES_MAX} bytes"));
    }
    if experiment.link != "loopback" {
        return wrong("with an agent the network is the one between the hosts: leave --link away".to_owned());
    }
    Ok(())
}

/// The same with the contents of files in place of their names.
fn way(access: Access, experiment: &Experiment) -> Result<Way, TargetError> {
    let read =
        |path: &Path| fs::read_to_string(path).map_err(|error| TargetError::Io(path.display().to_string(), error));
    let mut oscore = BTreeMap::new();
    if let Some(directory) = &access.oscore {
        for name in contexts(experiment) {
            let text = read(&directory.join(format!("{name}.toml")))?;
            oscore.insert(name, text);
        }
    }
    // Where nothing has asked for it, nobody has made it.
    let authority = access.authority.filter(|path| path.exists());
    let certificate = access.certificate.map(|(certificate, key)| Ok((read(&certificate)?, read(&key)?)));
    Ok(Way {
        port: access.port,
        name: access.name,
        authority: authority.as_deref().map(read).transpose()?,
        password: access.password.map(|(user, password)| (user, password.as_str().to_owned())),
        certificate: certificate.transpose()?,
        psk: access.psk.map(|(identity, key)| (identity, key.to_vec())),
        oscore,
        token: access.token.map(|token| token.as_str().to_owned()),
        prefix: access.prefix,
    })
}

/// Names of the clients that need an OSCORE context.
pub(super) fn contexts(experiment: &Experiment) -> impl Iterator<Item = String> + use<> {
    let (publishers, subscribers) = (experiment.publishers, experiment.subscribers);
    let publishers = (0..publishers).map(|number| format!("publisher-{number}"));
    publishers.chain((0..subscribers).map(|number| format!("subscriber-{number}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> Session {
        Session::new(std::net::Ipv4Addr::LOCALHOST.into(), PathBuf::from("/nowhere/fogmux"))
    }

    fn is_refused(reply: Option<Reply>) -> bool {
        matches!(reply, Some(Reply::Refused { .. }))
    }

    #[test]
    fn nothing_is_done_before_a_greeting_in_the_same_language() {
        let mut session = session();
        assert!(is_refused(session.answer(Request::Read)));
        assert!(is_refused(session.answer(Request::Greet { version: VERSION + 1 })));
        assert!(is_refused(session.answer(Request::Read)));
        assert!(matches!(session.answer(Request::Greet { version: VERSION }), Some(Reply::Greeting { .. })));
        assert!(matches!(session.answer(Request::Read), Some(Reply::Used { gateway: None, .. })));
    }

    #[test]
    fn experiments_that_promise_too_much_start_nothing() {
        for experiment in [
            Experiment { publishers: u32::MAX, ..Experiment::default() },
            Experiment { security: "oscore".parse().unwrap(), publishers: 50_000, ..Experiment::default() },
            Experiment { payload_bytes: 1 << 40, ..Experiment::default() },
            Experiment { link: "lossless".to_owned(), ..Experiment::default() },
        ] {
            assert!(check(&experiment).is_err(), "{experiment:?}");
        }
        assert!(check(&Experiment::default()).is_ok());
    }
}
