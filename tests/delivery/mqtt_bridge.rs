//! MQTT bridges and status topics: a stock Mosquitto in both directions, and `$SYS`.

use fogmux_tests::suite::Case;

pub(crate) const CASES: &[Case] = &[];
