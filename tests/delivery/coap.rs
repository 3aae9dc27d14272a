//! CoAP observers: every retained message of a filter, the newest value, the end of an observation.

use fogmux_tests::suite::Case;

pub(crate) const CASES: &[Case] = &[];
