//! The doors: the protocols that messages and clients come in by.

/// A door of the gateway. The gateway's own messages come by none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Door {
    /// MQTT over TCP, TLS or WebSocket.
    Mqtt,
    /// CoAP, over datagrams and streams.
    Coap,
    /// HTTP, any version.
    Http,
    /// XMPP publish-subscribe.
    Xmpp,
}

impl Door {
    /// Every door, in the order of the configuration.
    pub const ALL: [Self; 4] = [Self::Mqtt, Self::Coap, Self::Http, Self::Xmpp];

    /// Its name in configuration, rules and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mqtt => "mqtt",
            Self::Coap => "coap",
            Self::Http => "http",
            Self::Xmpp => "xmpp",
        }
    }

    /// Its number in records on disk, from 1 on; 0 stands for the gateway itself. A number is never given to another
    /// door.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Mqtt => 1,
            Self::Coap => 2,
            Self::Http => 3,
            Self::Xmpp => 4,
        }
    }

    /// Its place in [`Door::ALL`].
    #[must_use]
    pub const fn place(self) -> usize {
        self as usize
    }

    /// The door with this number, if there is one.
    #[must_use]
    pub fn of_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|door| door.number() == number)
    }
}
