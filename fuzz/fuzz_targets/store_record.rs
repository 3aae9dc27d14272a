//! Records of the store: any bytes give a message or an error, and a message is written and read again to the same.
#![no_main]

use fogmux_bus::Topic;
use fogmux_store::record::{Record, decode};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let topic = Topic::new("a/b").expect("valid");
    let Ok(stored) = decode(topic.clone(), data) else { return };
    let mut again = Vec::new();
    Record::from(&stored).encode(&mut again).expect("shorter than 4 GiB");
    assert_eq!(decode(topic, &again), Ok(stored));
});
