//! Fragments of handshake messages that overlap, differ and lie about their lengths, against a plain model.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| fogmux_dtls::fuzzing::reassembly(data));
