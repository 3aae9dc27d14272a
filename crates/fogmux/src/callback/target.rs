//! The target of requests that the gateway makes.

use std::net::IpAddr;

use http::Uri;

/// The target of requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) secure: bool,
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) authority: String,
    pub(crate) path: String,
}

impl Target {
    /// For passwords, which leave this machine only under TLS.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::anywhere(text).filter(Self::keeps_secrets)
    }

    /// Whether what is sent is seen by nobody else: under TLS, or on this machine.
    pub(crate) fn keeps_secrets(&self) -> bool {
        let address: Option<IpAddr> = self.host.parse().ok();
        self.secure || self.host == "localhost" || address.is_some_and(|address| address.is_loopback())
    }

    /// For what may be seen by others.
    pub(crate) fn anywhere(text: &str) -> Option<Self> {
        let uri: Uri = text.parse().ok()?;
        let secure = match uri.scheme_str()? {
            "https" => true,
            "http" => false,
            _ => return None,
        };
        let authority = uri.authority().filter(|authority| !authority.as_str().contains('@'))?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        let port = authority.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        let authority = authority.to_string();
        Some(Self { secure, host: host.to_owned(), port, authority, path })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_leave_this_machine_under_tls_only() {
        for text in ["https://users.example/login?x=1", "http://127.0.0.1:8000/", "http://[::1]/x", "http://localhost"]
        {
            assert!(Target::parse(text).is_some(), "{text}");
        }
        let target = Target::parse("http://[::1]:81/x?y").unwrap();
        assert_eq!((target.host.as_str(), target.port, target.path.as_str()), ("::1", 81, "/x?y"));
        for text in ["", "users.example", "http://users.example/", "ftp://127.0.0.1/", "https://a:b@c/", "/login"] {
            assert_eq!(Target::parse(text), None, "{text}");
        }
    }
}
