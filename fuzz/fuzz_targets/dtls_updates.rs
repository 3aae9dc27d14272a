//! KeyUpdates, acknowledgements and identifiers in a session of DTLS 1.3 whose peer misbehaves, against a model of
//! the epochs.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| fogmux_dtls::fuzzing::updates(data));
