//! Bridges of mosquitto.conf as links to other brokers (ADR 0077).

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use fogmux_auth::filters_overlap;

use super::report::Report;
use crate::config::{Source, load};

/// Keys of bridges that a link does without, because it behaves so in any case.
const IN_ANY_CASE: [&str; 2] = ["try_private", "bridge_attempt_unsubscribe"];
/// The beginning of most other keys of bridges.
const BRIDGE: &str = "bridge_";
/// Other keys that belong to the bridge above them.
const OTHERS: [&str; 14] = [
    "cleansession",
    "clean_session",
    "idle_timeout",
    "local_cleansession",
    "local_clientid",
    "local_password",
    "local_username",
    "notification_topic",
    "notifications",
    "notifications_local_only",
    "restart_timeout",
    "round_robin",
    "start_type",
    "threshold",
];

/// The beginning of a configuration without listeners.
const NO_LISTENERS: &str = "[listeners.defaults]\nenabled = false\n";

/// The bridges of one file; none goes on in another.
#[derive(Debug, Default)]
pub(super) struct Bridges(Vec<Bridge>);

#[derive(Debug, Default)]
struct Bridge {
    line: usize,
    name: String,
    address: Option<String>,
    client_id: Option<String>,
    user: Option<String>,
    password: Option<String>,
    keep_alive: Option<u16>,
    files: Vec<(&'static str, String)>,
    is_secure: bool,
    is_version_5: bool,
    /// Why no link can take its place.
    cannot: Option<&'static str>,
    topics: Vec<Topic>,
}

#[derive(Clone, Debug)]
struct Topic {
    line: usize,
    pattern: String,
    is_out: bool,
    is_in: bool,
    qos: u8,
    local: String,
    remote: String,
}

/// Links as a configuration, and the passwords that it names by file.
#[derive(Debug, Default)]
pub(super) struct Links {
    pub(super) toml: String,
    /// File names and contents.
    pub(super) passwords: Vec<(String, String)>,
    pub(super) count: usize,
    names: BTreeSet<String>,
}

impl Bridges {
    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The lines at which bridges begin.
    pub(super) fn lines(&self) -> impl Iterator<Item = usize> {
        self.0.iter().map(|bridge| bridge.line)
    }

    /// Takes a line, if it is one of a bridge.
    pub(super) fn take(&mut self, line: usize, key: &str, value: &str, report: &mut Report) -> bool {
        if key == "connection" {
            self.0.push(Bridge { line, name: value.to_owned(), ..Bridge::default() });
            return true;
        }
        let Some(bridge) = self.0.last_mut() else { return false };
        match key {
            "address" | "addresses" => {
                let mut all = value.split_whitespace();
                bridge.address = all.next().map(str::to_owned);
                if all.next().is_some() {
                    report.lost(line, "a link has one address; the first is taken");
                }
            }
            "topic" => match topic(line, value) {
                Some(topic) => bridge.topics.push(topic),
                None => report.lost(line, "this is no topic of a bridge: PATTERN [out|in|both [QOS [LOCAL [REMOTE]]]]"),
            },
            "remote_clientid" | "clientid" => bridge.client_id = Some(value.to_owned()),
            "remote_username" | "username" => bridge.user = Some(value.to_owned()),
            "remote_password" | "password" => bridge.password = Some(value.to_owned()),
            "keepalive_interval" => bridge.keep_alive = value.parse().ok(),
            "bridge_cafile" => {
                bridge.is_secure = true;
                bridge.files.push(("ca_file", value.to_owned()));
            }
            "bridge_certfile" => bridge.files.push(("cert_file", value.to_owned())),
            "bridge_keyfile" => bridge.files.push(("key_file", value.to_owned())),
            "bridge_capath" => {
                bridge.is_secure = true;
                report.differs(line, "a link takes one ca_file, or the system's authorities");
            }
            "bridge_tls_use_os_certs" => bridge.is_secure |= value == "true",
            "bridge_protocol_version" => bridge.is_version_5 = value == "mqttv50",
            "bridge_psk" | "bridge_identity" => bridge.cannot = Some("a link has no pre-shared keys"),
            "bridge_insecure" if value == "true" => {
                report.lost(line, "a link always verifies the name in the certificate");
            }
            key if IN_ANY_CASE.contains(&key) => {}
            key if key.starts_with(BRIDGE) || OTHERS.contains(&key) => {
                report.lost(line, format!("{key} has no counterpart in a link"));
            }
            _ => return false,
        }
        true
    }

    /// Adds the links, whose passwords will be in files of this directory.
    pub(super) fn translate(&self, directory: &Path, links: &mut Links, report: &mut Report) {
        for bridge in &self.0 {
            let name = free_name(&bridge.name, &links.names);
            let (line, file) = (bridge.line, format!("{name}.password"));
            let text = match bridge.to_toml(&name, report) {
                Ok(text) => text,
                Err(why) => {
                    report.lost(line, format!("the bridge {:?}: {why}", bridge.name));
                    continue;
                }
            };
            links.toml += &text;
            if let (Some(_), Some(password)) = (&bridge.user, &bridge.password) {
                // In this table still: the lists follow.
                let path = quoted(&directory.join(&file).display().to_string());
                let _ = writeln!(links.toml, "password_file = {path}");
                links.passwords.push((file, format!("{password}\n")));
            }
            for (key, path) in &bridge.files {
                let _ = writeln!(links.toml, "{key} = {}", quoted(path));
            }
            links.toml += &bridge.lists(report);
            links.toml.push('\n');
            links.count += 1;
            if !bridge.is_version_5 {
                report.differs(line, "a link speaks MQTT 5, which the other broker has to understand");
            }
            report.differs(line, format!("where there are rules, the link needs some: user = \"link:{name}\""));
            links.names.insert(name);
        }
    }
}

impl Bridge {
    /// The beginning of the link's table. The error says why there is none.
    fn to_toml(&self, name: &str, report: &mut Report) -> Result<String, String> {
        if let Some(cannot) = self.cannot {
            return Err(cannot.to_owned());
        }
        let address = self.address.as_deref().ok_or("it has no address")?;
        let scheme = if self.is_secure { "mqtts" } else { "mqtt" };
        // The port of Mosquitto is this one, with TLS as well.
        let port =
            if address.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) { "" } else { ":1883" };
        let mut text = format!("[links.{name}]\nurl = {}\n", quoted(&format!("{scheme}://{address}{port}")));
        let texts = [("client_id", &self.client_id), ("user", &self.user)];
        for (key, value) in texts.into_iter().filter_map(|(key, value)| Some((key, value.as_ref()?))) {
            let _ = writeln!(text, "{key} = {}", quoted(value));
        }
        if let Some(seconds) = self.keep_alive {
            let _ = writeln!(text, "keep_alive = \"{seconds}s\"");
        }
        let mut without = Report::new(Path::new(""));
        // Where this gateway listens is not known here: Mosquitto may stay at its address.
        let whole = |text: &str, without: &mut Report| format!("{NO_LISTENERS}{text}{}", self.lists(without));
        let is_plain = !self.is_secure && load(&[Source::new("", whole(&text, &mut without))]).is_err();
        if is_plain {
            text += "allow_plaintext = true\n";
        }
        match load(&[Source::new("", whole(&text, &mut without))]) {
            Ok(_) => {
                if is_plain {
                    report.differs(self.line, "messages leave this machine without encryption, as they did");
                }
                Ok(text)
            }
            Err(problems) => Err(problems.0.first().map_or_else(String::new, ToString::to_string)),
        }
    }

    /// The lists of the link, without entries that it may not have.
    fn lists(&self, report: &mut Report) -> String {
        let entry = |topic: &Topic| {
            let prefixes = [("local_prefix", &topic.local), ("remote_prefix", &topic.remote)];
            let prefixes = prefixes.iter().filter(|(_, prefix)| !prefix.is_empty());
            let prefixes: String = prefixes.map(|(key, prefix)| format!(", {key} = {}", quoted(prefix))).collect();
            format!("  {{ filter = {}, qos = {}{prefixes} }},\n", quoted(&topic.pattern), topic.qos)
        };
        let out: String = self.topics.iter().filter(|topic| topic.is_out).map(entry).collect();
        let (mut inward, mut filters) = (String::new(), Vec::<String>::new());
        for topic in self.topics.iter().filter(|topic| topic.is_in) {
            let filter = format!("{}{}", topic.remote, topic.pattern);
            if let Some(other) = filters.iter().find(|other| filters_overlap(other, &filter)) {
                report
                    .lost(topic.line, format!("what comes by {filter:?} may come by {other:?}, too: write one entry"));
                continue;
            }
            inward += &entry(topic);
            filters.push(filter);
        }
        let list = |key, entries: String| if entries.is_empty() { entries } else { format!("{key} = [\n{entries}]\n") };
        list("out", out) + &list("in", inward)
    }
}

/// `PATTERN [out|in|both [QOS [LOCAL [REMOTE]]]]`, where `""` is an empty text.
fn topic(line: usize, value: &str) -> Option<Topic> {
    let mut words = value.split_whitespace().map(|word| if word == "\"\"" { "" } else { word }.to_owned());
    let pattern = words.next()?;
    let (is_out, is_in) = match words.next().as_deref() {
        None | Some("out") => (true, false),
        Some("in") => (false, true),
        Some("both") => (true, true),
        Some(_) => return None,
    };
    let qos = words.next().map_or(Some(0), |qos| qos.parse().ok().filter(|qos| *qos <= 2))?;
    let (local, remote) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    Some(Topic { line, pattern, is_out, is_in, qos, local, remote })
}

/// A name for a link that is like the bridge's, and no other link's.
fn free_name(bridge: &str, taken: &BTreeSet<String>) -> String {
    let letter = |char: char| if char.is_ascii_alphanumeric() || char == '_' { char.to_ascii_lowercase() } else { '-' };
    let name: String = bridge.chars().take(28).map(letter).collect();
    let name = if name.is_empty() { "bridge".to_owned() } else { name };
    let numbered = (2..).map(|number| format!("{name}-{number}"));
    std::iter::once(name.clone()).chain(numbered).find(|name| !taken.contains(name)).unwrap_or(name)
}

fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translated(text: &str) -> (Links, String) {
        let (mut bridges, mut report) = (Bridges::default(), Report::new(Path::new("m.conf")));
        for (index, line) in text.lines().enumerate() {
            let (key, value) = line.split_once(' ').unwrap();
            assert!(bridges.take(index + 1, key, value, &mut report), "{line}");
        }
        let mut links = Links::default();
        bridges.translate(Path::new("/etc/fogmux/conf.d"), &mut links, &mut report);
        (links, report.to_string())
    }

    #[test]
    fn a_bridge_becomes_a_link() {
        let (links, notes) = translated(
            "connection Site 1\naddress north.example:8883\nbridge_protocol_version mqttv50\nremote_clientid site1\n\
             remote_username fog\nremote_password pass \"word\nkeepalive_interval 30\nbridge_tls_use_os_certs true\n\
             topic # both 2 room/ site1/room/\ntopic alarms\ntopic \"\" in 1 here there",
        );
        let config = load(&[Source::new("f", links.toml.replace("password_file", "#"))]);
        let config = config.unwrap_or_else(|problems| panic!("{problems:?} {}", links.toml));
        let link = &config.links.0["site-1"];
        assert_eq!((link.url.as_str(), link.keep_alive), ("mqtts://north.example:8883", 30));
        assert_eq!((link.client_id.as_str(), link.user.as_str()), ("site1", "fog"));
        let entries = |routes: &[crate::config::links::Route]| {
            routes.iter().map(|route| (route.local(), route.remote(), route.qos)).collect::<Vec<_>>()
        };
        let room = ("room/#".to_owned(), "site1/room/#".to_owned(), 2);
        assert_eq!(entries(&link.out), [room.clone(), ("alarms".into(), "alarms".into(), 0)]);
        assert_eq!(entries(&link.inward), [room, ("here".into(), "there".into(), 1)]);
        assert_eq!(links.passwords, [("site-1.password".to_owned(), "pass \"word\n".to_owned())]);
        assert!(links.toml.contains("password_file = \"/etc/fogmux/conf.d/site-1.password\""), "{}", links.toml);
        assert!(!notes.contains("left out") && !notes.contains("MQTT 5"), "{notes}");
    }

    #[test]
    fn everything_that_is_not_taken_is_said() {
        let (links, notes) = translated(
            "connection a\naddress 10.0.0.1 10.0.0.2\ntopic # in\ntopic b/# both 1\ntopic c sideways\nround_robin true\n\
             bridge_insecure true\nconnection b\naddress 10.0.0.1:1884\ntopic #\nbridge_psk 00ff\nconnection a\n\
             topic x\nconnection A\naddress 127.0.0.1\ntopic x",
        );
        assert_eq!(links.count, 2);
        let config = load(&[Source::new("f", format!("{NO_LISTENERS}{}", links.toml))])
            .unwrap_or_else(|problems| panic!("{problems:?}"));
        let (first, second) = (&config.links.0["a"], &config.links.0["a-2"]);
        assert!(first.allow_plaintext && !second.allow_plaintext);
        assert_eq!((first.url.as_str(), first.inward.len(), first.out.len()), ("mqtt://10.0.0.1:1883", 1, 1));
        for said in [
            "m.conf:2: left out: a link has one address",
            "m.conf:4: left out: what comes by \"b/#\"",
            "m.conf:5: left out: this is no topic",
            "m.conf:6: left out: round_robin",
            "m.conf:7: left out: a link always verifies",
            "m.conf:8: left out: the bridge \"b\": a link has no pre-shared keys",
            "m.conf:12: left out: the bridge \"a\": it has no address",
            "m.conf:1: differs: messages leave this machine",
            "m.conf:1: differs: a link speaks MQTT 5",
        ] {
            assert!(notes.contains(said), "{said}\n{notes}");
        }
    }
}
