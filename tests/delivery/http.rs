//! HTTP readers: streams, long polls, and what they leave behind.

use fogmux_tests::suite::Case;

pub(crate) const CASES: &[Case] = &[];
