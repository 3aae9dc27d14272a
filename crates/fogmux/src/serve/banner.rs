//! The banner on standard output: listeners, data directory, and an example command for each protocol. With `--json`
//! one line of JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use fogmux_gateway::Listener;
use fogmux_gateway::listening::Listening;
use serde_json::{Map, json};

use crate::home::Home;

/// Prints the banner.
pub(crate) fn print(listening: &Listening, home: &Home, domain: &str, as_json: bool) {
    let text = if as_json { machine(listening, home) } else { people(listening, home, domain) };
    use std::io::Write as _;
    let mut out = std::io::stdout().lock();
    // Standard output may be closed.
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

fn machine(listening: &Listening, home: &Home) -> String {
    let mut first = Map::new();
    let mut all: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (listen, address) in listening.open() {
        first.entry(&*listen.name).or_insert_with(|| address.to_string().into());
        all.entry(&*listen.name).or_default().push(address.to_string());
    }
    let shut = listening.shut().map(
        |(listen, error)| json!({"listener": &*listen.name, "address": listen.address.to_string(), "error": error}),
    );
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "listeners": first,
        "addresses": all,
        "not_open": shut.collect::<Vec<_>>(),
        "data": home.directory.display().to_string(),
        "ca": home.authority.as_ref().map(|file| file.display().to_string()),
        "admin": home.admin.as_ref().map(|admin| {
            json!({"user": admin.user, "password_file": admin.password_file.display().to_string()})
        }),
        "pid": std::process::id(),
    })
    .to_string()
}

fn people(listening: &Listening, home: &Home, domain: &str) -> String {
    let mut text = format!("fogmux {} is ready.\n\n", env!("CARGO_PKG_VERSION"));
    let ca = home.authority.as_ref().map(|file| file.display().to_string());
    for (listen, address) in listening.open() {
        let line = example(listen.listener, reachable(address), ca.as_deref(), domain);
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  {:<9} {:<21} {line}", listen.name, address.to_string());
    }
    for (listen, error) in listening.shut() {
        let _ = writeln!(text, "  {:<9} {:<21} not open yet: {error}", listen.name, listen.address.to_string());
    }
    let _ = write!(text, "\n  data   {}", home.directory.display());
    if let Some(admin) = &home.admin {
        let _ = write!(text, "\n  admin  user {}, password in {}", admin.user, admin.password_file.display());
        // Only on a terminal, never in a journal.
        if std::io::stdout().is_terminal()
            && let Ok(password) = fogmux_file::read_to_string(&admin.password_file)
        {
            let _ = write!(text, ": {}", password.trim_end());
        }
    }
    text
}

/// Returns the address at which a client on this machine reaches a listener.
fn reachable(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => (Ipv4Addr::LOCALHOST, address.port()).into(),
        IpAddr::V6(ip) if ip.is_unspecified() => (Ipv6Addr::LOCALHOST, address.port()).into(),
        IpAddr::V4(_) | IpAddr::V6(_) => address,
    }
}

/// Returns an example command.
fn example(listener: Listener, at: SocketAddr, ca: Option<&str>, domain: &str) -> String {
    let (ip, port) = (at.ip(), at.port());
    let quoted = ca.map(quote);
    let option = |name: &str| quoted.as_ref().map(|ca| format!("{name} {ca} ")).unwrap_or_default();
    match listener {
        Listener::Mqtt => format!("mosquitto_sub -h {ip} -p {port} -v -t '#'"),
        Listener::Mqtts => format!("mosquitto_sub -h {ip} -p {port} {}-v -t '#'", option("--cafile")),
        Listener::Coap => format!("coap-client -m put -e 21.5 coap://{at}/ps/room/temperature"),
        Listener::Coaps => format!("fogmux get {}coaps://{at}/room/temperature", option("--ca")),
        Listener::CoapTcp => format!("fogmux get coap+tcp://{at}/room/temperature"),
        Listener::CoapsTcp => format!("fogmux get {}coaps+tcp://{at}/room/temperature", option("--ca")),
        Listener::Http => {
            format!("curl -X PUT -d 21.5 -H 'Content-Type: text/plain' http://{at}/topics/room/temperature")
        }
        Listener::Https => format!("curl {}https://{at}/topics/room/temperature", option("--cacert")),
        Listener::Http3 => format!("curl --http3-only {}https://{at}/topics/room/temperature", option("--cacert")),
        Listener::Xmpp => format!("fogmux sub {}--domain {domain} 'xmpp://{at}/#'", option("--ca")),
        Listener::Xmpps => format!("fogmux pub {}--domain {domain} xmpps://{at}/room/temperature 21.5", option("--ca")),
    }
}

/// Quotes a word for a shell.
fn quote(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+:@%".contains(&byte);
    if !text.is_empty() && text.bytes().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_with_blanks_and_quotes_are_one_word() {
        assert_eq!(quote("/var/lib/fogmux/pki/ca.pem"), "/var/lib/fogmux/pki/ca.pem");
        assert_eq!(quote("/a b/it's"), r"'/a b/it'\''s'");
    }

    #[test]
    fn examples_go_where_the_listener_can_be_reached() {
        let at = reachable("0.0.0.0:1883".parse().unwrap());
        assert_eq!(example(Listener::Mqtt, at, None, "localhost"), "mosquitto_sub -h 127.0.0.1 -p 1883 -v -t '#'");
    }
}
