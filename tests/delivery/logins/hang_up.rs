//! Clients of XMPP and HTTP that hang up while their passwords wait to be verified.

use std::io::Write;

use anyhow::{Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::{tcp, tls, xmpp};
use openssl::base64::encode_block;

use super::{PATIENCE, PATIENT, users};

const LOGINS: usize = 60;

pub(super) fn other_doors() -> Result<String> {
    let xmpp = hang_up("xmpp", |gateway| {
        let config = tls::config(gateway.ca())?;
        let begin = |number| {
            let credentials = encode_block(format!("\0nobody{number}\0guess").as_bytes());
            xmpp::Session::begin_plain(tcp::connect(gateway.address("xmpps")?)?, &config, &credentials)
        };
        (0..LOGINS).map(begin).collect::<Result<Vec<_>>>()
    })?;
    let http = hang_up("http", |gateway| {
        let begin = |number| {
            let credentials = encode_block(format!("nobody{number}:guess").as_bytes());
            let mut stream = tcp::connect(gateway.address("http")?)?;
            let request =
                format!("GET /topics/a HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic {credentials}\r\n\r\n");
            stream.write_all(request.as_bytes())?;
            Ok(stream)
        };
        (0..LOGINS).map(begin).collect::<Result<Vec<_>>>()
    })?;
    Ok(format!("{xmpp} and {http} of {LOGINS} logins were verified"))
}

/// Begins logins and closes them. Returns how many were verified all the same.
fn hang_up<T>(door: &str, begin: impl FnOnce(&Gateway) -> Result<Vec<T>>) -> Result<u64> {
    let settings = [PATIENT, "auth.verification.threads=1"];
    let mut gateway = Gateway::start_furnished(&settings, &[("users.toml", &users(0, 0))])?;
    let logins = begin(&gateway)?;
    gateway.wait_metric("fogmux_logins_waiting", PATIENCE, |waiting| waiting > 20.0)?;
    drop(logins);
    // The connection that asks for `/metrics` is one of HTTP's.
    let gone = if door == "http" { 1.0 } else { 0.0 };
    gateway.wait_metric(&format!("fogmux_door_connections{{door=\"{door}\"}}"), PATIENCE, |open| open <= gone)?;
    let verified = gateway.sum(&[&format!("fogmux_door_unauthenticated_total{{door=\"{door}\"}}")])?;
    ensure!(verified < LOGINS as u64 - 10, "{door}: {verified} were verified before their clients were gone");
    gateway.settle()?;
    Ok(verified)
}
