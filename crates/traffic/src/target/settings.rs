//! The settings of a gateway that experiments require: their doors, these doors' security profile, and room for the
//! payloads. All other settings keep their default.

use super::TargetError;
use super::home::shows_certificate;
use crate::experiment::{Credential, Door, Durability, Experiment};

const LISTENERS: [&str; 10] =
    ["mqtt", "mqtts", "coap", "coaps", "coap_tcp", "coaps_tcp", "http", "https", "xmpp", "xmpps"];
/// Payloads below pass with what users have.
const LARGE: usize = 500_000;

/// The listener of a door under the experiment's protection.
pub(crate) fn listener(door: Door, experiment: &Experiment) -> Result<&'static str, TargetError> {
    let secure = experiment.security.is_secure();
    if experiment.security.oscore && !matches!(door, Door::Coap | Door::CoapTcp) {
        return Err(TargetError::Unsupported(format!("OSCORE is for CoAP, not for {door}")));
    }
    Ok(match (door, secure) {
        (Door::Mqtt | Door::Mqtt5, false) => "mqtt",
        (Door::Mqtt | Door::Mqtt5, true) => "mqtts",
        (Door::MqttWs | Door::Http1 | Door::Http2, false) => "http",
        (Door::MqttWs | Door::Http1 | Door::Http2 | Door::Http3, true) => "https",
        (Door::Http3, false) => return Err(TargetError::Unsupported("there is no HTTP/3 without TLS".to_owned())),
        (Door::Coap, false) => "coap",
        (Door::Coap, true) => "coaps",
        (Door::CoapTcp, false) => "coap_tcp",
        (Door::CoapTcp, true) => "coaps_tcp",
        (Door::Xmpp, _) => "xmpp",
        (Door::Xmpps, true) => "xmpps",
        (Door::Xmpps, false) => {
            return Err(TargetError::Unsupported("XMPP over TLS from the first byte without TLS".to_owned()));
        }
    })
}

/// `KEY=VALUE` for `--set` of a gateway for all of these experiments. `address` is where it listens.
pub(crate) fn settings(experiments: &[&Experiment], address: &str) -> Result<Vec<String>, TargetError> {
    let mut used = Vec::new();
    for experiment in experiments {
        for door in [experiment.door, experiment.reader_door()] {
            used.push((listener(door, experiment)?, *experiment));
        }
    }
    let mut set = Vec::new();
    let loopback = address.starts_with("127.");
    for name in LISTENERS {
        let users: Vec<&Experiment> = used.iter().filter(|(of, _)| *of == name).map(|(_, of)| *of).collect();
        if users.is_empty() && name != "http" {
            set.push(format!("listeners.{name}.enabled=false"));
            continue;
        }
        set.push(format!("listeners.{name}.address={address}:0"));
        if !loopback {
            set.push(format!("listeners.{name}.allow_remote_anonymous=true"));
        }
        let secure = matches!(name, "mqtts" | "coaps" | "coaps_tcp" | "https" | "xmpp" | "xmpps");
        if !secure {
            if !loopback {
                set.push(format!("listeners.{name}.allow_plaintext=true"));
            }
            continue;
        }
        set.extend(agreed(name, &users)?);
    }
    if !loopback {
        // The generator's addresses are its own: nobody is to be protected from answers, which an Echo would add to.
        set.push("coap.prove_address=nobody".to_owned());
        set.push("mqtt.allow_password_without_tls=true".to_owned());
        set.push("http.allow_password_without_tls=true".to_owned());
    }
    set.push("log.filter=warn".to_owned());
    set.extend(kept(experiments)?);
    set.extend(room(experiments));
    Ok(set)
}

/// The durability that all want.
fn kept(experiments: &[&Experiment]) -> Result<Option<String>, TargetError> {
    let mut wanted = experiments.iter().map(|experiment| experiment.durability);
    let Some(first) = wanted.next() else { return Ok(None) };
    if wanted.any(|other| other != first) {
        return Err(TargetError::Unsupported("a gateway has one durability, and these want two".to_owned()));
    }
    Ok((first == Durability::None).then(|| "store.durability=none".to_owned()))
}

/// The profile that all users of a listener want.
fn agreed(listener: &str, users: &[&Experiment]) -> Result<Vec<String>, TargetError> {
    let mut wanted = users.iter().map(|experiment| (experiment.title(), profile(listener, experiment)));
    let Some((first, set)) = wanted.next() else { return Ok(Vec::new()) };
    match wanted.find(|(_, other)| *other != set) {
        Some((other, _)) => Err(TargetError::Unsupported(format!(
            "a gateway has one listener {listener} with one profile and one rule about certificates, and these want two: \
             {first}; {other}"
        ))),
        None => Ok(set),
    }
}

fn profile(listener: &str, experiment: &Experiment) -> Vec<String> {
    let profile = experiment.security.profile;
    if !profile.is_encrypted() {
        return Vec::new();
    }
    let mut set = vec![format!("listeners.{listener}.profile={}", profile.name)];
    if profile.weak.is_some() {
        set.push(format!("listeners.{listener}.allow_weak=true"));
    }
    let asked = shows_certificate(experiment.security, experiment.credential);
    if !asked && experiment.credential != Credential::OfProfile {
        set.push(format!("listeners.{listener}.client_certificates=no"));
    } else if asked {
        set.push(format!("listeners.{listener}.client_certificates=required"));
    }
    set
}

/// Confirmable requests of one endpoint that a gateway has under way with its defaults, which are 16 times the exchanges
/// that it remembers. It refuses more with 4.29.
const UNDER_WAY: u32 = 1024;

/// Limits that large payloads, many clients and large windows would run into.
fn room(experiments: &[&Experiment]) -> Vec<String> {
    let mut set = Vec::new();
    let of = |experiment: &&Experiment| experiment.publishers.saturating_add(experiment.subscribers);
    let clients = experiments.iter().map(of).fold(0, u32::saturating_add);
    if clients > 1_000 {
        set.push(format!("limits.connections_max={}", clients.saturating_add(1_000).max(60_000)));
        set.push("coap.dtls.handshakes_max=16384".to_owned());
    }
    let windows = experiments.iter().filter(|of| of.door == Door::Coap).map(|of| of.window);
    if let Some(window) = windows.max().filter(|window| *window > UNDER_WAY) {
        set.push(format!("coap.exchanges_per_peer_max={}", window.div_ceil(16).min(65_536)));
    }
    let bytes = experiments.iter().map(|experiment| experiment.payload_bytes).max().unwrap_or_default();
    if bytes < LARGE {
        return set;
    }
    // A payload, what stands around it, and a third more where it has to become text.
    let one = bytes / 3 * 4 + (256 << 10);
    let many = one.saturating_mul(16).max(64 << 20);
    for key in ["mqtt.packet_bytes_max", "coap.payload_bytes_max", "http.payload_bytes_max", "xmpp.stanza_bytes_max"] {
        set.push(format!("{key}={one}B"));
    }
    for key in [
        "mqtt.unfinished_bytes_max",
        "mqtt.inflight_bytes_max",
        "mqtt.queue_bytes_max",
        "mqtt.out_bytes_max",
        "coap.exchange_bytes_max",
        "coap.upload_bytes_max",
        "coap.download_bytes_max",
        "coap.notification_bytes_max",
        "http.uploads_bytes_max",
        "http.event_stream_bytes",
        "http.event_streams_bytes",
        "xmpp.open_stanzas_bytes_max",
        "xmpp.mailbox_bytes_max",
        "bus.retained_bytes_max",
        "store.queue_bytes_max",
    ] {
        set.push(format!("{key}={many}B"));
    }
    set.push(format!("mqtt.tight_bytes={}B", many.saturating_mul(4)));
    set.push(format!("bus.memory_high_bytes={}B", many.saturating_mul(8)));
    set
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_door_has_its_listener() {
        let secure = Experiment { security: "modern".parse().unwrap(), ..Experiment::default() };
        for door in Door::ALL {
            assert!(listener(door, &secure).is_ok(), "{door}");
        }
        let plain = Experiment::default();
        assert!(listener(Door::Http3, &plain).is_err());
        assert!(listener(Door::Mqtt, &Experiment { security: "oscore".parse().unwrap(), ..plain }).is_err());
    }

    #[test]
    fn a_window_of_confirmable_requests_has_room() {
        let set = |window| room(&[&Experiment { door: Door::Coap, window, ..Experiment::default() }]);
        assert!(set(UNDER_WAY).is_empty());
        assert_eq!(set(2000), ["coap.exchanges_per_peer_max=125"]);
        assert!(room(&[&Experiment { door: Door::Mqtt, window: 100, ..Experiment::default() }]).is_empty());
    }

    #[test]
    fn only_the_doors_of_the_experiment_are_open() {
        let experiment = Experiment { door: Door::Coap, ..Experiment::default() };
        let set = settings(&[&experiment], "127.0.0.1").unwrap();
        assert!(set.contains(&"listeners.mqtt.enabled=false".to_owned()));
        assert!(set.contains(&"listeners.coap.address=127.0.0.1:0".to_owned()));
    }

    #[test]
    fn a_gateway_has_the_durability_that_all_want() {
        let of = |durability| Experiment { durability, ..Experiment::default() };
        let (usual, none) = (of(Durability::Default), of(Durability::None));
        let kept = |set: Vec<String>| set.contains(&"store.durability=none".to_owned());
        assert!(!kept(settings(&[&usual, &usual], "127.0.0.1").unwrap()));
        assert!(kept(settings(&[&none, &none], "127.0.0.1").unwrap()));
        assert!(settings(&[&none, &usual], "127.0.0.1").is_err());
    }

    #[test]
    fn a_gateway_for_several_experiments_has_the_doors_of_all_and_room_for_all() {
        let of = |door, security: &str| Experiment {
            door,
            security: security.parse().unwrap(),
            publishers: 900,
            ..Experiment::default()
        };
        let (plain, secure) = (of(Door::Mqtt, "none"), of(Door::Coap, "psk"));
        let set = settings(&[&plain, &secure], "127.0.0.1").unwrap();
        for wanted in
            ["listeners.mqtt.address=127.0.0.1:0", "listeners.coaps.profile=psk", "limits.connections_max=60000"]
        {
            assert!(set.contains(&wanted.to_owned()), "{wanted}: {set:?}");
        }
        assert!(!set.iter().any(|line| line.contains("mqtts.profile")));
        let why = settings(&[&secure, &of(Door::Coap, "pki")], "127.0.0.1").unwrap_err().to_string();
        assert!(why.contains("listener coaps") && why.contains("coap psk") && why.contains("coap pki"), "{why}");
    }
}
