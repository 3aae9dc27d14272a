//! MQTT bridges, status topics and the letter of the standards: a stock Mosquitto in both directions, `$SYS`, and what
//! clients meet at the edges.

mod bridges;
mod letter;
pub(crate) mod peer;
mod status;

use fogmux_tests::suite::Case;

pub(crate) const CASES: &[Case] = &[
    Case { name: "mosquitto bridges both ways, 3.1.1", run: bridges::both_311 },
    Case { name: "mosquitto bridges both ways, 3.1", run: bridges::both_31 },
    Case { name: "mosquitto bridges both ways, 5", run: bridges::both_5 },
    Case { name: "mosquitto bridges one way, with prefixes", run: bridges::one_way },
    Case { name: "a bridge that was cut gets what it missed", run: bridges::comes_back },
    Case { name: "protocol levels of bridges and unknown ones", run: letter::levels },
    Case { name: "only a bridge's own state is written below $SYS", run: letter::own_state },
    Case { name: "a small Maximum Packet Size", run: letter::small_packets },
    Case { name: "a user name without a password", run: letter::user_names },
    Case { name: "keep alive, wills and sessions end in time", run: letter::deadlines },
    Case { name: "MQTT over WebSocket at /, /mqtt and /mqtt/", run: letter::websocket_paths },
    Case { name: "$SYS has mosquitto's topics and texts", run: status::same_as_mosquitto },
    Case { name: "$SYS counts what happens", run: status::counts },
    Case { name: "$SYS is hidden from wildcards, and read by rule", run: status::access },
];
