//! Records that a later release has written: an earlier one leaves them, and what belongs to them, as they are.

use std::sync::Arc;

use bytes::Bytes;
use fogmux_bus::durable::{Batch, Losses, MemoryStore, ReadBack, RecordId, Recovered, SessionStore, StoredMessage};

use crate::damage::{ALL, OTHER, both, recovered, two_sessions};

/// A store in which some records are of a later version, with more in them.
#[derive(Debug)]
struct Later {
    store: MemoryStore,
    kind: u8,
    /// The first so many of the kind are not.
    skip: usize,
}

impl SessionStore for Later {
    fn batch(&self) -> Box<dyn Batch> {
        self.store.batch()
    }

    fn load(&self, visit: &mut dyn FnMut(RecordId, Option<(u8, Bytes)>)) {
        let mut left = self.skip;
        self.store.load(&mut |id, record| {
            let later = |(kind, bytes): (u8, Bytes)| {
                if kind != self.kind || left > 0 {
                    left -= usize::from(kind == self.kind);
                    return (kind, bytes);
                }
                (kind, Bytes::from([&[9], &bytes[1..], b"more"].concat()))
            };
            visit(id, record.map(later));
        });
    }

    fn read(&self, message: RecordId) -> Option<StoredMessage> {
        self.store.read(message)
    }

    fn read_back(&self, principal: &Arc<str>, messages: Vec<RecordId>) -> ReadBack {
        self.store.read_back(principal, messages)
    }
}

#[test]
fn what_a_later_release_has_written_is_there_when_it_comes_back() {
    let none = Losses::default();
    for (kind, skip, expected, losses) in [
        // The newest record of the second session comes first.
        (32, 1, vec![("other".to_owned(), OTHER)], Losses { foreign: 1, of_foreign_session: 5, ..none }),
        (32, 0, vec![], Losses { foreign: 2, of_foreign_session: 6, ..none }),
        (33, 0, both([0, 1, 1, 1, 1], OTHER), Losses { foreign: 1, ..none }),
        (34, 0, both([1, 0, 1, 1, 1], [0; 5]), Losses { foreign: 1, ..none }),
        (35, 0, both([1, 0, 1, 1, 1], [0; 5]), Losses { foreign: 2, ..none }),
        (36, 0, both([1, 1, 0, 1, 1], OTHER), Losses { foreign: 1, ..none }),
        (37, 0, both([1, 1, 1, 0, 1], OTHER), Losses { foreign: 1, ..none }),
        (38, 0, both([1, 1, 1, 1, 0], OTHER), Losses { foreign: 1, ..none }),
    ] {
        let store = two_sessions();
        let records = store.len();
        let later = Later { store, kind, skip };
        assert_eq!(recovered(&later), (expected, losses), "kind {kind}");
        later.store.commit(usize::MAX);
        assert_eq!(later.store.len(), records, "kind {kind}: something is forgotten");
        assert_eq!(recovered(&later.store), (both(ALL, OTHER), none), "kind {kind}");
    }
}

#[test]
fn a_session_that_ends_takes_what_a_later_release_has_added_to_it_along() {
    for kind in [33, 35, 36, 37] {
        let later = Later { store: two_sessions(), kind, skip: 0 };
        let Recovered { sessions, .. } = Recovered::load(&later);
        let mut batch = later.batch();
        for mut session in sessions {
            session.log.clear_will(batch.as_mut());
            session.log.end(session.deliveries.into_iter().map(|delivery| delivery.stored), batch.as_mut());
        }
        drop(batch.append());
        later.store.commit(usize::MAX);
        // The message of deliveries that cannot be read stays until the later release finds that nobody has it.
        assert_eq!(later.store.len(), usize::from(kind == 35), "kind {kind}");
    }
}
