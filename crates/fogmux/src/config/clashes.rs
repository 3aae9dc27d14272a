//! Problems that only a combination of keys shows: a port used twice, access that is wider than intended, a certificate
//! without its key, a missing file.

use std::net::SocketAddr;
use std::path::Path;

use fogmux_gateway::Listener as Kind;
use fogmux_net::{ClientCertificates, dtls::ListenerCredentials, profile::Stack};

use super::listener::{Listener, Protection, is_on_udp};
use super::model::Config;
use super::reader::Findings;

/// Adds the clashes of `config` to `findings`.
pub(crate) fn find_clashes(config: &Config, findings: &mut Findings) {
    find_shared_ports(config, findings);
    for (name, listener) in config.listeners.each() {
        if listener.enabled && listener.addresses.is_empty() {
            findings.clash(
                &format!("listeners.{name}.kind"),
                format!("listeners.{name}.address is missing"),
                "an address: only a listener with the name of its kind has one by default",
            );
        }
        if let Some(address) = listener.beyond_loopback().filter(|_| listener.enabled) {
            find_open_doors(name, listener, address, findings);
        }
        if listener.enabled && listener.proxy_protocol == Some(true) && config.proxy.addresses.is_empty() {
            findings.clash(
                &format!("listeners.{name}.proxy_protocol"),
                "no proxy is named that may connect",
                "false, or addresses in proxy.addresses",
            );
        }
        if listener.enabled && listener.multicast == Some(true) && listener.is_oscore_only() {
            findings.clash(
                &format!("listeners.{name}.multicast"),
                "nothing is told to clients without OSCORE at this listener",
                "false, or another listener for discovery",
            );
        }
        if listener.enabled {
            find_weak_profiles(name, listener, findings);
        }
    }
    find_nothing_to_do(config, findings);
    find_half_certificates(config, findings);
    super::acme::find_clashes(config, findings);
    super::telemetry::find_clashes(config, findings);
    super::links::find_clashes(config, findings);
    find_missing_files(config, findings);
}

/// Finds that nobody reaches the gateway, and that it reaches nobody.
fn find_nothing_to_do(config: &Config, findings: &mut Findings) {
    if config.links.0.is_empty() && !config.listeners.each().any(|(_, listener)| listener.enabled) {
        findings.clash(
            "listeners.defaults.enabled",
            "no listener is enabled and there is no link, so the gateway would do nothing",
            "enabled = true for one listener, or a link to another broker",
        );
    }
}

/// Finds two sockets of one transport on one port and overlapping addresses, of enabled listeners.
fn find_shared_ports(config: &Config, findings: &mut Findings) {
    let mut taken: Vec<(&str, &str, SocketAddr)> = Vec::new();
    let enabled = config.listeners.each().filter(|(_, listener)| listener.enabled);
    let sockets = enabled.flat_map(|(name, listener)| listener.sockets().map(move |(at, _)| (name, listener, at)));
    for (name, listener, address) in sockets.filter(|(.., address)| address.port() != 0) {
        for transport in transports(listener, config) {
            let other = taken.iter().find(|(_, used, other)| used == transport && overlap(other, &address));
            if let Some((other, _, _)) = other {
                findings.clash(
                    &format!("listeners.{name}.address"),
                    format!("{address} ({transport}) is taken by listeners.{other}"),
                    "another port, or 0 for one chosen by the system",
                );
            }
            taken.push((name, transport, address));
        }
    }
}

fn transports(listener: &Listener, config: &Config) -> &'static [&'static str] {
    if is_on_udp(listener.kind) {
        &["udp"]
    } else if listener.kind == Kind::Https && config.http.http3 {
        &["tcp", "udp"]
    } else {
        &["tcp"]
    }
}

/// `[::]` takes IPv6 only, so it can stand beside `0.0.0.0`.
fn overlap(a: &SocketAddr, b: &SocketAddr) -> bool {
    // One link-local address may be that of several interfaces (RFC 4007 §6).
    let scope = |address: &SocketAddr| match address {
        SocketAddr::V4(_) => 0,
        SocketAddr::V6(address) => address.scope_id(),
    };
    let other_link = scope(a) != 0 && scope(b) != 0 && scope(a) != scope(b);
    let everywhere = a.ip().is_unspecified() || b.ip().is_unspecified();
    a.port() == b.port() && a.is_ipv4() == b.is_ipv4() && (everywhere || a.ip() == b.ip() && !other_link)
}

/// Beyond loopback, plaintext and anonymous clients must be enabled explicitly.
fn find_open_doors(name: &str, listener: &Listener, address: SocketAddr, findings: &mut Findings) {
    if listener.protection == (Protection::Plain { allow_plaintext: false }) && !listener.is_oscore_only() {
        findings.clash(
            &format!("listeners.{name}.address"),
            format!("{address} is beyond loopback and not encrypted"),
            if matches!(listener.kind, Kind::Coap | Kind::CoapTcp) {
                format!(
                    "a loopback address, listeners.{name}.auth = [\"oscore\"] without allow_remote_anonymous, or \
                     listeners.{name}.allow_plaintext = true"
                )
            } else {
                format!("a loopback address, or listeners.{name}.allow_plaintext = true")
            },
        );
    }
    let anonymous = format!("listeners.{name}.anonymous");
    if listener.anonymous && !listener.allow_remote_anonymous && findings.is_set(&anonymous) {
        findings.clash(
            &anonymous,
            format!("clients without credentials would be admitted at {address}"),
            format!("false, a loopback address, or listeners.{name}.allow_remote_anonymous = true"),
        );
    }
}

/// Weak profiles must be enabled explicitly, and a pre-shared key excludes a certificate.
fn find_weak_profiles(name: &str, listener: &Listener, findings: &mut Findings) {
    let Some(tls) = listener.tls() else { return };
    if let (Some(why), false) = (tls.profile.weak, tls.allow_weak) {
        findings.clash(
            &format!("listeners.{name}.profile"),
            format!("{:?} is weak: {why}", tls.profile.name),
            format!("another profile, or listeners.{name}.allow_weak = true"),
        );
    }
    let security = tls.security();
    if security.client_certificates != ClientCertificates::No && (tls.profile.psk || !tls.profile.is_encrypted()) {
        findings.clash(
            &format!("listeners.{name}.client_certificates"),
            format!("the profile {:?} does not use certificates", tls.profile.name),
            "\"no\", or another profile",
        );
    }
    if let Some(versions) = tls.dtls_versions
        && !tls.profile.accept.versions.iter().any(|version| versions.contains(version))
    {
        findings.clash(
            &format!("listeners.{name}.dtls_versions"),
            format!("the profile {:?} has none of these versions", tls.profile.name),
            "at least one version that the profile has, or enabled = false",
        );
    }
    if listener.kind == Kind::Coaps && listener.enabled && !ListenerCredentials::is_available(&security) {
        findings.clash(
            &format!("listeners.{name}.profile"),
            format!("DTLS has nothing of the profile {:?}", tls.profile.name),
            "another profile, or enabled = false",
        );
    }
    // DTLS is fogmux's own under every profile (ADR 0030).
    let needs_openssl = tls.profile.stack == Stack::OpenSsl && tls.dtls_versions.is_none();
    if needs_openssl && !cfg!(feature = "tls-openssl") {
        findings.clash(
            &format!("listeners.{name}.profile"),
            format!("{:?} needs OpenSSL, which this build does not include", tls.profile.name),
            "another profile, or a build with the feature tls-openssl",
        );
    }
}

fn find_half_certificates(config: &Config, findings: &mut Findings) {
    match (&config.tls.certificate_file, &config.tls.key_file) {
        (Some(_), None) => findings.clash(
            "tls.certificate_file",
            "a certificate without its key",
            "tls.key_file as well, or neither for the gateway's own certificate",
        ),
        (None, Some(_)) => findings.clash(
            "tls.key_file",
            "a key without its certificate",
            "tls.certificate_file as well, or neither for the gateway's own certificate",
        ),
        (Some(_), Some(_)) | (None, None) => {}
    }
}

fn find_missing_files(config: &Config, findings: &mut Findings) {
    let files = [
        ("tls.certificate_file", &config.tls.certificate_file),
        ("tls.key_file", &config.tls.key_file),
        ("tls.client_ca_file", &config.tls.client_ca_file),
        ("tls.crl_file", &config.tls.crl_file),
        ("auth.acl_file", &config.auth.acl_file),
        ("auth.admin_password_file", &config.auth.admin_password_file),
        ("auth.psk_file", &config.auth.psk_file),
        ("auth.certificates_file", &config.auth.certificates_file),
        ("auth.token.jwks_file", &config.auth.token.settings.jwks_file),
        ("auth.token.key_file", &config.auth.token.settings.key_file),
        ("auth.callback.ca_file", &config.auth.callback.ca_file),
        ("acme.ca_file", &config.acme.ca_file),
        ("telemetry.traces.ca_file", &config.telemetry.traces.ca_file),
        ("acme.external_account_key_file", &config.acme.external_account_key_file),
    ];
    // It need not be there: the first start makes it.
    let users = config.auth.users_file.clone().filter(|file| file.exists());
    for (key, file) in files.into_iter().chain([("auth.users_file", &users)]) {
        let Some(file) = file else { continue };
        if let Err(error) = readable(file) {
            findings.clash(key, format!("{}: {error}", file.display()), "a file that can be read");
        }
    }
}

pub(super) fn readable(file: &Path) -> std::io::Result<()> {
    fogmux_file::open(file).map(drop)
}
