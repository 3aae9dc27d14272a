//! Log lines about refused logins and refused actions: one for each, with peer, claim and reason, never a secret.

use std::fs;
use std::io::Write;
use std::net::Ipv4Addr;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::{coap, dtls, mqtt, tcp, tls, xmpp};
use openssl::ssl::SslVersion;

use super::{PATIENCE, TLS_PSK, connack, keys, status, tls_psk};
use crate::logins::{answer, begin, users};

/// The secret that every wrong login shows.
const WRONG: &str = "Wr0ngSecret";
const RULES: &str = "[[allow]]\nuser = \"alice\"\nread = [\"open/#\"]\nwrite = [\"open/#\"]\n";

/// The lines of the log about refused logins.
pub(super) fn lines(gateway: &Gateway) -> Vec<String> {
    gateway.whole_log().lines().filter(|line| line.contains("login refused")).map(str::to_owned).collect()
}

/// Waits for a line with all of these words.
pub(super) fn wait_line(gateway: &Gateway, words: &[&str]) -> Result<String> {
    let deadline = std::time::Instant::now() + PATIENCE;
    loop {
        let found = lines(gateway).into_iter().find(|line| words.iter().all(|word| line.contains(word)));
        if let Some(line) = found {
            return Ok(line);
        }
        ensure!(std::time::Instant::now() < deadline, "no line with {words:?}:\n{}", gateway.log());
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

pub(super) fn logins() -> Result<String> {
    let files = [("users.toml", &*users(0, 0)), ("psk.toml", &*keys())];
    let home = tempfile::tempdir()?;
    let key = home.path().join("jwt.key");
    fs::write(&key, "0123456789abcdef0123456789abcdef")?;
    let key_file = format!("auth.token.key_file={}", serde_json::Value::from(key.display().to_string()));
    let settings = [TLS_PSK, &key_file];
    let mut gateway = Gateway::start_furnished(&settings, &files)?;
    // MQTT by password.
    let mut refused = begin(&gateway, Ipv4Addr::new(127, 0, 3, 1), "alice", WRONG)?;
    ensure!(answer(&mut refused)? != 0, "a wrong password was taken");
    wait_line(&gateway, &["peer=127.0.3.1", "door=mqtt", "by=password", "claimed=\"alice\"", "wrong name or secret"])?;
    // HTTP by password and by token.
    let http = gateway.address("http")?;
    // alice:Wr0ngSecret
    let basic = status(http, "/topics/a", "Authorization: Basic YWxpY2U6V3IwbmdTZWNyZXQ=\r\n")?;
    ensure!(basic.contains("401"), "Basic: {basic}");
    wait_line(&gateway, &["peer=127.0.0.1", "door=http", "by=password", "claimed=\"alice\""])?;
    let token = format!("Authorization: Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbGljZSJ9.{WRONG:A<43}\r\n");
    let bearer = status(http, "/topics/a", &token)?;
    ensure!(bearer.contains("401"), "Bearer: {bearer}");
    wait_line(&gateway, &["door=http", "by=token", "claimed=\"alice\"", "wrong name or secret"])?;
    // XMPP by PLAIN: \0alice\0Wr0ngSecret
    let config = tls::config(gateway.ca())?;
    let stream = tcp::connect(gateway.address("xmpps")?)?;
    ensure!(
        xmpp::Session::plain_password(stream, &config, "AGFsaWNlAFdyMG5nU2VjcmV0", "x").is_err(),
        "PLAIN was taken"
    );
    wait_line(&gateway, &["door=xmpp", "claimed=\"alice\"", "wrong name or secret"])?;
    // TLS and DTLS by a wrong key.
    ensure!(tls_psk(gateway.address("mqtts")?, SslVersion::TLS1_2, "dev", WRONG.as_bytes()).is_err(), "TLS-PSK");
    wait_line(&gateway, &["door=mqtt", "by=psk", "claimed=\"dev\"", "key was not proven"])?;
    let coaps = gateway.address("coaps")?;
    let wrong = dtls::psk("dev", b"Wr0ngSecret")?;
    ensure!(dtls::Session::open(&wrong, dtls::endpoint(coaps, 0)?).is_err(), "a wrong key was taken by DTLS");
    wait_line(&gateway, &["door=coap", "by=psk", "claimed=\"dev\"", "key was not proven"])?;
    // OSCORE under a key identifier that nobody has: Partial IV 1, kid 0x5a (RFC 8613 §6.1).
    let socket = coap::endpoint(gateway.address("coap")?)?;
    let sealed = coap::message(0, 2, 7, b"t", &[(9, &[0x09, 0x01, 0x5a])], &[0; 24]);
    coap::exchange(&socket, &sealed, b"t")?;
    wait_line(&gateway, &["door=coap", "by=oscore", "claimed=\"5a\"", "Security context not found"])?;
    // No word of what was shown.
    let log = gateway.whole_log();
    for secret in [WRONG, "V3IwbmdTZWNyZXQ", "AGFsaWNlAFdyMG5nU2VjcmV0"] {
        ensure!(!log.contains(secret), "the log holds the secret {secret}");
    }
    certificate(&gateway)?;
    gateway.settle()?;
    Ok(format!("{} lines", lines(&gateway).len()))
}

/// A client certificate of another authority.
fn certificate(gateway: &Gateway) -> Result<()> {
    let home = tempfile::tempdir()?;
    let (cert, key) = (home.path().join("c.pem"), home.path().join("k.pem"));
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"])
        .args(["-subj", "/CN=alice", "-keyout"])
        .arg(&key)
        .arg("-out")
        .arg(&cert)
        .output()?;
    ensure!(made.status.success(), "openssl req: {}", String::from_utf8_lossy(&made.stderr));
    let url = format!("https://localhost:{}/topics/a", gateway.address("https")?.port());
    let mut curl = Command::new("curl");
    curl.args(["-sS", "--cacert"]).arg(gateway.ca()).arg("--cert").arg(&cert).arg("--key").arg(&key).arg(url);
    ensure!(!curl.output()?.status.success(), "a certificate of another authority was taken");
    wait_line(gateway, &["peer=127.0.0.1", "door=http", "by=certificate", "reason="])?;
    Ok(())
}

pub(super) fn injection() -> Result<String> {
    let mut gateway = Gateway::start_furnished(&[], &[("users.toml", &users(0, 0))])?;
    let forged =
        "x\" reason=\"\n2026-01-01T00:00:00Z  WARN fogmux::audit: login refused peer=192.0.2.1 \u{1b}[31m\u{202e}";
    let before = gateway.whole_log().lines().count();
    let mut refused = begin(&gateway, Ipv4Addr::new(127, 0, 3, 2), forged, "wrong")?;
    // A control character in a name is malformed in MQTT; whatever the answer, the log keeps its lines.
    let _ = answer(&mut refused);
    let mut stream = tcp::connect(gateway.address("http")?)?;
    // eAogV0FSTiBsb2dpbiByZWZ1c2VkIHBlZXI9MTkyLjAuMi4x…: "x\n WARN login refused peer=192.0.2.1\x1b[31m:y"
    stream.write_all(
        b"GET /topics/a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
          Authorization: Basic eAogV0FSTiBsb2dpbiByZWZ1c2VkIHBlZXI9MTkyLjAuMi4xG1szMW06eQ==\r\n\r\n",
    )?;
    tcp::read_end(&mut stream, PATIENCE)?;
    // A last one, by which both are there.
    ensure!(answer(&mut begin(&gateway, Ipv4Addr::new(127, 0, 3, 3), "alice", "wrong")?)? != 0, "taken");
    wait_line(&gateway, &["peer=127.0.3.3"])?;
    let log = gateway.whole_log();
    ensure!(!log.contains('\u{1b}') && !log.contains('\u{202e}'), "the log holds control characters");
    for line in log.lines().skip(before) {
        ensure!(line.contains("WARN") || line.contains("INFO"), "a line of somebody else's: {line}");
        ensure!(!line.trim_start().starts_with("WARN"), "a line of somebody else's: {line}");
        ensure!(!line.contains("login refused peer=192.0.2.1 port="), "a forged field comes first: {line}");
    }
    gateway.settle()?;
    Ok(String::new())
}

pub(super) fn limited() -> Result<String> {
    let mut gateway = Gateway::start_furnished(&[], &[("users.toml", &users(0, 0))])?;
    let guess = |from| -> Result<()> {
        ensure!(answer(&mut begin(&gateway, from, "alice", "wrong")?)? != 0, "a wrong password was taken");
        Ok(())
    };
    const GUESSES: usize = 97;
    for _ in 0..GUESSES {
        guess(Ipv4Addr::new(127, 0, 4, 1))?;
    }
    guess(Ipv4Addr::new(127, 0, 4, 2))?;
    wait_line(&gateway, &["peer=127.0.4.2"])?;
    let written = lines(&gateway).iter().filter(|line| line.contains("peer=127.0.4.1 ")).count();
    let unlogged = gateway.sum(&["fogmux_logins_unlogged_total"])?;
    // A minute may have turned meanwhile.
    ensure!((10..=30).contains(&written), "{written} lines for {GUESSES} guesses");
    let carried: u64 = lines(&gateway).iter().filter_map(|line| field(line, "suppressed=")).sum();
    ensure!(written as u64 + unlogged == GUESSES as u64, "{written} lines and {unlogged} others: {carried} carried");
    gateway.settle()?;
    Ok(format!("{written} lines, {unlogged} counted"))
}

/// A number in a line.
fn field(line: &str, name: &str) -> Option<u64> {
    line.split(' ').find_map(|word| word.strip_prefix(name))?.parse().ok()
}

pub(super) fn actions() -> Result<String> {
    let files = [("users.toml", &*users(0, 0)), ("acl.toml", RULES)];
    let mut gateway = Gateway::start_furnished(&["listeners.mqtt.anonymous=true"], &files)?;
    let mut client = mqtt::Connection::open(gateway.address("mqtt")?, mqtt::V5, "thermometer-7")?;
    let suback = client.subscribe(1, &["closed/a"], 1)?;
    ensure!(suback.last() == Some(&0x87), "SUBACK {suback:?}");
    gateway.wait_log("action refused", PATIENCE)?;
    let log = gateway.whole_log();
    let line = log.lines().find(|line| line.contains("action refused")).context("no line")?;
    for word in ["peer=127.0.0.1", "door=mqtt", "client=\"thermometer-7\"", "topic=\"closed/a\"", "no rule allows it"] {
        ensure!(line.contains(word), "no {word} in: {line}");
    }
    drop(client);
    gateway.settle()?;
    // Not a refused login: somebody who is let in.
    let mut stream = tcp::connect(gateway.address("mqtt")?)?;
    ensure!(connack(&mut stream)? == 0 && lines(&gateway).is_empty(), "refused: {:?}", lines(&gateway));
    Ok(String::new())
}
