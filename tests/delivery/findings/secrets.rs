//! Secrets at rest, and credentials that are withdrawn.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::{Gateway, Plan};
use fogmux_tests::{mqtt, tcp};
use openssl::hash::MessageDigest;
use openssl::pkey::PKey;
use openssl::sign::Signer;

use super::PATIENCE;

pub(super) fn admin_password() -> Result<String> {
    let mut gateway = Gateway::start(&[])?;
    let file = gateway.data().join("admin-password");
    ensure!(file.exists(), "no password was left for the administrator");
    // Another user's password does not matter.
    passwd(&gateway.data(), "alice")?;
    gateway.wait_log("users, rules and keys are read again", PATIENCE)?;
    ensure!(file.exists(), "the file went with another's password");
    // By the command.
    passwd(&gateway.data(), "admin")?;
    ensure!(!file.exists(), "the file outlives its password");
    gateway.check_alive()?;
    // By a file that is replaced under a running gateway.
    let mut gateway = Gateway::start(&[])?;
    let file = gateway.data().join("admin-password");
    let users = gateway.data().join("users.toml");
    let text = fs::read_to_string(&users)?;
    let other = tempfile::tempdir()?;
    passwd(other.path(), "admin")?;
    ensure!(text != fs::read_to_string(other.path().join("users.toml"))?, "the same users");
    fs::copy(other.path().join("users.toml"), &users)?;
    let deadline = Instant::now() + PATIENCE;
    while file.exists() {
        ensure!(Instant::now() < deadline, "the file outlives its password:\n{}", gateway.log());
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    gateway.check_alive()?;
    Ok(String::new())
}

pub(super) fn passwd(data: &Path, user: &str) -> Result<()> {
    let binary = std::env::var("FOGMUX_BIN").context("FOGMUX_BIN")?;
    let mut command = Command::new(binary);
    let mut child =
        command.args(["passwd", user, "--data"]).arg(data).stdin(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    child.stdin.take().context("no input")?.write_all(b"another password\n")?;
    ensure!(child.wait()?.success(), "passwd {user}");
    Ok(())
}

pub(super) fn modes() -> Result<String> {
    let home = tempfile::tempdir()?;
    let data = home.path().join("my data");
    fs::create_dir(&data)?;
    fs::set_permissions(&data, fs::Permissions::from_mode(0o755))?;
    // umask 022, as a shell has it; the directory was there before.
    let launcher = ["sh", "-c", "umask 022; exec \"$@\"", "sh"];
    let mut gateway = Gateway::start_as(Plan { data: Some(&data), launcher: &launcher, ..Plan::default() })?;
    let mut client = mqtt::Connection::open(gateway.address("mqtt")?, mqtt::V4, "keeper")?;
    client.stream.write_all(&mqtt::publish(mqtt::V4, b"a/b", b"kept", 1, true, 1))?;
    client.read()?;
    let mut open = Vec::new();
    find_open(&data, &mut open)?;
    ensure!(open.is_empty(), "others can reach {open:?}");
    gateway.wait_log("chmod -R go= '", PATIENCE)?;
    let log = gateway.whole_log();
    let (_, command) = log.split_once("close it with: ").context("no command")?;
    let command = command.split(" first=").next().unwrap_or_default().lines().next().unwrap_or_default();
    drop(client);
    gateway.check_alive()?;
    drop(gateway);
    // The command mends it: the next start has nothing to say.
    ensure!(Command::new("sh").args(["-c", command]).status()?.success(), "{command}");
    let gateway = Gateway::start_as(Plan { data: Some(&data), launcher: &launcher, ..Plan::default() })?;
    ensure!(!gateway.whole_log().contains("chmod"), "{}", gateway.log());
    Ok(command.to_owned())
}

/// Files below a directory that group or others may use.
fn find_open(directory: &Path, open: &mut Vec<String>) -> Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        if metadata.permissions().mode() & 0o077 != 0 {
            open.push(format!("{} {:o}", entry.path().display(), metadata.permissions().mode()));
        }
        if metadata.is_dir() {
            find_open(&entry.path(), open)?;
        }
    }
    Ok(())
}

pub(super) fn removed_key() -> Result<String> {
    const ONE: &[u8] = b"0123456789abcdef0123456789abcdef";
    const TWO: &[u8] = b"fedcba9876543210fedcba9876543210";
    let set = |keys: &[(&str, &[u8])]| {
        let one = |(id, key): &(&str, &[u8])| format!(r#"{{"kty":"oct","kid":"{id}","k":"{}"}}"#, base64url(key));
        let keys: Vec<_> = keys.iter().map(one).collect();
        format!("{{\"keys\":[{}]}}", keys.join(","))
    };
    let home = tempfile::tempdir()?;
    let file = home.path().join("jwks.json");
    fs::write(&file, set(&[("one", ONE), ("two", TWO)]))?;
    let setting = format!("auth.token.jwks_file={}", serde_json::Value::from(file.display().to_string()));
    let mut gateway = Gateway::start(&[&setting, "listeners.mqtt.anonymous=false"])?;
    let log_in = |id: &str, key: &[u8]| -> Result<mqtt::Connection> {
        let mut connection = mqtt::Connection::over(tcp::connect(gateway.address("mqtt")?)?, mqtt::V4);
        connection.stream.write_all(&connect(&format!("device-{id}"), &token(id, key)?))?;
        let (first, body) = connection.read()?;
        ensure!(first == 0x20 && body.get(1) == Some(&0), "CONNACK {body:?} for the token of key {id}");
        Ok(connection)
    };
    let (mut one, mut two) = (log_in("one", ONE)?, log_in("two", TWO)?);
    fs::write(&file, set(&[("two", TWO)]))?;
    gateway.wait_log("users, rules and keys are read again", PATIENCE)?;
    let end = tcp::read_end(&mut one.stream, PATIENCE)?;
    ensure!(end.is_closed(), "the connection outlives the key of its token");
    // PINGREQ: the other key is still there.
    two.stream.write_all(&[0xc0, 0])?;
    ensure!(two.read()?.0 == 0xd0, "a connection ended whose key is there");
    ensure!(log_in("one", ONE).is_err(), "a token of a removed key was taken");
    drop((one, two));
    gateway.check_alive()?;
    Ok(String::new())
}

/// CONNECT of version 3.1.1 with a token in the place of the password.
fn connect(client: &str, token: &str) -> Vec<u8> {
    let mut body = mqtt::string(b"MQTT");
    body.extend([mqtt::V4, 0xc2, 0, 60]);
    for text in [client, "any", token] {
        body.extend(mqtt::string(text.as_bytes()));
    }
    mqtt::packet(0x10, &body)
}

/// A token of user `device` for an hour, signed by HS256.
fn token(id: &str, key: &[u8]) -> Result<String> {
    token_with(id, key, "")
}

/// The same with further claims, each behind a comma.
pub(super) fn token_with(id: &str, key: &[u8], more: &str) -> Result<String> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_secs();
    let claims = format!(r#"{{"sub":"device","exp":{}{more}}}"#, now + 3600);
    signed(&format!(r#"{{"alg":"HS256","kid":"{id}"}}"#), &claims, key)
}

/// A token of this header and these claims, signed by HS256.
pub(super) fn signed(header: &str, claims: &str, key: &[u8]) -> Result<String> {
    let signed = format!("{}.{}", base64url(header.as_bytes()), base64url(claims.as_bytes()));
    let key = PKey::hmac(key)?;
    let signature = Signer::new(MessageDigest::sha256(), &key)?.sign_oneshot_to_vec(signed.as_bytes())?;
    Ok(format!("{signed}.{}", base64url(&signature)))
}

fn base64url(bytes: &[u8]) -> String {
    openssl::base64::encode_block(bytes).replace('+', "-").replace('/', "_").trim_end_matches('=').to_owned()
}
