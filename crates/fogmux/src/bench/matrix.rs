//! `fogmux bench matrix`: every door under every profile that it has.

use fogmux_traffic::experiment::Qos;
use fogmux_traffic::{Door, Experiment, Security};

use super::arguments::Matrix;

const QUICK_SIZES: [usize; 1] = [64];
const SIZES: [usize; 5] = [16, 256, 1_024, 16_384, 65_536];
const QUICK_QOS: [Qos; 1] = [Qos::AtLeastOnce];
const QOS: [Qos; 3] = [Qos::AtMostOnce, Qos::AtLeastOnce, Qos::ExactlyOnce];

/// The experiments, and how often each is done.
pub(super) fn experiments(arguments: &Matrix) -> (Vec<Experiment>, u32) {
    let quick = arguments.quick;
    let sizes = chosen(&arguments.sizes, if quick { &QUICK_SIZES } else { &SIZES });
    let levels = chosen(&arguments.qos, if quick { &QUICK_QOS } else { &QOS });
    let doors = chosen(&arguments.doors, &Door::ALL);
    let seconds = arguments.seconds.unwrap_or(if quick { 0.5 } else { 3.0 });
    let mut experiments = Vec::new();
    for door in doors {
        let wanted = |security: &Security| arguments.securities.is_empty() || arguments.securities.contains(security);
        for security in securities(door).into_iter().filter(wanted) {
            for qos in levels.iter().copied().filter(|qos| has(door, *qos)) {
                for payload_bytes in sizes.iter().copied() {
                    experiments.push(Experiment {
                        door,
                        security,
                        qos,
                        payload_bytes,
                        seconds,
                        warm_up_seconds: if quick { 0.2 } else { 0.5 },
                        // As much under way for large payloads as for small ones would only measure queues.
                        window: if payload_bytes > 4_096 { 8 } else { 64 },
                        in_flight: if payload_bytes > 4_096 { 16 } else { 256 },
                        link: arguments.link.clone(),
                        ..Experiment::default()
                    });
                }
            }
        }
    }
    (experiments, arguments.repeat.unwrap_or(if quick { 3 } else { 5 }))
}

fn chosen<T: Copy>(wanted: &[T], otherwise: &[T]) -> Vec<T> {
    if wanted.is_empty() { otherwise.to_vec() } else { wanted.to_vec() }
}

/// Which profiles go with a door.
fn securities(door: Door) -> Vec<Security> {
    let names: &[&str] = match door {
        Door::Mqtt | Door::Mqtt5 => &["none", "modern", "high", "pki", "psk", "low"],
        Door::MqttWs | Door::Http1 | Door::Http2 => &["none", "modern", "high", "low"],
        Door::Http3 => &["modern", "high"],
        Door::Coap => &["none", "psk", "pki", "modern", "oscore", "oscore+psk"],
        Door::CoapTcp => &["none", "modern", "high", "pki", "psk", "oscore"],
        Door::Xmpp => &["none", "modern", "high", "low"],
        Door::Xmpps => &["modern", "high", "low"],
    };
    names.iter().filter_map(|name| name.parse().ok()).collect()
}

/// QoS 2 is MQTT's alone; an HTTP request and an IQ are answered whatever is asked for.
fn has(door: Door, qos: Qos) -> bool {
    match door {
        Door::Mqtt | Door::Mqtt5 | Door::MqttWs => true,
        Door::Coap => qos != Qos::ExactlyOnce,
        Door::CoapTcp | Door::Http1 | Door::Http2 | Door::Http3 | Door::Xmpp | Door::Xmpps => qos == Qos::AtLeastOnce,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_door_is_there_under_each_of_its_profiles() {
        for door in Door::ALL {
            assert!(!securities(door).is_empty(), "{door}");
            assert!(QOS.iter().any(|qos| has(door, *qos)), "{door}");
        }
    }
}
