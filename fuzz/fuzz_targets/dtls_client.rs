//! A client's handshake of either version, whose server knows the key, skips, repeats, bends and makes up messages,
//! and signs what it said with a right Finished.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| fogmux_dtls::fuzzing::client(data));
