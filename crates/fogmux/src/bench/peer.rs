//! `fogmux bench peer`: another broker, measured by the same generator.

use fogmux_net::channel::Zeroizing;
use fogmux_traffic::conductor::{Peer as Broker, Target};
use fogmux_traffic::target::Access;
use fogmux_traffic::{Door, Experiment, Security};

use super::arguments::Peer;
use super::effect::{self, Served};
use crate::exit::{Failure, Status};

/// Returns the target and its credentials.
///
/// # Errors
/// The URL is none, or a flag contradicts it or has no effect; `served` is what is measured besides.
pub(super) fn target(arguments: &Peer, served: Served) -> Result<(Target, Experiment), Failure> {
    let usage = |problem: String| Failure::new(Status::Usage, problem);
    let address = Address::parse(&arguments.url).map_err(usage)?;
    let mut experiment = arguments.shape.experiment();
    experiment.door = address.door(experiment.door);
    let given = &arguments.shape.given;
    for (flag, said) in [("--door", Some(arguments.shape.door)), ("--to", arguments.shape.to)] {
        let Some(said) = said.filter(|said| given.has(flag) && address.door(*said) != *said) else { continue };
        return Err(usage(format!("{flag} {said} contradicts the URL, whose scheme is {}", address.scheme)));
    }
    if address.secure && given.has("--security") && experiment.security == Security::NONE {
        let (scheme, security) = (&address.scheme, experiment.security);
        return Err(usage(format!("--security {security} contradicts the URL, whose scheme is {scheme}")));
    }
    if address.secure && !experiment.security.is_secure() {
        let name = if arguments.psk.is_some() { "psk" } else { "modern" };
        let profile = name.parse::<Security>().map_err(|error| usage(error.to_string()))?;
        experiment.security = Security { oscore: experiment.security.oscore, ..profile };
    }
    effect::refuse_of_peer(arguments, &address.scheme, &experiment)?;
    effect::refuse(given, &experiment, served)?;
    let psk = match (&arguments.psk_id, &arguments.psk) {
        (Some(identity), Some(digits)) => {
            let key = crate::pki::bytes(digits)
                .ok_or_else(|| usage("a key has an even number of hexadecimal digits".to_owned()))?;
            Some((identity.clone(), Zeroizing::new(key)))
        }
        _ => None,
    };
    let access = Access {
        name: arguments.name.clone().unwrap_or_else(|| address.host.clone()),
        host: address.host,
        port: address.port,
        authority: arguments.ca.clone(),
        password: address.password,
        certificate: arguments.cert.clone().zip(arguments.key.clone()),
        psk,
        oscore: arguments.oscore.clone(),
        token: None,
        prefix: Some(address.prefix),
        key_log: None,
        group: None,
    };
    let broker = Broker { name: address.shown, access, reader_access: None, pids: arguments.pid.clone() };
    Ok((Target::Peer(Box::new(broker)), experiment))
}

/// Whether a URL is one of TLS or DTLS.
pub(super) fn is_secure(url: &str) -> bool {
    Address::parse(url).is_ok_and(|address| address.secure)
}

/// `SCHEME://[USER[:PASSWORD]@]HOST[:PORT][/PREFIX]`.
struct Address {
    scheme: String,
    secure: bool,
    host: String,
    port: u16,
    prefix: String,
    password: Option<(String, Zeroizing<String>)>,
    /// The URL without the password.
    shown: String,
}

impl Address {
    fn parse(text: &str) -> Result<Self, String> {
        // The reason is said without the text, which may contain a password.
        let (scheme, rest) = text.split_once("://").ok_or("the URL has no scheme: write SCHEME://HOST")?;
        let (plain, port) =
            match scheme {
                "mqtt" => (true, 1883),
                "mqtts" => (false, 8883),
                "ws" | "http" => (true, 80),
                "wss" | "https" => (false, 443),
                "coap" | "coap+tcp" => (true, 5683),
                "coaps" | "coaps+tcp" => (false, 5684),
                "xmpp" => (true, 5222),
                "xmpps" => (false, 5223),
                _ => return Err(
                    "the scheme of the URL is none of mqtt, mqtts, ws, wss, coap, coaps, coap+tcp, coaps+tcp, http, \
                             https, xmpp and xmpps"
                        .to_owned(),
                ),
            };
        let (authority, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        if prefix.contains('@') {
            return Err("the user and the password of a URL may not contain /; in a path, @ is %40".to_owned());
        }
        let (user, host) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, authority),
        };
        let (host, port) = match host.rsplit_once(':') {
            Some((name, number)) if !name.ends_with(':') => {
                (name, number.parse().map_err(|_| "the port of the URL is no number from 0 to 65535")?)
            }
            _ => (host, port),
        };
        if host.is_empty() {
            return Err("the host is missing".to_owned());
        }
        let password = user.map(|user| user.split_once(':').unwrap_or((user, "")));
        Ok(Self {
            scheme: scheme.to_owned(),
            secure: !plain,
            host: host.trim_matches(['[', ']']).to_owned(),
            port,
            prefix: prefix.trim_matches('/').to_owned(),
            password: password.map(|(user, password)| (user.to_owned(), Zeroizing::new(password.to_owned()))),
            shown: format!("{scheme}://{host}:{port}").replace(['[', ']'], ""),
        })
    }

    /// Returns the door of the scheme; `asked` decides where several are possible.
    fn door(&self, asked: Door) -> Door {
        match (self.scheme.as_str(), asked) {
            ("mqtt" | "mqtts", Door::Mqtt5) => Door::Mqtt5,
            ("ws" | "wss", _) => Door::MqttWs,
            ("coap" | "coaps", _) => Door::Coap,
            ("coap+tcp" | "coaps+tcp", _) => Door::CoapTcp,
            ("http" | "https", Door::Http2 | Door::Http3) => asked,
            ("http" | "https", _) => Door::Http1,
            ("xmpp", _) => Door::Xmpp,
            ("xmpps", _) => Door::Xmpps,
            _ => Door::Mqtt,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_says_door_host_and_prefix() {
        let address = Address::parse("https://u:p@[::1]:8443/static/").unwrap();
        assert_eq!((address.host.as_str(), address.port, address.prefix.as_str()), ("::1", 8443, "static"));
        assert_eq!(address.door(Door::Http2), Door::Http2);
        assert_eq!((address.secure, address.shown.as_str()), (true, "https://::1:8443"));
        assert_eq!(Address::parse("coap://127.0.0.1").unwrap().port, 5683);
        assert!(Address::parse("127.0.0.1").is_err());
        assert!(Address::parse("mqtt://").is_err());
    }

    #[test]
    fn what_is_wrong_is_said_without_the_password() {
        for url in
            ["u:s3cret@h", "xxx://u:s3cret@h", "mqtt://u:s3cret/x@h", "mqtt://u:1883/s3cret@h", "mqtt://u:p@h:s3cret"]
        {
            let why = Address::parse(url).err().unwrap();
            assert!(!why.contains("s3cret"), "{why}");
        }
    }
}
