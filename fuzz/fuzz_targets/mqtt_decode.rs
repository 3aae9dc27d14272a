//! MQTT packets: the first byte chooses the version, the rest is a stream. Whatever decodes is encoded and decoded
//! again to the same packet, and no part of it is taken for a whole.
#![no_main]

use fogmux_mqtt::{Limits, Version, decode};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&first, mut rest)) = data.split_first() else { return };
    let version = [Version::V31, Version::V311, Version::V5][usize::from(first % 3)];
    let limits = Limits { packet_bytes_max: 1 << 20 };
    while let Ok(Some((packet, used))) = decode(rest, version, &limits) {
        let mut again = Vec::new();
        packet.encode(version, &mut again).expect("what was decoded can be encoded");
        let (same, all) = decode(&again, version, &limits).expect("what we write is right").expect("and whole");
        assert_eq!((&same, all), (&packet, again.len()));
        for cut in [0, 1, 2, used / 2, used - 1] {
            assert_eq!(decode(&rest[..cut.min(used - 1)], version, &limits), Ok(None), "cut at {cut} of {used}");
        }
        assert_eq!(decode(&rest[..used], version, &limits), Ok(Some((packet, used))));
        rest = &rest[used..];
    }
});
