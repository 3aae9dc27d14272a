//! Users and rules over the administration API: what is changed holds at once and is in its file, and a mistake, a
//! stranger or an accident changes nothing.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::{Gateway, Plan};
use fogmux_tests::users::file;
use serde_json::{Value, json};

use super::ask;

pub(super) const ADMIN: &str = "admin:secret";
const RULES: &str = "# Whoever operates the plant.\n[[allow]]\nuser = \"admin\"\nboth = [\"$fogmux/admin\", \"#\"]\n";

#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) head: String,
    pub(super) body: String,
}

impl Answer {
    pub(super) fn json(&self) -> Result<Value> {
        serde_json::from_str(&self.body).with_context(|| self.body.clone())
    }

    fn tag(&self) -> Result<&str> {
        self.head.lines().find_map(|line| line.strip_prefix("etag: ")).context("no ETag")
    }

    pub(super) fn is(&self, status: u16, problem: &str) -> Result<()> {
        ensure!(self.status == status && self.body.contains(&format!("urn:fogmux:problem:{problem}")), "{self:?}");
        Ok(())
    }
}

/// Sends a request with the credentials `NAME:PASSWORD`, if they are not empty.
pub(super) fn send(gateway: &Gateway, request: &str, who: &str, headers: &str, body: &str) -> Result<Answer> {
    let login = match who {
        "" => String::new(),
        who => format!("Authorization: Basic {}\r\n", openssl::base64::encode_block(who.as_bytes())),
    };
    let (method, path) = request.split_once(' ').context("no path")?;
    let head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{login}{headers}");
    let answer = ask(gateway.address("http")?, &format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()))?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no body")?;
    let status = head.split(' ').nth(1).context("no status")?.parse()?;
    Ok(Answer { status, head: head.to_owned(), body: body.to_owned() })
}

fn put(gateway: &Gateway, path: &str, who: &str, body: &Value) -> Result<Answer> {
    let request = format!("PUT /api/v1/{path}");
    send(gateway, &request, who, "Content-Type: application/json\r\n", &body.to_string())
}

fn put_rules(gateway: &Gateway, who: &str, tag: &str, text: &str) -> Result<Answer> {
    let headers = format!("Content-Type: application/toml\r\nIf-Match: {tag}\r\n");
    send(gateway, "PUT /api/v1/rules", who, &headers, text)
}

fn start(rules: Option<&str>) -> Result<Gateway> {
    let users = format!("# Mine.\n{}", file(&["admin", "bob"]));
    let mut files = vec![("users.toml", users.as_str())];
    files.extend(rules.map(|rules| ("acl.toml", rules)));
    Gateway::start_as(Plan { settings: &["auth.api_changes=true"], files: &files, ..Plan::default() })
}

/// Whether a name and a password are taken.
fn logs_in(gateway: &Gateway, who: &str) -> Result<bool> {
    match send(gateway, "GET /topics/none", who, "", "")?.status {
        404 | 403 => Ok(true),
        401 => Ok(false),
        other => anyhow::bail!("{other}"),
    }
}

pub(super) fn users() -> Result<String> {
    let mut gateway = start(None)?;
    let path = gateway.data().join("users.toml");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640))?;
    let added = put(&gateway, "users/al%C3%AFce", ADMIN, &json!({"password": "first", "groups": ["ops", "a b"]}))?;
    ensure!(added.status == 201 && logs_in(&gateway, "al\u{ef}ce:first")?, "{added:?}");
    let changed = put(&gateway, "users/al%C3%AFce", ADMIN, &json!({"password": "second"}))?;
    ensure!(changed.status == 204 && logs_in(&gateway, "al\u{ef}ce:second")?, "{changed:?}");
    ensure!(!logs_in(&gateway, "al\u{ef}ce:first")?, "the old password is remembered");
    let text = fs::read_to_string(&path)?;
    ensure!(!text.contains("second") && text.contains("argon2id"), "{text}");
    ensure!(fs::metadata(&path)?.permissions().mode() & 0o777 == 0o640, "the mode has changed");
    let listed = send(&gateway, "GET /api/v1/users", ADMIN, "", "")?;
    let all = listed.json()?;
    let alice = all.pointer("/users/1").context("no second user")?;
    ensure!(all.pointer("/users/0/user") == Some(&json!("admin")), "{all}");
    let expected = json!({"user": "al\u{ef}ce", "groups": ["a b", "ops"], "password": true, "scram": true,
                          "disabled": false});
    ensure!(*alice == expected && !listed.body.contains('$'), "{listed:?}");
    let page = send(&gateway, "GET /api/v1/users?limit=1&after=admin", ADMIN, "", "")?.json()?;
    ensure!(page.get("next") == Some(&json!("al\u{ef}ce")), "{page}");
    let groups = send(&gateway, "GET /api/v1/groups", ADMIN, "", "")?.json()?;
    ensure!(groups.pointer("/groups/1") == Some(&json!({"group": "ops", "users": 1, "filters": 0})), "{groups}");
    ensure!(put(&gateway, "users/al%C3%AFce", ADMIN, &json!({"disabled": true}))?.status == 204, "disabled");
    ensure!(!logs_in(&gateway, "al\u{ef}ce:second")?, "a disabled user logs in");
    let delete = |user: &str, who: &str| send(&gateway, &format!("DELETE /api/v1/users/{user}"), who, "", "");
    ensure!(delete("al%C3%AFce", ADMIN)?.status == 204 && delete("al%C3%AFce", ADMIN)?.status == 404, "deleted");
    // Nobody but an administrator, who logs in, from whatever page: this machine alone is not enough here.
    for (who, status) in [("", 401), ("bob:secret", 403), ("admin:wrong", 401)] {
        ensure!(put(&gateway, "users/eve", who, &json!({"password": "x"}))?.status == status, "{who:?}");
        ensure!(delete("bob", who)?.status == status, "{who:?}");
    }
    let foreign = "Origin: http://evil.example\r\nContent-Type: application/json\r\n";
    send(&gateway, "PUT /api/v1/users/eve", ADMIN, foreign, "{}")?.is(403, "foreign-origin")?;
    send(&gateway, "PUT /api/v1/users/eve", ADMIN, "Content-Type: text/plain\r\n", "{}")?
        .is(415, "unsupported-media-type")?;
    put(&gateway, "users/anonymous", ADMIN, &json!({}))?.is(422, "unusable")?;
    put(&gateway, "users/eve", ADMIN, &json!({"password": "x".repeat(1025)}))?.is(422, "unusable")?;
    put(&gateway, "users/eve", ADMIN, &json!({"password": null}))?.is(400, "invalid-body")?;
    ensure!(!fs::read_to_string(&path)?.contains("eve"), "somebody was added");
    // An administrator who removes itself has to mean it.
    for (request, body) in [("DELETE /api/v1/users/admin", ""), ("PUT /api/v1/users/admin", "{\"disabled\":true}")] {
        let json = "Content-Type: application/json\r\n";
        send(&gateway, request, ADMIN, json, body)?.is(409, "loses-administration")?;
    }
    ensure!(logs_in(&gateway, ADMIN)?, "the administrator is gone");
    ensure!(delete("admin?force=true", ADMIN)?.status == 204 && !logs_in(&gateway, ADMIN)?, "by force");
    let log = gateway.whole_log();
    ensure!(log.contains("user changed") && log.contains("by=\"admin\"") && log.contains("user removed"), "{log}");
    ensure!(!log.contains("first") && !log.contains("second"), "a password is in the log");
    gateway.check_alive()?;
    Ok(String::new())
}

pub(super) fn rules() -> Result<String> {
    let mut gateway = start(Some(RULES))?;
    let path = gateway.data().join("acl.toml");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644))?;
    let read = send(&gateway, "GET /api/v1/rules", ADMIN, "", "")?;
    let document = read.json()?;
    ensure!(
        document.get("text") == Some(&json!(RULES)) && document.get("changeable") == Some(&json!(true)),
        "{read:?}"
    );
    let alone = send(&gateway, "GET /api/v1/rules", ADMIN, "Accept: application/toml\r\n", "")?;
    ensure!(alone.body == RULES && alone.tag()? == read.tag()?, "{alone:?}");
    let seen = |gateway: &Gateway| anyhow::Ok(send(gateway, "GET /topics/none", "bob:secret", "", "")?.status);
    ensure!(seen(&gateway)? == 403, "bob reads before there is a rule");
    let open = format!("{RULES}\n# For bob.\n[[allow]]\nuser = \"bob\"\nread = \"#\"\n");
    let without = send(&gateway, "PUT /api/v1/rules", ADMIN, "Content-Type: application/toml\r\n", &open)?;
    without.is(428, "precondition-required")?;
    put_rules(&gateway, ADMIN, "\"0000000000000000\"", &open)?.is(412, "precondition-failed")?;
    put_rules(&gateway, "bob:secret", "*", &open)?.is(403, "forbidden")?;
    put_rules(&gateway, "", "*", &open)?.is(401, "unauthorized")?;
    let wrong =
        put_rules(&gateway, ADMIN, read.tag()?, &format!("{open}\n[[deny]]\nuser = \"x\"\nread = \"a/#/b\"\n"))?;
    wrong.is(422, "invalid-rules")?;
    ensure!(wrong.json()?.pointer("/problems/0/line") == Some(&json!(13)), "{wrong:?}");
    // Without a rule the administrator of the first start keeps the right; a denial takes it.
    let denied = format!("{open}[[deny]]\nuser = \"admin\"\nboth = \"$fogmux/#\"\n");
    put_rules(&gateway, ADMIN, read.tag()?, &denied)?.is(409, "loses-administration")?;
    ensure!(fs::read_to_string(&path)? == RULES && seen(&gateway)? == 403, "a refused change has an effect");
    let changed = put_rules(&gateway, ADMIN, read.tag()?, &open)?;
    ensure!(changed.status == 204 && seen(&gateway)? == 404, "{changed:?}");
    ensure!(fs::read_to_string(&path)? == open, "the text is not what was sent");
    ensure!(fs::metadata(&path)?.permissions().mode() & 0o777 == 0o644, "the mode has changed");
    let json = format!("Content-Type: application/json\r\nIf-Match: {}\r\n", changed.tag()?);
    let back = send(&gateway, "PUT /api/v1/rules", ADMIN, &json, &json!({"text": RULES}).to_string())?;
    ensure!(back.status == 204 && back.tag()? == read.tag()? && seen(&gateway)? == 403, "{back:?}");
    // An editor was faster.
    fs::write(&path, format!("{RULES}# Edited.\n"))?;
    put_rules(&gateway, ADMIN, back.tag()?, &open)?.is(412, "precondition-failed")?;
    ensure!(fs::read_to_string(&path)?.ends_with("# Edited.\n"), "an edit is lost");
    // The new file, which is written first, cannot be made.
    fs::create_dir(gateway.data().join("acl.toml.edit"))?;
    put_rules(&gateway, ADMIN, "*", &open)?.is(409, "unchangeable")?;
    let document = send(&gateway, "GET /api/v1/rules", ADMIN, "", "")?.json()?;
    ensure!(document.get("changeable") == Some(&json!(false)) && document.get("reason").is_some(), "{document}");
    ensure!(gateway.whole_log().contains("access rules changed"), "{}", gateway.whole_log());
    gateway.check_alive()?;
    Ok(String::new())
}

/// Where there is no access file, one is made in the data directory.
pub(super) fn first_rules() -> Result<String> {
    let gateway = start(None)?;
    let read = send(&gateway, "GET /api/v1/rules", ADMIN, "", "")?;
    ensure!(read.json()?.get("exists") == Some(&json!(false)), "{read:?}");
    let seen = |gateway: &Gateway| anyhow::Ok(send(gateway, "GET /topics/none", "bob:secret", "", "")?.status);
    ensure!(seen(&gateway)? == 404, "without rules everybody may");
    let made = put_rules(&gateway, ADMIN, read.tag()?, RULES)?;
    ensure!(made.status == 204 && seen(&gateway)? == 403, "{made:?}");
    let path = gateway.data().join("acl.toml");
    ensure!(fs::read_to_string(&path)? == RULES, "it is not in the file");
    ensure!(fs::metadata(&path)?.permissions().mode() & 0o777 == 0o600, "others may read it");
    put_rules(&gateway, ADMIN, read.tag()?, RULES)?.is(412, "precondition-failed")?;
    Ok(String::new())
}

/// Both are off unless the configuration says otherwise, and can be looked at.
pub(super) fn off() -> Result<String> {
    let gateway = Gateway::start_furnished(&[], &[("users.toml", &file(&["admin"])), ("acl.toml", RULES)])?;
    put(&gateway, "users/eve", ADMIN, &json!({"password": "x"}))?.is(403, "changes-off")?;
    put_rules(&gateway, ADMIN, "*", RULES)?.is(403, "changes-off")?;
    send(&gateway, "DELETE /api/v1/users/admin?force=true", ADMIN, "", "")?.is(403, "changes-off")?;
    for path in ["users", "rules"] {
        let document = send(&gateway, &format!("GET /api/v1/{path}"), ADMIN, "", "")?.json()?;
        ensure!(document.get("changeable") == Some(&json!(false)), "{document}");
    }
    Ok(String::new())
}

/// A filter of the log holds until the next reload.
pub(super) fn log_level() -> Result<String> {
    let gateway = start(None)?;
    let said = |gateway: &Gateway| send(gateway, "GET /api/v1/log-level", ADMIN, "", "")?.json();
    let before = said(&gateway)?;
    let debug = put(&gateway, "log-level", ADMIN, &json!({"filter": "warn,fogmux::audit=info"}))?;
    ensure!(debug.status == 200 && said(&gateway)? == json!({"filter": "warn,fogmux::audit=info"}), "{debug:?}");
    put(&gateway, "log-level", ADMIN, &json!({"filter": "fogmux=loud"}))?.is(422, "unusable")?;
    put(&gateway, "log-level", ADMIN, &json!({"filter": "x".repeat(1025)}))?.is(422, "unusable")?;
    gateway.forget_log()?;
    gateway.signal(rustix::process::Signal::HUP)?;
    let end = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while said(&gateway)? != before {
        ensure!(std::time::Instant::now() < end, "{}", said(&gateway)?);
        std::thread::yield_now();
    }
    Ok(String::new())
}

/// Requests of administrators while the gateway stops are refused, and do not hold it up for as long as it may drain. A
/// reload comes first, behind which they wait.
pub(super) fn stopped() -> Result<String> {
    for _ in 0..3 {
        let mut gateway = Gateway::start_as(Plan {
            settings: &["workers.drain=300s"],
            files: &[("users.toml", &file(&["admin"]))],
            ..Plan::default()
        })?;
        // Verifies the password, which takes time, before the requests that count.
        send(&gateway, "GET /api/v1/log-level", ADMIN, "", "")?;
        gateway.signal(rustix::process::Signal::HUP)?;
        let request = format!(
            "GET /api/v1/log-level HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic {}\r\n\r\n",
            openssl::base64::encode_block(ADMIN.as_bytes())
        );
        let mut asking = Vec::new();
        for _ in 0..8 {
            let mut stream = std::net::TcpStream::connect(gateway.address("http")?)?;
            std::io::Write::write_all(&mut stream, request.as_bytes())?;
            asking.push(stream);
        }
        gateway.signal(rustix::process::Signal::TERM)?;
        let ended = gateway.wait_exit(std::time::Duration::from_secs(60))?;
        ensure!(ended.success(), "{ended}");
    }
    Ok(String::new())
}
