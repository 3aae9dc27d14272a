//! Nothing: Cargo wants a target.
