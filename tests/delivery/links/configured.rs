//! Configurations and users that are refused.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// Runs a command of the gateway's program. Returns whether it succeeded, and what it said.
fn fogmux(words: &[&str], data: &Path, input: &str) -> Result<(bool, String)> {
    let binary = std::env::var("FOGMUX_BIN").context("FOGMUX_BIN")?;
    let mut command = Command::new(binary);
    command.args(words).arg("--data").arg(data);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    // It may not read.
    let _ = child.stdin.take().context("no standard input")?.write_all(input.as_bytes());
    let output = child.wait_with_output()?;
    let said = [output.stdout, output.stderr].concat();
    Ok((output.status.success(), String::from_utf8_lossy(&said).into_owned()))
}

/// `fogmux check` and the start refuse what would not work, and name both.
pub(super) fn clashes() -> Result<String> {
    let home = tempfile::tempdir()?;
    let file = home.path().join("fogmux.toml");
    let path = file.display().to_string();
    let link = |name: &str, client: &str, entries: &str| {
        format!("[links.{name}]\nurl = \"mqtts://Broker.example\"\nclient_id = \"{client}\"\n{entries}\n")
    };
    let (out, both) = ("out = [{ filter = \"a\" }]", "in = [{ filter = \"a/+\" }, { filter = \"a/b/#\" }]");
    let apart = "in = [{ filter = \"a/+/c\" }, { filter = \"a/b\" }]";
    for (text, named) in [
        (
            link("north", "site1", out) + &link("south", "site1", out).replace("Broker", "broker"),
            vec!["north", "south"],
        ),
        (link("north", "site1", both), vec!["\"a/+\"", "\"a/b/#\""]),
        (link("north", "site1", out) + &link("south", "site2", apart), vec![]),
        (link("north", "site1", out) + &link("south", "site1", out).replace("example", "example:8884"), vec![]),
    ] {
        fs::write(&file, &text)?;
        let (is_good, said) = fogmux(&["check", &path], home.path(), "")?;
        ensure!(is_good == named.is_empty(), "{text}{said}");
        if !is_good {
            ensure!(named.iter().all(|name| said.contains(name)), "{text}{said}");
            let (starts, said) = fogmux(&["serve", "-c", &path, "--free-ports"], home.path(), "")?;
            ensure!(!starts && named.iter().all(|name| said.contains(name)), "{said}");
        }
    }
    Ok(String::new())
}

/// `link:NAME` is the name of a link only: whoever had it, by whatever credential, would have the rules of that link.
pub(super) fn names() -> Result<String> {
    let home = tempfile::tempdir()?;
    let configuration = home.path().join("fogmux.toml");
    fs::write(&configuration, "")?;
    let check = ["check", configuration.to_str().context("a path that is no text")?];
    let (is_good, said) = fogmux(&["passwd", "link:north"], home.path(), "secret-secret\n")?;
    ensure!(!is_good && said.contains("links to other brokers"), "{said}");
    let (is_good, said) = fogmux(&["passwd", "linked"], home.path(), "secret-secret\n")?;
    ensure!(is_good, "{said}");
    let users = fs::read_to_string(home.path().join("users.toml"))?;
    for (name, text) in [
        ("users.toml", users.replace("linked", "link:north")),
        ("psk.toml", "[[psk]]\nidentity = \"link:north\"\nkey = \"000102030405060708090a0b0c0d0e0f\"\n".to_owned()),
        ("certificates.toml", "[[certificate]]\ncommon_name = \"a\"\nuser = \"link:north\"\n".to_owned()),
    ] {
        let file = home.path().join(name);
        let before = fs::read(&file).ok();
        fs::write(&file, text)?;
        let (is_good, said) = fogmux(&check, home.path(), "")?;
        ensure!(!is_good && said.contains("links to other brokers"), "{name}: {said}");
        match before {
            Some(before) => fs::write(&file, before)?,
            None => fs::remove_file(&file)?,
        }
        let (is_good, said) = fogmux(&check, home.path(), "")?;
        ensure!(is_good, "{name}: {said}");
    }
    Ok(String::new())
}
