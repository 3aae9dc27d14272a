//! Whose page asks: `Origin` and `Host` (RFC 6454, RFC 9110 §7.2), against foreign web pages.
//!
//! Where anonymous clients on loopback may do everything, every web page that the owner of the machine opens may try:
//! with a cross-site form, with a WebSocket (which no same-origin policy covers), or by pointing its own name at
//! 127.0.0.1. The first two show a foreign `Origin`, the third a foreign `Host`.

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

/// Whether `host` (with or without a port) can only mean this machine: an address, or `localhost` and names under it
/// (RFC 6761 §6.3).
#[must_use]
pub fn is_local_name(host: &str) -> bool {
    let name = without_port(host);
    if let Some(inner) = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return inner.parse::<std::net::Ipv6Addr>().is_ok();
    }
    name.parse::<std::net::Ipv4Addr>().is_ok()
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

#[cfg(test)]
mod tests {
    use super::*;

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
    fn addresses_and_localhost_are_local() {
        for host in ["localhost", "localhost:8080", "127.0.0.1:1", "[::1]:8080", "[::1]", "a.localhost", "10.0.0.1"] {
            assert!(is_local_name(host), "{host}");
        }
        for host in ["evil.example:8080", "localhost.evil.example", "[x]", ""] {
            assert!(!is_local_name(host), "{host}");
        }
    }
}
