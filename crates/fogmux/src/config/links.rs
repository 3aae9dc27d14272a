//! The keys of `[links.NAME]`: connections to other MQTT brokers (ADR 0077).

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fogmux_auth::{Principal, filters_overlap};
use fogmux_bus::Filter;
use fogmux_client::{Scheme, Url};
use fogmux_gateway::Listener as Kind;

use super::clashes::readable;
use super::listener::Listener;
use super::model::Config;
use super::reader::{Findings, Reader, Section};

/// The longest name of a link, in bytes.
const NAME_BYTES_MAX: usize = 32;
/// The most links; each has a connection to the MQTT door and one to its broker.
const LINKS_MAX: usize = 32;
/// The most entries of a list of a link.
const ROUTES_MAX: usize = 256;

/// All links by their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Links(pub(crate) BTreeMap<String, Link>);

/// A connection to another broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    /// `mqtts://HOST[:PORT]`, or `mqtt://`.
    pub(crate) url: String,
    /// Whether messages may go to another machine without TLS.
    pub(crate) allow_plaintext: bool,
    /// The client identifier at the other broker; made of the link's name and the gateway when empty.
    pub(crate) client_id: String,
    /// The user name at the other broker; none when empty.
    pub(crate) user: String,
    /// Its password, in a file.
    pub(crate) password_file: Option<PathBuf>,
    /// PEM: the authorities of the broker's certificate; the system's when absent.
    pub(crate) ca_file: Option<PathBuf>,
    /// PEM: a certificate of the gateway's own for the other broker, leaf first.
    pub(crate) cert_file: Option<PathBuf>,
    /// PEM: its key.
    pub(crate) key_file: Option<PathBuf>,
    /// Seconds.
    pub(crate) keep_alive: u16,
    /// The longest that a connection may take until everything is subscribed to.
    pub(crate) connect_timeout: Duration,
    /// The user whose rights the link has at the gateway; `link:NAME` when empty.
    pub(crate) user_here: String,
    /// QoS 1 and 2 messages that are unacknowledged at a time, in each direction.
    pub(crate) inflight_max: u16,
    /// Messages of the gateway for the other broker.
    pub(crate) out: Vec<Route>,
    /// Messages of the other broker for the gateway.
    pub(crate) inward: Vec<Route>,
}

impl Default for Link {
    fn default() -> Self {
        Self {
            url: String::new(),
            allow_plaintext: false,
            client_id: String::new(),
            user: String::new(),
            password_file: None,
            ca_file: None,
            cert_file: None,
            key_file: None,
            keep_alive: 60,
            connect_timeout: Duration::from_secs(10),
            user_here: String::new(),
            inflight_max: 100,
            out: Vec::new(),
            inward: Vec::new(),
        }
    }
}

/// Topics that are passed on: the filter behind a prefix on each side, of which one replaces the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) filter: String,
    /// The highest QoS.
    pub(crate) qos: u8,
    /// Before the filter at the gateway.
    pub(crate) local_prefix: String,
    /// Before the filter at the other broker.
    pub(crate) remote_prefix: String,
}

impl Default for Route {
    fn default() -> Self {
        Self { filter: String::new(), qos: 1, local_prefix: String::new(), remote_prefix: String::new() }
    }
}

impl Route {
    /// The filter at the gateway.
    pub(crate) fn local(&self) -> String {
        format!("{}{}", self.local_prefix, self.filter)
    }

    /// The filter at the other broker.
    pub(crate) fn remote(&self) -> String {
        format!("{}{}", self.remote_prefix, self.filter)
    }
}

impl Links {
    /// The files that they name, by their keys.
    pub(crate) fn files(&self) -> impl Iterator<Item = (String, Option<&Path>)> {
        self.0.iter().flat_map(|(name, link)| {
            link.files().map(move |(key, path)| (format!("links.{name}.{key}"), path.as_deref()))
        })
    }
}

impl Link {
    /// The name of the principal that a link of this name has at the gateway.
    pub(crate) fn principal(&self, name: &str) -> Arc<str> {
        if self.user_here.is_empty() { Arc::clone(&Principal::link(name).name) } else { self.user_here.as_str().into() }
    }

    /// The state of a link of this name, which has no connection yet.
    #[cfg(feature = "mqtt")]
    pub(crate) fn state(&self, name: &str) -> fogmux_gateway::links::Link {
        fogmux_gateway::links::Link::new(name, self.url.clone(), self.principal(name))
    }

    const fn files(&self) -> [(&'static str, &Option<PathBuf>); 4] {
        [
            ("password_file", &self.password_file),
            ("ca_file", &self.ca_file),
            ("cert_file", &self.cert_file),
            ("key_file", &self.key_file),
        ]
    }

    /// The other broker; `None` if the URL names none.
    pub(crate) fn broker(&self) -> Option<Url> {
        // A broker has no topic, which other addresses have.
        let url: Url = format!("{}/#", self.url.trim_end_matches('/')).parse().ok()?;
        let is_plain = url.user.is_none() && url.topic == "#" && !self.url.contains('@');
        // Port 0 is none that anybody listens at.
        (url.scheme == Scheme::Mqtt && is_plain && url.port != 0).then_some(url)
    }
}

/// Whether what is sent there is seen by nobody else: under TLS, or on this machine.
fn keeps_secrets(url: &Url) -> bool {
    let address: Option<IpAddr> = url.host.parse().ok();
    url.secure || url.host == "localhost" || address.is_some_and(|address| address.is_loopback())
}

impl Section for Links {
    fn read(&mut self, reader: &mut Reader<'_>) {
        for name in reader.keys() {
            let letters = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
            if !(1..=NAME_BYTES_MAX).contains(&name.len()) || !name.bytes().all(letters) {
                let accepted = format!("at most {NAME_BYTES_MAX} lower-case letters, digits, \"-\" and \"_\"");
                reader.refuse_table(&name, "is no name for a link", &accepted);
            } else if self.0.len() >= LINKS_MAX && !self.0.contains_key(&name) {
                reader.refuse_table(&name, "is a link too many", &format!("at most {LINKS_MAX} links"));
            } else {
                reader.section(&name, self.0.entry(name.clone()).or_default());
            }
        }
    }
}

impl Section for Link {
    fn read(&mut self, reader: &mut Reader<'_>) {
        let is_url = |text: &str| Self { url: text.to_owned(), ..Self::default() }.broker().is_some();
        reader.text("url", &mut self.url, is_url, "\"mqtts://HOST[:PORT]\" or \"mqtt://HOST[:PORT]\"");
        reader.flag("allow_plaintext", &mut self.allow_plaintext);
        let is_text = |text: &str| text.len() <= 256 && !text.contains(char::is_control);
        reader.text("client_id", &mut self.client_id, is_text, "up to 256 bytes, or \"\"");
        reader.text("user", &mut self.user, is_text, "up to 256 bytes, or \"\" for none");
        reader.path("password_file", &mut self.password_file);
        reader.path("ca_file", &mut self.ca_file);
        reader.path("cert_file", &mut self.cert_file);
        reader.path("key_file", &mut self.key_file);
        reader.seconds("keep_alive", &mut self.keep_alive, 2..=65_535);
        let timeout = Duration::from_secs(1)..=Duration::from_secs(300);
        reader.duration("connect_timeout", &mut self.connect_timeout, timeout);
        reader.text("as", &mut self.user_here, is_text, "a user of users.toml, or \"\" for link:NAME");
        reader.count("inflight_max", &mut self.inflight_max, 1..=65_535);
        reader.tables("out", &mut self.out);
        reader.tables("in", &mut self.inward);
    }
}

impl Section for Route {
    fn read(&mut self, reader: &mut Reader<'_>) {
        let is_short = |text: &str| text.len() <= 1024 && !text.contains(char::is_control);
        let is_prefix = |text: &str| is_short(text) && !text.contains(['+', '#']);
        reader.text("filter", &mut self.filter, is_short, "a topic filter");
        reader.count("qos", &mut self.qos, 0..=2);
        reader.text("local_prefix", &mut self.local_prefix, is_prefix, "the beginning of topics");
        reader.text("remote_prefix", &mut self.remote_prefix, is_prefix, "the beginning of topics");
    }
}

/// Adds what a combination of keys shows.
pub(super) fn find_clashes(config: &Config, findings: &mut Findings) {
    for (name, link) in &config.links.0 {
        let key = |key: &str| format!("links.{name}.{key}");
        let Some(broker) = link.broker() else {
            // A URL that is none was found when it was read.
            if !findings.is_set(&key("url")) {
                findings.clash(&key("url"), format!("links.{name}.url is missing"), "\"mqtts://HOST[:PORT]\"");
            }
            continue;
        };
        if !cfg!(feature = "mqtt") {
            findings.clash(&key("url"), "this program is built without the MQTT door", "no links");
        }
        if let Some(listener) = own_listener(config, &broker) {
            findings.clash(
                &key("url"),
                format!("this is the address of listeners.{listener}: messages would come back for ever"),
                "another broker",
            );
        }
        if !keeps_secrets(&broker) && !link.allow_plaintext {
            findings.clash(
                &key("url"),
                "messages and the password would leave this machine without encryption",
                format!("an mqtts:// address, one of this machine, or links.{name}.allow_plaintext = true"),
            );
        }
        if link.cert_file.is_some() != link.key_file.is_some() {
            findings.clash(&key("cert_file"), "a certificate and its key go together", "both cert_file and key_file");
        }
        if link.password_file.is_some() && link.user.is_empty() {
            findings.clash(&key("password_file"), "there is no user name", format!("links.{name}.user as well"));
        }
        for (file, path) in link.files().into_iter().filter_map(|(file, path)| Some((file, path.as_ref()?))) {
            if let Err(error) = readable(path) {
                findings.clash(&key(file), format!("{}: {error}", path.display()), "a file that can be read");
            }
        }
        if link.out.is_empty() && link.inward.is_empty() {
            findings.clash(&key("out"), "nothing is passed on", "entries in out or in");
        }
        find_bad_routes(&key("out"), &link.out, findings);
        find_bad_routes(&key("in"), &link.inward, findings);
        find_overlaps(&key("in"), &link.inward, findings);
    }
    find_shared_clients(&config.links, findings);
}

/// The listener that a link would lead to, by the addresses as they are written: names are not looked up, and it is not
/// known which addresses this machine has.
fn own_listener<'a>(config: &'a Config, broker: &Url) -> Option<&'a str> {
    let host: Option<IpAddr> = broker.host.parse().ok().map(|address: IpAddr| address.to_canonical());
    let is_localhost = broker.host.trim_end_matches('.').eq_ignore_ascii_case("localhost");
    let leads_to = |socket: SocketAddr| {
        let (ip, is_any) = (socket.ip(), socket.ip().is_unspecified());
        let is_there = match host {
            Some(host) if host.is_loopback() && is_any => host.is_ipv4() == ip.is_ipv4(),
            // connect(2) takes it for loopback.
            Some(host) if host.is_unspecified() => host.is_ipv4() == ip.is_ipv4() && (is_any || ip.is_loopback()),
            Some(host) => host == ip,
            None => is_localhost && (is_any || ip.is_loopback()),
        };
        is_there && socket.port() == broker.port
    };
    let is_mqtt = |listener: &Listener| listener.enabled && matches!(listener.kind, Kind::Mqtt | Kind::Mqtts);
    let mut found = config.listeners.each().filter(|(_, listener)| is_mqtt(listener));
    found.find(|(_, listener)| listener.sockets().any(|(socket, _)| leads_to(socket))).map(|(name, _)| name)
}

/// A broker ends the connection of a client when another one comes with its identifier, so two links with one would end
/// each other's for ever.
fn find_shared_clients(links: &Links, findings: &mut Findings) {
    let clients = links.0.iter().filter(|(_, link)| !link.client_id.is_empty()).filter_map(|(name, link)| {
        let broker = link.broker()?;
        Some((name, (broker.host.to_ascii_lowercase(), broker.port, link.client_id.as_str())))
    });
    let mut owners = BTreeMap::new();
    for (name, client) in clients {
        if let Some(other) = owners.get(&client) {
            let found = format!("{:?} is the client of the link {other:?} at this broker already", client.2);
            findings.clash(&format!("links.{name}.client_id"), found, "a client identifier of its own for each link");
        } else {
            owners.insert(client, name);
        }
    }
}

/// A broker may send a message once for each subscription that it matches (§3.3.4).
fn find_overlaps(key: &str, routes: &[Route], findings: &mut Findings) {
    for (at, one) in routes.iter().enumerate() {
        let earlier = routes.iter().take(at);
        if let Some(other) = earlier.map(Route::remote).find(|other| filters_overlap(other, &one.remote())) {
            let found =
                format!("{other:?} and {:?} match the same topics, whose messages could come twice", one.remote());
            findings.clash(key, found, "filters that do not overlap at the other broker");
            return;
        }
    }
}

fn find_bad_routes(key: &str, routes: &[Route], findings: &mut Findings) {
    if routes.len() > ROUTES_MAX {
        findings.clash(key, format!("{} entries", routes.len()), format!("at most {ROUTES_MAX}"));
    }
    for filter in routes.iter().flat_map(|route| [route.local(), route.remote()]) {
        if filter.starts_with("$share/") {
            findings.clash(key, format!("{filter:?} is a shared subscription"), "a topic filter behind its prefix");
        } else if let Err(error) = Filter::new(&filter) {
            findings.clash(key, format!("{filter:?}: {error}"), "a topic filter behind its prefix");
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::config::{Source, load};

    fn problems(keys: &str) -> Vec<String> {
        let text = format!("[links.north]\n{keys}\n");
        let problems = load(&[Source::new("f.toml", text)]).map_or_else(|problems| problems.0, |_| Vec::new());
        problems.iter().map(ToString::to_string).collect()
    }

    const OUT: &str = "out = [{ filter = \"room/#\" }]";

    #[test]
    fn a_link_is_read_with_its_lists() {
        let text = "[links.north]\nurl = \"mqtts://north.example\"\nout = [{ filter = \"#\", qos = 2, local_prefix = \
                    \"room/\", remote_prefix = \"site1/\" }]\n[[links.north.in]]\nfilter = \"commands/#\"\n";
        let config = load(&[Source::new("f.toml", text)]).unwrap();
        let link = &config.links.0["north"];
        let url = link.broker().unwrap();
        assert_eq!((url.host.as_str(), url.port, url.secure), ("north.example", 8883, true));
        let (out, inward) = (&link.out[0], &link.inward[0]);
        assert_eq!((out.local().as_str(), out.remote().as_str(), out.qos), ("room/#", "site1/#", 2));
        assert_eq!((inward.local().as_str(), inward.qos), ("commands/#", 1));
    }

    #[test]
    fn messages_leave_this_machine_under_tls_unless_told() {
        for url in ["mqtt://127.0.0.1:1884", "mqtt://localhost:1884", "mqtts://north.example:8884", "mqtt://[::1]:1884"]
        {
            assert_eq!(problems(&format!("url = {url:?}\n{OUT}")), [""; 0], "{url}");
        }
        assert!(!problems(&format!("url = \"mqtts://north.example:0\"\n{OUT}")).is_empty(), "port 0");
        let found = problems(&format!("url = \"mqtt://north.example\"\n{OUT}"));
        assert!(found.len() == 1 && found[0].contains("without encryption"), "{found:?}");
        let allowed = format!("url = \"mqtt://north.example\"\nallow_plaintext = true\n{OUT}");
        assert_eq!(problems(&allowed), [""; 0]);
    }

    #[test]
    fn a_link_does_not_lead_to_a_listener_of_its_own_gateway() {
        let of = |listeners: &str, url: &str| {
            let text = format!("{listeners}\n[links.north]\nurl = {url:?}\nallow_plaintext = true\n{OUT}\n");
            let problems = load(&[Source::new("f.toml", text)]).map_or_else(|problems| problems.0, |_| Vec::new());
            let problems: Vec<_> = problems.iter().map(ToString::to_string).collect();
            assert!(problems.iter().all(|problem| problem.contains("links.north.url")), "{problems:?}");
            !problems.is_empty()
        };
        for url in [
            "mqtt://127.0.0.1",
            "mqtt://LOCALHOST.",
            "mqtt://0.0.0.0",
            "mqtt://[::ffff:127.0.0.1]:1883",
            "mqtts://localhost",
        ] {
            assert!(of("", url), "{url}");
        }
        for url in
            ["mqtt://127.0.0.2", "mqtt://[::1]", "mqtt://127.0.0.1:8080", "mqtts://127.0.0.1:8884", "mqtt://192.0.2.1"]
        {
            assert!(!of("", url), "{url}");
        }
        let any = "[listeners.mqtt]\naddress = \"0.0.0.0:1883\"\nallow_plaintext = true\n";
        assert!(of(any, "mqtt://127.0.0.2") && !of(any, "mqtt://[::1]") && !of(any, "mqtt://192.0.2.1"));
        let lan = "[listeners.mqtt]\naddress = \"192.0.2.1:1884\"\nallow_plaintext = true\n";
        assert!(of(lan, "mqtt://192.0.2.1:1884") && !of(lan, "mqtt://192.0.2.1") && !of(lan, "mqtt://127.0.0.1"));
        assert!(!of("[listeners.mqtt]\nenabled = false\n", "mqtt://127.0.0.1"));
    }

    #[test]
    fn each_mistake_is_named_with_its_key() {
        for (keys, named) in [
            (OUT, "links.north.url"),
            ("url = \"https://north.example\"", "links.north.url"),
            ("url = \"mqtts://u:p@north.example\"", "links.north.url"),
            ("url = \"mqtts://north.example/topic\"", "links.north.url"),
            ("url = \"mqtts://north.example\"", "nothing is passed on"),
            ("url = \"mqtts://north.example\"\nout = [{ filter = \"a#\" }]", "links.north.out"),
            ("url = \"mqtts://north.example\"\nout = [{ filter = \"a\", qos = 3 }]", "links.north.out[0].qos"),
            ("url = \"mqtts://north.example\"\nout = [{ filter = \"a\", to = \"b\" }]", "links.north.out[0].to"),
            ("url = \"mqtts://north.example\"\nout = [\"a\"]", "links.north.out"),
            ("url = \"mqtts://h\"\nin = [{ filter = \"a\" }]\npassword_file = \"/nowhere\"\nuser = \"u\"", "/nowhere"),
            ("url = \"mqtts://h\"\nin = [{ filter = \"$share/g/a\" }]", "shared"),
        ] {
            let found = problems(keys);
            assert!(found.iter().any(|problem| problem.contains(named)), "{keys}: {found:?}");
        }
    }

    #[test]
    fn a_password_in_the_url_is_not_shown() {
        let found = problems("url = \"mqtts://u:s3cret@north.example\"");
        assert!(!found.is_empty() && found.iter().all(|problem| !problem.contains("s3cret")), "{found:?}");
    }
}
