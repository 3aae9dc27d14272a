//! Configurations and users that are refused.

use std::fs;
use std::io::Write;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::Gateway;

use super::line::wait_up;
use crate::mqtt_bridge::peer::{Mosquitto, Reader, publish};

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

/// A bridge with a password becomes a link that connects and renames as Mosquitto does.
pub(super) fn imported() -> Result<String> {
    let home = tempfile::tempdir()?;
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755))?;
    let users = home.path().join("users");
    let made = Command::new("mosquitto_passwd").args(["-c", "-b"]).arg(&users).args(["fog", "right"]).status()?;
    ensure!(made.success(), "mosquitto_passwd: {made}");
    fs::set_permissions(&users, fs::Permissions::from_mode(0o644))?;
    let open = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
    let mosquitto = Mosquitto::start_closed(&format!(
        "per_listener_settings false\nallow_anonymous true\npassword_file {}\nlistener {} 127.0.0.1\n",
        users.display(),
        open.port()
    ))?;
    let (conf, links) = (home.path().join("mosquitto.conf"), home.path().join("links.toml"));
    let bridge = "bridge_protocol_version mqttv50\nremote_username fog\nremote_password right\nremote_clientid site1\n\
                  topic # both 2 room/ site1/\ntopic x in 1 orders/ do/\nround_robin true\n";
    fs::write(&conf, format!("connection Site 1\naddress {}\n{bridge}", mosquitto.address))?;
    let (conf, into) = (conf.display().to_string(), links.display().to_string());
    let (is_good, said) = fogmux(&["import", "mosquitto", &conf], home.path(), "")?;
    ensure!(is_good && said.contains("mosquitto.conf:1: left out: --links"), "{said}");
    let (is_good, said) = fogmux(&["import", "mosquitto", &conf, "--links", &into], home.path(), "")?;
    ensure!(is_good && said.contains("1 links imported") && said.contains("round_robin has no counterpart"), "{said}");
    ensure!(!said.contains("right"), "the password is shown: {said}");
    let secret = home.path().join("links/site-1.password");
    ensure!(fs::metadata(&secret)?.permissions().mode() & 0o077 == 0, "others may read the password");
    let gateway = Gateway::start_configured(&fs::read_to_string(&links)?)?;
    wait_up(&gateway, "site-1")?;
    let mut here = Reader::open(gateway.address("mqtt")?, "here", &["#"])?;
    let mut there = Reader::open(open, "there", &["site1/#"])?;
    publish(gateway.address("mqtt")?, "room/a", 2, &[], &["out".to_owned()])?;
    there.until_value("site1/a", "out")?;
    publish(open, "do/x", 1, &[], &["in".to_owned()])?;
    here.until_value("orders/x", "in")?;
    let (is_good, said) = fogmux(&["import", "mosquitto", &conf, "--links", &into], home.path(), "")?;
    ensure!(!is_good && said.contains("--replace"), "{said}");
    Ok(String::new())
}
