//! The client's side as data: an address and flags to a request; the connection itself is the caller's.

use http::{HeaderMap, HeaderValue, Method, header};

use crate::authorization;
use crate::percent;
use crate::publish::NDJSON;

/// Where a gateway is, and which topic or filter the address names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// `https` and `wss`.
    pub tls: bool,
    /// The host name or address; IPv6 without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The topic: the path after `/topics/`, or the whole path without its first slash, decoded. May be empty.
    pub topic: String,
}

/// The reason why an address is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadAddress {
    /// The scheme is not `http`, `https`, `ws` or `wss`.
    #[error("the scheme is http, https, ws or wss")]
    Scheme,
    /// No host, or a port that is no number.
    #[error("the host or its port is malformed")]
    Authority,
    /// A path that is not percent-encoded UTF-8.
    #[error("the path is not percent-encoded UTF-8")]
    Path,
}

/// Reads `http://host:port/topics/a/b` or `http://host:port/a/b`. A bare `#` is part of a filter, not a fragment.
pub fn parse(url: &str) -> Result<Address, BadAddress> {
    let (scheme, rest) = url.split_once("://").ok_or(BadAddress::Scheme)?;
    let tls = match scheme.to_ascii_lowercase().as_str() {
        "http" | "ws" => false,
        "https" | "wss" => true,
        _ => return Err(BadAddress::Scheme),
    };
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let (host, port) = match authority.strip_prefix('[') {
        Some(inner) => {
            let (host, after) = inner.split_once(']').ok_or(BadAddress::Authority)?;
            (host, after.strip_prefix(':'))
        }
        None => authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port))),
    };
    if host.is_empty() {
        return Err(BadAddress::Authority);
    }
    let port = match port {
        Some(port) => port.parse().map_err(|_| BadAddress::Authority)?,
        None if tls => 8443,
        None => 8080,
    };
    let path = path.split('?').next().unwrap_or_default();
    let topic = percent::decode(path.strip_prefix("topics/").unwrap_or(path)).map_err(|_| BadAddress::Path)?;
    Ok(Address { tls, host: host.to_owned(), port, topic: topic.into_owned() })
}

/// The options of a request.
#[derive(Debug, Clone, Default)]
pub struct Flags {
    /// Name and password for Basic authentication.
    pub credentials: Option<(String, String)>,
    /// A Bearer token (RFC 6750 §2.1), instead of name and password.
    pub token: Option<String>,
    /// The QoS of the publication or subscription.
    pub qos: Option<u8>,
    /// Whether the message is retained.
    pub retain: bool,
    /// The MIME type of the payload.
    pub content_type: Option<String>,
    /// Seconds the message lives.
    pub expiry_seconds: Option<u32>,
}

/// A request to send.
#[derive(Debug, Clone)]
pub struct Request {
    /// The method.
    pub method: Method,
    /// Path and query.
    pub target: String,
    /// Every header but `Host` and the body's length.
    pub headers: HeaderMap,
}

/// PUT keeps, POST does not.
#[must_use]
pub fn publish(topic: &str, flags: &Flags) -> Request {
    let mut target = topic_path(topic);
    let mut separator = '?';
    let mut parameter = |name: &str, value: u64| {
        target.push(separator);
        target.push_str(name);
        target.push('=');
        target.push_str(&value.to_string());
        separator = '&';
    };
    if let Some(qos) = flags.qos {
        parameter("qos", u64::from(qos));
    }
    if let Some(seconds) = flags.expiry_seconds {
        parameter("expiry", u64::from(seconds));
    }
    let mut headers = common(flags);
    if let Some(value) = flags.content_type.as_deref().and_then(|text| HeaderValue::from_str(text).ok()) {
        headers.insert(header::CONTENT_TYPE, value);
    }
    Request { method: if flags.retain { Method::PUT } else { Method::POST }, target, headers }
}

/// Takes the latest message.
#[must_use]
pub fn latest(topic: &str, flags: &Flags) -> Request {
    Request { method: Method::GET, target: topic_path(topic), headers: common(flags) }
}

/// Clears the latest message.
#[must_use]
pub fn clear(topic: &str, flags: &Flags) -> Request {
    Request { method: Method::DELETE, target: topic_path(topic), headers: common(flags) }
}

/// Follows a filter as NDJSON, whose lines [`crate::event::decode`] reads.
#[must_use]
pub fn subscribe(filter: &str, flags: &Flags) -> Request {
    let mut target = String::from("/subscribe?filter=");
    percent::encode_query(filter, &mut target);
    if let Some(qos) = flags.qos {
        target.push_str("&qos=");
        target.push_str(&qos.to_string());
    }
    let mut headers = common(flags);
    headers.insert(header::ACCEPT, HeaderValue::from_static(NDJSON));
    Request { method: Method::GET, target, headers }
}

fn topic_path(topic: &str) -> String {
    let mut path = String::from("/topics/");
    percent::encode_path(topic, &mut path);
    path
}

fn common(flags: &Flags) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(header::USER_AGENT, HeaderValue::from_static(concat!("fogmux/", env!("CARGO_PKG_VERSION"))));
    let basic = || flags.credentials.as_ref().map(|(user, password)| authorization::basic(user, password));
    let shown = flags.token.as_ref().map(|token| format!("Bearer {token}")).or_else(basic);
    if let Some(Ok(mut value)) = shown.as_deref().map(HeaderValue::from_str) {
        value.set_sensitive(true);
        headers.insert(header::AUTHORIZATION, value);
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_name_a_topic() {
        let address = parse("http://[::1]:81/topics/a%20b//c").unwrap();
        assert_eq!((address.host.as_str(), address.port, address.topic.as_str()), ("::1", 81, "a b//c"));
        let address = parse("wss://fog.example/a/#").unwrap();
        assert_eq!((address.tls, address.port, address.topic.as_str()), (true, 8443, "a/#"));
        assert_eq!(parse("ftp://a"), Err(BadAddress::Scheme));
        assert_eq!(parse("http://:1/a"), Err(BadAddress::Authority));
    }

    #[test]
    fn requests_say_what_flags_say() {
        let flags = Flags {
            credentials: Some(("u".into(), "p".into())),
            token: None,
            qos: Some(1),
            retain: true,
            content_type: Some("text/plain".into()),
            expiry_seconds: Some(60),
        };
        let request = publish("a/ü?", &flags);
        assert_eq!(request.method, Method::PUT);
        assert_eq!(request.target, "/topics/a/%C3%BC%3F?qos=1&expiry=60");
        assert_eq!(request.headers[header::CONTENT_TYPE], "text/plain");
        assert_eq!(request.headers[header::AUTHORIZATION], "Basic dTpw");
        let request = latest("a", &Flags { token: Some("a.b.c".into()), ..Flags::default() });
        assert_eq!(request.headers[header::AUTHORIZATION], "Bearer a.b.c");
        assert!(request.headers[header::AUTHORIZATION].is_sensitive());
        assert_eq!(subscribe("+/#", &Flags::default()).target, "/subscribe?filter=%2B/%23");
    }
}
