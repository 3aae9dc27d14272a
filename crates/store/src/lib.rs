//! Keeps what the bus must not lose.
