//! `listeners.coaps.dtls_versions`: 1.2 only, 1.3 only or both, with our client, which offers both, and with OpenSSL,
//! which has 1.2.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use fogmux_tests::coap::{self, CON, GET};
use fogmux_tests::dtls::{self, Session};
use fogmux_tests::gateway::Gateway;

const FILES: &[(&str, &str)] =
    &[("psk.toml", "[[psk]]\nidentity = \"device\"\nkey = \"30313233343536373839616263646566\"\n")];
const KEY: &[u8] = b"0123456789abcdef";

pub(super) fn offered() -> Result<String> {
    let mut told = Vec::new();
    for (versions, has_older) in [("[\"1.2\"]", true), ("[\"1.3\"]", false), ("[\"1.3\", \"1.2\"]", true)] {
        let setting = format!("listeners.coaps.dtls_versions={versions}");
        let mut gateway = Gateway::start_furnished(&[&setting], FILES)?;
        super::retain(&gateway, [("versions/a".to_owned(), b"here".to_vec())].into_iter())?;
        let port = gateway.address("coaps")?.port();
        let url = format!("coaps://localhost:{port}/versions/a");
        for credentials in [&[][..], &["--psk-id", "device", "--psk", "30313233343536373839616263646566"]] {
            let got = get(&gateway, &url, credentials)?;
            ensure!(got == b"here", "{versions} {credentials:?}: fogmux get has {:?}", String::from_utf8_lossy(&got));
        }
        let context = dtls::psk("device", KEY)?;
        let session = Session::open(&context, dtls::endpoint(gateway.address("coaps")?, 0)?);
        ensure!(session.is_ok() == has_older, "{versions}: OpenSSL's DTLS 1.2 got {session:?}");
        match session {
            Ok(mut session) => {
                let answer = session.exchange(&coap::request(CON, GET, 1, b"ve", "versions/a", &[], b""))?;
                ensure!(coap::dotted(&answer) == "2.05", "{}", coap::dotted(&answer));
            }
            Err(error) => told.push(format!("{:#}", error)),
        }
        gateway.check_alive()?;
    }
    let told = told.join("; ");
    ensure!(told.contains("protocol version"), "RFC 5246 §7.2.2: {told}");
    Ok(told)
}

fn get(gateway: &Gateway, url: &str, more: &[&str]) -> Result<Vec<u8>> {
    let binary = std::env::var("FOGMUX_BIN").context("FOGMUX_BIN names no gateway")?;
    let mut command = Command::new(binary);
    command.args(["get", url, "--timeout", "10"]).args(more).arg("--ca").arg(gateway.ca());
    let output = command.output()?;
    ensure!(output.status.success(), "fogmux get {url}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(output.stdout.trim_ascii_end().to_vec())
}
