//! MQTT subscribers over each transport: backlogs, retained messages, pauses, shutdown.

use fogmux_tests::suite::Case;

pub(crate) const CASES: &[Case] = &[];
