//! Where users, rules, keys and contexts are read from.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::suite::Case;

use super::{Row, Subject, basic, fogmux, get, made, quoted};
use crate::logins::users;

pub(super) const USERS: Row =
    Row { keys: &["auth.users_file"], case: Case { name: "reload: auth.users_file", run: users_file } };
pub(super) const RULES: Row =
    Row { keys: &["auth.acl_file"], case: Case { name: "reload: auth.acl_file", run: rules_file } };
pub(super) const PRE_SHARED_KEYS: Row =
    Row { keys: &["auth.psk_file"], case: Case { name: "reload: auth.psk_file", run: pre_shared_keys } };
pub(super) const CERTIFICATES: Row = Row {
    keys: &["auth.certificates_file", "auth.certificate_users_only"],
    case: Case { name: "reload: auth.certificates_file, auth.certificate_users_only", run: certificates },
};
pub(super) const API_CHANGES: Row =
    Row { keys: &["auth.api_changes"], case: Case { name: "reload: auth.api_changes", run: api_changes } };
pub(super) const CONTEXTS: Row =
    Row { keys: &["coap.oscore.directory"], case: Case { name: "reload: coap.oscore.directory", run: contexts } };

/// Writes what only its owner may read.
pub(super) fn private(path: &Path, text: &str) -> Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    Ok(file.write_all(text.as_bytes())?)
}

fn users_file() -> Result<String> {
    let place = tempfile::tempdir()?;
    let other = place.path().join("users.toml");
    private(&other, &users(0, 1))?;
    let mut subject = Subject::start(&[], &[("users.toml", &users(0, 0))])?;
    let look = |gateway: &Gateway| Ok(get(gateway, "a", &basic("u0", "secret"))?.0);
    subject.changes(("auth.users_file", &quoted(&other)), (401, 404), look)?;
    Ok(String::new())
}

fn rules_file() -> Result<String> {
    let place = tempfile::tempdir()?;
    let other = place.path().join("acl.toml");
    private(&other, "[[allow]]\nanonymous = true\nread = [\"b\"]\n")?;
    let rules = "[[allow]]\nanonymous = true\nread = [\"a\"]\n";
    let mut subject = Subject::start(&[], &[("acl.toml", rules)])?;
    let look = |gateway: &Gateway| anyhow::Ok((get(gateway, "a", "")?.0, get(gateway, "b", "")?.0));
    let [yes, no] = [404, look(&subject.gateway)?.1];
    ensure!(matches!(no, 401 | 403), "{no} where no rule allows");
    subject.changes(("auth.acl_file", &quoted(&other)), ((yes, no), (no, yes)), look)?;
    Ok(String::new())
}

fn pre_shared_keys() -> Result<String> {
    let place = tempfile::tempdir()?;
    let (data, key) = (place.path().display().to_string(), "000102030405060708090a0b0c0d0e0f");
    made(&["pki", "psk", "dev1", "--key", key, "--data", &data])?;
    let psk = ("listeners.coaps.profile", "\"psk\"");
    let mut subject = Subject::start(&[psk, ("listeners.coaps_tcp.profile", "\"psk\"")], &[])?;
    let look = |gateway: &Gateway| -> Result<[bool; 2]> {
        let publish = |scheme: &str, listener: &str| -> Result<bool> {
            let url = format!("{scheme}://localhost:{}/a", gateway.address(listener)?.port());
            Ok(fogmux(&["pub", &url, "x", "--psk-id", "dev1", "--psk", key, "--timeout", "5"])? == 0)
        };
        Ok([publish("coaps", "coaps")?, publish("coaps+tcp", "coaps_tcp")?])
    };
    let file = place.path().join("psk.toml");
    subject.changes(("auth.psk_file", &quoted(&file)), ([false; 2], [true; 2]), look)?;
    Ok(String::new())
}

fn certificates() -> Result<String> {
    let place = tempfile::tempdir()?;
    let rules =
        "[[allow]]\nuser = \"alice\"\nread = [\"of/alice\"]\n[[allow]]\nuser = \"dev1\"\nread = [\"of/dev1\"]\n";
    let mut subject = Subject::start(&[], &[("acl.toml", rules), ("users.toml", &users(0, 0))])?;
    made(&["pki", "client", "dev1", "--data", &subject.gateway.data().display().to_string()])?;
    let look = |gateway: &Gateway| -> Result<[String; 2]> {
        let file = |name: &str| gateway.data().join("pki/clients").join(name);
        let get = |topic: &str| -> Result<String> {
            let url = format!("https://localhost:{}/topics/{topic}", gateway.address("https")?.port());
            let mut curl = Command::new("curl");
            curl.args(["-sS", "-o", "/dev/null", "-w", "%{http_code}", "--cacert"]).arg(gateway.ca());
            let output =
                curl.arg("--cert").arg(file("dev1.pem")).arg("--key").arg(file("dev1.key")).arg(url).output()?;
            ensure!(output.status.success(), "curl: {}", String::from_utf8_lossy(&output.stderr));
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        };
        Ok([get("of/dev1")?, get("of/alice")?])
    };
    let is = |own: &str, alice: &str| [own.to_owned(), alice.to_owned()];
    let [_, refused] = look(&subject.gateway).context("certificate")?;
    ensure!(refused == "403", "{refused} where no rule allows");
    // dev1 is no user of the users file.
    let only = "auth.certificate_users_only";
    let denied = |gateway: &Gateway| Ok(look(gateway)?.map(|code| code == "404"));
    subject.changes((only, "true"), ([true, false], [false, false]), denied)?;
    subject.set(only, "false")?;
    let other = place.path().join("certificates.toml");
    private(&other, "[[certificate]]\ncommon_name = \"dev1\"\nuser = \"alice\"\n")?;
    let key = "auth.certificates_file";
    subject.changes((key, &quoted(&other)), (is("404", "403"), is("403", "404")), look)?;
    Ok(String::new())
}

fn api_changes() -> Result<String> {
    let mut subject = Subject::start(&[], &[("users.toml", &fogmux_tests::users::file(&["admin"]))])?;
    let look = |gateway: &Gateway| -> Result<bool> {
        let head = format!(
            "PUT /api/v1/users/new HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{}Content-Type: \
             application/json\r\nContent-Length: 2\r\n\r\n{{}}",
            basic("admin", "secret")
        );
        let answer = String::from_utf8(fogmux_tests::tcp::ask(gateway.address("http")?, head.as_bytes())?)?;
        ensure!(answer.starts_with("HTTP/1.1 201") || answer.contains("changes-off"), "{answer}");
        Ok(answer.starts_with("HTTP/1.1 201"))
    };
    subject.changes(("auth.api_changes", "true"), (false, true), look)?;
    Ok(String::new())
}

fn contexts() -> Result<String> {
    let place = tempfile::tempdir()?;
    let (data, device) = (place.path().display().to_string(), place.path().join("device.toml").display().to_string());
    made(&["pki", "oscore", "dev1", "--data", &data, "--out", &device])?;
    let mut subject = Subject::start(&[], &[])?;
    let look = |gateway: &Gateway| -> Result<bool> {
        let url = format!("coap://localhost:{}/a", gateway.address("coap")?.port());
        Ok(fogmux(&["pub", &url, "x", "--oscore", &device, "--timeout", "5"])? == 0)
    };
    let directory = place.path().join("oscore");
    subject.changes(("coap.oscore.directory", &quoted(&directory)), (false, true), look)?;
    Ok(String::new())
}
