//! Users files: any text gives users or problems that can be shown.
#![no_main]

use std::path::Path;

use fogmux_auth::Users;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match Users::parse(Path::new("users.toml"), text) {
        Ok(users) => drop(users.principals().count()),
        Err(problems) => drop(problems.to_string()),
    }
});
