//! Peers that have real keys and do not keep to the standard, and our side as they meet it. What they say is written
//! without the code under test, and all its cryptography is ring's.

pub(crate) mod client_12;
pub(crate) mod client_13;
pub(crate) mod crypto;
pub(crate) mod guest;
pub(crate) mod house;
mod limit;
pub(crate) mod pki;
pub(crate) mod schedule;
pub(crate) mod server_12;
pub(crate) mod server_13;
pub(crate) mod wire;
