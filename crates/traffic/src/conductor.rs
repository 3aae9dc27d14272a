//! Sets up both ends of an experiment, has it done, and takes both down again: once for each repetition, so that
//! nothing of one is left for the next.

mod alone;
mod drive;
mod error;
mod fleet;
mod network;
mod recorder;
mod serving;
mod threads;
mod watcher;

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub use self::alone::serve as serve_repetition;
pub use self::error::ConductorError;
use self::network::Network;
use self::serving::Serving;
pub use self::watcher::Watcher;
use crate::agent::Remote;
use crate::experiment::Experiment;
use crate::link::{Capture, Laid};
use crate::measure::environment::Environment;
use crate::measure::gateway::GatewayProbe;
use crate::measure::limits;
use crate::measure::process::ProcessProbe;
use crate::measure::watch::Watch;
use crate::outcome::{Outcome, PROGRAM_BYTES, Run};
use crate::pattern::Since;
use crate::repetition::{self, Repetitions, Void};
use crate::report::json::cleaned;
use crate::target::{Access, Apart, Gateway, Home, TargetError};
use crate::text::plain;

/// The server that the generator drives.
pub enum Target {
    /// A gateway of ours, started for each repetition.
    Gateway(Box<Home>),
    /// The same, started by an agent on another host.
    Agent(Box<Remote>),
    /// A broker that runs already.
    Peer(Box<Peer>),
}

/// A broker that runs already.
#[derive(Clone, Debug)]
pub struct Peer {
    /// The name in reports.
    pub name: String,
    /// How publishers reach it.
    pub access: Access,
    /// How subscribers reach it, if different.
    pub reader_access: Option<Access>,
    /// Its processes, where they are on this machine.
    pub pids: Vec<u32>,
}

/// A process ends its connections before itself: so long it is waited for, to say that it has ended.
const ENDING: Duration = Duration::from_millis(200);
/// After a repetition in which nothing went wrong.
const GLANCE: Duration = Duration::from_millis(2);

fn now_unix_ms() -> Option<u64> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    u64::try_from(since.as_millis()).ok()
}

/// When that was, by the clock that others have as well.
fn before_now_unix_ms(since: &Since) -> Option<u64> {
    let elapsed = u64::try_from(since.get()?.elapsed().as_millis()).ok()?;
    now_unix_ms()?.checked_sub(elapsed)
}

/// The size of a program, as a key of an outcome.
#[expect(clippy::cast_precision_loss, reason = "below 2^53")]
fn program_bytes(program: &Path) -> Option<(String, f64)> {
    let bytes = std::fs::metadata(program).ok()?.len();
    Some((PROGRAM_BYTES.to_owned(), bytes as f64))
}

/// That a process ended, and when.
fn ended(serving: &mut Serving, pid: u32, since: &Since) -> ConductorError {
    ConductorError::Ended { how: serving.ended(pid), after: since.get().map(|since| since.elapsed()) }
}

/// The outcome, unless a process has ended meanwhile: whatever else is wrong then is wrong because of that.
async fn witnessed<T>(
    done: Result<T, ConductorError>,
    serving: &mut Serving,
    watch: &Watch,
    since: &Since,
) -> Result<T, ConductorError> {
    let patience = match &done {
        Ok(_) => GLANCE,
        Err(ConductorError::Ended { .. } | ConductorError::Stopped(_)) => return done,
        Err(_) => ENDING,
    };
    match tokio::time::timeout(patience, watch.ended()).await {
        Ok(pid) => Err(ended(serving, pid, since)),
        Err(_) => done,
    }
}

/// Starts a gateway for these experiments, at its end of the link.
fn started(home: &mut Home, link: Option<&Laid>, experiments: &[&Experiment]) -> Result<Gateway, ConductorError> {
    let (wrapper, address) = match link {
        Some(laid) => (laid.wrapper(), laid.gateway_address().to_string()),
        None => (Vec::new(), "127.0.0.1".to_owned()),
    };
    // Seen from its own end, it is ready whatever the link does to frames.
    let _beside = link.map(Laid::enter_gateway).transpose()?;
    Ok(Gateway::start(home, experiments, &wrapper, &address)?)
}

/// Waits until there is a reason to stop.
async fn stopped(mut stop: Stop) -> &'static str {
    match stop.wait_for(Option::is_some).await.map(|why| *why) {
        Ok(Some(why)) => why,
        // Nobody is left who could give a reason.
        Ok(None) | Err(_) => std::future::pending().await,
    }
}

/// Tasks of this thread.
fn tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

/// Waits until the clients of a repetition that was stopped are gone, so that only as many tasks are left as were
/// before it. An aborted task has its connection until its turn comes, and a gateway that is ended waits for its
/// connections: ended from this thread before that, it would wait in vain for as long as it may.
async fn gone<T>(tasks_before: usize, done: &Result<T, ConductorError>) {
    if !matches!(done, Err(ConductorError::Stopped(_))) {
        return;
    }
    let gone = async {
        while tasks() > tasks_before {
            tokio::task::yield_now().await;
        }
    };
    // Some tasks end later than their connection, as those of QUIC do.
    let _ = tokio::time::timeout(ENDING, gone).await;
}

fn here(pids: &[u32]) -> Option<GatewayProbe> {
    (!pids.is_empty()).then(|| GatewayProbe::Here(ProcessProbe::of(pids)))
}

/// Ends a capture; half of one is none.
fn complete(capture: Capture<()>) -> Result<(), ConductorError> {
    let problem = capture.finish()?.problem;
    let broken = |error| TargetError::Io("the capture".to_owned(), error);
    problem.map_or(Ok(()), |error| Err(broken(error).into()))
}

/// Does experiments, one after the other.
pub struct Conductor {
    target: Target,
    network: Network,
    /// Where secrets of TLS go.
    key_log: Option<PathBuf>,
    /// Where frames of the next repetition go.
    capture: Option<PathBuf>,
    /// Why to stop, once there is a reason.
    stop: Stop,
    /// The watcher, if there is one.
    watcher: Option<Watcher>,
    /// Experiments whose repetitions have a process of their own each.
    alone: Vec<Experiment>,
}

/// Tells a conductor to stop, and why: by a word such as `SIGTERM`.
pub type Stop = tokio::sync::watch::Receiver<Option<&'static str>>;

impl Conductor {
    /// Against this target.
    #[must_use]
    pub fn new(target: Target, key_log: Option<PathBuf>) -> Self {
        let (_, stop) = tokio::sync::watch::channel(None);
        Self { target, network: Network::default(), key_log, capture: None, stop, watcher: None, alone: Vec::new() }
    }

    /// Ends a repetition as soon as there is a reason to stop, and begins no other.
    #[must_use]
    pub fn until(mut self, stop: Stop) -> Self {
        self.stop = stop;
        self
    }

    /// Writes the frames of the first repetition into a file that Wireshark opens. Without a link there are none.
    #[must_use]
    pub fn with_capture(mut self, path: Option<PathBuf>) -> Self {
        self.capture = path;
        self
    }

    /// Has lines written for a watcher while something is measured.
    #[must_use]
    pub fn watched(mut self, watcher: Option<Watcher>) -> Self {
        self.watcher = watcher;
        self
    }

    /// Gives each repetition of these experiments a process of its own, where the gateway is ours and on this machine.
    #[must_use]
    pub fn with_alone(mut self, experiments: Vec<Experiment>) -> Self {
        self.alone = experiments;
        self
    }

    /// The name of the target in reports.
    #[must_use]
    pub fn target(&self) -> String {
        match &self.target {
            Target::Gateway(_) => format!("fogmux {}", env!("CARGO_PKG_VERSION")),
            Target::Agent(remote) => plain(&format!("fogmux {} by an agent", remote.software())),
            Target::Peer(peer) => peer.name.clone(),
        }
    }

    /// The gateway's machine as it is now, where it is another one.
    #[must_use]
    pub fn gateway_environment(&self) -> Option<Environment> {
        match &self.target {
            Target::Agent(remote) => remote.environment().and_then(|machine| cleaned(&machine).ok()),
            Target::Gateway(_) | Target::Peer(_) => None,
        }
    }

    /// One repetition, which is `number` of its experiment from 0. Has to be called within a `LocalRuntime`.
    ///
    /// # Errors
    /// There is nothing to be measured; why is said.
    pub async fn repeat(&mut self, experiment: &Experiment, number: u32) -> Result<Outcome, ConductorError> {
        let watcher = self.watcher.clone();
        let done = match self.stopped_by() {
            Some(why) => Err(ConductorError::Stopped(why)),
            None => self.execute(experiment, number).await,
        };
        if let Some(watcher) = watcher {
            let problem = done.as_ref().err().map(ToString::to_string);
            watcher.ended(experiment, number, problem.as_deref());
        }
        done
    }

    /// The reason to stop, if there is one.
    fn stopped_by(&self) -> Option<&'static str> {
        *self.stop.borrow()
    }

    async fn execute(&mut self, experiment: &Experiment, number: u32) -> Result<Outcome, ConductorError> {
        let stop = self.stop.clone();
        experiment.check()?;
        if let Target::Gateway(home) = &self.target
            && self.alone.contains(experiment)
        {
            return tokio::select! {
                biased;
                why = stopped(stop) => Err(ConductorError::Stopped(why)),
                done = alone::repeat(home.binary(), experiment, number) => done,
            };
        }
        let experiment = experiment.clone().normalized();
        self.lay(&experiment, number)?;
        let link = self.network.laid();
        let (mut serving, publishers, subscribers, probe) = match &mut self.target {
            Target::Gateway(home) if experiment.has_origin() => {
                let _beside = link.map(Laid::enter_gateway).transpose()?;
                let address = link.map_or_else(|| "127.0.0.1".to_owned(), |laid| laid.gateway_address().to_string());
                let origin = Apart::start(home, &experiment, &address)?;
                let access = origin.access(home, &experiment);
                let probe = here(&origin.pids());
                (Serving::Apart(origin), access.clone(), access, probe)
            }
            Target::Gateway(home) => {
                let gateway = started(home, link, &[&experiment])?;
                let publishers = gateway.access(home, &experiment, experiment.door)?;
                let subscribers = gateway.access(home, &experiment, experiment.reader_door())?;
                let probe = here(&gateway.pids());
                (Serving::Gateway(gateway), publishers, subscribers, probe)
            }
            Target::Agent(remote) => {
                let (gateway, publishers, subscribers) = remote.start(&experiment)?;
                let probe = GatewayProbe::Elsewhere(remote.probe());
                (Serving::Agent(gateway), publishers, subscribers, Some(probe))
            }
            Target::Peer(peer) => {
                let readers = peer.reader_access.as_ref().unwrap_or(&peer.access);
                (Serving::Peer(peer.pids.clone()), peer.access.clone(), readers.clone(), here(&peer.pids))
            }
        };
        let capture = self.capture.take();
        let capture = link.zip(capture).map(|(laid, path)| laid.capture(Some(&path), (), |(), _| {})).transpose()?;
        let began_unix_ms = now_unix_ms();
        let gateway_affinity = serving.pids().first().copied().and_then(limits::affinity);
        let watch = Watch::of(&serving.pids()).map_err(ConductorError::Processes)?;
        let since = Rc::default();
        let work = self.work(&experiment, None, (publishers, subscribers));
        let tasks = tasks();
        let drive = async { self.drive(&[work], number, probe, &since).await?.pop().ok_or(ConductorError::Nothing) };
        let done = tokio::select! {
            biased;
            why = stopped(stop) => Err(ConductorError::Stopped(why)),
            done = drive => done,
            pid = watch.ended() => Err(ended(&mut serving, pid, &since)),
        };
        gone(tasks, &done).await;
        let measured_from_unix_ms = before_now_unix_ms(&since);
        let mut outcome = witnessed(done, &mut serving, &watch, &since).await?;
        capture.map_or(Ok(()), complete)?;
        self.network.note(&mut outcome);
        outcome.settings = serving.settings();
        outcome.began_unix_ms = began_unix_ms;
        outcome.measured_from_unix_ms = measured_from_unix_ms;
        outcome.gateway_affinity = gateway_affinity;
        self.note_target(&mut outcome)?;
        Ok(outcome)
    }

    /// Notes what only some targets have.
    fn note_target(&self, outcome: &mut Outcome) -> Result<(), ConductorError> {
        match &self.target {
            Target::Gateway(home) => outcome.more.extend(program_bytes(home.binary())),
            Target::Agent(remote) => {
                remote.check()?;
                outcome.more.insert("agent.others_cpu_s".to_owned(), remote.others_cpu_s());
            }
            Target::Peer(_) => {}
        }
        Ok(())
    }

    /// Lays the network that the experiment asks for, where we may.
    fn lay(&mut self, experiment: &Experiment, number: u32) -> Result<(), ConductorError> {
        let elsewhere = match self.target {
            Target::Gateway(_) => None,
            Target::Agent(_) => Some("with an agent the network is the one between the hosts: use loopback"),
            Target::Peer(_) => Some("a broker that runs already is where it is: use loopback"),
        };
        match elsewhere {
            Some(why) if experiment.link != "loopback" => Err(TargetError::Unsupported(why.to_owned()).into()),
            Some(_) | None => Ok(self.network.lay(experiment, number)?),
        }
    }

    /// Does the experiments of all runs, each as often as is asked for, as [`repetition::interleave`] orders them.
    /// `note` is told what each repetition came to, with the place of its run.
    pub async fn perform(
        &mut self,
        runs: Vec<Run>,
        repetitions: Repetitions,
        progress: &mut dyn FnMut(&Experiment, u32),
        note: &mut dyn FnMut(usize, &Result<Outcome, Void>),
    ) -> Vec<Run> {
        repetition::interleave(runs, repetitions, async |run, experiment, number| {
            if self.stop.borrow().is_none() {
                progress(experiment, number);
            }
            let done = self.repeat(experiment, number).await.map_err(Void::from);
            note(run, &done);
            done
        })
        .await
    }
}
