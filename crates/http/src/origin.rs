//! The origin of a request: `Origin` and `Host` (RFC 6454, RFC 9110 §7.2), against foreign web pages.
//!
//! Where anonymous clients on loopback may do everything, every web page that the owner of the machine opens may try:
//! with a cross-site form, with a WebSocket (which no same-origin policy covers), or by pointing its own name at
//! 127.0.0.1. The first two show a foreign `Origin`, the third a foreign `Host`.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Whether `origin` is the origin that `host` names, asked by https if `secure`, else by http (RFC 6454 §5). `null` is
/// nobody's origin.
#[must_use]
pub fn is_same(origin: &str, secure: bool, host: &str) -> bool {
    let Some((scheme, authority)) = origin.split_once("://") else { return false };
    let (own, default_port) = if secure { ("https", ":443") } else { ("http", ":80") };
    if !scheme.eq_ignore_ascii_case(own) {
        return false;
    }
    let bare = |name: &str| name.strip_suffix(default_port).unwrap_or(name).to_ascii_lowercase();
    bare(authority) == bare(host)
}

/// An origin as browsers write it in `Origin` (RFC 6454 §6.2): the scheme and the host in lower case, an address in its
/// shortest form, and the port unless it is the scheme's own. `None` if it is no origin of `http` or `https`.
#[must_use]
pub fn canonical(origin: &str) -> Option<String> {
    let (scheme, authority) = origin.split_once("://")?;
    let scheme = scheme.to_ascii_lowercase();
    let own_port = match &*scheme {
        "http" => 80,
        "https" => 443,
        _ => return None,
    };
    let host = without_port(authority);
    let port = match authority.get(host.len()..)? {
        "" => own_port,
        port => number(port.strip_prefix(':')?)?,
    };
    let host = canonical_host(host)?;
    Some(if port == own_port { format!("{scheme}://{host}") } else { format!("{scheme}://{host}:{port}") })
}

/// A host as browsers write it, without a port: a name in lower case, or an address in its shortest form, IPv6 in
/// brackets. `None` if it is neither.
#[must_use]
pub fn canonical_host(host: &str) -> Option<String> {
    if let Some(inner) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return inner.parse::<Ipv6Addr>().ok().map(bracketed);
    }
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    if host.is_empty() || !host.bytes().all(is_plain) {
        return None;
    }
    // A host whose last label is a number is an IPv4 address, and nothing else (WHATWG URL §3.5).
    let host = host.to_ascii_lowercase();
    let last = host.strip_suffix('.').unwrap_or(&host).rsplit('.').next()?;
    let hex = last.strip_prefix("0x").is_some_and(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()));
    if hex || last.bytes().all(|byte| byte.is_ascii_digit()) {
        return host.parse::<Ipv4Addr>().ok().map(|address| address.to_string());
    }
    Some(host)
}

/// An IPv6 address as browsers write it: an IPv4-mapped one in hexadecimal, too (WHATWG URL §3.5).
fn bracketed(address: Ipv6Addr) -> String {
    match (address.to_ipv4_mapped(), address.segments()) {
        (Some(_), [.., high, low]) => format!("[::ffff:{high:x}:{low:x}]"),
        (None, _) => format!("[{address}]"),
    }
}

/// A port: digits, no sign.
fn number(port: &str) -> Option<u16> {
    if port.bytes().all(|byte| byte.is_ascii_digit()) { port.parse().ok() } else { None }
}

/// Whether `host` (with or without a port) can only mean this machine: an address, or `localhost` and names under it
/// (RFC 6761 §6.3).
#[must_use]
pub fn is_local_name(host: &str) -> bool {
    let name = without_port(host);
    if let Some(inner) = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return inner.parse::<Ipv6Addr>().is_ok();
    }
    name.parse::<Ipv4Addr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || name.to_ascii_lowercase().ends_with(".localhost")
}

/// A `Host` without its port.
#[must_use]
pub fn without_port(host: &str) -> &str {
    if host.starts_with('[') {
        return host.find(']').and_then(|at| host.get(..=at)).unwrap_or(host);
    }
    host.split(':').next().unwrap_or(host)
}

/// Whether a `Host` is a host with or without a port (RFC 9110 §7.2, RFC 3986 §3.2.2). A name that only begins like
/// that of this machine is none.
#[must_use]
pub fn is_host(host: &str) -> bool {
    let name = without_port(host);
    let literal = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    let is_name = match literal {
        Some(address) => address.bytes().all(|byte| byte.is_ascii_alphanumeric() || b":.%-_~".contains(&byte)),
        None => name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+,;=".contains(&byte)),
    };
    let port = host.get(name.len()..).unwrap_or_default();
    is_name && (port.is_empty() || port.strip_prefix(':').is_some_and(|port| port.bytes().all(|b| b.is_ascii_digit())))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_host_is_a_name_or_an_address_and_perhaps_a_port() {
        for host in ["localhost", "fog.example:8080", "127.0.0.1", "[::1]:80", "[::1]", "a_b", "", "localhost:"] {
            assert!(is_host(host), "{host}");
        }
        for host in
            ["[::1].evil", "localhost:evil.example", "127.0.0.1:8080@evil.example", "a/b", "[::1", "a b", "[::1]80"]
        {
            assert!(!is_host(host), "{host}");
        }
    }

    #[test]
    fn an_origin_is_a_scheme_a_host_and_a_port() {
        assert!(is_same("http://127.0.0.1:8080", false, "127.0.0.1:8080"));
        assert!(is_same("https://Fog.Example", true, "fog.example:443"));
        assert!(!is_same("http://fog.example", true, "fog.example"));
        assert!(!is_same("https://fog.example", false, "fog.example"));
        assert!(!is_same("http://fog.example:81", false, "fog.example"));
        assert!(!is_same("null", false, "localhost"));
    }

    #[test]
    fn an_origin_has_one_canonical_form() {
        for (written, canonical_form) in [
            ("https://App.Example", "https://app.example"),
            ("HTTPS://app.example:443", "https://app.example"),
            ("http://app.example:80", "http://app.example"),
            ("http://app.example:443", "http://app.example:443"),
            ("https://app.example:08443", "https://app.example:8443"),
            ("http://[FE80:0::1]:80", "http://[fe80::1]"),
            ("http://[::ffff:192.0.2.1]:81", "http://[::ffff:c000:201]:81"),
            ("http://192.0.2.1:8080", "http://192.0.2.1:8080"),
        ] {
            assert_eq!(canonical(written).as_deref(), Some(canonical_form), "{written}");
        }
        for wrong in [
            "",
            "null",
            "*",
            "app.example",
            "https://",
            "https://app.example/",
            "https://app.example:",
            "https://app.example:65536",
            "https://app.example:+443",
            "https://user@app.example",
            "ftp://app.example",
            "http://1.2.3",
            "http://a.0x7f",
            "http://::1",
            "http://[::1",
            "http://a:b:80",
            "https://ä.example",
        ] {
            assert_eq!(canonical(wrong), None, "{wrong}");
        }
        assert_eq!(canonical_host("GW.Lan").as_deref(), Some("gw.lan"));
        assert_eq!(canonical_host("gw.lan:8080"), None);
    }

    proptest! {
        #[test]
        fn a_canonical_form_is_its_own(
            origin in "(?i:https?)://([a-zA-Z0-9_.-]{1,12}|\\[[0-9a-fA-F:.]{2,20}\\]|[0-9.]{1,15})(:[0-9]{1,6})?",
        ) {
            if let Some(once) = canonical(&origin) {
                prop_assert_eq!(canonical(&once), Some(once.clone()));
                // A page of that origin is at home at a host of that name.
                let (scheme, host) = once.split_once("://").unwrap();
                prop_assert!(is_same(&once, scheme == "https", host));
                let name = without_port(host);
                prop_assert_eq!(canonical_host(name), Some(name.to_owned()));
            }
        }
    }

    #[test]
    fn addresses_and_localhost_are_local() {
        for host in ["localhost", "localhost:8080", "127.0.0.1:1", "[::1]:8080", "[::1]", "a.localhost", "10.0.0.1"] {
            assert!(is_local_name(host), "{host}");
        }
        for host in ["evil.example:8080", "localhost.evil.example", "[x]", ""] {
            assert!(!is_local_name(host), "{host}");
        }
    }
}
