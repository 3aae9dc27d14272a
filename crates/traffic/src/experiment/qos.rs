//! Quality of service, in the words of MQTT.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::ExperimentError;

/// Until when a publication is not done, in the words of MQTT. Rows are comparable only where it is the same:
/// 1 is a CON, an awaited 2xx, the result of an IQ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Qos {
    /// It is gone: MQTT QoS 0, CoAP NON. HTTP and XMPP have no such thing and answer all the same.
    #[default]
    AtMostOnce,
    /// It is acknowledged.
    AtLeastOnce,
    /// MQTT's four packets.
    ExactlyOnce,
}

impl Qos {
    /// 0, 1 or 2.
    #[must_use]
    pub fn level(self) -> u8 {
        match self {
            Self::AtMostOnce => 0,
            Self::AtLeastOnce => 1,
            Self::ExactlyOnce => 2,
        }
    }

    /// Of 0, 1 or 2.
    ///
    /// # Errors
    /// Any other number.
    pub fn of_level(level: u8) -> Result<Self, ExperimentError> {
        match level {
            0 => Ok(Self::AtMostOnce),
            1 => Ok(Self::AtLeastOnce),
            2 => Ok(Self::ExactlyOnce),
            other => Err(ExperimentError::Unknown("qos", other.to_string())),
        }
    }
}

impl Serialize for Qos {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u8(self.level())
    }
}

impl<'de> Deserialize<'de> for Qos {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::of_level(u8::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}
