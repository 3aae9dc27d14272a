//! MQTT: every normative statement that binds a server, asked of the running gateway.
//!
//! The statements are in `mqtt/5.txt` and `mqtt/3.1.1.txt`. A case names those that it proves, `5:3.1.0-1` for
//! [MQTT-3.1.0-1] of version 5. A case that did not run, or failed, proves nothing.

mod client;
mod connect;
mod flow;
mod limits;
mod malformed;
mod publish;
mod statements;
mod subscribe;

use fogmux_tests::suite::Case;

pub(crate) use statements::check;

/// A case, and the statements that it proves.
pub(crate) struct Proof {
    name: &'static str,
    run: fn() -> anyhow::Result<String>,
    proves: &'static str,
}

/// All of them.
fn proofs() -> impl Iterator<Item = &'static Proof> {
    let tables = [malformed::PROOFS, connect::PROOFS, flow::PROOFS, publish::PROOFS, subscribe::PROOFS, limits::PROOFS];
    tables.into_iter().flatten()
}

/// The cases without their statements.
pub(crate) fn cases() -> Vec<Case> {
    proofs().map(|proof| Case { name: proof.name, run: proof.run }).collect()
}
