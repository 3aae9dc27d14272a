//! Log lines about refused tokens: each names the holder that the token claims, and never the token.

use std::fs;
use std::io::Write as _;

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::{mqtt, tcp, tls, xmpp};

use super::refused_log::{lines, wait_line};
use super::{PATIENCE, connack, secrets, status};
use crate::logins::users;

const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";
const OTHER: &[u8] = b"fedcba9876543210fedcba9876543210";
/// Not a JWT, and a secret all the same.
const OPAQUE: &str = "0paque-t0ken-of-another-service";
/// Characters of a claim that a line holds.
const CLAIM_MAX: usize = 128;

/// A token of somebody who has another key than the gateway.
fn forged(holder: &str) -> Result<String> {
    let claims = serde_json::json!({ "sub": holder, "exp": 4_000_000_000_u64 });
    secrets::signed(r#"{"alg":"HS256","typ":"JWT"}"#, &claims.to_string(), OTHER)
}

/// Whether CONNECT of version 3.1.1 with this user name, and a password if there is one, is refused.
fn is_refused(gateway: &Gateway, client: &str, user: &str, password: Option<&str>) -> Result<bool> {
    let mut body = mqtt::string(b"MQTT");
    body.extend([mqtt::V4, if password.is_some() { 0xc2 } else { 0x82 }, 0, 60]);
    for text in [client, user].into_iter().chain(password) {
        body.extend(mqtt::string(text.as_bytes()));
    }
    let mut stream = tcp::connect(gateway.address("mqtt")?)?;
    stream.write_all(&mqtt::packet(0x10, &body))?;
    Ok(connack(&mut stream)? != 0)
}

/// The value of the field `claimed` as it stands in the line.
fn claimed(line: &str) -> Result<&str> {
    let (_, rest) = line.split_once(" claimed=\"").context("no claim")?;
    rest.split_once("\" client=").map(|(claimed, _)| claimed).context("no end of the claim")
}

pub(super) fn tokens() -> Result<String> {
    let home = tempfile::tempdir()?;
    let key = home.path().join("jwt.key");
    fs::write(&key, SECRET)?;
    let key_file = format!("auth.token.key_file={}", serde_json::Value::from(key.display().to_string()));
    let settings = [&key_file, "mqtt.allow_user_without_password=true", "auth.backoff.free_failures=1000"];
    let settings = [&settings[..], &["log.refused_logins_per_address=1000"]].concat();
    let mut gateway = Gateway::start_furnished(&settings, &[("users.toml", &users(0, 0))])?;
    let http = gateway.address("http")?;
    let bearer = |token: &str| -> Result<()> {
        let status = status(http, "/topics/a", &format!("Authorization: Bearer {token}\r\n"))?;
        ensure!(status.contains("401"), "Bearer: {status}");
        Ok(())
    };
    let mut shown = vec![OPAQUE.to_owned()];
    let mut made = |holder: &str| -> Result<String> {
        let token = forged(holder)?;
        shown.push(token.clone());
        Ok(token)
    };
    // HTTP.
    bearer(&made("ada")?)?;
    wait_line(&gateway, &["door=http", "by=token", "claimed=\"ada\"", "wrong name or secret"])?;
    bearer(OPAQUE)?;
    wait_line(&gateway, &["door=http", "by=token", "claimed=\"\""])?;
    // A password of MQTT, whatever user is named beside it.
    ensure!(is_refused(&gateway, "pump-3", "anybody", Some(&made("bob")?))?, "a forged token was taken");
    wait_line(&gateway, &["door=mqtt", "by=token", "claimed=\"bob\"", "client=\"pump-3\""])?;
    // A user name of MQTT without a password, and with one.
    for (holder, password, by) in [("cyd", None, "by=token"), ("dan", Some("wrong"), "by=password")] {
        ensure!(is_refused(&gateway, "pump-4", &made(holder)?, password)?, "a forged token was taken");
        wait_line(&gateway, &["door=mqtt", by, &format!("claimed=\"{holder}\"")])?;
    }
    // A client identifier, of a client that is refused and of one whose action is: both are named without it.
    ensure!(is_refused(&gateway, &made("kim")?, "ada", Some("wrong"))?, "a wrong password was taken");
    wait_line(&gateway, &["door=mqtt", "by=password", "claimed=\"ada\"", "client=\"\""])?;
    let mut connection = mqtt::Connection::open(gateway.address("mqtt")?, mqtt::V4, &made("lee")?)?;
    connection.stream.write_all(&mqtt::publish(mqtt::V4, b"$SYS/x", b"", 0, false, 0))?;
    gateway.wait_log("action refused", PATIENCE)?;
    drop(connection);
    // XMPP by OAUTHBEARER (RFC 7628 §3.1).
    let message = format!("n,,\u{1}auth=Bearer {}\u{1}\u{1}", made("eve")?);
    let message = openssl::base64::encode_block(message.as_bytes());
    let (stream, config) = (tcp::connect(gateway.address("xmpps")?)?, tls::config(gateway.ca())?);
    let mut session = xmpp::Session::begin_sasl(stream, &config, "OAUTHBEARER", &message)?;
    session.until("</challenge>")?;
    // §3.2.3: one byte says that the reason was read.
    session.respond_sasl("AQ==")?;
    session.until("</failure>")?;
    drop(session);
    wait_line(&gateway, &["door=xmpp", "by=sasl", "claimed=\"eve\""])?;
    // A client chooses what a holder is called: that writes no field, no line and no colour.
    let before = gateway.whole_log().lines().count();
    let hostile =
        format!("x\" reason=\"\n2026 WARN fogmux::audit: login refused peer=192.0.2.1 \u{1b}[31m\u{202e}{:y<4000}", "");
    bearer(&made(&hostile)?)?;
    let line = wait_line(&gateway, &["door=http", "claimed=\"x\\\" reason=\\\"\\n2026"])?;
    ensure!(claimed(&line)?.matches('y').count() < CLAIM_MAX, "not cut: {line}");
    ensure!(gateway.whole_log().lines().count() == before + 1, "more than one line");
    let log = gateway.whole_log();
    ensure!(!log.contains('\u{1b}') && !log.contains('\u{202e}'), "the log holds control characters");
    for token in &shown {
        let parts = token.split('.').map(|part| part.get(..32).unwrap_or(part));
        for part in parts.filter(|part| part.len() >= 24) {
            ensure!(!log.contains(part), "the log holds a part of a token: {part}");
        }
    }
    gateway.settle()?;
    Ok(format!("{} lines", lines(&gateway).len()))
}
