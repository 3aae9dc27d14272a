//! Context files in all three formats: any text is read or refused with words that can be shown; what was read is
//! written so that it reads the same.
#![no_main]

use fogmux_oscore::file::{aiocoap, libcoap, toml};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match toml::read(text) {
        Ok(named) => {
            let again = toml::read(&toml::write(named.user.as_deref(), &named.parameters)).expect("our own");
            assert_eq!(again.user, named.user);
            assert!(again.parameters == named.parameters, "it reads otherwise");
        }
        Err(error) => drop(error.to_string()),
    }
    match aiocoap::read([text]) {
        Ok(parameters) => drop(aiocoap::write(&parameters)),
        Err(error) => drop(error.to_string()),
    }
    match libcoap::read(text) {
        Ok(parameters) => assert!(libcoap::read(&libcoap::write(&parameters)).expect("our own") == parameters),
        Err(error) => drop(error.to_string()),
    }
});
