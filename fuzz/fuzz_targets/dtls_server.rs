//! A server's handshake of either version, whose client knows the key and misbehaves inside protected records.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| fogmux_dtls::fuzzing::server(data));
