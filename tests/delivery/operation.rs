//! Operation: full and read-only disks, damaged stores, descriptor limits, memory after load.

use fogmux_tests::suite::Case;

pub(crate) const CASES: &[Case] = &[];
