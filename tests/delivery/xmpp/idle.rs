//! The cost of idle connections.

use std::time::Duration;

use anyhow::{Result, ensure};
use fogmux_tests::xmpp::{Session, Via};

use super::Setup;

/// Connections, few enough for the usual limit of open files.
const COUNT: usize = 400;

/// Bytes of resident memory that one idle connection adds. Measured on a 64-bit machine: 2.4 KiB without TLS, 9.5 with,
/// of which the TLS stack needs 7.
pub(super) fn memory() -> Result<String> {
    let mut said = Vec::new();
    for (via, bytes_max) in [(Via::Plain, 3_072), (Via::StartTls, 11_264), (Via::DirectTls, 11_264)] {
        let mut setup = Setup::start(&[])?;
        let open = |count: usize| (0..count).map(|_| setup.session(via)).collect::<Result<Vec<Session>>>();
        // The first ones pay for what is shared.
        drop(open(50)?);
        let none = |open: f64| open < 0.5;
        setup.gateway.wait_metric("fogmux_door_connections{door=\"xmpp\"}", Duration::from_secs(10), none)?;
        let before = setup.gateway.resident_bytes()?;
        let sessions = open(COUNT)?;
        let each = setup.gateway.resident_bytes()?.saturating_sub(before) / 400;
        ensure!(each <= bytes_max, "{each} bytes for each connection, {via:?}");
        said.push(format!("{via:?} {each} B"));
        drop(sessions);
        setup.gateway.settle()?;
    }
    Ok(said.join(", "))
}
