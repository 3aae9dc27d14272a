//! SIGHUP: what the configuration file says of listeners holds from then on, and never opens one by accident.

use anyhow::{Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::{coap, mqtt, tcp, tls, xmpp};
use rustix::process::Signal;

use super::PATIENCE;

const LISTENERS: [&str; 5] = ["mqtt", "http", "coap", "coap_tcp", "xmpps"];

/// Whether a client without credentials is let in.
fn lets_in(gateway: &Gateway, listener: &str) -> Result<bool> {
    let address = gateway.address(listener)?;
    Ok(match listener {
        "mqtt" => mqtt::Connection::open(address, mqtt::V4, "nobody").is_ok(),
        "http" => {
            let get = b"GET /topics/a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
            !tcp::ask(address, get)?.starts_with(b"HTTP/1.1 401")
        }
        "coap" => {
            let get = coap::request(coap::CON, coap::GET, 7, &[7], "a", &[], b"");
            coap::dotted(&coap::exchange(&coap::endpoint(address)?, &get, &[7])?) != "4.01"
        }
        "xmpps" => xmpp::Session::anonymous(&tls::config(gateway.ca())?, address).is_ok(),
        _ => true,
    })
}

fn reload(gateway: &Gateway, text: &str) -> Result<()> {
    gateway.configure(text)?;
    gateway.signal(Signal::HUP)?;
    gateway.wait_log(if text.contains('!') { "nothing was reloaded" } else { "are read again" }, PATIENCE)?;
    gateway.forget_log()
}

fn listener(name: &str, anonymous: bool) -> String {
    format!("[listeners.{name}]\nanonymous = {anonymous}\n")
}

pub(super) fn anonymous() -> Result<String> {
    let mut gateway = Gateway::start_configured("[workers]\ncount = 1\n")?;
    let tried: Vec<&str> = LISTENERS.into_iter().filter(|name| *name != "coap_tcp").collect();
    for name in &tried {
        ensure!(lets_in(&gateway, name)?, "{name} is closed at the start");
        reload(&gateway, &listener(name, false))?;
        ensure!(!lets_in(&gateway, name)?, "{name} is open after a reload that closes it");
        let others = tried.iter().filter(|other| *other != name);
        for other in others {
            ensure!(lets_in(&gateway, other)?, "{other} is closed, though {name} was meant");
        }
        // A file that is broken, and one that would move the listener, open nothing.
        reload(&gateway, "!")?;
        ensure!(!lets_in(&gateway, name)?, "{name} is open after a reload that failed");
        reload(&gateway, &format!("[listeners.{name}]\nenabled = false\n"))?;
        ensure!(!lets_in(&gateway, name)?, "{name} is open by what is for after a restart");
        reload(&gateway, &listener(name, true))?;
        ensure!(lets_in(&gateway, name)?, "{name} is closed after a reload that opens it");
    }
    gateway.check_alive()?;
    Ok(tried.join(", "))
}
