//! The protocol versions spoken on one port, told apart by the CONNECT packet ([MQTT-3.1.2-1], [MQTT-3.1.2-2]).

/// A version of MQTT.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// MQTT 3.1: protocol name `MQIsdp`, level 3.
    V31,
    /// MQTT 3.1.1: protocol name `MQTT`, level 4.
    V311,
    /// MQTT 5.0: protocol name `MQTT`, level 5.
    V5,
}

impl Version {
    /// The protocol level byte of CONNECT.
    #[must_use]
    pub const fn level(self) -> u8 {
        match self {
            Self::V31 => 3,
            Self::V311 => 4,
            Self::V5 => 5,
        }
    }

    /// The protocol name of CONNECT.
    #[must_use]
    pub const fn protocol_name(self) -> &'static str {
        match self {
            Self::V31 => "MQIsdp",
            Self::V311 | Self::V5 => "MQTT",
        }
    }

    /// Whether packets carry properties and reason codes.
    #[must_use]
    pub const fn is_v5(self) -> bool {
        matches!(self, Self::V5)
    }
}
