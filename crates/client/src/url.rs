//! URLs of all doors: `scheme://[user[:password]@]host[:port]/topic`.
//!
//! The part after the authority is the topic, percent-decoded once. `+` and `#` need no escaping, and neither `?` nor
//! `#` ends it. Resource paths of the doors (`/topics/…` on HTTP, `/ps/…` on CoAP, `/mqtt/…` on WebSocket) have their
//! meaning there. The default port is the one that fogmux listens on by default.

use std::fmt;

/// The doors as URL schemes name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// MQTT over TCP or TLS.
    Mqtt,
    /// MQTT over WebSocket.
    WebSocket,
    /// CoAP over UDP.
    Coap,
    /// CoAP over TCP (RFC 8323).
    CoapTcp,
    /// CoAP over WebSocket (RFC 8323 §8.3).
    CoapWebSocket,
    /// HTTP in any version.
    Http,
    /// XMPP.
    Xmpp,
}

/// Where a command goes.
#[derive(Clone, PartialEq, Eq)]
pub struct Url {
    /// The door.
    pub scheme: Scheme,
    /// TLS from the first byte.
    pub secure: bool,
    /// A name or an address, without brackets.
    pub host: String,
    /// The door's port.
    pub port: u16,
    /// A topic, or for `sub` a filter; never empty.
    pub topic: String,
    /// The user name, before the host.
    pub user: Option<String>,
    /// The password, after the user name.
    pub password: Option<String>,
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}:{} {}", self.scheme, self.host, self.port, self.topic)
    }
}

/// Why an address is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// Nothing stands before the host.
    #[error(
        "{0:?} has no scheme; use one of mqtt, mqtts, ws, wss, coap(s), coap(s)+tcp, coap(s)+ws, http, https, xmpp, xmpps, as in mqtt://127.0.0.1/topic"
    )]
    NoScheme(String),
    /// The scheme is not that of a door.
    #[error(
        "there is no scheme {0:?}; use one of mqtt, mqtts, ws, wss, coap(s), coap(s)+tcp, coap(s)+ws, http, https, xmpp, xmpps"
    )]
    Scheme(String),
    /// The port is not a number of 16 bits.
    #[error("{0:?} is no port")]
    Port(String),
    /// The host is empty.
    #[error("there is no host")]
    Host,
    /// The topic is empty.
    #[error("there is no topic; it follows the host, as in mqtt://127.0.0.1/room/temperature")]
    Topic,
    /// An escape that is none.
    #[error("a percent sign in {0:?} is not followed by two hexadecimal digits, or what it stands for is not UTF-8")]
    Percent(String),
}

impl std::str::FromStr for Url {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let (name, rest) = text.split_once("://").ok_or_else(|| UrlError::NoScheme(text.to_owned()))?;
        let (scheme, secure, default_port, resource) = scheme(name)?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (user_info, address) = match authority.rsplit_once('@') {
            Some((user_info, address)) => (Some(user_info), address),
            None => (None, authority),
        };
        let (host, port) = host_and_port(address, default_port)?;
        let (user, password) = match user_info.map(|info| info.split_once(':').unwrap_or((info, ""))) {
            Some((user, "")) => (Some(decoded(user)?), None),
            Some((user, password)) => (Some(decoded(user)?), Some(decoded(password)?)),
            None => (None, None),
        };
        let topic = decoded(path.strip_prefix(resource).unwrap_or(path))?;
        if topic.is_empty() {
            return Err(UrlError::Topic);
        }
        Ok(Self { scheme, secure, host, port, topic, user, password })
    }
}

/// Scheme, whether it is TLS, the port that fogmux listens on by default, and where topics live there.
fn scheme(name: &str) -> Result<(Scheme, bool, u16, &'static str), UrlError> {
    Ok(match name {
        "mqtt" => (Scheme::Mqtt, false, 1883, "\0"),
        "mqtts" => (Scheme::Mqtt, true, 8883, "\0"),
        "ws" => (Scheme::WebSocket, false, 8080, "mqtt/"),
        "wss" => (Scheme::WebSocket, true, 8443, "mqtt/"),
        "coap" => (Scheme::Coap, false, 5683, "ps/"),
        "coaps" => (Scheme::Coap, true, 5684, "ps/"),
        "coap+tcp" => (Scheme::CoapTcp, false, 5683, "ps/"),
        "coaps+tcp" => (Scheme::CoapTcp, true, 5684, "ps/"),
        "coap+ws" => (Scheme::CoapWebSocket, false, 8080, "ps/"),
        "coaps+ws" => (Scheme::CoapWebSocket, true, 8443, "ps/"),
        "http" => (Scheme::Http, false, 8080, "topics/"),
        "https" => (Scheme::Http, true, 8443, "topics/"),
        "xmpp" => (Scheme::Xmpp, false, 5222, "\0"),
        "xmpps" => (Scheme::Xmpp, true, 5223, "\0"),
        _ => return Err(UrlError::Scheme(name.to_owned())),
    })
}

fn host_and_port(address: &str, default_port: u16) -> Result<(String, u16), UrlError> {
    let (host, port) = match address.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, port)) => (host, port.strip_prefix(':')),
        None => match address.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (address, None),
        },
    };
    if host.is_empty() {
        return Err(UrlError::Host);
    }
    let port = match port {
        Some(port) => port.parse().map_err(|_| UrlError::Port(port.to_owned()))?,
        None => default_port,
    };
    Ok((host.to_owned(), port))
}

fn decoded(text: &str) -> Result<String, UrlError> {
    let malformed = || UrlError::Percent(text.to_owned());
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, more)) = rest.split_first() {
        if *first != b'%' {
            bytes.push(*first);
            rest = more;
            continue;
        }
        let (digits, more) = more.split_at_checked(2).ok_or_else(malformed)?;
        let digits = std::str::from_utf8(digits).map_err(|_| malformed())?;
        // `from_str_radix` would take a sign.
        if digits.starts_with('+') {
            return Err(malformed());
        }
        bytes.push(u8::from_str_radix(digits, 16).map_err(|_| malformed())?);
        rest = more;
    }
    String::from_utf8(bytes).map_err(|_| malformed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_topic_is_everything_after_the_authority() {
        let table = [
            ("mqtt://h/a/b", "h", 1883, "a/b"),
            ("mqtt://h:7/#", "h", 7, "#"),
            ("mqtts://h//a/", "h", 8883, "/a/"),
            ("mqtt://h/a?b#c", "h", 1883, "a?b#c"),
            ("ws://h/mqtt/a", "h", 8080, "a"),
            ("wss://h/a", "h", 8443, "a"),
            ("coap://[::1]/ps/a", "::1", 5683, "a"),
            ("coap://[::1]:5/a%2Fb", "::1", 5, "a/b"),
            ("coap+tcp://h/ps/a", "h", 5683, "a"),
            ("coaps+tcp://h/a", "h", 5684, "a"),
            ("coap+ws://h/a", "h", 8080, "a"),
            ("coaps+ws://h/a", "h", 8443, "a"),
            ("http://h/topics/a", "h", 8080, "a"),
            ("http://h/topics/topics/a", "h", 8080, "topics/a"),
            ("https://h/a%20b", "h", 8443, "a b"),
            ("xmpp://h/+/%C3%A4", "h", 5222, "+/ä"),
        ];
        for (text, host, port, topic) in table {
            let url: Url = text.parse().unwrap();
            assert_eq!((url.host.as_str(), url.port, url.topic.as_str()), (host, port, topic), "{text}");
        }
    }

    #[test]
    fn credentials_may_stand_in_front_of_the_host_and_are_never_shown() {
        let url: Url = "mqtt://a%40b:s3:cret@h/t".parse().unwrap();
        assert_eq!((url.user.as_deref(), url.password.as_deref()), (Some("a@b"), Some("s3:cret")));
        assert!(!format!("{url:?}").contains("s3"));
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in ["h/t", "gopher://h/t", "mqtt://h", "mqtt://h/", "mqtt:///t", "mqtt://h:x/t", "mqtt://h:70000/t"] {
            assert!(text.parse::<Url>().is_err(), "{text}");
        }
        for text in ["mqtt://h/%", "mqtt://h/%4", "mqtt://h/%+1", "mqtt://h/%ff"] {
            assert!(matches!(text.parse::<Url>(), Err(UrlError::Percent(_))), "{text}");
        }
    }
}
