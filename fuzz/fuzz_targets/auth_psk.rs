//! Files of pre-shared keys and of certificate rules: any text gives keys or problems that can be shown, and an
//! identity that is not there has a key all the same.
#![no_main]

use std::path::Path;

use fogmux_auth::{CertificateRules, Psks};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match Psks::parse(Path::new("psk.toml"), text) {
        Ok(psks) => {
            for (identity, _) in psks.identities() {
                assert!(psks.secret(identity).is_some_and(|secret| !secret.key.is_empty()));
            }
            let nobodys = || psks.secret(b"nobody").map(|secret| secret.key);
            assert_eq!(nobodys(), nobodys());
        }
        Err(problems) => drop(problems.to_string()),
    }
    if let Err(problems) = CertificateRules::parse(Path::new("certificates.toml"), text) {
        drop(problems.to_string());
    }
});
