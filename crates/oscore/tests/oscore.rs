//! OSCORE as a table of RFC 8613: its test vectors, its rules, its files, and what holds for any bytes.
#![expect(clippy::unwrap_used, reason = "a test that finds something else than it expects has failed")]

#[path = "oscore/client.rs"]
mod client;
#[path = "oscore/files.rs"]
mod files;
#[path = "oscore/properties.rs"]
mod properties;
#[path = "oscore/rfc8613_appendix_c.rs"]
mod rfc8613_appendix_c;
#[path = "oscore/rfc8613_section_8.rs"]
mod rfc8613_section_8;
#[path = "oscore/support.rs"]
mod support;
