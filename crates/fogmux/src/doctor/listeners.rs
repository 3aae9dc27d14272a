//! The listeners: whether their addresses are this machine's, and whose their ports are.

use std::net::{SocketAddr, UdpSocket};

use fogmux_gateway::Listener as Kind;

use super::Subject;
use super::finding::Report;
use super::gateway::{RESTART, show_holder};
use super::sockets::{self, Held, Transport};
use crate::config::{Listener, Protection, is_on_udp};

pub(super) fn examine(subject: &Subject<'_>, report: &mut Report) {
    let held = sockets::held(subject.machine);
    let enabled = subject.config.listeners.each().filter(|(_, listener)| listener.enabled);
    let wanted = enabled.flat_map(|(name, listener)| {
        let by = transports(subject, listener).iter();
        by.flat_map(move |by| listener.sockets().map(move |(address, _)| (name, *by, listener, address)))
    });
    let inodes: Vec<u64> = held.iter().map(|held| held.inode).collect();
    let holders = sockets::holders(subject.machine, &inodes);
    let overriding = subject.running.as_ref().and_then(|process| subject.machine.overriding(process));
    for (name, transport, listener, address) in wanted {
        exposure(name, transport, listener, address, report);
        if address.port() == 0 {
            continue;
        }
        let what = format!("listeners.{name}: {address} ({})", transport.name());
        let own = subject.running.as_ref().map(|process| process.pid);
        let taken: Vec<&Held> = held.iter().filter(|held| held.excludes(transport, address)).collect();
        let others = || taken.iter().filter_map(|held| holders.get(&held.inode));
        if let Some(flag) = overriding.filter(|_| !others().any(|process| Some(process.pid) == own)) {
            let text =
                format!("{what}: not open: the gateway was started with {flag}, and its banner names the address");
            report.ok("listener", text);
            continue;
        }
        if let Err(error) = UdpSocket::bind(SocketAddr::new(address.ip(), 0))
            && error.kind() == std::io::ErrorKind::AddrNotAvailable
        {
            let mend = format!(
                "ip address; then set listeners.{name}.address to an address of this machine, or bring the interface \
                 up: a running gateway opens the listener within 30 s"
            );
            report.problem("listener-address", format!("{what}: no interface has this address"), mend);
            continue;
        }
        match (own, others().find(|process| Some(process.pid) != own)) {
            (_, Some(other)) => {
                let text = format!("{what}: taken by process {}, {}", other.pid, other.name);
                report.problem("listener-port", text, show_holder(transport.name(), address.port()));
            }
            (Some(own), None) if others().any(|process| process.pid == own) => {
                report.ok("listener", format!("{what}: open"));
            }
            (Some(_), None) if taken.is_empty() => {
                report.problem("listener", format!("{what}: configured, but not open"), RESTART);
            }
            (_, None) if !taken.is_empty() => {
                report.unknown("listener-port", format!("{what}: taken; only root can see by whom"));
            }
            (_, None) => {
                report.ok("listener", format!("{what}: free"));
                privileged(subject, name, &what, address, report);
            }
        }
    }
}

/// A listener of HTTPS has HTTP/3 beside it.
fn transports(subject: &Subject<'_>, listener: &Listener) -> &'static [Transport] {
    if is_on_udp(listener.kind) {
        &[Transport::Udp]
    } else if listener.kind == Kind::Https && http3(subject) {
        &[Transport::Tcp, Transport::Udp]
    } else {
        &[Transport::Tcp]
    }
}

#[cfg(feature = "http")]
fn http3(subject: &Subject<'_>) -> bool {
    subject.config.http.http3
}

#[cfg(not(feature = "http"))]
fn http3(_: &Subject<'_>) -> bool {
    false
}

/// A port that only root or a capability opens.
fn privileged(subject: &Subject<'_>, name: &str, what: &str, address: SocketAddr, report: &mut Report) {
    let first = subject.machine.number("proc/sys/net/ipv4/ip_unprivileged_port_start").unwrap_or(1024);
    if u64::from(address.port()) < first {
        let mend = format!(
            "add CAP_NET_BIND_SERVICE to CapabilityBoundingSet= and AmbientCapabilities= (systemctl edit fogmux), or \
             set listeners.{name}.address to a port from {first} on"
        );
        report.warning("listener-privileged", format!("{what}: ports below {first} need a capability"), mend);
    }
}

/// Warns of an address that other machines reach without encryption or without a credential.
fn exposure(name: &str, transport: Transport, listener: &Listener, address: SocketAddr, report: &mut Report) {
    if address.ip().is_loopback() || (listener.kind == Kind::Https && transport == Transport::Udp) {
        return;
    }
    if matches!(listener.protection, Protection::Plain { .. }) && !listener.is_oscore_only() {
        let text = format!("listeners.{name}: {address} is reached by others without encryption");
        let mend = format!("set listeners.{name}.enabled = false, and use the listener with TLS or DTLS");
        report.warning("listener-exposed", text, mend);
    }
    if listener.lets_anonymous_in(address) {
        let text = format!("listeners.{name}: {address} admits others without a credential");
        report.warning("listener-exposed", text, format!("set listeners.{name}.allow_remote_anonymous = false"));
    }
}
