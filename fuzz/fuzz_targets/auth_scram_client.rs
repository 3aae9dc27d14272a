//! Our SCRAM client with a server that says anything: first line and final line.
#![no_main]

use fogmux_auth::scram::{ScramClient, ScramHash};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut lines = data.split(|&byte| byte == b'\n');
    let (Some(server_first), server_final) = (lines.next(), lines.next()) else { return };
    // Many iterations are allowed and take their time; that is not what is looked for here.
    let digits = server_first
        .windows(3)
        .position(|window| window == b",i=")
        .map_or(0, |at| server_first[at + 3..].iter().take_while(|byte| byte.is_ascii_digit()).count());
    if digits > 4 {
        return;
    }
    let mut client = ScramClient::new(ScramHash::Sha256, "ann", "secret", "nonce").expect("prepared");
    if client.respond(server_first).is_ok() {
        assert!(client.verify(server_final.unwrap_or_default()).is_err(), "it does not know the password");
    }
});
