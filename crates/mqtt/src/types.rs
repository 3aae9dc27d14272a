//! The small types that several packets share.

use std::num::NonZeroU16;

use crate::DecodeError;

/// A Packet Identifier: never zero ([MQTT-2.2.1-3]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PacketId(NonZeroU16);

impl PacketId {
    /// The first identifier.
    pub const FIRST: Self = Self(NonZeroU16::MIN);

    /// An identifier, `None` for zero.
    #[must_use]
    #[inline]
    pub const fn new(id: u16) -> Option<Self> {
        match NonZeroU16::new(id) {
            Some(id) => Some(Self(id)),
            None => None,
        }
    }

    /// The number.
    #[must_use]
    #[inline]
    pub const fn get(self) -> u16 {
        self.0.get()
    }

    /// The identifier that follows; after 65 535 comes 1.
    #[must_use]
    #[inline]
    pub const fn next(self) -> Self {
        match self.0.checked_add(1) {
            Some(next) => Self(next),
            None => Self::FIRST,
        }
    }

    /// How many steps of [`next`](Self::next) lead from `earlier` to `self`, 0 to 65 534.
    #[must_use]
    #[inline]
    pub const fn steps_from(self, earlier: Self) -> u16 {
        let (to, from) = (self.get(), earlier.get());
        // The circle has 65 535 places, zero being none.
        if to >= from { to - from } else { to.wrapping_sub(from).wrapping_sub(1) }
    }
}

/// Quality of service (§4.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Qos {
    /// Delivered once or not at all.
    #[default]
    AtMostOnce = 0,
    /// Delivered, perhaps more than once.
    AtLeastOnce = 1,
    /// Delivered once.
    ExactlyOnce = 2,
}

impl Qos {
    /// From the two bits of a packet ([MQTT-3.3.1-4]).
    ///
    /// # Errors
    /// [`DecodeError::Qos`] for 3 and above.
    #[inline]
    pub const fn from_bits(bits: u8) -> Result<Self, DecodeError> {
        match bits {
            0 => Ok(Self::AtMostOnce),
            1 => Ok(Self::AtLeastOnce),
            2 => Ok(Self::ExactlyOnce),
            _ => Err(DecodeError::Qos),
        }
    }

    /// The two bits of a packet.
    #[must_use]
    #[inline]
    pub const fn bits(self) -> u8 {
        self as u8
    }
}

/// When a server sends retained messages for a subscription (§3.8.3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum RetainHandling {
    /// At every subscribe.
    #[default]
    Always = 0,
    /// Only when the subscription did not exist.
    IfNew = 1,
    /// At no subscribe.
    Never = 2,
}

/// The options of one subscription (§3.8.3.1); before version 5 only the QoS exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SubscriptionOptions {
    /// The highest QoS at which the client wants messages.
    pub qos: Qos,
    /// The client's own messages are not sent to it.
    pub no_local: bool,
    /// Messages keep the retain flag with which they were published.
    pub retain_as_published: bool,
    /// Which retained messages are sent.
    pub retain_handling: RetainHandling,
}

impl SubscriptionOptions {
    /// Only a QoS, as before version 5.
    #[must_use]
    pub const fn qos(qos: Qos) -> Self {
        Self { qos, no_local: false, retain_as_published: false, retain_handling: RetainHandling::Always }
    }

    /// Options of a bridge of 3.1 or 3.1.1: its own messages do not come back, and retained messages stay retained on
    /// the other side. A shared subscription cannot have No Local ([MQTT-3.8.3-4]).
    #[must_use]
    pub const fn of_bridge(self, shared: bool) -> Self {
        Self { no_local: !shared, retain_as_published: true, ..self }
    }

    pub(crate) const fn from_bits(bits: u8) -> Result<Self, DecodeError> {
        if bits & 0xC0 != 0 {
            return Err(DecodeError::SubscriptionOptions);
        }
        let qos = match Qos::from_bits(bits & 3) {
            Ok(qos) => qos,
            Err(error) => return Err(error),
        };
        let retain_handling = match (bits >> 4) & 3 {
            0 => RetainHandling::Always,
            1 => RetainHandling::IfNew,
            2 => RetainHandling::Never,
            _ => return Err(DecodeError::RetainHandling),
        };
        Ok(Self { qos, no_local: bits & 4 != 0, retain_as_published: bits & 8 != 0, retain_handling })
    }

    pub(crate) const fn bits(self) -> u8 {
        self.qos.bits()
            | (self.no_local as u8) << 2
            | (self.retain_as_published as u8) << 3
            | (self.retain_handling as u8) << 4
    }
}
