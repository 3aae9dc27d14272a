//! The file of Mosquitto's dynamic security plugin (`dynamic-security.json`) as users, groups and access rules of
//! fogmux.
//!
//! There, a client or a group has roles, and a role has lists of rights: to publish (`publishClientSend`), to subscribe
//! (`subscribeLiteral`, `subscribePattern`) and to be sent what matches (`publishClientReceive`). The first match by
//! priority decides, else `defaultACLAccess`. Here, to read is the right to subscribe and to be sent the message, and a
//! deny wins over every allow: a role becomes one table of each effect, for its users and groups.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use fogmux_auth::{Acl, Users, filter_covers, prepared_name};
use serde_json::Value;

use super::report::Report;
use super::rules::{Translated, quoted};

/// The parts of the file that are imported.
#[derive(Debug, Default)]
pub(super) struct Dynamic {
    clients: Vec<Client>,
    pub(super) rules: Translated,
}

/// A client: a user here.
#[derive(Debug)]
struct Client {
    name: String,
    /// A hash as `mosquitto_passwd` writes it; none for a client without a password.
    hash: Option<String>,
    groups: BTreeSet<String>,
    disabled: bool,
}

/// Those who have a role.
#[derive(Debug, Default)]
struct Holders {
    users: BTreeSet<String>,
    groups: BTreeSet<String>,
    anonymous: bool,
}

/// The rights of a role, as filters.
#[derive(Debug, Default)]
struct Rights {
    read: Vec<String>,
    /// To be sent what matches.
    receive: Vec<String>,
    write: Vec<String>,
    deny_read: Vec<String>,
    deny_write: Vec<String>,
}

/// Access where no rule matches.
#[derive(Debug)]
struct Defaults {
    write: bool,
    receive: bool,
    subscribe: bool,
}

/// Translates the text of the file.
///
/// # Errors
/// When it is not JSON, or has no object.
pub(super) fn translate(text: &str, report: &mut Report) -> Result<Dynamic, String> {
    let file: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let Value::Object(_) = file else { return Err("it has no object".to_owned()) };
    let mut dynamic = Dynamic::default();
    let mut holders: BTreeMap<String, Holders> = BTreeMap::new();
    let groups = groups(&file, &mut holders, &mut dynamic.rules, report);
    for client in list(&file, "clients") {
        if let Some(client) = read_client(client, &groups, &mut holders, &dynamic.clients, report) {
            dynamic.clients.push(client);
        }
    }
    let defaults = Defaults::of(&file);
    let mut text = String::from("# Made by `fogmux import mosquitto` from the file of its dynamic security.\n");
    defaults.write_to(&mut text, &mut dynamic.rules);
    for role in list(&file, "roles") {
        let Some(name) = word(role, "rolename") else { continue };
        let mut rights = read_role(name, role, &mut dynamic.rules, report);
        if !defaults.receive {
            rights.read.extend(defaults.subscribe.then(|| "#".to_owned()));
            rights.read = both(&rights.read, &rights.receive);
        }
        match holders.get(name) {
            Some(holders) => rights.write_to(name, holders, &mut text, &mut dynamic.rules),
            None => report.lost(0, format!("role {name:?}: nobody has it")),
        }
    }
    dynamic.rules.toml = text;
    differences(&defaults, report);
    Ok(dynamic)
}

fn differences(defaults: &Defaults, report: &mut Report) {
    report.differs(0, "a deny wins over every allow here; there, the first match by priority decides");
    report.differs(0, "to read is one right here: a filter that may not be subscribed to is not delivered either");
    if !defaults.receive {
        let text =
            "receiving is refused by default there: read is allowed where one role grants subscribing and receiving";
        report.differs(0, text);
    }
}

impl Dynamic {
    /// Adds the users and returns their number. Existing ones stay unless `replace` is set.
    pub(super) fn add_to(&self, users: &mut Users, replace: bool, report: &mut Report) -> usize {
        let mut taken = 0;
        for client in &self.clients {
            let name = client.name.as_str();
            if users.contains(name) && !replace {
                report.lost(0, format!("there is a user {name:?} already; --replace takes the one from here"));
                continue;
            }
            let groups: Vec<&str> = client.groups.iter().map(String::as_str).collect();
            if client.hash.is_none() {
                // No password that it had here before.
                users.remove(name);
            }
            let set = client.hash.as_ref().map_or(Ok(()), |hash| users.set_hash(name, hash));
            let set = set.and_then(|()| users.enrol(name, &groups));
            match set.and_then(|()| users.set_disabled(name, client.disabled)) {
                Ok(()) => taken += 1,
                Err(error) => report.lost(0, format!("client {name:?}: {error}")),
            }
        }
        taken
    }
}

/// The groups of each client, by name; notes which roles groups have. A group that is left out may have refused
/// something, as a deny that is left out.
fn groups(
    file: &Value,
    holders: &mut BTreeMap<String, Holders>,
    rules: &mut Translated,
    report: &mut Report,
) -> BTreeMap<String, BTreeSet<String>> {
    let mut of_client: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let anonymous = word(file, "anonymousGroup");
    let mut known: BTreeSet<String> = BTreeSet::new();
    for group in list(file, "groups") {
        let Some(name) = word(group, "groupname") else { continue };
        let Some(prepared) = prepared_name(name) else {
            report.lost(0, format!("group {name:?}: it cannot be a group's name here"));
            rules.deny_lost = true;
            continue;
        };
        if !known.insert(prepared.clone()) {
            report.lost(0, format!("group {name:?}: the same name as another's here"));
            rules.deny_lost = true;
            continue;
        }
        for role in list(group, "roles").filter_map(|role| word(role, "rolename")) {
            let holder = holders.entry(role.to_owned()).or_default();
            holder.groups.insert(prepared.clone());
            holder.anonymous |= anonymous == Some(name);
        }
        for client in list(group, "clients").filter_map(|client| word(client, "username")) {
            of_client.entry(client.to_owned()).or_default().insert(prepared.clone());
        }
    }
    of_client
}

fn read_client(
    client: &Value,
    groups: &BTreeMap<String, BTreeSet<String>>,
    holders: &mut BTreeMap<String, Holders>,
    before: &[Client],
    report: &mut Report,
) -> Option<Client> {
    let name = word(client, "username")?;
    let Some(prepared) = prepared_name(name) else {
        report.lost(0, format!("client {name:?}: it cannot be a user's name here"));
        return None;
    };
    if before.iter().any(|client| client.name == prepared) {
        report.lost(0, format!("client {name:?}: the same name as another's here"));
        return None;
    }
    for role in list(client, "roles").filter_map(|role| word(role, "rolename")) {
        holders.entry(role.to_owned()).or_default().users.insert(prepared.clone());
    }
    if let Some(identifier) = word(client, "clientid") {
        let text = format!("client {name:?} had to use the client identifier {identifier:?} there, and need not here");
        report.differs(0, text);
    }
    let hash = hash(client);
    if hash.is_none() {
        report.differs(0, format!("client {name:?} has no password and cannot log in with one"));
    }
    let mut groups = groups.get(name).cloned().unwrap_or_default();
    // Some versions name the groups with the client, too.
    groups.extend(list(client, "groups").filter_map(|group| prepared_name(word(group, "groupname")?)));
    let disabled = client.get("disabled").and_then(Value::as_bool).unwrap_or_default();
    Some(Client { name: prepared, hash, groups, disabled })
}

/// The hash of a client in the form of `mosquitto_passwd`: PBKDF2 with HMAC-SHA-512.
fn hash(client: &Value) -> Option<String> {
    if let Some(encoded) = word(client, "encoded_password") {
        return Some(encoded.to_owned());
    }
    let iterations = client.get("iterations")?.as_u64()?;
    Some(format!("$7${iterations}${}${}", word(client, "salt")?, word(client, "password")?))
}

/// The rights of a role. A deny that cannot be translated is noted in `rules`.
fn read_role(name: &str, role: &Value, rules: &mut Translated, report: &mut Report) -> Rights {
    let mut rights = Rights::default();
    if role.get("allowwildcardsubs").and_then(Value::as_bool) == Some(false) {
        report.differs(0, format!("role {name:?}: subscriptions with wildcards are accepted here"));
    }
    for acl in list(role, "acls") {
        let (kind, topic) = (word(acl, "acltype").unwrap_or_default(), word(acl, "topic").unwrap_or_default());
        let allow = acl.get("allow").and_then(Value::as_bool).unwrap_or_default();
        let mut lost = |reason: &str| {
            rules.deny_lost |= !allow;
            report.lost(0, format!("role {name:?}, {kind} {topic:?}: {reason}"));
        };
        if topic.starts_with("$CONTROL/") {
            report.lost(
                0,
                format!("role {name:?}, {kind} {topic:?}: there is no $CONTROL here; see docs/operating/api.md"),
            );
            continue;
        }
        if topic.contains("%u") || topic.contains("%c") {
            // Plugins before 2.1 take them as they stand, and a client chooses its identifier here.
            lost("%u and %c mean different things in different versions; write the rule by hand");
            continue;
        }
        let filter = topic.replace('%', "%%");
        let into = match (kind, allow) {
            ("publishClientSend", true) => &mut rights.write,
            ("publishClientSend", false) => &mut rights.deny_write,
            ("publishClientReceive", true) => &mut rights.receive,
            ("subscribeLiteral" | "subscribePattern", true) => &mut rights.read,
            ("subscribeLiteral", false) if topic.contains(['+', '#']) => {
                lost("it refuses one filter and not what it matches, which has no counterpart");
                continue;
            }
            ("publishClientReceive" | "subscribeLiteral" | "subscribePattern", false) => &mut rights.deny_read,
            ("unsubscribeLiteral" | "unsubscribePattern", true) => continue,
            ("unsubscribeLiteral" | "unsubscribePattern", false) => {
                report.differs(0, format!("role {name:?}, {kind} {topic:?}: everybody may unsubscribe here"));
                continue;
            }
            _ => {
                lost("there is no such kind of right");
                continue;
            }
        };
        let sample = format!("[[allow]]\nanonymous = true\nread = {}\n", quoted(&filter));
        if Acl::parse(std::path::Path::new("role"), &sample).is_err() {
            lost("it is not a topic filter");
            continue;
        }
        into.push(filter);
    }
    rights
}

/// The filters that are within one of each list.
fn both(one: &[String], other: &[String]) -> Vec<String> {
    let within = |inner: &[String], outer: &[String]| -> Vec<String> {
        inner.iter().filter(|filter| outer.iter().any(|outer| filter_covers(outer, filter))).cloned().collect()
    };
    let mut filters = within(one, other);
    filters.extend(within(other, one));
    filters.sort();
    filters.dedup();
    filters
}

impl Defaults {
    fn of(file: &Value) -> Self {
        let access = file.get("defaultACLAccess");
        let flag = |key, otherwise| access.and_then(|access| access.get(key)?.as_bool()).unwrap_or(otherwise);
        Self {
            write: flag("publishClientSend", false),
            receive: flag("publishClientReceive", false),
            subscribe: flag("subscribe", false),
        }
    }

    /// Everybody's rights.
    fn write_to(&self, text: &mut String, rules: &mut Translated) {
        let read = self.subscribe && self.receive;
        let granted = [("read", read), ("write", self.write)];
        if granted.iter().all(|(_, granted)| !granted) {
            return;
        }
        // Writing to a String cannot fail.
        let _ = writeln!(text, "\n[[allow]] # defaultACLAccess\nauthenticated = true\nanonymous = true");
        for (key, _) in granted.iter().filter(|(_, granted)| *granted) {
            let _ = writeln!(text, "{key} = [\"#\"]");
            rules.rules += 1;
        }
    }
}

impl Rights {
    fn write_to(&self, role: &str, holders: &Holders, text: &mut String, rules: &mut Translated) {
        let tables = [
            ("deny", [("read", &self.deny_read), ("write", &self.deny_write)]),
            ("allow", [("read", &self.read), ("write", &self.write)]),
        ];
        for (effect, lists) in tables {
            if lists.iter().all(|(_, filters)| filters.is_empty()) {
                continue;
            }
            let _ = writeln!(text, "\n[[{effect}]] # role {}", quoted(role));
            for (key, names) in [("user", &holders.users), ("group", &holders.groups)] {
                if !names.is_empty() {
                    let names: Vec<String> = names.iter().map(|name| quoted(name)).collect();
                    let _ = writeln!(text, "{key} = [{}]", names.join(", "));
                }
            }
            if holders.anonymous {
                let _ = writeln!(text, "anonymous = true");
            }
            for (key, filters) in lists.iter().filter(|(_, filters)| !filters.is_empty()) {
                let quoted: Vec<String> = filters.iter().map(|filter| quoted(filter)).collect();
                let _ = writeln!(text, "{key} = [{}]", quoted.join(", "));
                rules.rules += filters.len();
            }
        }
    }
}

fn list<'v>(value: &'v Value, key: &str) -> impl Iterator<Item = &'v Value> {
    value.get(key).and_then(Value::as_array).into_iter().flatten()
}

fn word<'v>(value: &'v Value, key: &str) -> Option<&'v str> {
    value.get(key)?.as_str()
}
