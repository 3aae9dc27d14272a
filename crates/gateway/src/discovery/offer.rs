//! Offers: what is told on an interface. These are the listeners that are open at its addresses, with their ports and
//! the facts that a client needs beside them.

use std::net::{IpAddr, SocketAddr};

use fogmux_mdns::responder::{Offer, Service};
use fogmux_net::interfaces::Interface;

use crate::{
    listener::{Listen, Listener},
    worker::Shared,
};

/// Returns what is told on an interface; nothing on loopback.
pub(super) fn on(shared: &Shared, interface: &Interface) -> Offer {
    let mut offer = Offer::default();
    for (listen, address) in shared.listening.open() {
        let reached = reached(interface, address);
        // Only proxies can use such a listener.
        if reached.is_empty() || listen.proxy_protocol {
            continue;
        }
        if let Some(service) = service(listen, address.port(), &shared.realm, &offer.services) {
            offer.services.push(service);
        }
        offer.addresses.extend(reached);
    }
    offer.addresses.sort_unstable();
    offer.addresses.dedup();
    offer
}

/// The addresses of an interface at which a listener is reached from other hosts.
fn reached(interface: &Interface, listener: SocketAddr) -> Vec<IpAddr> {
    let is_reached = |own: &IpAddr| match listener.ip() {
        ip if ip.is_unspecified() => own.is_ipv4() == ip.is_ipv4(),
        ip => *own == ip && is_scope(interface, listener),
    };
    let own = interface.networks.iter().map(|network| network.address);
    own.filter(|own| !own.is_loopback()).filter(is_reached).collect()
}

/// Whether a link-local address is meant on this interface (RFC 4007 §6).
const fn is_scope(interface: &Interface, address: SocketAddr) -> bool {
    match address {
        SocketAddr::V6(v6) => v6.scope_id() == 0 || v6.scope_id() == interface.index,
        SocketAddr::V4(_) => true,
    }
}

/// The service of a listener; `None` if it has none of its own, or is told already.
fn service(listen: &Listen, port: u16, realm: &str, others: &[Service]) -> Option<Service> {
    let kind = kind(listen.listener)?;
    let of_kind = || others.iter().filter(|other| other.kind == kind);
    if of_kind().any(|other| other.port == port) {
        return None;
    }
    // The first has the plain name; a port tells others from it.
    let qualifier = of_kind().next().map(|_| port.to_string());
    Some(Service { kind, qualifier, port, txt: txt(listen.listener, realm) })
}

/// The type of a listener's service, as it is registered.
const fn kind(listener: Listener) -> Option<[&'static str; 2]> {
    Some(match listener {
        Listener::Mqtt => ["_mqtt", "_tcp"],
        Listener::Mqtts => ["_secure-mqtt", "_tcp"],
        Listener::Coap => ["_coap", "_udp"],
        Listener::Coaps => ["_coaps", "_udp"],
        // RFC 8323 §11
        Listener::CoapTcp => ["_coap", "_tcp"],
        Listener::CoapsTcp => ["_coaps", "_tcp"],
        Listener::Http => ["_http", "_tcp"],
        Listener::Https => ["_https", "_tcp"],
        // HTTPS tells of it (RFC 7838).
        Listener::Http3 => return None,
        Listener::Xmpp => ["_xmpp-client", "_tcp"],
        // XEP-0368
        Listener::Xmpps => ["_xmpps-client", "_tcp"],
    })
}

/// Facts that a client cannot guess. The key `path` is registered; the others are ours.
fn txt(listener: Listener, realm: &str) -> Vec<String> {
    match listener {
        Listener::Http | Listener::Https => {
            let mut strings = vec!["path=/".to_owned()];
            if cfg!(feature = "mqtt") {
                strings.push("mqtt=/mqtt".to_owned());
            }
            if cfg!(feature = "coap") {
                strings.push("coap=/.well-known/coap".to_owned());
            }
            strings
        }
        // The domain of its addresses, which is not the name of the host.
        Listener::Xmpp | Listener::Xmpps => vec![format!("domain={realm}")],
        Listener::Mqtt
        | Listener::Mqtts
        | Listener::Coap
        | Listener::Coaps
        | Listener::CoapTcp
        | Listener::CoapsTcp
        | Listener::Http3 => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use fogmux_net::interfaces::Network;

    use super::*;

    fn interface(index: u32, addresses: &[&str]) -> Interface {
        let network = |address: &&str| Network { address: address.parse().unwrap(), prefix: 24 };
        Interface { name: format!("eth{index}"), index, networks: addresses.iter().map(network).collect() }
    }

    fn at(interface: &Interface, address: &str) -> Vec<String> {
        reached(interface, address.parse().unwrap()).iter().map(IpAddr::to_string).collect()
    }

    #[test]
    fn a_listener_is_reached_at_the_addresses_that_it_has_on_an_interface() {
        let eth = interface(2, &["192.0.2.10", "198.51.100.1", "fe80::1", "2001:db8::1"]);
        assert_eq!(at(&eth, "192.0.2.10:1"), ["192.0.2.10"]);
        assert_eq!(at(&eth, "192.0.2.11:1"), [""; 0]);
        assert_eq!(at(&eth, "0.0.0.0:1"), ["192.0.2.10", "198.51.100.1"]);
        assert_eq!(at(&eth, "[::]:1"), ["fe80::1", "2001:db8::1"]);
        assert_eq!((at(&eth, "[fe80::1%2]:1"), at(&eth, "[fe80::1%3]:1")), (vec!["fe80::1".to_owned()], vec![]));
        let loopback = interface(1, &["127.0.0.1", "::1"]);
        assert!(at(&loopback, "0.0.0.0:1").is_empty() && at(&loopback, "127.0.0.1:1").is_empty());
    }

    #[test]
    fn two_listeners_of_a_kind_have_different_names_and_one_at_two_addresses_has_one() {
        let mut services = Vec::new();
        for (kind, port) in [
            (Listener::Mqtt, 1883),
            (Listener::Mqtt, 1883),
            (Listener::Mqtt, 1884),
            (Listener::Mqtts, 8883),
            (Listener::Http3, 8443),
        ] {
            let listen = Listen::new(kind, ([0, 0, 0, 0], port).into());
            services.extend(service(&listen, port, "fog.example", &services));
        }
        let told: Vec<_> = services.iter().map(|one| (one.kind[0], one.qualifier.as_deref(), one.port)).collect();
        assert_eq!(told, [("_mqtt", None, 1883), ("_mqtt", Some("1884"), 1884), ("_secure-mqtt", None, 8883)]);
    }
}
