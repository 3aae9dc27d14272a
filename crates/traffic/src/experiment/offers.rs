//! The capabilities of each door: its security profiles, and its levels of QoS.

use super::{Door, Qos, Security};

impl Door {
    /// The security profiles of the door, the unprotected one first.
    #[must_use]
    pub fn securities(self) -> Vec<Security> {
        let names: &[&str] = match self {
            Self::Mqtt | Self::Mqtt5 => &["none", "modern", "high", "pki", "psk", "low"],
            Self::MqttWs | Self::Http1 | Self::Http2 => &["none", "modern", "high", "low"],
            Self::Http3 => &["modern", "high"],
            Self::Coap => &["none", "psk", "pki", "modern", "oscore", "oscore+psk"],
            Self::CoapTcp => &["none", "modern", "high", "pki", "psk", "oscore"],
            Self::Xmpp => &["none", "modern", "high", "low"],
            Self::Xmpps => &["modern", "high", "low"],
        };
        names.iter().filter_map(|name| name.parse().ok()).collect()
    }

    /// QoS 2 is MQTT's alone; an HTTP request and an IQ are answered whatever is asked for.
    #[must_use]
    pub fn has(self, qos: Qos) -> bool {
        match self {
            Self::Mqtt | Self::Mqtt5 | Self::MqttWs => true,
            Self::Coap => qos != Qos::ExactlyOnce,
            Self::CoapTcp | Self::Http1 | Self::Http2 | Self::Http3 | Self::Xmpp | Self::Xmpps => {
                qos == Qos::AtLeastOnce
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_door_is_there_under_profiles_that_exist() {
        let names: Vec<String> =
            Door::ALL.iter().flat_map(|door| door.securities()).map(|security| security.to_string()).collect();
        // A name that is none would be left out silently.
        assert_eq!(names.len(), 45);
        for door in Door::ALL {
            assert!(!door.securities().is_empty(), "{door}");
            assert!(door.has(Qos::AtLeastOnce), "{door}");
        }
    }
}
