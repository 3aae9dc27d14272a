//! `fogmux bench agent`: starts gateways on this host for a generator on another.

use std::net::SocketAddr;
use std::path::Path;

use fogmux_traffic::agent::{self, AgentError, Keys};
use tokio::signal::unix::{SignalKind, signal};

use super::arguments::Agent;
use crate::data;
use crate::exit::{Failure, Status};

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
    // Signals first: a reader of the address may send one at once.
    let ended = super::block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        agent.start()?;
        announce(arguments, agent.address()?, keys.bundle());
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        Ok::<_, std::io::Error>(())
    })?;
    ended.map_err(io)?;
    agent.stop();
    Ok(())
}

fn announce(arguments: &Agent, address: SocketAddr, bundle: &Path) {
    if arguments.json {
        let key = bundle.display().to_string();
        return println!("{}", serde_json::json!({ "address": address, "agent_key": key }));
    }
    println!("agent at {address}; key for the other host: {}", bundle.display());
    println!("on the other host: fogmux bench run --agent {address} --agent-key agent.pem");
    match address.ip() {
        ip if ip.is_loopback() => println!("It is reachable from this host only; use --listen for another address."),
        ip if ip.is_unspecified() => println!("On the other host, use an address of this host instead of {ip}."),
        _ => {}
    }
    if !address.ip().is_loopback() {
        println!("Gateways that it starts are open to everybody who can reach this address.");
    }
}

fn failed(error: AgentError) -> Failure {
    Failure::new(Status::Unavailable, error)
}
