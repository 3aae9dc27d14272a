//! Why somebody is not let in.

/// Why a login was refused. None of them says whether the user exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Wrong name or password, or the user is disabled.
    #[error("not authorised")]
    Credentials,
    /// Too many logins are being checked, or who checks them is away; worth trying again later.
    #[error("logins cannot be checked now")]
    Busy,
    /// The mechanism is unknown or not offered on this channel.
    #[error("mechanism not offered")]
    Mechanism,
    /// The message is not what the mechanism's grammar allows.
    #[error("malformed: {0}")]
    Malformed(&'static str),
    /// Logged in as one, asked to act as another.
    #[error("may not act as that identity")]
    Identity,
    /// Channel binding does not fit.
    #[error("channel binding does not fit")]
    ChannelBinding,
    /// The credential is genuine, but nobody is let in by it: out of date, for others, or the user is disabled.
    #[error("no longer authorised")]
    Barred,
}

impl Refused {
    /// Whether a secret was wrong: only such attempts are guesses, after which the next have to wait. What was proven
    /// cannot have been guessed, and a device with an old token would make its whole network wait.
    #[must_use]
    pub const fn is_guess(self) -> bool {
        match self {
            Self::Credentials => true,
            Self::Busy
            | Self::Mechanism
            | Self::Malformed(_)
            | Self::Identity
            | Self::ChannelBinding
            | Self::Barred => false,
        }
    }
}
