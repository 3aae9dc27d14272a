//! How connections are kept busy.
