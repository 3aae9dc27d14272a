//! Records of both versions: parsed, opened once and unchanged only, against a model of the replay window.
#![no_main]

use fogmux_dtls::fuzzing;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    fuzzing::records_12(data);
    fuzzing::records_13(data);
});
