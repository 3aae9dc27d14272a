//! How an entity stands to a node (XEP-0060 §4.1) and in which state a subscription is (§4.2).

/// XEP-0060 §4.1
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Affiliation {
    /// May do everything, configuration included.
    Owner,
    /// May publish and read.
    Publisher,
    /// May publish, not read.
    PublishOnly,
    /// May read, also where there is a whitelist.
    Member,
    /// Nothing special.
    #[default]
    None,
    /// May do nothing.
    Outcast,
}

impl Affiliation {
    /// As in the protocol.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Owner => "owner",
            Self::Publisher => "publisher",
            Self::PublishOnly => "publish-only",
            Self::Member => "member",
            Self::None => "none",
            Self::Outcast => "outcast",
        }
    }

    /// From the protocol.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let all = [Self::Owner, Self::Publisher, Self::PublishOnly, Self::Member, Self::None, Self::Outcast];
        all.into_iter().find(|a| a.as_str() == name)
    }

    /// Whether it lets somebody read at a node with this whitelist.
    #[must_use]
    pub const fn may_read(self, whitelisted: bool) -> bool {
        match self {
            Self::Owner | Self::Publisher | Self::Member => true,
            Self::None => !whitelisted,
            Self::PublishOnly | Self::Outcast => false,
        }
    }
}

/// XEP-0060 §4.2
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum SubscriptionState {
    /// Nothing is sent.
    #[default]
    None,
    /// An owner has to agree.
    Pending,
    /// Options have to be set.
    Unconfigured,
    /// Notifications are sent.
    Subscribed,
}

impl SubscriptionState {
    /// As in the protocol.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Pending => "pending",
            Self::Unconfigured => "unconfigured",
            Self::Subscribed => "subscribed",
        }
    }

    /// From the protocol.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::None, Self::Pending, Self::Unconfigured, Self::Subscribed].into_iter().find(|s| s.as_str() == name)
    }
}
