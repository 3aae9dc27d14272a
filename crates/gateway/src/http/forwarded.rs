//! Requests that came through a proxy: the peer that they belong to.
//!
//! Such a request is never local, whatever the address of its connection: anonymous clients are trusted on loopback
//! because they are on this machine, and behind a proxy they may be anywhere.

use std::net::{IpAddr, SocketAddr};

use fogmux_net::proxy::Proxies;
use http::{
    HeaderMap, HeaderName, Version,
    header::{CONNECTION, FORWARDED, VIA},
};

use crate::{Peer, WorkerContext, proxy::ForwardHeader};

const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The peer that a request belongs to, if that is not the one of its connection.
pub(super) fn of_request(ctx: &WorkerContext, peer: &Peer, version: Version, headers: &HeaderMap) -> Option<Peer> {
    let (proxies, address) = (ctx.shared.admission.proxies(), peer.address.ip());
    // By the PROXY protocol a proxy may say that it does not know its client, whose fields are nobody's then.
    let is_unknown = peer.proxy() == Some(peer.address);
    if !is_unknown && !proxies.is_empty() && proxies.contains(address) {
        // A named proxy that says nothing has passed on somebody's request all the same.
        let client = client(headers, ctx.shared.proxy.header, proxies);
        return Some(peer.behind(client.map(|client| SocketAddr::new(client, 0))));
    }
    (peer.is_loopback() && was_forwarded(version, headers)).then(|| peer.behind(None))
}

/// Whether a named proxy says that a request came to it by https.
pub(super) fn was_secure(ctx: &WorkerContext, peer: &Peer, headers: &HeaderMap) -> bool {
    if !peer.proxy().is_some_and(|proxy| ctx.shared.admission.proxies().contains(proxy.ip())) {
        return false;
    }
    let name = match ctx.shared.proxy.header {
        ForwardHeader::XForwardedFor => X_FORWARDED_PROTO,
        ForwardHeader::Forwarded => FORWARDED,
    };
    let last = elements_from_last(headers, &name).next().flatten();
    let scheme = match ctx.shared.proxy.header {
        ForwardHeader::XForwardedFor => last.map(|element| element.trim().to_owned()),
        ForwardHeader::Forwarded => last.and_then(|element| parameter(element, "proto")),
    };
    scheme.is_some_and(|scheme| scheme.eq_ignore_ascii_case("https"))
}

/// The elements of a list field, the last first; `None` for one that is no text. They are split before they are read as
/// text, and from the end, where quotes are balanced in what a proxy appends: so nothing that stands before it changes
/// where it begins, and no quoted comma (RFC 7239 §4, RFC 9110 §5.6.4) splits it.
fn elements_from_last<'h>(headers: &'h HeaderMap, name: &HeaderName) -> impl Iterator<Item = Option<&'h str>> {
    let lines = headers.get_all(name).iter().rev();
    lines.flat_map(|line| {
        let mut rest = Some(line.as_bytes());
        std::iter::from_fn(move || {
            let (before, element) = split_last(rest?);
            rest = before;
            Some(std::str::from_utf8(element).ok())
        })
    })
}

/// Returns the text before the last comma that is not quoted, if there is one, and the element behind it.
fn split_last(line: &[u8]) -> (Option<&[u8]>, &[u8]) {
    let mut quoted = false;
    for (at, byte) in line.iter().enumerate().rev() {
        let (before, _) = line.split_at(at);
        match byte {
            b'"' => {
                let escapes = before.iter().rev().take_while(|byte| **byte == b'\\').count();
                quoted ^= escapes % 2 == 0;
            }
            b',' if !quoted => return (Some(before), line.get(at + 1..).unwrap_or_default()),
            _ => {}
        }
    }
    (None, line)
}

/// Whether a field is one that proxies add, as of the client's address.
fn is_of_proxies(name: &HeaderName) -> bool {
    const OTHERS: [&str; 7] = [
        "x-real-ip",
        "x-client-ip",
        "x-cluster-client-ip",
        "x-original-forwarded-for",
        "true-client-ip",
        "cf-connecting-ip",
        "x-envoy-external-address",
    ];
    if *name == FORWARDED || *name == VIA {
        return true;
    }
    let name = name.as_str();
    name.starts_with("x-forwarded") || OTHERS.contains(&name)
}

/// Whether a request shows that it came through a proxy: by a header field of those, or by a version of HTTP and a
/// `Connection` that together are the mark of nginx before 1.29.7 without any configuration.
fn was_forwarded(version: Version, headers: &HeaderMap) -> bool {
    let closes = || headers.get(CONNECTION).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"close"));
    // One pass over the few fields of a request costs less than look-ups, each of which hashes a name.
    headers.keys().any(is_of_proxies) || (version == Version::HTTP_10 && closes())
}

/// The address that stands before those of our own proxies: each adds the address that it was connected from at the
/// end, so everything before the last that we do not know is only what that one said.
fn client(headers: &HeaderMap, header: ForwardHeader, proxies: &Proxies) -> Option<IpAddr> {
    let name = match header {
        ForwardHeader::XForwardedFor => X_FORWARDED_FOR,
        ForwardHeader::Forwarded => FORWARDED,
    };
    for element in elements_from_last(headers, &name) {
        let element = element?;
        let node = match header {
            ForwardHeader::XForwardedFor => element.trim().to_owned(),
            ForwardHeader::Forwarded => parameter(element, "for")?,
        };
        let address = node_address(&node)?;
        if !proxies.contains(address) {
            return Some(address);
        }
    }
    None
}

/// A parameter of one element (RFC 7239 §4), without quotes. `None` where it is there twice, which the clause forbids:
/// a proxy that does not quote what a client sends says both then, the client's and its own.
fn parameter(element: &str, name: &str) -> Option<String> {
    let mut found = None;
    for pair in pairs(element)? {
        let Some((own, value)) = pair.split_once('=') else { continue };
        if own.trim().eq_ignore_ascii_case(name) && found.replace(unquoted(value.trim())).is_some() {
            return None;
        }
    }
    found
}

/// The parts of an element between semicolons that are not quoted; `None` where a quote is not closed.
fn pairs(element: &str) -> Option<Vec<&str>> {
    let (mut quoted, mut escaped, mut from) = (false, false, 0);
    let mut pairs = Vec::new();
    for (at, byte) in element.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b';' if !quoted => {
                pairs.push(element.get(from..at)?);
                from = at + 1;
            }
            _ => {}
        }
    }
    pairs.push(element.get(from..)?);
    (!quoted).then_some(pairs)
}

/// A value without its quotes and escapes (RFC 9110 §5.6.4).
fn unquoted(value: &str) -> String {
    let Some(inner) = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else { return value.to_owned() };
    let mut characters = inner.chars();
    std::iter::from_fn(|| match characters.next()? {
        '\\' => characters.next(),
        other => Some(other),
    })
    .collect()
}

/// An address, perhaps with a port; `unknown` and obfuscated identifiers (RFC 7239 §6) are none.
fn node_address(node: &str) -> Option<IpAddr> {
    if let Ok(address) = node.parse::<IpAddr>() {
        return Some(address.to_canonical());
    }
    if let Ok(address) = node.parse::<SocketAddr>() {
        return Some(address.ip().to_canonical());
    }
    let inner = node.strip_prefix('[')?.split_once(']')?.0;
    inner.parse::<IpAddr>().ok().map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn seen(header: ForwardHeader, lines: &[&'static str]) -> Option<String> {
        let proxies = Proxies::parse(["127.0.0.1", "10.0.0.0/8"]).unwrap();
        let mut headers = HeaderMap::new();
        let name = if header == ForwardHeader::Forwarded { FORWARDED } else { X_FORWARDED_FOR };
        for line in lines {
            headers.append(&name, HeaderValue::from_static(line));
        }
        client(&headers, header, &proxies).map(|address| address.to_string())
    }

    #[test]
    fn the_last_address_that_is_no_proxy_counts() {
        let x = |lines: &[&'static str]| seen(ForwardHeader::XForwardedFor, lines);
        assert_eq!(x(&["203.0.113.9"]).as_deref(), Some("203.0.113.9"));
        assert_eq!(x(&["127.0.0.1, 203.0.113.9, 10.1.1.1"]).as_deref(), Some("203.0.113.9"));
        assert_eq!(x(&["198.51.100.1", "203.0.113.9", "10.1.1.1"]).as_deref(), Some("203.0.113.9"));
        assert_eq!(x(&["203.0.113.9:4711"]).as_deref(), Some("203.0.113.9"));
        assert_eq!(x(&["2001:db8::1"]).as_deref(), Some("2001:db8::1"));
        assert_eq!(x(&["203.0.113.9, unknown"]), None, "what stands before it is only what a stranger said");
        assert_eq!(x(&["127.0.0.1"]), None);
        assert_eq!(x(&[""]), None);
        assert_eq!(x(&[]), None);
    }

    #[test]
    fn rfc7239_elements() {
        let f = |lines: &[&'static str]| seen(ForwardHeader::Forwarded, lines);
        assert_eq!(f(&["for=203.0.113.9;proto=https;by=10.0.0.1"]).as_deref(), Some("203.0.113.9"));
        assert_eq!(f(&["by=10.0.0.1; For=\"[2001:db8::1]:4711\""]).as_deref(), Some("2001:db8::1"));
        assert_eq!(f(&["for=\"[2001:db8::1]\""]).as_deref(), Some("2001:db8::1"));
        assert_eq!(f(&["for=127.0.0.1, for=203.0.113.9, for=10.0.0.7"]).as_deref(), Some("203.0.113.9"));
        assert_eq!(f(&["proto=http;host=\"x, for=9.9.9.9\";for=203.0.113.9"]).as_deref(), Some("203.0.113.9"));
        assert_eq!(f(&["host=\"x;for=9.9.9.9\";for=203.0.113.9"]).as_deref(), Some("203.0.113.9"));
        for hidden in ["for=_hidden", "for=unknown", "proto=https", "for=", "host=x;for=9.9.9.9;for=203.0.113.9"] {
            assert_eq!(f(&[hidden]), None, "{hidden}");
        }
    }

    proptest::proptest! {
        #[test]
        fn nothing_that_a_client_sends_changes_what_its_proxy_says(
            own in proptest::collection::vec(proptest::collection::vec(
                proptest::prop_oneof![proptest::sample::select(&b",;=\"[]\\ \xff"[..]), 0x20_u8..0x7f, 0x80_u8..], 0..40,
            ), 0..4),
            on_its_line: bool,
            host in "[ -~]{0,4}([,;=\"\\\\]|for=9\\.9\\.9\\.9|[ -~]){0,8}",
        ) {
            let proxies = Proxies::parse(["127.0.0.1", "10.0.0.0/8"]).unwrap();
            // As a proxy quotes what the client says in `Host`.
            let host = host.replace('\\', "\\\\").replace('"', "\\\"");
            let (before, behind) =
                (format!("for=203.0.113.9;host=\"{host}\""), format!("host=\"{host}\"; for=\"203.0.113.9:1\""));
            for (header, name, appended, expected) in [
                (ForwardHeader::XForwardedFor, X_FORWARDED_FOR, "203.0.113.9", Some([203, 0, 113, 9])),
                (ForwardHeader::XForwardedFor, X_FORWARDED_FOR, "203.0.113.9, 10.1.1.1", Some([203, 0, 113, 9])),
                (ForwardHeader::XForwardedFor, X_FORWARDED_FOR, "unknown", None),
                (ForwardHeader::Forwarded, FORWARDED, "for=203.0.113.9;proto=https", Some([203, 0, 113, 9])),
                (ForwardHeader::Forwarded, FORWARDED, "for=203.0.113.9, For=\"10.1.1.1:80\"", Some([203, 0, 113, 9])),
                (ForwardHeader::Forwarded, FORWARDED, "for=_hidden", None),
                (ForwardHeader::Forwarded, FORWARDED, &*before, Some([203, 0, 113, 9])),
                (ForwardHeader::Forwarded, FORWARDED, &*behind, Some([203, 0, 113, 9])),
            ] {
                let mut lines = own.clone();
                match lines.last_mut().filter(|_| on_its_line) {
                    Some(last) => last.extend(format!(", {appended}").bytes()),
                    None => lines.push(appended.into()),
                }
                let mut headers = HeaderMap::new();
                for line in lines {
                    headers.append(&name, HeaderValue::from_bytes(&line).unwrap());
                }
                proptest::prop_assert_eq!(client(&headers, header, &proxies), expected.map(IpAddr::from));
            }
        }
    }

    #[test]
    fn nginx_without_configuration_has_a_mark() {
        let with =
            |name: HeaderName, value: &'static str| HeaderMap::from_iter([(name, HeaderValue::from_static(value))]);
        assert!(was_forwarded(Version::HTTP_10, &with(CONNECTION, "close")));
        assert!(!was_forwarded(Version::HTTP_11, &with(CONNECTION, "close")));
        assert!(!was_forwarded(Version::HTTP_10, &HeaderMap::new()));
        assert!(was_forwarded(Version::HTTP_11, &with(VIA, "1.1 cache")));
        for name in ["x-forwarded-for", "x-forwarded-proto", "x-real-ip", "forwarded"] {
            assert!(was_forwarded(Version::HTTP_11, &with(HeaderName::from_static(name), "a")), "{name}");
        }
    }
}
