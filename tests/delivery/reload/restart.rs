//! Keys that a reload does not apply.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::Gateway;
use rustix::process::Signal;

use super::credentials::private;
use super::reference::{self, Key};
use super::{PATIENCE, RELOADED, RESTART, made, quoted};

/// Another value that is accepted, with what has to be said beside it.
fn other(key: &Key, place: &Path) -> Result<String> {
    let line = |value: String| format!("{} = {value}\n", key.name);
    let last = key.name.rsplit('.').next().unwrap_or_default();
    let file = |name: &str| quoted(&place.join(name));
    Ok(match (key.name.as_str(), last) {
        ("tls.certificate_file" | "tls.key_file", _) => {
            let (certificate, secret) = (file("data/pki/server.pem"), file("data/pki/server.key"));
            format!("tls.certificate_file = {certificate}\ntls.key_file = {secret}\n")
        }
        ("tls.client_ca_file", _) => line(file("data/pki/ca.pem")),
        ("tls.crl_file", _) => line(file("data/pki/crl.pem")),
        ("auth.admin_password_file", _) => line(file("password")),
        // One listener is left: without any there is nothing for a gateway to do.
        ("listeners.defaults.enabled", _) => line("false".into()) + "listeners.mqtt.enabled = true\n",
        ("store.path", _) => line(file("elsewhere")),
        ("store.profile", _) => line("\"ram\"".into()),
        ("store.durability", _) => line("\"none\"".into()),
        ("store.group_delay", _) => line("\"50ms\"".into()),
        ("mqtt.slow_subscriber", _) => line("\"drop_oldest\"".into()),
        ("coap.prove_address", _) => line("\"all\"".into()),
        ("coap.block_bytes_max" | "coap.multicast.block_bytes_max", _) => line("\"512B\"".into()),
        ("discovery.name", _) => line("\"kitchen\"".into()),
        ("xmpp.domain", _) => line("\"fog.example\"".into()),
        ("http.hosts", _) => line("[\"fog.example\"]".into()),
        ("http.origins", _) => line("[\"https://panel.example\"]".into()),
        ("mqtt.client_identifiers", _) => line("\"shared\"".into()),
        ("proxy.addresses", _) => line("[\"192.0.2.1\"]".into()),
        ("proxy.header", _) => line("\"forwarded\"".into()),
        ("tls.crl_expiry", _) => line("\"refuse\"".into()),
        ("acme.domains", _) => line("[\"fog.example\"]".into()) + "acme.agree_to_terms = true\n",
        ("acme.directory", _) => line("\"https://acme.example/directory\"".into()),
        ("acme.ca_file", _) => line(file("data/pki/ca.pem")),
        ("acme.challenge", _) => line("\"tls-alpn-01\"".into()),
        ("telemetry.traces.endpoint", _) => line("\"http://127.0.0.1:4318/v1/traces\"".into()),
        ("telemetry.traces.ca_file", _) => line(file("data/pki/ca.pem")),
        ("telemetry.traces.service_name", _) => line("\"kitchen\"".into()),
        ("acme.contact", _) => line("[\"ops@fog.example\"]".into()),
        ("acme.external_account" | "acme.external_account_key_file", _) => {
            format!("acme.external_account = \"fog\"\nacme.external_account_key_file = {}\n", file("password"))
        }
        (_, "dtls_versions") => line("[\"1.2\"]".into()),
        (_, "proxy_protocol") => line("true".into()) + "proxy.addresses = [\"192.0.2.1\"]\n",
        (_, "address") => line("\"127.0.0.2:0\"".into()),
        (_, "auth") => line("[\"password\"]".into()),
        (_, "profile") => line("\"pki\"".into()),
        (_, "client_certificates") => line("\"required\"".into()),
        _ => line(next(&key.value).with_context(|| format!("no other value for {} = {}", key.name, key.value))?),
    })
}

/// A flag turned, or a number that is one more, with its unit.
fn next(value: &str) -> Option<String> {
    match value {
        "true" => return Some("false".into()),
        "false" => return Some("true".into()),
        _ => {}
    }
    let (text, quote) = match value.strip_prefix('"') {
        Some(rest) => (rest.strip_suffix('"')?, "\""),
        None => (value, ""),
    };
    let digits = text.find(|byte: char| !byte.is_ascii_digit() && byte != '_').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.replace('_', "").parse().ok()?;
    Some(format!("{quote}{}{unit}{quote}", number + 1))
}

pub(super) fn each() -> Result<String> {
    let mut gateway = Gateway::start_configured("")?;
    let data = gateway.data();
    let place = data.parent().context("the data directory has no parent")?;
    private(&place.join("password"), "secret\n")?;
    // A revocation list.
    made(&["pki", "client", "dev1", "--data", &data.display().to_string()])?;
    made(&["pki", "revoke", "dev1", "--data", &data.display().to_string()])?;
    let mut wrong = Vec::new();
    // A listener with the name of a kind has that kind and no other.
    let has_other = |key: &Key| !key.name.ends_with(".kind");
    let keys: Vec<Key> = reference::keys()?.into_iter().filter(|key| !key.reloadable && has_other(key)).collect();
    for key in &keys {
        gateway.configure(&other(key, place)?)?;
        gateway.forget_log()?;
        gateway.signal(Signal::HUP)?;
        gateway.wait_log(RELOADED, PATIENCE).with_context(|| key.name.clone())?;
        let said = gateway.whole_log();
        let section = key.name.split('.').next().unwrap_or_default();
        if !said.lines().any(|line| line.contains(&format!("[{section}]")) && line.contains(RESTART)) {
            wrong.push(key.name.as_str());
        }
    }
    ensure!(wrong.is_empty(), "nothing was said of {wrong:?}");
    // Back to what the gateway was started with: nothing waits.
    gateway.configure("")?;
    gateway.forget_log()?;
    gateway.signal(Signal::HUP)?;
    gateway.wait_log(RELOADED, PATIENCE)?;
    ensure!(!gateway.whole_log().contains(RESTART), "something waits for a restart although nothing differs");
    gateway.settle()?;
    Ok(format!("{} keys", keys.len()))
}
