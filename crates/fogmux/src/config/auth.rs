//! The keys of `[auth]`: files of users, rules and keys, tokens and the callback.

use std::path::PathBuf;
use std::time::Duration;

use fogmux_auth::{BackoffConfig, TokenSettings};
use fogmux_gateway::verifiers::VerifierConfig;

use super::reader::{Reader, Section};

const HOUR: Duration = Duration::from_secs(3600);

/// Users, rules, and the policy for logins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Auth {
    /// `users.toml` in the data directory when absent.
    pub(crate) users_file: Option<PathBuf>,
    /// The built-in rules when absent.
    pub(crate) acl_file: Option<PathBuf>,
    /// A random one when absent; read only when the users file is created.
    pub(crate) admin_password_file: Option<PathBuf>,
    /// `psk.toml` in the data directory when absent.
    pub(crate) psk_file: Option<PathBuf>,
    /// `certificates.toml` in the data directory when absent.
    pub(crate) certificates_file: Option<PathBuf>,
    /// Accepts client certificates only for users of the users file.
    pub(crate) certificate_users_only: bool,
    /// Lets administrators change users and rules over HTTP.
    pub(crate) api_changes: bool,
    pub(crate) token: Token,
    pub(crate) callback: Callback,
    pub(crate) backoff: BackoffConfig,
    pub(crate) verification: VerifierConfig,
}

impl Section for Auth {
    fn read(&mut self, reader: &mut Reader<'_>) {
        reader.path("users_file", &mut self.users_file);
        reader.path("acl_file", &mut self.acl_file);
        reader.path("admin_password_file", &mut self.admin_password_file);
        reader.path("psk_file", &mut self.psk_file);
        reader.path("certificates_file", &mut self.certificates_file);
        reader.flag("certificate_users_only", &mut self.certificate_users_only);
        reader.flag("api_changes", &mut self.api_changes);
        reader.section("token", &mut self.token);
        reader.section("callback", &mut self.callback);
        reader.section("backoff", &mut self.backoff);
        reader.section("verification", &mut self.verification);
    }
}

impl Section for BackoffConfig {
    fn read(&mut self, reader: &mut Reader<'_>) {
        reader.count("free_failures", &mut self.free_failures, 0..=1_000_000);
        reader.duration("first", &mut self.first, Duration::ZERO..=Duration::from_secs(60));
        reader.duration("address_max", &mut self.address_max, Duration::ZERO..=24 * HOUR);
        reader.duration("user_max", &mut self.user_max, Duration::ZERO..=HOUR);
        reader.duration("forget_after", &mut self.forget_after, Duration::from_secs(1)..=24 * HOUR);
        reader.count("entries_max", &mut self.entries_max, 16..=1_000_000);
    }
}

impl Section for VerifierConfig {
    fn read(&mut self, reader: &mut Reader<'_>) {
        reader.count("threads", &mut self.threads_max, 0..=64);
        reader.count("waiting_max", &mut self.queue.waiting_max, 1..=65_536);
        reader.count("known_max", &mut self.queue.known_max, 0..=1_000_000);
        reader.duration("wait_max", &mut self.wait_max, Duration::from_secs(1)..=HOUR);
    }
}

/// The accepted signed tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Token {
    /// No file when `""`.
    pub(crate) issuer: String,
    pub(crate) settings: TokenSettings,
}

impl Token {
    /// Returns the settings for the token source.
    pub(crate) fn settings(&self) -> TokenSettings {
        TokenSettings { issuer: Some(self.issuer.clone()).filter(|name| !name.is_empty()), ..self.settings.clone() }
    }
}

impl Section for Token {
    fn read(&mut self, reader: &mut Reader<'_>) {
        let settings = &mut self.settings;
        let claim = |text: &str| !text.is_empty();
        reader.path("jwks_file", &mut settings.jwks_file);
        reader.path("key_file", &mut settings.key_file);
        reader.text("issuer", &mut self.issuer, |_| true, "the text of iss, or \"\" for any");
        reader.words("audience", &mut settings.audience, claim, "names such as \"fogmux\"");
        reader.text("user_claim", &mut settings.user_claim, claim, "the name of a claim");
        reader.text("groups_claim", &mut settings.groups_claim, claim, "the name of a claim");
        reader.flag("expiry_required", &mut settings.expiry_required);
        reader.duration("leeway", &mut settings.leeway, Duration::ZERO..=Duration::from_secs(600));
    }
}

/// The callback for names that are not in the users file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Callback {
    /// No callback when `""`.
    pub(crate) url: String,
    /// The authorities for its certificate; the system's when absent.
    pub(crate) ca_file: Option<PathBuf>,
    pub(crate) timeout: Duration,
    /// How long a positive answer is cached.
    pub(crate) cache: Duration,
}

impl Default for Callback {
    fn default() -> Self {
        Self { url: String::new(), ca_file: None, timeout: Duration::from_secs(2), cache: Duration::from_secs(60) }
    }
}

impl Section for Callback {
    fn read(&mut self, reader: &mut Reader<'_>) {
        let accepted =
            "an https:// address, or an http:// one on this machine, such as \"http://127.0.0.1:8000/login\"";
        let valid = |text: &str| text.is_empty() || crate::callback::target::Target::parse(text).is_some();
        reader.text("url", &mut self.url, valid, accepted);
        reader.path("ca_file", &mut self.ca_file);
        reader.duration("timeout", &mut self.timeout, Duration::from_millis(100)..=Duration::from_secs(30));
        reader.duration("cache", &mut self.cache, Duration::ZERO..=HOUR);
    }
}
