//! The sections of the configuration and their built-in defaults; `config/fogmux.toml` says what each key means and a
//! test keeps the two the same.

use std::path::PathBuf;
use std::time::Duration;

use super::listeners::Listeners;
use super::reader::{Reader, Section};

/// Everything that can be configured.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Config {
    pub(crate) workers: Workers,
    pub(crate) listeners: Listeners,
    pub(crate) http: Http,
    pub(crate) xmpp: Xmpp,
    pub(crate) store: Store,
    pub(crate) auth: Auth,
    pub(crate) tls: Tls,
    pub(crate) log: Log,
}

impl Section for Config {
    fn read(&mut self, reader: &mut Reader<'_>) {
        reader.section("workers", &mut self.workers);
        reader.section("listeners", &mut self.listeners);
        reader.section("http", &mut self.http);
        reader.section("xmpp", &mut self.xmpp);
        reader.section("store", &mut self.store);
        reader.section("auth", &mut self.auth);
        reader.section("tls", &mut self.tls);
        reader.section("log", &mut self.log);
    }
}

/// The threads that do the work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Workers {
    /// 0 for one per processor core.
    pub(crate) count: usize,
    /// Keeps each on its core.
    pub(crate) pin: bool,
    /// How long connections get to end in good order.
    pub(crate) drain: Duration,
}

impl Default for Workers {
    fn default() -> Self {
        Self { count: 0, pin: true, drain: Duration::from_secs(10) }
    }
}

impl Section for Workers {
    fn read(&mut self, reader: &mut Reader<'_>) {
        reader.count("count", &mut self.count, 0..=256);
        reader.flag("pin", &mut self.pin);
        reader.duration("drain", &mut self.drain, Duration::ZERO..=Duration::from_secs(300));
    }
}

/// The HTTP door.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Http {
    /// Serves HTTP/3 on the UDP port of the `https` listener.
    pub(crate) http3: bool,
}

impl Default for Http {
    fn default() -> Self {
        Self { http3: true }
    }
}

impl Section for Http {
    fn read(&mut self, reader: &mut Reader<'_>) {
        reader.flag("http3", &mut self.http3);
    }
}

/// The XMPP door.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Xmpp {
    /// The domain clients log in to; topics are nodes of `pubsub.<domain>`.
    pub(crate) domain: String,
}

impl Default for Xmpp {
    fn default() -> Self {
        Self { domain: "localhost".to_owned() }
    }
}

impl Section for Xmpp {
    fn read(&mut self, reader: &mut Reader<'_>) {
        reader.text("domain", &mut self.domain, is_domain, "a domain name such as \"fog.example\"");
    }
}

/// RFC 7622 §3.2 narrowed to what a certificate can carry: lower-case labels of letters, digits and hyphens.
fn is_domain(text: &str) -> bool {
    let label = |label: &str| {
        let plain = label.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
        plain && (1..=63).contains(&label.len()) && !label.starts_with('-') && !label.ends_with('-')
    };
    text.len() <= 253 && text.split('.').all(label)
}

/// What survives a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Store {
    pub(crate) durability: Durability,
    /// `store` in the data directory when absent.
    pub(crate) path: Option<PathBuf>,
}

/// When a message is on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durability {
    /// Never.
    None,
    /// Some time after it was acknowledged.
    Interval,
    /// Before it is acknowledged, together with others.
    Group,
    /// Before it is acknowledged, at once.
    Always,
}

impl Default for Store {
    fn default() -> Self {
        Self { durability: Durability::Group, path: None }
    }
}

impl Section for Store {
    fn read(&mut self, reader: &mut Reader<'_>) {
        let choices = [
            ("none", Durability::None),
            ("interval", Durability::Interval),
            ("group", Durability::Group),
            ("always", Durability::Always),
        ];
        reader.choice("durability", &mut self.durability, &choices);
        reader.path("path", &mut self.path);
    }
}

/// Who may do what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Auth {
    /// `users.toml` in the data directory when absent.
    pub(crate) users_file: Option<PathBuf>,
    /// The built-in rules when absent.
    pub(crate) acl_file: Option<PathBuf>,
    /// A random one when absent; only looked at when the users file is made.
    pub(crate) admin_password_file: Option<PathBuf>,
}

impl Section for Auth {
    fn read(&mut self, reader: &mut Reader<'_>) {
        reader.path("users_file", &mut self.users_file);
        reader.path("acl_file", &mut self.acl_file);
        reader.path("admin_password_file", &mut self.admin_password_file);
    }
}

/// The certificate of every TLS and QUIC listener.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tls {
    /// PEM, leaf first; one of our own authority in the data directory when absent.
    pub(crate) certificate_file: Option<PathBuf>,
    /// PEM.
    pub(crate) key_file: Option<PathBuf>,
}

impl Section for Tls {
    fn read(&mut self, reader: &mut Reader<'_>) {
        reader.path("certificate_file", &mut self.certificate_file);
        reader.path("key_file", &mut self.key_file);
    }
}

/// What is logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Log {
    /// `tracing-subscriber`'s filter; the environment variable `FOGMUX_LOG` wins over it.
    pub(crate) filter: String,
}

impl Default for Log {
    fn default() -> Self {
        Self { filter: "info".to_owned() }
    }
}

impl Section for Log {
    fn read(&mut self, reader: &mut Reader<'_>) {
        let valid = |text: &str| tracing_subscriber::EnvFilter::try_new(text).is_ok();
        reader.text("filter", &mut self.filter, valid, "a filter such as \"info\" or \"info,fogmux_gateway=debug\"");
    }
}
