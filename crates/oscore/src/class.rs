//! How each option travels (RFC 8613 §4.1, figure 5; RFC 8768 §3; RFC 9175 §2, §3).

use fogmux_coap::OptionNumber;

/// Where an option is put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Class E: encrypted. All options that are not known to be otherwise (RFC 8613 §4.1).
    Inner,
    /// Class U: left for proxies to see.
    Outer,
    /// Observe: both (RFC 8613 §4.1.3.5).
    Both,
    /// OSCORE itself, which must not be in what is protected (RFC 8613 §4.1.3.7).
    Oscore,
}

impl Class {
    /// Of an option of a message that is to be protected. The outer instances that Max-Age, No-Response and the block
    /// options may have are made by proxies and servers, never out of the original message.
    #[must_use]
    pub const fn of(number: OptionNumber) -> Self {
        match number {
            OptionNumber::URI_HOST
            | OptionNumber::URI_PORT
            | OptionNumber::PROXY_URI
            | OptionNumber::PROXY_SCHEME
            | OptionNumber::HOP_LIMIT => Self::Outer,
            OptionNumber::OBSERVE => Self::Both,
            OptionNumber::OSCORE => Self::Oscore,
            _ => Self::Inner,
        }
    }
}
