//! Records of a handshake that do not open: forged, or of a client with another key than ours.

use std::time::Duration;

use super::{Handshake, Step};
use crate::{Alert, platform::Host};

/// How long the genuine Finished is awaited after a record that did not open. Clients say theirs again after one
/// second, and two more (RFC 6347 §4.2.4.1): one with another key than ours is told with the second repeat.
const JUDGED_AFTER: Duration = Duration::from_millis(2500);
/// Protected records that are tried in a handshake, so that keys cannot be guessed by sending a Finished for each.
const TRIED_MAX: u8 = 8;

/// Records that did not open: forged, or under another key than ours.
pub(super) struct Doubt {
    since: Duration,
    records: u8,
}

impl Doubt {
    /// Whether one more is tried.
    pub(super) const fn may_try(&self) -> bool {
        self.records < TRIED_MAX
    }
}

impl Handshake {
    /// A record did not open. It may be anybody's (RFC 6347 §4.1.2.7), and the client's own may follow; but a client
    /// with another key than ours goes on sending such, and has to be told. That counts as a guess at once, or many
    /// handshakes could try a key each before the first of them is given up.
    pub(super) fn doubt(&mut self, now: Duration, host: Host<'_>) -> Step {
        if let (None, Some(identity)) = (&self.doubt, &self.identity) {
            host.credentials.wrong_key(self.from, identity);
        }
        let doubt = self.doubt.get_or_insert(Doubt { since: now, records: 0 });
        doubt.records = doubt.records.saturating_add(1);
        if now >= doubt.since + JUDGED_AFTER { Step::Failed(Alert::DecryptError) } else { Step::Waiting }
    }
}
