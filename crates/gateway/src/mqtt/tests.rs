//! The door over in-memory streams.
