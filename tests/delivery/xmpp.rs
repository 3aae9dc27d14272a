//! XMPP pubsub subscribers: retained items, events, presence.

use fogmux_tests::suite::Case;

pub(crate) const CASES: &[Case] = &[];
