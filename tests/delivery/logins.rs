//! Logins: password checks in bounded memory, fair queues, rules that are reloaded.

use fogmux_tests::suite::Case;

pub(crate) const CASES: &[Case] = &[];
