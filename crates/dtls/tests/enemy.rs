//! Invariants under any attack on the network; `fuzz/fuzz_targets/dtls_sessions.rs` plays the same scripts.

mod script;

use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_script_breaks_an_association(script in prop::collection::vec(any::<u8>(), 0..600)) {
        script::run(&script);
    }
}

/// A test of the test: scripts that never get past a handshake would show nothing.
#[test]
fn scripts_get_past_the_handshake() {
    let (mut made, mut arrived, mut state) = (0, 0, 1_u64);
    for _ in 0..200 {
        let script: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        })
        .take(600)
        .collect();
        let (associations, records) = script::run(&script);
        made += associations;
        arrived += records;
    }
    assert!(made > 100 && arrived > 100, "{made} associations, {arrived} records in 200 scripts");
}
