//! The sections of the configuration and their built-in defaults. `config/fogmux.toml` documents each key; a test keeps
//! the two equal.

use std::path::PathBuf;
use std::time::Duration;

use fogmux_auth::{ActionLimits, LineLimits};
use fogmux_bus::BusConfig;
use fogmux_gateway::proxy::{ForwardHeader, ProxyConfig, ProxyRules};
use fogmux_net::{AdmissionLimits, ListExpiry, proxy::Proxies};
use tracing_subscriber::filter::Targets;

use super::acme::Acme;
use super::auth::Auth;
use super::discovery::Discovery;
use super::doors::{Coap, Http, Mqtt, Xmpp};
use super::links::Links;
use super::listeners::Listeners;
use super::reader::{Reader, Section};
use super::store::Store;
use super::telemetry::Telemetry;

/// The whole configuration.
#[derive(Clone, Debug, Default)]
pub(crate) struct Config {
    pub(crate) workers: Workers,
    pub(crate) listeners: Listeners,
    /// Connections, before authentication.
    pub(crate) limits: AdmissionLimits,
    /// Proxies in front of the listeners.
    pub(crate) proxy: Proxy,
    /// How the gateway is found on the LAN.
    pub(crate) discovery: Discovery,
    pub(crate) bus: BusConfig,
    pub(crate) mqtt: Mqtt,
    /// Connections to other brokers.
    pub(crate) links: Links,
    pub(crate) coap: Coap,
    pub(crate) http: Http,
    pub(crate) xmpp: Xmpp,
    pub(crate) store: Store,
    pub(crate) auth: Auth,
    pub(crate) tls: Tls,
    pub(crate) acme: Acme,
    pub(crate) telemetry: Telemetry,
    pub(crate) log: Log,
}

impl Section for Config {
    fn read(&mut self, reader: &mut Reader<'_>) {
        reader.section("workers", &mut self.workers);
        reader.section("listeners", &mut self.listeners);
        reader.section("limits", &mut self.limits);
        reader.section("proxy", &mut self.proxy);
        reader.section("discovery", &mut self.discovery);
        reader.section("bus", &mut self.bus);
        reader.section("mqtt", &mut self.mqtt);
        reader.section("links", &mut self.links);
        reader.section("coap", &mut self.coap);
        reader.section("http", &mut self.http);
        reader.section("xmpp", &mut self.xmpp);
        reader.section("store", &mut self.store);
        reader.section("auth", &mut self.auth);
        reader.section("tls", &mut self.tls);
        reader.section("acme", &mut self.acme);
        reader.section("telemetry", &mut self.telemetry);
        reader.section("log", &mut self.log);
    }
}

impl Config {
    /// The domain of the XMPP door.
    pub(crate) fn xmpp_domain(&self) -> &str {
        #[cfg(feature = "xmpp")]
        return &self.xmpp.door.domain;
        #[cfg(not(feature = "xmpp"))]
        return "localhost";
    }

    /// Returns the sections in which `other` differs in keys that a reload does not apply.
    pub(crate) fn sections_that_need_a_restart(&self, other: &Self) -> Vec<&'static str> {
        let mut listeners = self.listeners.clone();
        listeners.take_over(&other.listeners);
        let differs = [
            ("workers", self.workers.count != other.workers.count),
            ("listeners", listeners != other.listeners),
            ("limits", self.limits != other.limits),
            ("proxy", self.proxy != other.proxy),
            ("discovery", self.discovery != other.discovery),
            ("bus", self.bus != other.bus),
            ("mqtt", shown(&self.mqtt) != shown(&other.mqtt)),
            ("coap", self.coap.needs_a_restart(&other.coap)),
            ("http", shown(&self.http) != shown(&other.http)),
            ("xmpp", shown(&self.xmpp) != shown(&other.xmpp)),
            ("store", self.store != other.store),
            ("auth", self.auth.admin_password_file != other.auth.admin_password_file),
            ("tls", self.tls != other.tls),
            ("acme", self.acme != other.acme),
            ("telemetry", self.telemetry != other.telemetry),
        ];
        differs.into_iter().filter(|(_, differs)| *differs).map(|(section, _)| section).collect()
    }

    /// Copies from `other` the keys that a reload applies.
    pub(crate) fn take_over(&mut self, other: Self) {
        self.workers.drain = other.workers.drain;
        self.listeners.take_over(&other.listeners);
        let admin_password_file = self.auth.admin_password_file.take();
        self.auth = Auth { admin_password_file, ..other.auth };
        self.log = other.log;
        self.coap.oscore = other.coap.oscore;
        self.links = other.links;
    }
}

/// Formats settings to compare them, because the doors' settings do not implement `PartialEq`.
pub(super) fn shown(settings: &impl std::fmt::Debug) -> String {
    format!("{settings:?}")
}

/// The worker threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Workers {
    /// 0: one per processor core.
    pub(crate) count: usize,
    /// Time limit for an orderly shutdown of all connections.
    pub(crate) drain: Duration,
}

impl Default for Workers {
    fn default() -> Self {
        Self { count: 0, drain: Duration::from_secs(10) }
    }
}

impl Section for Workers {
    fn read(&mut self, reader: &mut Reader<'_>) {
        reader.count("count", &mut self.count, 0..=256);
        reader.duration("drain", &mut self.drain, Duration::ZERO..=Duration::from_secs(300));
    }
}

impl Section for AdmissionLimits {
    fn read(&mut self, reader: &mut Reader<'_>) {
        reader.count("connections_max", &mut self.connections_max, 1..=1_000_000);
        reader.count("per_address_max", &mut self.per_address_max, 1..=1_000_000);
    }
}

/// Proxies in front of the listeners.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Proxy {
    /// Addresses and networks.
    pub(crate) addresses: Vec<String>,
    pub(crate) rules: ProxyRules,
}

impl Proxy {
    /// Converts it for the gateway.
    pub(crate) fn of_gateway(&self) -> ProxyConfig {
        let named = Proxies::parse(self.addresses.iter().map(String::as_str)).unwrap_or_default();
        ProxyConfig { named, rules: self.rules }
    }
}

impl Section for Proxy {
    fn read(&mut self, reader: &mut Reader<'_>) {
        let valid = |text: &str| Proxies::parse([text]).is_ok();
        reader.words("addresses", &mut self.addresses, valid, "addresses and networks such as \"192.0.2.0/24\"");
        let headers = [("x-forwarded-for", ForwardHeader::XForwardedFor), ("forwarded", ForwardHeader::Forwarded)];
        reader.choice("header", &mut self.rules.header, &headers);
        reader.duration("timeout", &mut self.rules.timeout, Duration::from_millis(100)..=Duration::from_secs(60));
    }
}

impl Section for BusConfig {
    fn read(&mut self, reader: &mut Reader<'_>) {
        reader.size("memory_high_bytes", &mut self.memory_high_bytes, 1 << 20..=64 << 30);
        reader.count("retained_messages_max", &mut self.retained_messages_max, 0..=100_000_000);
        reader.size("retained_bytes_max", &mut self.retained_bytes_max, 0..=64 << 30);
        reader.count("subscriptions_max", &mut self.subscriptions_max, 1..=100_000_000);
        reader.size("subscriptions_bytes_max", &mut self.subscriptions_bytes_max, 64 << 10..=64 << 30);
        reader.count("reserve_percent", &mut self.reserve_percent, 0..=90);
    }
}

/// The certificate of all TLS and QUIC listeners.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tls {
    /// PEM, leaf first; issued by the gateway's authority when absent.
    pub(crate) certificate_file: Option<PathBuf>,
    /// PEM.
    pub(crate) key_file: Option<PathBuf>,
    /// PEM: authorities for client certificates; the gateway's own when absent.
    pub(crate) client_ca_file: Option<PathBuf>,
    /// PEM: their revocation lists; that of the gateway's authority when absent.
    pub(crate) crl_file: Option<PathBuf>,
    /// The treatment of client certificates when a revocation list has expired.
    pub(crate) crl_expiry: ListExpiry,
    /// Closes open connections when their certificate is revoked.
    pub(crate) cut_revoked: bool,
}

impl Section for Tls {
    fn read(&mut self, reader: &mut Reader<'_>) {
        reader.path("certificate_file", &mut self.certificate_file);
        reader.path("key_file", &mut self.key_file);
        reader.path("client_ca_file", &mut self.client_ca_file);
        reader.path("crl_file", &mut self.crl_file);
        let policies = [("warn", ListExpiry::Warn), ("refuse", ListExpiry::Refuse)];
        reader.choice("crl_expiry", &mut self.crl_expiry, &policies);
        reader.flag("cut_revoked", &mut self.cut_revoked);
    }
}

/// The log filter, the form of lines, and their rate limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Log {
    /// Levels, for all and for single modules (`Targets` of `tracing-subscriber`). The environment variable
    /// `FOGMUX_LOG` takes precedence.
    pub(crate) filter: String,
    pub(crate) format: LogFormat,
    /// Lines of one place in the program in ten seconds.
    pub(crate) repeated_lines: u32,
    pub(crate) refused_logins: LineLimits,
    pub(crate) refused_actions: ActionLimits,
}

/// The form of a line of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogFormat {
    /// For readers.
    Text,
    /// One JSON object.
    Json,
}

impl Default for Log {
    fn default() -> Self {
        let (refused_logins, refused_actions) = (LineLimits::default(), ActionLimits::default());
        let (filter, format) = ("info".to_owned(), LogFormat::Text);
        Self { filter, format, repeated_lines: 10, refused_logins, refused_actions }
    }
}

impl Section for Log {
    fn read(&mut self, reader: &mut Reader<'_>) {
        let valid = |text: &str| text.parse::<Targets>().is_ok();
        reader.text("filter", &mut self.filter, valid, "a filter such as \"info\" or \"info,fogmux_gateway=debug\"");
        reader.choice("format", &mut self.format, &[("text", LogFormat::Text), ("json", LogFormat::Json)]);
        reader.count("repeated_lines", &mut self.repeated_lines, 1..=1_000_000);
        let LineLimits { per_minute, per_address } = &mut self.refused_logins;
        reader.count("refused_logins_per_minute", per_minute, 0..=1_000_000);
        reader.count("refused_logins_per_address", per_address, 0..=1_000_000);
        let ActionLimits { per_minute, per_principal } = &mut self.refused_actions;
        reader.count("refused_actions_per_minute", per_minute, 0..=1_000_000);
        reader.count("refused_actions_per_principal", per_principal, 0..=1_000_000);
    }
}
