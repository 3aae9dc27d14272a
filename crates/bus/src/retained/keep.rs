//! Retaining publications: a run of them under one lock.

use std::sync::Arc;

use super::{
    Completion, Retained, RetainedError, StoreFailed,
    clock::expires_unix_ms,
    map::{Map, Sizes, is_status},
};
use crate::{
    footprint,
    meaning::Meaning,
    message::{Message, Publication},
    share::NoRoom,
};

/// The outcome of retaining a publication.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) replaced: bool,
    pub(crate) completion: Completion,
}

impl Retained {
    /// Retains the publications of a run that are ordered among all publishers, one after the other, and hands on each
    /// with its place in the run and its outcome. The map is locked once. All messages are built, and their payloads
    /// shared, before that.
    pub(crate) fn keep_run<'p, 'a>(
        &self,
        run: &'p [Publication<'a>],
        mut told: impl FnMut(usize, &'p Publication<'a>, Result<Kept, RetainedError>),
    ) {
        for publication in run.iter().filter(|publication| publication.meaning == Meaning::Value) {
            publication.share();
        }
        let mut map = self.write();
        for (place, publication) in run.iter().enumerate().filter(|(_, publication)| publication.is_ordered()) {
            told(place, publication, self.keep(&mut map, publication));
        }
    }

    /// Evaluates a publication's precondition; then, if it is a value, makes it its topic's retained message, or clears
    /// that if it is a clearing.
    fn keep(&self, map: &mut Map, publication: &Publication<'_>) -> Result<Kept, RetainedError> {
        let hash = map.hash(publication.topic.as_str());
        let kept = map.find(hash, publication.topic.as_str());
        let current = kept.filter(|m| !m.is_expired(publication.ingest));
        if publication.precondition.is_some_and(|holds| !holds(current)) {
            return Err(RetainedError::Precondition);
        }
        let replaced = current.is_some();
        match publication.meaning {
            Meaning::Event => return Ok(Kept { replaced, completion: Completion::Ready }),
            Meaning::Clearing(_) => {
                debug_assert!(publication.payload.as_slice().is_empty(), "a clearing has no payload");
                let completion = match kept {
                    Some(kept) => self.store.remove(&kept.topic, Some(kept)),
                    None => self
                        .clear_expired(publication.topic.as_str())
                        .unwrap_or_else(|| self.store.pending(publication.topic.as_str())),
                };
                taken(&completion)?;
                map.remove(hash, publication.topic.as_str());
                return Ok(Kept { replaced, completion });
            }
            Meaning::Value => {}
        }
        let message = publication.share();
        let old_bytes = kept.map_or(0, |kept| footprint::of(kept));
        let sizes = Sizes { bytes: footprint::of(message), old_bytes };
        self.admit(map, kept, message, sizes)?;
        // Under the lock, so that the store sees writes of one topic in the order in which they became the latest; and
        // before the map changes, so that a message the store refuses is never read.
        let completion = self.store.put(message, expires_unix_ms(message), kept);
        taken(&completion)?;
        map.replace(hash, message, sizes);
        Ok(Kept { replaced, completion })
    }

    /// Whether there is room for a message in place of `old`. The gateway's own status messages, whose topics are few,
    /// take no places.
    fn admit(
        &self,
        map: &Map,
        old: Option<&Arc<Message>>,
        message: &Message,
        Sizes { bytes, old_bytes }: Sizes,
    ) -> Result<(), RetainedError> {
        if is_status(message) {
            return Ok(());
        }
        let old = old.filter(|old| !is_status(old));
        let old_bytes = old.map_or(0, |_| old_bytes);
        let grows = bytes.saturating_sub(old_bytes);
        if old.is_some() && grows == 0 {
            return Ok(());
        }
        let principal = &message.publisher.principal;
        let (taken, mut own) = (map.taken(), map.shares().of(principal));
        if old.is_some_and(|old| old.publisher.principal != *principal) {
            own.bytes = own.bytes.saturating_add(old_bytes);
        }
        let counted = if old.is_none() { self.messages.admit(taken.count, own.count, 1) } else { Ok(()) };
        let admitted = counted.and_then(|()| self.bytes.admit(taken.bytes, own.bytes, grows));
        admitted.map_err(|why| match why {
            NoRoom::Full => RetainedError::Full,
            NoRoom::Share => RetainedError::Share,
        })
    }
}

const fn taken(completion: &Completion) -> Result<(), RetainedError> {
    match completion {
        Completion::Failed => Err(RetainedError::Store(StoreFailed)),
        Completion::Ready | Completion::Waiting(_) | Completion::Both(_) | Completion::Sooner(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, atomic::Ordering};

    use super::*;
    use crate::{
        Timestamp,
        message::{Payload, Publisher},
        retained::{RetainedStore, Stored},
        share::Room,
        topic::{Topic, TopicRef},
    };

    /// Remembers the messages that it is given.
    #[derive(Clone, Default)]
    struct Seen(Arc<Mutex<Vec<Arc<Message>>>>);

    impl RetainedStore for Seen {
        fn put(&self, message: &Arc<Message>, _: Option<u64>, _: Option<&Arc<Message>>) -> Completion {
            self.0.lock().unwrap().push(Arc::clone(message));
            Completion::Ready
        }

        fn remove(&self, _: &Topic, _: Option<&Arc<Message>>) -> Completion {
            Completion::Ready
        }

        fn pending(&self, _: &str) -> Completion {
            Completion::Ready
        }

        fn load(&self, _: &mut dyn FnMut(Stored)) {}
    }

    #[test]
    fn a_run_is_retained_under_one_lock() {
        let store = Seen::default();
        let room = || Room::new(1 << 20, 0);
        let retained = Retained::new(Box::new(store.clone()), room(), room());
        let publisher = Publisher::internal();
        let topics: Vec<String> = (0..30).map(|number| format!("t/{number}")).collect();
        let publication = |topic| {
            let topic = TopicRef::new(topic).unwrap();
            let mut publication = Publication::new(topic, Payload::Slice(b"1"), &publisher, Timestamp::ZERO, 0);
            publication.meaning = Meaning::Value;
            publication
        };
        let run: Vec<_> = topics.iter().map(|topic| publication(topic)).collect();
        let mut places = Vec::new();
        retained.keep_run(&run, |place, publication, kept| {
            assert_eq!(publication.topic.as_str(), topics[place]);
            assert!(!kept.unwrap().replaced);
            places.push(place);
        });
        assert!(places.into_iter().eq(0..30));
        assert_eq!(retained.locked.load(Ordering::Relaxed), 1, "locks for a run of 30");
        let seen = store.0.lock().unwrap();
        assert!(seen.iter().zip(&run).all(|(seen, publication)| Arc::ptr_eq(seen, publication.share())));
        assert_eq!(retained.size().0, 30);
    }
}
