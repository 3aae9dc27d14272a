//! Signals that end a measurement: what it has started is ended, and what it has measured is written.

use fogmux_traffic::conductor::Stop;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use crate::exit::{Failure, Status};

/// Takes SIGINT, SIGTERM and SIGHUP over from the system. Has to be called within a `LocalRuntime`, before anything is
/// started that would be left behind.
pub(super) fn stop() -> Result<Stop, Failure> {
    let (tell, stop) = watch::channel(None);
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut terminate = listen(SignalKind::terminate())?;
    let mut hang_up = listen(SignalKind::hangup())?;
    tokio::task::spawn_local(async move {
        let name = tokio::select! {
            _ = interrupt.recv() => "SIGINT",
            _ = terminate.recv() => "SIGTERM",
            _ = hang_up.recv() => "SIGHUP",
        };
        // A conductor that has finished is not told.
        let _ = tell.send(Some(name));
    });
    Ok(stop)
}

/// The exit status of a measurement that a signal has ended.
pub(super) fn failure(signal: &str) -> Failure {
    let status = match signal {
        "SIGINT" => Status::Interrupted,
        "SIGHUP" => Status::HungUp,
        _ => Status::Terminated,
    };
    Failure::new(status, format!("ended by {signal}; the results until then are above"))
}

fn listen(kind: SignalKind) -> Result<Signal, Failure> {
    signal(kind).map_err(|error| Failure::io("signals", &error))
}
