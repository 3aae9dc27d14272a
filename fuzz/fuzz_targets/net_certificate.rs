//! Client certificates: any bytes are names or a refusal.
#![no_main]

use fogmux_net::ClientCertificate;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    match ClientCertificate::parse(data) {
        Ok(certificate) => assert_eq!(&*certificate.der, data),
        Err(error) => drop(error.to_string()),
    }
});
