//! `fogmux bench agent`: starts gateways on this host for a generator on another.

use std::net::SocketAddr;
use std::path::Path;

use fogmux_traffic::agent::{self, AgentError, Keys};
use tokio::signal::unix::{SignalKind, signal};

use super::arguments::Agent;
use crate::data;
use crate::exit::{Failure, Status};
use crate::output::say;

/// The agent's directory below the data directory.
const KEYS: &str = "agent";

/// Listens until a signal arrives, then stops what it has started.
pub(super) fn run(arguments: &Agent) -> Result<(), Failure> {
    let directory = match &arguments.keys {
        Some(directory) => directory.clone(),
        None => data::default_directory()?.join(KEYS),
    };
    let keys = Keys::open_or_make(&directory).map_err(failed)?;
    let agent = agent::Agent::bind(arguments.listen, &keys, super::binary()?).map_err(failed)?;
    let io = |error: std::io::Error| Failure::io("agent", &error);
    let hear = |kind| signal(kind).map_err(io);
    // Signals first: a reader of the address may send one at once.
    let ended = super::block_on(async {
        let mut terminate = hear(SignalKind::terminate())?;
        let mut interrupt = hear(SignalKind::interrupt())?;
        agent.start().map_err(io)?;
        announce(arguments, agent.address().map_err(io)?, keys.bundle())?;
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        Ok::<_, Failure>(())
    })?;
    agent.stop();
    ended
}

fn announce(arguments: &Agent, address: SocketAddr, bundle: &Path) -> Result<(), Failure> {
    if arguments.json {
        let key = bundle.display().to_string();
        return say!("{}\n", serde_json::json!({ "address": address, "agent_key": key }));
    }
    say!("agent at {address}; key for the other host: {}\n", bundle.display())?;
    say!("on the other host: fogmux bench run --agent {address} --agent-key agent.pem\n")?;
    match address.ip() {
        ip if ip.is_loopback() => say!("It is reachable from this host only; use --listen for another address.\n")?,
        ip if ip.is_unspecified() => say!("On the other host, use an address of this host instead of {ip}.\n")?,
        _ => {}
    }
    if address.ip().is_loopback() {
        return Ok(());
    }
    say!("Gateways that it starts are open to everybody who can reach this address.\n")
}

fn failed(error: AgentError) -> Failure {
    Failure::new(Status::Unavailable, error)
}
