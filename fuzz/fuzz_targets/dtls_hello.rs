//! Datagrams of unknown peers to a DTLS port: nothing is verified without the server's cookie, and the answer is hardly
//! longer than the datagram.
#![no_main]

use std::{net::SocketAddr, sync::LazyLock, time::Duration};

use fogmux_dtls::{CookieKey, prefilter};
use libfuzzer_sys::fuzz_target;

static KEY: LazyLock<CookieKey> = LazyLock::new(|| CookieKey::new(&[7; 32]));
/// Headers, version and the cookie itself.
const COOKIE_BYTES_MAX: usize = 64;

fuzz_target!(|data: &[u8]| {
    let from = SocketAddr::from(([192, 0, 2, 1], 5684));
    let mut answer = Vec::new();
    assert!(!prefilter(&KEY, Duration::from_secs(1), from, data, &mut answer), "nobody has that cookie");
    assert!(answer.len() <= data.len() + COOKIE_BYTES_MAX, "{} bytes for {}", answer.len(), data.len());
});
