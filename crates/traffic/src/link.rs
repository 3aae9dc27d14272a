//! The network between the two ends.

use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

use crate::outcome::Wire;

/// What a network does to what passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conditions;

/// Why there is no such network.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// It cannot be laid here.
    #[error("no link {0:?} here; use --link loopback")]
    Unavailable(String),
}

impl FromStr for Conditions {
    type Err = LinkError;

    fn from_str(text: &str) -> Result<Self, LinkError> {
        if text == "loopback" { Ok(Self) } else { Err(LinkError::Unavailable(text.to_owned())) }
    }
}

impl Conditions {
    /// Whether nothing has to be laid.
    #[must_use]
    pub fn is_loopback(self) -> bool {
        true
    }
}

/// A network that lies.
#[derive(Debug)]
pub struct Laid;

impl Laid {
    /// Lays it.
    ///
    /// # Errors
    /// It cannot be laid here.
    pub fn lay(_: &Conditions) -> Result<Self, LinkError> {
        Ok(Self)
    }

    /// What the gateway is started by.
    #[must_use]
    pub fn wrapper(&self) -> Vec<String> {
        Vec::new()
    }

    /// Where the gateway listens.
    #[must_use]
    pub fn gateway_address(&self) -> IpAddr {
        Ipv4Addr::LOCALHOST.into()
    }

    /// Moves the calling thread to the clients' end, until the guard is dropped.
    ///
    /// # Errors
    /// The thread may not.
    pub fn enter_client(&self) -> Result<(), LinkError> {
        Ok(())
    }

    /// Reads what has passed.
    #[must_use]
    pub fn counter(&self) -> Box<dyn Fn() -> Wire> {
        Box::new(Wire::default)
    }
}
