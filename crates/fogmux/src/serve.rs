//! `fogmux serve`: starts the gateway, says where it is, and waits for signals.
//!
//! SIGTERM and SIGINT drain within a deadline, a second one ends at once. SIGHUP reads configuration, users, rules and
//! certificates again, all of them or none.

mod administer;
mod banner;
mod clock;
mod expiry;
mod logging;
mod looked;
mod memory;
mod notify;
mod reload;
mod renewal;
mod watch;

use std::path::Path;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval};

pub(crate) use self::logging::Log;
use self::memory::Memory;
use self::notify::ServiceManager;
use self::reload::Reloader;
use self::watch::Watch;
use crate::backup::control::{Control, Copies};
use crate::check::{self, read};
use crate::cli::Serve;
use crate::client::runtime;
use crate::compose::{self, Running};
use crate::config::Config;
use crate::exit::{Failure, OrFail as _, Status};
use crate::{admin_password, data, home, kept, modes, parent};

/// Runs a gateway until a signal ends it.
pub(crate) fn run(arguments: &Serve) -> Result<(), Failure> {
    if let Some(parent) = arguments.end_with {
        parent::end_with(parent)?;
    }
    fogmux_memory::configure();
    let config = configuration(arguments)?;
    let log = Log::start(&config.log)?;
    let queue = log.queue();
    let outcome = serve(arguments, config, log);
    // By the way of the log: to print it could wait for ever for whoever reads it.
    let outcome = outcome.map_err(|failure| failure.said(|message| queue.push(message.into_bytes())));
    queue.finish();
    outcome
}

fn serve(arguments: &Serve, config: Config, log: Log) -> Result<(), Failure> {
    let directory = data::directory(arguments.data.directory.as_deref())?;
    // Until the process ends. A directory that cannot be made is home's to report.
    let _ = data::make(&directory);
    let _locked = data::lock(&directory)?;
    kept::check_start(&config, &directory)?;
    data::check_authority(&directory)?;
    let home = home::prepare(&config, &directory)?;
    // Begins before anything is read. Certificates have been, so once more.
    let mut watch = Watch::new(&config, &home);
    if let Some(tls) = &home.tls {
        tls.reload().or_fail(Status::Config, "certificates")?;
    }
    modes::warn_of_open(&config, &home.directory);
    let runtime = runtime()?;
    // Before the doors open: whoever is answered may send a signal.
    let signals = {
        let _context = runtime.enter();
        Signals::listen()?
    };
    let running = compose::start(&config, &home)?;
    let copies = Copies::default();
    let _control = open_control(&running, &home.directory, &copies);
    watch.remember(&home);
    admin_password::look(&running.authority, &home.directory);
    for warning in check::warnings(&config, Some(&home.directory)) {
        tracing::warn!("{warning}");
    }
    let reloader = Reloader::new(arguments.clone(), config, home, log, watch, copies);
    runtime.block_on(supervise(running, reloader, signals))
}

/// Opens the control socket. A gateway goes on without it where the disk cannot be written; then there is no backup
/// while it runs.
fn open_control(running: &Running, directory: &Path, copies: &Copies) -> Option<Control> {
    Control::open(directory, running.store(), Copies::clone(copies))
        .inspect_err(
            |error| tracing::warn!(%error, "no control socket: a backup is possible only when the gateway is stopped"),
        )
        .ok()
}

/// Files, `--set` and `--free-ports` to one configuration.
pub(crate) fn configuration(arguments: &Serve) -> Result<Config, Failure> {
    let mut config = read(arguments.config.as_deref().map(Path::new), &arguments.set)?;
    if arguments.free_ports {
        config.listeners.free_ports();
    }
    Ok(config)
}

async fn supervise(running: Running, mut reloader: Reloader, signals: Signals) -> Result<(), Failure> {
    let mut manager = ServiceManager::from_environment();
    let Signals { mut stop, mut hang_up } = signals;
    let every = manager.watchdog();
    let mut watchdog = interval(every.unwrap_or(Duration::from_secs(3600)));
    watchdog.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut look = interval(watch::LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut memory = Memory::new();
    let mut commands = reloader.administration(&running);
    reloader.announce(&running);
    #[cfg(feature = "otlp")]
    let exporter = reloader.exporter(&running);
    #[cfg(feature = "mqtt")]
    let mut links = reloader.links(&running);
    manager.ready();
    loop {
        tokio::select! {
            () = stop.requested() => break,
            _ = hang_up.recv() => {
                manager.reloading();
                let outcome = reloader.reload(&running).await;
                #[cfg(feature = "mqtt")]
                links.replace(&reloader.config.links, &running.gateway).await;
                manager.reloaded(outcome);
            }
            Some(command) = commands.recv() => reloader.administer(&running, command),
            _ = look.tick() => {
                reloader.look(&running);
                memory.look(&running.gateway.shared);
                manager.retry();
            }
            _ = watchdog.tick(), if every.is_some() => manager.alive(),
        }
    }
    manager.stopping();
    // Requests from now on are refused: the wait for an answer would keep their connections open for the whole drain.
    drop(commands);
    tracing::info!("stopping; a second signal ends at once");
    let drain = reloader.drain();
    let stopped = async {
        // While the gateway drains, which waits for the connection that a link has to it. What it has not passed on
        // stays in its session.
        #[cfg(feature = "mqtt")]
        let links = links.stop();
        #[cfg(not(feature = "mqtt"))]
        let links = std::future::ready(());
        let (stopped, (), ()) = tokio::join!(running.stop(drain), reloader.stop(), links);
        // Behind the last deliveries.
        #[cfg(feature = "otlp")]
        exporter.finish().await;
        stopped
    };
    tokio::select! {
        stopped = stopped => stopped,
        () = stop.requested() => {
            tracing::warn!("ended at once");
            Err(Failure::silent(Status::Unavailable))
        }
    }
}

/// The signals that a gateway handles.
struct Signals {
    stop: Stop,
    hang_up: Signal,
}

impl Signals {
    fn listen() -> Result<Self, Failure> {
        take_limit_of_file_size()?;
        Ok(Self { stop: Stop::listen()?, hang_up: listen(SignalKind::hangup())? })
    }
}

/// Has a file that may not grow refuse to (EFBIG), which the store takes for a full disk, where SIGXFSZ would end the
/// process: the handler stays for as long as it runs.
fn take_limit_of_file_size() -> Result<(), Failure> {
    listen(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw())).map(drop)
}

/// SIGTERM and SIGINT.
pub(crate) struct Stop {
    terminate: Signal,
    interrupt: Signal,
}

impl Stop {
    /// Takes the signals over from the system.
    pub(crate) fn listen() -> Result<Self, Failure> {
        Ok(Self { terminate: listen(SignalKind::terminate())?, interrupt: listen(SignalKind::interrupt())? })
    }

    /// Returns when one of them comes.
    pub(crate) async fn requested(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

fn listen(kind: SignalKind) -> Result<Signal, Failure> {
    signal(kind).map_err(|error| Failure::io("signals", &error))
}
