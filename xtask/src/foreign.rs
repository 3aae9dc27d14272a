//! The black-box suites: the built gateway against clients, testers and attackers.

use anyhow::{Result, bail};

use crate::command::{cargo_tree, command, run, run_both};
use crate::tree::Tree;
use crate::{footprint, gateway, peers, setup};

/// h2spec, and the malformed packets of MQTT and CoAP with the answers that the standards name.
pub(crate) fn conformance(tree: &Tree) -> Result<()> {
    setup::h2spec(tree)?;
    let binary = gateway::build(tree)?;
    let mut tests = cargo_tree("test", &["--test", "conformance"]);
    run(tests.current_dir(tree.root()).env("FOGMUX_BIN", binary).env("H2SPEC", tree.h2spec()))
}

/// The cases of MQTT alone, and each statement of the standards with its proof.
pub(crate) fn statements(tree: &Tree, words: &[&str]) -> Result<()> {
    if words != ["mqtt"] {
        bail!("`cargo xtask conformance mqtt`: there are statements of MQTT only");
    }
    let binary = gateway::build(tree)?;
    let mut tests = cargo_tree("test", &["--test", "conformance", "--", "mqtt"]);
    run(tests.current_dir(tree.root()).env("FOGMUX_BIN", binary).env("FOGMUX_STATEMENTS", "1"))
}

/// The delivery suite: accepted messages arrive, at every door and over every transport, and memory is returned.
pub(crate) fn delivery(tree: &Tree) -> Result<()> {
    setup::clients(tree)?;
    setup::neighbours()?;
    let binary = gateway::build(tree)?;
    let mut tests = cargo_tree("test", &["--test", "delivery"]);
    tests.current_dir(tree.root()).env("FOGMUX_BIN", binary).env("FOGMUX_CLIENTS", tree.clients());
    run(&mut tests)
}

/// The hostile suite: attacks must neither end the gateway, nor bloat it, nor slow other clients.
pub(crate) fn hostile(tree: &Tree) -> Result<()> {
    let binary = gateway::build(tree)?;
    let mut tests = cargo_tree("test", &["--test", "hostile"]);
    run(tests.current_dir(tree.root()).env("FOGMUX_BIN", binary))
}

/// Every publisher by every reader, with clients that others wrote. Scenarios and the commands of the documents wait
/// for most of their time, so they run beside the rest.
pub(crate) fn interop(tree: &Tree) -> Result<()> {
    setup::clients(tree)?;
    setup::browser()?;
    let binary = gateway::build(tree)?;
    let python = |option: &str, state: &str| {
        let mut python = command(tree.python(), &["-u"]);
        python.arg(tree.root().join("tests/interop")).arg("--bin").arg(&binary);
        python.args([option, "scenarios", option, "documents"]);
        python.env("FOGMUX_CLIENTS", tree.clients()).env("XDG_STATE_HOME", tree.target().join("tmp").join(state));
        python.current_dir(tree.root()).env("PYTHONDONTWRITEBYTECODE", "1");
        python
    };
    run_both(&mut python("--part", "state"), &mut python("--skip", "state-of-others"))
}

/// The traffic generator: runs every bench of a door once, at every door and against foreign servers. Then opens the
/// pages that it writes in a browser: they fit a phone and a desktop, load nothing, and log nothing to the console.
/// Screenshots and a print stay under the target directory.
pub(crate) fn bench(tree: &Tree) -> Result<()> {
    setup::browser()?;
    setup::peers(tree)?;
    setup::links()?;
    run(cargo_tree("test", &["--test", "report"]).current_dir(tree.root()))?;
    let made = tree.target().join("tmp");
    let pages = ["matrix/report.html", "paper/report.html", "hostile/report.html", "comparison/compare.html"];
    let pages = pages.map(|page| made.join("report").join(page));
    let binary = gateway::build(tree)?;
    let mut suite = cargo_tree("test", &["--test", "generator"]);
    suite.env("FOGMUX_BIN", binary).env("FOGMUX_CLIENTS", tree.clients()).env("PYTHONDONTWRITEBYTECODE", "1");
    run(suite.current_dir(tree.root()))?;
    peers::shortened(tree)?;
    footprint::shortened(tree)?;
    run(cargo_tree("test", &["--bench", "doors"]).current_dir(tree.root()))?;
    let mut browser = command("node", &["tests/bench/browser.mjs"]);
    run(browser.arg(made.join("screenshots")).args(pages).current_dir(tree.root()))
}
