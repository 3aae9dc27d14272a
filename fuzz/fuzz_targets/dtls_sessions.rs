//! Attacks on the network against a DTLS endpoint and its clients, beyond the cookie: the script and what has
//! to hold are those of the test `enemy`.
#![no_main]

#[path = "../../crates/dtls/tests/script/mod.rs"]
mod script;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    script::run(data);
});
