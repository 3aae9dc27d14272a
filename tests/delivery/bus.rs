//! The bus across doors: order of one topic, shared subscriptions, memory of subscribers that have gone.

use fogmux_tests::suite::Case;

pub(crate) const CASES: &[Case] = &[];
