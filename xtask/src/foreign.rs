//! The black-box suites: the built gateway against clients, testers and attackers.

use anyhow::Result;

use crate::command::{cargo, command, run};
use crate::tree::Tree;
use crate::{gateway, setup};

/// h2spec, and the malformed packets of MQTT and CoAP with the answers that the standards name.
pub(crate) fn conformance(tree: &Tree) -> Result<()> {
    setup::h2spec(tree)?;
    let binary = gateway::build(tree)?;
    let mut tests = cargo(&["test", "--package", "fogmux-tests", "--test", "conformance", "--locked"]);
    run(tests.current_dir(tree.root()).env("FOGMUX_BIN", binary).env("H2SPEC", tree.h2spec()))
}

/// What must not end the gateway, nor bloat it, nor slow the others.
pub(crate) fn hostile(tree: &Tree) -> Result<()> {
    let binary = gateway::build(tree)?;
    let mut tests = cargo(&["test", "--package", "fogmux-tests", "--test", "hostile", "--locked"]);
    run(tests.current_dir(tree.root()).env("FOGMUX_BIN", binary))
}

/// Every publisher by every reader, with clients that others wrote.
pub(crate) fn interop(tree: &Tree) -> Result<()> {
    setup::clients(tree)?;
    let binary = gateway::build(tree)?;
    let mut python = command(tree.python(), &["-u"]);
    python.arg(tree.root().join("tests/interop")).arg("--bin").arg(binary);
    run(python.current_dir(tree.root()).env("FOGMUX_CLIENTS", tree.clients()).env("PYTHONDONTWRITEBYTECODE", "1"))
}
