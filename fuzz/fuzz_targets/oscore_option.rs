//! The OSCORE option (the compressed COSE header): any bytes are refused or read; what was read is written as it was.
#![no_main]

use fogmux_oscore::OscoreOption;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(option) = OscoreOption::decode(data) else { return };
    let _ = option.kid();
    let mut out = Vec::new();
    option.encode(&mut out);
    assert_eq!(OscoreOption::decode(&out).expect("our own"), option);
});
