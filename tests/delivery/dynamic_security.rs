//! Users, groups and roles of Mosquitto's dynamic security plugin, imported: made up at random, asked of both.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context as _, Result, bail, ensure};
use fogmux_tests::foreign;
use fogmux_tests::gateway::{Gateway, Plan};
use fogmux_tests::mqtt::{self, Connection, V5};
use fogmux_tests::suite::Case;
use fogmux_tests::users::Login;
use serde_json::{Value, json};

pub(crate) const CASES: &[Case] = &[
    Case { name: "dynamic security: nothing is allowed that Mosquitto refuses", run: no_more },
    Case { name: "dynamic security: roles without contradictions mean the same", run: the_same },
    Case { name: "dynamic security: what cannot be translated stops the import", run: stopped },
];

/// Made-up files that are compared.
const FILES: u64 = 5;
const USERS: usize = 4;
/// Filters of rights, by which clients subscribe as well.
const FILTERS: [&str; 10] = ["a/#", "a/b", "a/+", "+/b", "b", "#", "b/#", "c/u0", "c/%u", "d"];
/// A user who may do everything.
const WITNESS: &str = "witness";
const TOPICS: [&str; 7] = ["a/b", "a/c", "b", "b/b", "c/u0", "c/u1", "d"];
/// The password of all, `secret`, as `mosquitto_passwd` hashes it.
const SALT: &str = "Crmx7QrRoGqjVE6Y";
const HASH: &str = "Q79G2lGg1cCy76WxrRmLiY4jZEkwRv+kWg0NYjEj87RXFkfGUe1WKprhiKK8eIYstNQr5NAGx0MfPRPzdT4IIQ==";

/// Users with what they may do, and with which topic.
type Rights = BTreeSet<(String, &'static str, &'static str)>;

fn no_more() -> Result<String> {
    let mut allowed = [0, 0];
    for seed in 1..=FILES {
        let file = made_up(&mut Random(seed));
        let (theirs, ours) = both(&file).with_context(|| format!("seed {seed}"))?;
        let more: Vec<_> = ours.difference(&theirs).collect();
        ensure!(more.is_empty(), "seed {seed}: {more:?}");
        allowed = [allowed[0] + theirs.len(), allowed[1] + ours.len()];
    }
    let [theirs, ours] = allowed;
    // Where roles contradict one another a deny wins here; most rights have to remain.
    ensure!(2 * ours > theirs, "{ours} of {theirs} rights remain");
    Ok(format!("({FILES} files, {ours} of {theirs} rights)"))
}

fn the_same() -> Result<String> {
    let acl = |kind: &str, topic: &str| json!({"acltype": kind, "topic": topic, "allow": true});
    let file = json!({
        "defaultACLAccess": {"publishClientSend": false, "publishClientReceive": true, "subscribe": false,
            "unsubscribe": true},
        "clients": [
            client(WITNESS, &["everything"], false), client("u0", &["reader"], false), client("u1", &[], false),
            client("u2", &["writer", "own"], false), client("u3", &["reader", "writer"], true),
        ],
        "groups": [{"groupname": "plant", "roles": [{"rolename": "writer"}], "clients": [{"username": "u1"}]}],
        "roles": [
            {"rolename": "reader", "acls": [acl("subscribePattern", "a/#"), acl("subscribeLiteral", "d")]},
            {"rolename": "writer", "acls": [acl("publishClientSend", "b/+"), acl("publishClientSend", "d")]},
            {"rolename": "own", "acls": [acl("subscribePattern", "c/u1")]},
            {"rolename": "everything", "acls": [acl("publishClientSend", "#")]},
        ],
    });
    let (theirs, ours) = both(&file)?;
    ensure!(theirs == ours, "{theirs:?} there, {ours:?} here");
    ensure!(theirs.len() == 3 + 2 + 3, "{theirs:?}");
    Ok(format!("({} rights)", ours.len()))
}

fn stopped() -> Result<String> {
    let place = tempfile::tempdir()?;
    let wide = json!({"clients": [client("u0", &["all"], false)], "roles": [{"rolename": "all", "acls": [
        {"acltype": "subscribeLiteral", "topic": "#", "allow": false},
        {"acltype": "subscribePattern", "topic": "#", "allow": true},
    ]}]});
    let placeholder = json!({"clients": [client("u0", &["own"], false)], "roles": [{"rolename": "own", "acls": [
        {"acltype": "publishClientSend", "topic": "home/%u/#", "allow": false},
    ]}]});
    // One name here, as superscripts and digits are.
    let same = json!({"groups": [{"groupname": "hall\u{b2}", "roles": []}, {"groupname": "hall2", "roles": []}]});
    for (text, said) in [
        (wide.to_string(), "a deny rule cannot be translated"),
        (placeholder.to_string(), "a deny rule cannot be translated"),
        (same.to_string(), "the same name as another's"),
        ("[]".to_owned(), "it has no object"),
        ("{".to_owned(), "dynamic-security.json"),
    ] {
        let output = import(place.path(), &text)?;
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.code() == Some(65) && error.contains(said), "{:?}: {error}", output.status);
        for name in ["acl.toml", "users.toml"] {
            ensure!(!place.path().join("data").join(name).exists(), "{name} is there");
        }
    }
    Ok(String::new())
}

/// The rights of all users at Mosquitto and, after the import, at the gateway.
fn both(file: &Value) -> Result<(Rights, Rights)> {
    let place = tempfile::tempdir()?;
    let path = place.path().join("theirs.json");
    fs::write(&path, file.to_string())?;
    let lines = format!(
        "user root\nallow_anonymous false\nplugin {}\nplugin_opt_config_file {}\n",
        plugin()?.display(),
        path.display()
    );
    let peer = foreign::mosquitto_with(&lines)?;
    let address: SocketAddr = peer.url("mqtt")?.trim_start_matches("mqtt://").parse()?;
    // There a subscription may be granted to what is never delivered, and a topic be read by a wider filter only.
    let mut witness = log_in(address, WITNESS)?.0;
    let theirs = rights(address, file, Some(&mut witness)).context("Mosquitto")?;
    let output = import(place.path(), &file.to_string())?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let data = place.path().join("data");
    let gateway = Gateway::start_as(Plan { data: Some(&data), ..Plan::default() })?;
    let ours = rights(gateway.address("mqtt")?, file, None).context("the gateway")?;
    Ok((theirs, ours))
}

/// The rights that users of the file are granted. With a witness, who publishes, to read is to be sent the message.
fn rights(address: SocketAddr, file: &Value, mut witness: Option<&mut Connection>) -> Result<Rights> {
    let names = file.get("clients").and_then(Value::as_array).context("no clients")?;
    let disabled = |client: &Value| client.get("disabled") == Some(&Value::Bool(true));
    let mut rights = Rights::new();
    for client in names {
        let name = client.get("username").and_then(Value::as_str).context("no name")?;
        if name == WITNESS {
            continue;
        }
        let (mut connection, reason) = log_in(address, name)?;
        ensure!((reason == 0) != disabled(client), "{name} is answered {reason:#x}");
        if reason != 0 {
            continue;
        }
        for (id, topic) in (1_u16..).zip(TOPICS) {
            let reads = match witness.as_deref_mut() {
                Some(witness) => reads_somehow(&mut connection, witness, topic)?,
                None => subscribes(&mut connection, topic)?,
            };
            if reads {
                rights.insert((name.to_owned(), "read", topic));
            }
            connection.stream.write_all(&mqtt::publish(V5, topic.as_bytes(), b"x", 1, false, id))?;
            if puback(&mut connection)? < 0x80 {
                rights.insert((name.to_owned(), "write", topic));
            }
        }
    }
    Ok(rights)
}

fn log_in(address: SocketAddr, name: &str) -> Result<(Connection, u8)> {
    let login = Login { user: name, client: name, clean: true, expiry: 0, will_bytes: 0 };
    let (connection, _, reason) = login.connect(address)?;
    Ok((connection, reason))
}

/// Whether the subscription is granted; it ends at once.
fn subscribes(connection: &mut Connection, filter: &str) -> Result<bool> {
    let granted = connection.subscribe(1, &[filter], 0)?.iter().all(|code| *code < 0x80);
    unsubscribe(connection, filter)?;
    Ok(granted)
}

/// Whether a message of the witness arrives by some filter.
fn reads_somehow(connection: &mut Connection, witness: &mut Connection, topic: &str) -> Result<bool> {
    for filter in [topic].iter().chain(&FILTERS) {
        let granted = connection.subscribe(1, &[filter], 0)?.iter().all(|code| *code < 0x80);
        witness.stream.write_all(&mqtt::publish(V5, topic.as_bytes(), b"x", 1, false, 3))?;
        ensure!(puback(witness)? < 0x80, "the witness may not publish {topic}");
        let is_sent = is_sent_before_ping(connection)?;
        unsubscribe(connection, filter)?;
        if granted && is_sent {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a message comes before the answer to a ping. Mosquitto has one thread: what is acknowledged to its publisher
/// is on its way to subscribers.
fn is_sent_before_ping(connection: &mut Connection) -> Result<bool> {
    connection.stream.write_all(&mqtt::packet(0xc0, &[]))?;
    let mut is_sent = false;
    loop {
        match connection.read()?.0 {
            0xd0 => return Ok(is_sent),
            first => is_sent |= first & 0xf0 == 0x30,
        }
    }
}

/// The reason code of the next PUBACK.
fn puback(connection: &mut Connection) -> Result<u8> {
    let (first, body) = connection.read()?;
    ensure!(first == 0x40, "{first:#x} instead of PUBACK");
    Ok(body.get(2).copied().unwrap_or_default())
}

/// Unsubscribes, and waits until that has been done.
fn unsubscribe(connection: &mut Connection, filter: &str) -> Result<()> {
    let mut body = vec![0, 2, 0];
    body.extend(mqtt::string(filter.as_bytes()));
    connection.stream.write_all(&mqtt::packet(0xa2, &body))?;
    while connection.read()?.0 != 0xb0 {}
    Ok(())
}

/// `fogmux import` of a file into the data directory `data` of that place.
fn import(place: &Path, text: &str) -> Result<Output> {
    let file = place.join("dynamic-security.json");
    fs::write(&file, text)?;
    let mut command = Command::new(std::env::var("FOGMUX_BIN").context("FOGMUX_BIN names no gateway")?);
    command.args(["import", "mosquitto", "--dynamic-security"]).arg(file);
    Ok(command.arg("--data").arg(place.join("data")).output()?)
}

/// Where Debian has the plugin.
fn plugin() -> Result<PathBuf> {
    for entry in fs::read_dir("/usr/lib")? {
        let path = entry?.path().join("mosquitto_dynamic_security.so");
        if path.exists() {
            return Ok(path);
        }
    }
    bail!("mosquitto_dynamic_security.so is missing; it belongs to Debian's mosquitto")
}

fn client(name: &str, roles: &[&str], disabled: bool) -> Value {
    let roles = roles.iter().map(|role| json!({"rolename": role})).collect();
    client_with(name, roles, disabled)
}

fn client_with(name: &str, roles: Vec<Value>, disabled: bool) -> Value {
    json!({"username": name, "roles": roles, "disabled": disabled, "password": HASH, "salt": SALT, "iterations": 101})
}

/// A file with roles that may contradict one another.
fn made_up(random: &mut Random) -> Value {
    const ROLES: usize = 5;
    const KINDS: [&str; 4] = ["publishClientSend", "publishClientReceive", "subscribePattern", "subscribeLiteral"];
    let role_names: Vec<String> = (0..ROLES).map(|index| format!("r{index}")).collect();
    let roles = role_names.iter().map(|name| {
        let acls: Vec<Value> = (0..random.below(6))
            .filter_map(|_| {
                let (kind, topic) = (*random.of(&KINDS), *random.of(&FILTERS));
                let allow = random.below(4) > 0;
                // To refuse a filter with wildcards and nothing else has no counterpart; the import stops.
                let has_counterpart =
                    allow || (!topic.contains('%') && (kind != "subscribeLiteral" || !topic.contains(['+', '#'])));
                let acl = json!({"acltype": kind, "topic": topic, "allow": allow, "priority": random.below(3)});
                has_counterpart.then_some(acl)
            })
            .collect();
        json!({"rolename": name, "acls": acls})
    });
    let mut roles: Vec<Value> = roles.collect();
    let everything = json!([{"acltype": "publishClientSend", "topic": "#", "allow": true}]);
    roles.push(json!({"rolename": "everything", "acls": everything}));
    let some = |random: &mut Random| -> Vec<Value> {
        let count = random.below(3);
        (0..count).map(|_| json!({"rolename": random.of(&role_names), "priority": random.below(3)})).collect()
    };
    let mut clients: Vec<Value> =
        (0..USERS).map(|index| client_with(&format!("u{index}"), some(random), false)).collect();
    clients.push(client(WITNESS, &["everything"], false));
    let groups: Vec<Value> = (0..2)
        .map(|index| {
            let members: Vec<Value> = (0..random.below(3))
                .map(|_| json!({"username": format!("u{}", random.below(USERS)), "priority": random.below(3)}))
                .collect();
            json!({"groupname": format!("g{index}"), "roles": some(random), "clients": members})
        })
        .collect();
    let mut file = json!({"clients": clients, "groups": groups, "roles": roles});
    let mut defaults = json!({"unsubscribe": true});
    for (key, one_in) in [("publishClientSend", 4), ("publishClientReceive", 2), ("subscribe", 4)] {
        // A key that is missing is another case than one that is false.
        if let (true, Some(defaults)) = (random.below(3) > 0, defaults.as_object_mut()) {
            defaults.insert(key.to_owned(), Value::Bool(random.below(one_in) == 0));
        }
    }
    if let (true, Some(file)) = (random.below(4) > 0, file.as_object_mut()) {
        file.insert("defaultACLAccess".to_owned(), defaults);
    }
    file
}

/// Numbers from a seed (xorshift64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        for shift in [13_i32, -7, 17] {
            self.0 ^= if shift > 0 { self.0 << shift } else { self.0 >> -shift };
        }
        usize::try_from(self.0 >> 33).unwrap_or_default() % bound
    }

    fn of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        all.get(self.below(all.len())).expect("an index below the length")
    }
}
