//! The keys of `[acme]`: certificates that an ACME server issues (RFC 8555).

use std::path::PathBuf;

use fogmux_gateway::Listener as Kind;
use fogmux_net::profile::Stack;

use super::listener::Tls;
use super::model::Config;
use super::reader::{Findings, Reader, Section};
use crate::callback::target::Target;

/// Let's Encrypt.
const DIRECTORY: &str = "https://acme-v02.api.letsencrypt.org/directory";
/// The longest DNS name and label (RFC 1035 §2.3.4).
const NAME_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;

/// An ACME server, and the names that it is to certify.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Acme {
    /// None is asked for when empty.
    pub(crate) domains: Vec<String>,
    /// The URL of the server's directory (RFC 8555 §7.1.1).
    pub(crate) directory: String,
    /// PEM: the authorities of the server's own certificate; the system's when absent.
    pub(crate) ca_file: Option<PathBuf>,
    pub(crate) challenge: Challenge,
    /// Mail addresses.
    pub(crate) contact: Vec<String>,
    /// Whether the operator agrees to the server's terms of service.
    pub(crate) agree_to_terms: bool,
    /// The identifier of an account elsewhere (RFC 8555 §7.3.4); none when `""`.
    pub(crate) external_account: String,
    /// Its key, in base64url.
    pub(crate) external_account_key_file: Option<PathBuf>,
}

/// How the server validates that a name is that of this gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Challenge {
    /// RFC 8555 §8.3, at port 80.
    Http01,
    /// RFC 8737, at port 443.
    TlsAlpn01,
}

impl Challenge {
    /// Its name in the standard and the configuration.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Http01 => "http-01",
            Self::TlsAlpn01 => "tls-alpn-01",
        }
    }
}

impl Default for Acme {
    fn default() -> Self {
        Self {
            domains: Vec::new(),
            directory: DIRECTORY.to_owned(),
            ca_file: None,
            challenge: Challenge::Http01,
            contact: Vec::new(),
            agree_to_terms: false,
            external_account: String::new(),
            external_account_key_file: None,
        }
    }
}

impl Section for Acme {
    fn read(&mut self, reader: &mut Reader<'_>) {
        let accepted =
            "DNS names in lower case, such as \"fog.example.org\"; addresses and wildcards cannot be validated";
        reader.words("domains", &mut self.domains, is_domain, accepted);
        let is_url = |text: &str| Target::parse(text).is_some_and(|target| target.secure);
        reader.text("directory", &mut self.directory, is_url, "an https:// address");
        reader.path("ca_file", &mut self.ca_file);
        let choices = [Challenge::Http01, Challenge::TlsAlpn01];
        reader.choice("challenge", &mut self.challenge, &choices.map(|choice| (choice.name(), choice)));
        reader.words("contact", &mut self.contact, is_mail, "mail addresses such as \"ops@example.org\"");
        reader.flag("agree_to_terms", &mut self.agree_to_terms);
        reader.text("external_account", &mut self.external_account, |_| true, "the identifier of an account, or \"\"");
        reader.path("external_account_key_file", &mut self.external_account_key_file);
    }
}

/// RFC 1123 §2.1. A last label of digits would be an address to whoever looks the name up.
fn is_domain(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_label = |label: &str| {
        (1..=LABEL_BYTES_MAX).contains(&label.len())
            && label.bytes().all(is_letter)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let last = text.rsplit('.').next().unwrap_or_default();
    text.len() <= NAME_BYTES_MAX && text.split('.').all(is_label) && !last.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_mail(text: &str) -> bool {
    let plain = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'@');
    // RFC 8555 §7.3: one address, and no header fields.
    text.split_once('@').is_some_and(|(user, host)| plain(user) && plain(host)) && !text.contains(['?', ','])
}

/// Adds what a combination of keys shows.
pub(super) fn find_clashes(config: &Config, findings: &mut Findings) {
    let acme = &config.acme;
    let is_half = acme.external_account.is_empty() != acme.external_account_key_file.is_none();
    if is_half {
        let key = if acme.external_account.is_empty() { "external_account_key_file" } else { "external_account" };
        findings.clash(
            &format!("acme.{key}"),
            "an external account is an identifier and a key",
            "acme.external_account and acme.external_account_key_file, or neither",
        );
    }
    if acme.domains.is_empty() {
        return;
    }
    if !cfg!(feature = "acme") {
        findings.clash("acme.domains", "this program is built without ACME", "[], or a program built with it");
        return;
    }
    if !acme.agree_to_terms {
        findings.clash(
            "acme.domains",
            format!("nobody has agreed to the terms of service of {}", acme.directory),
            "acme.agree_to_terms = true, once somebody has",
        );
    }
    let mut enabled = config.listeners.each().map(|(_, listener)| listener).filter(|listener| listener.enabled);
    let is_rustls = |tls: &Tls| tls.profile.stack == Stack::Rustls && tls.profile.is_encrypted();
    let (is_answered, needed) = match acme.challenge {
        Challenge::Http01 => (
            cfg!(feature = "http") && enabled.any(|one| one.kind == Kind::Http),
            "an enabled listener of kind \"http\"",
        ),
        Challenge::TlsAlpn01 => (
            enabled.any(|one| one.kind.begins_with_tls() && one.tls().is_some_and(is_rustls)),
            "an enabled listener with TLS over TCP and the profile \"modern\" or \"high\"",
        ),
    };
    if !is_answered {
        findings.clash("acme.challenge", format!("nothing answers {}", acme.challenge.name()), needed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Source, load};

    #[test]
    fn names_are_those_that_can_be_validated() {
        for name in ["fog.example.org", "a", "xn--bcher-kva.example", "1.example", "a-b.c"] {
            assert!(is_domain(name), "{name}");
        }
        for name in [
            "",
            ".",
            "a.",
            ".a",
            "*.example.org",
            "192.0.2.1",
            "[::1]",
            "::1",
            "a_b.example",
            "Fog.example",
            "-a.example",
            "a-.example",
            "a..b",
            "b\u{fc}cher.example",
            "a b",
        ] {
            assert!(!is_domain(name), "{name}");
        }
        assert!(is_domain(&format!("{}.example", "a".repeat(63))));
        assert!(!is_domain(&format!("{}.example", "a".repeat(64))));
        assert!(!is_domain(&vec!["a".repeat(50); 6].join(".")));
        assert!(is_mail("ops@example.org"));
        for text in ["", "ops", "mailto:", "a@b@c", "a@b?subject=x", "a@b,c@d", "a@", "@b", "a b@c"] {
            assert!(!is_mail(text), "{text}");
        }
    }

    #[cfg(not(feature = "acme"))]
    #[test]
    fn a_program_without_it_says_so() {
        let text = "[acme]\ndomains = [\"fog.example.org\"]\nagree_to_terms = true\n";
        let problems = load(&[Source::new("f.toml", text)]).unwrap_err().0;
        assert_eq!(problems.iter().map(|problem| &*problem.key).collect::<Vec<_>>(), ["acme.domains"]);
    }

    #[cfg(feature = "acme")]
    #[test]
    fn what_could_never_be_issued_is_refused() {
        let problems = |text: &str| {
            let loaded = load(&[Source::new("f.toml", format!("[acme]\n{text}"))]);
            loaded.err().map(|problems| problems.0.into_iter().map(|problem| problem.key).collect::<Vec<_>>().join(" "))
        };
        let agreed = "domains = [\"fog.example.org\"]\nagree_to_terms = true\n";
        assert_eq!(problems(agreed), None);
        assert_eq!(problems("challenge = \"tls-alpn-01\"\n"), None, "off");
        for (text, key) in [
            ("domains = [\"fog.example.org\"]\n".to_owned(), "acme.domains"),
            ("domains = [\"*.example.org\"]\n".to_owned(), "acme.domains"),
            ("domains = [\"192.0.2.1\"]\n".to_owned(), "acme.domains"),
            ("directory = \"http://127.0.0.1/dir\"\n".to_owned(), "acme.directory"),
            ("challenge = \"dns-01\"\n".to_owned(), "acme.challenge"),
            ("contact = [\"nobody\"]\n".to_owned(), "acme.contact"),
            ("external_account = \"a\"\n".to_owned(), "acme.external_account"),
            (format!("{agreed}[listeners.http]\nenabled = false\n"), "acme.challenge"),
            (
                format!("{agreed}challenge = \"tls-alpn-01\"\n[listeners.defaults]\nprofile = \"pki\"\n"),
                "acme.challenge",
            ),
        ] {
            assert_eq!(problems(&text).as_deref(), Some(key), "{text}");
        }
    }
}
