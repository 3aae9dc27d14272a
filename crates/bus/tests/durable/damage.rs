//! A record that is missing costs what the decision record says, and nothing else.

use std::{num::NonZeroU16, sync::Arc};

use fogmux_bus::{
    Completion, Qos, SessionKey, Subscription,
    durable::{
        Gathering, Losses, Manner, MemoryStore, Parcel, Recovered, Sequence, SessionLog, SessionStore, StoredDelivery,
        Wanted,
    },
};
use proptest::{collection::vec, prelude::*};

use crate::restored::message;

fn manner() -> Manner {
    Manner { qos: Qos::ExactlyOnce, retain: false, share: 0, ids: [].into_iter().collect() }
}

/// A store with two sessions that wait for one message. The first has a record of each kind.
pub(crate) fn two_sessions() -> MemoryStore {
    let store = MemoryStore::default();
    let mut batch = store.batch();
    let begin = |name: &str, batch: &mut dyn fogmux_bus::durable::Batch| {
        SessionLog::begin(SessionKey(Arc::from(name)), Arc::from("ann"), Some(60), batch)
    };
    let (mut one, mut other) = (begin("one", batch.as_mut()), begin("other", batch.as_mut()));
    drop(batch.append());
    let gathering = Gathering::new(&store);
    let first = Parcel::new(&gathering, message(1)).unwrap();
    let second = Parcel::new(&gathering, message(2)).unwrap();
    let released: StoredDelivery = one.deliver(&first, manner(), &gathering).unwrap();
    drop(one.deliver(&second, manner(), &gathering));
    drop(other.deliver(&second, manner(), &gathering));
    drop(gathering.append([first, second]));
    let mut batch = store.batch();
    one.release(released, batch.as_mut());
    let wanted = Wanted { max_qos: Qos::AtLeastOnce, no_local: false, retain_as_published: false, id: None };
    one.subscribe(&Subscription::parse("a/#").unwrap(), wanted, batch.as_mut());
    one.receive(NonZeroU16::MIN, batch.as_mut());
    one.set_will(0, message(3), batch.as_mut());
    one.disconnect(9, None, batch.as_mut());
    drop(batch.append());
    store.commit(usize::MAX);
    store
}

/// A session's name, and how many subscriptions, deliveries, released, received messages and wills it has.
pub(crate) type Counts = (String, [usize; 5]);

pub(crate) fn recovered(store: &dyn SessionStore) -> (Vec<Counts>, Losses) {
    let Recovered { sessions, losses, .. } = Recovered::load(store);
    let counts = sessions.iter().map(|one| {
        let counts = [
            one.subscriptions.len(),
            one.deliveries.len(),
            one.released.len(),
            one.received.len(),
            usize::from(one.will.is_some()),
        ];
        (one.key.0.to_string(), counts)
    });
    (counts.collect(), losses)
}

pub(crate) fn both(one: [usize; 5], other: [usize; 5]) -> Vec<Counts> {
    vec![("one".to_owned(), one), ("other".to_owned(), other)]
}

/// The kinds of the decision record.
const SESSION: u8 = 32;
pub(crate) const ALL: [usize; 5] = [1, 1, 1, 1, 1];
pub(crate) const OTHER: [usize; 5] = [0, 1, 0, 0, 0];

#[test]
fn each_record_costs_what_it_says() {
    let whole = two_sessions();
    assert_eq!(recovered(&whole), (both(ALL, OTHER), Losses::default()));
    let none = Losses::default();
    let mut seen = Vec::new();
    for place in 0..whole.len() {
        let store = two_sessions();
        let kind = store.lose(place).unwrap();
        let (sessions, losses) = recovered(&store);
        let (expected, lost) = match kind {
            // The newest record of each session; the second's comes first.
            SESSION if !seen.contains(&SESSION) => (vec![("one".to_owned(), ALL)], Losses { of_no_session: 1, ..none }),
            // Its will is due.
            SESSION => (vec![("other".to_owned(), OTHER)], Losses { of_no_session: 4, ..none }),
            33 => (both([0, 1, 1, 1, 1], OTHER), none),
            34 => (both([1, 0, 1, 1, 1], [0; 5]), Losses { without_message: 2, ..none }),
            35 if !seen.contains(&35) => (both([1, 0, 1, 1, 1], OTHER), none),
            35 => (both(ALL, [0; 5]), none),
            36 => (both([1, 1, 0, 1, 1], OTHER), none),
            37 => (both([1, 1, 1, 0, 1], OTHER), none),
            38 => (both([1, 1, 1, 1, 0], OTHER), none),
            _ => unreachable!("a kind of record that is not tested"),
        };
        assert_eq!((sessions, losses), (expected, lost), "record {place} of kind {kind}");
        seen.push(kind);
        // Records that belong to nothing were forgotten: the next start finds nothing wrong.
        store.commit(usize::MAX);
        assert!(recovered(&store).1.is_none(), "kind {kind}");
    }
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen, (32..=38).collect::<Vec<u8>>());
}

#[test]
fn a_session_that_comes_back_gives_way_to_the_newer_one_of_its_name() {
    let store = two_sessions();
    let mut batch = store.batch();
    // As if the batch that ended the old one were lost to damage.
    let newer = SessionLog::begin(SessionKey(Arc::from("one")), Arc::from("ann"), None, batch.as_mut());
    drop((newer, batch.append()));
    store.commit(usize::MAX);
    let (sessions, losses) = recovered(&store);
    let expected = vec![("other".to_owned(), OTHER), ("one".to_owned(), [0; 5])];
    assert_eq!((sessions, losses), (expected, Losses { replaced: 1, ..Losses::default() }));
    store.commit(usize::MAX);
    assert!(recovered(&store).1.is_none());
}

#[test]
fn a_full_disk_refuses_messages_and_takes_acknowledgements() {
    let store = two_sessions();
    let mut one = Recovered::load(&store).sessions.swap_remove(0);
    store.commit(usize::MAX);
    store.set_full(true);
    let gathering = Gathering::new(&store);
    let parcel = Parcel::new(&gathering, message(4)).unwrap();
    let refused = one.log.deliver(&parcel, manner(), &gathering).unwrap();
    assert!(matches!(gathering.append([parcel]), Completion::Failed));
    let before = store.len();
    let mut batch = store.batch();
    one.deliveries.remove(0).stored.finish(batch.as_mut());
    refused.finish(batch.as_mut());
    assert!(!matches!(batch.append(), Completion::Failed));
    store.commit(usize::MAX);
    assert_eq!(store.len(), before - 1);
    assert_eq!(recovered(&store).0, both([1, 0, 1, 1, 1], OTHER));
}

proptest! {
    #[test]
    fn any_records_may_be_missing(places in vec(any::<prop::sample::Index>(), 1..8)) {
        let store = two_sessions();
        for place in places {
            if !store.is_empty() {
                store.lose(place.index(store.len()));
            }
        }
        let before = recovered(&store).0;
        store.commit(usize::MAX);
        let (after, losses) = recovered(&store);
        prop_assert_eq!(after, before);
        prop_assert!(losses.is_none());
    }
}

/// A mark says which deliveries of a connected session were not sent; without one all may have been.
#[test]
fn a_mark_is_what_may_have_been_sent() {
    let store = MemoryStore::default();
    let (mut batch, gathering) = (store.batch(), Gathering::new(&store));
    let mut log = SessionLog::begin(SessionKey(Arc::from("s")), Arc::from("ann"), None, batch.as_mut());
    drop(batch.append());
    let parcels: Vec<_> = (0..4).map(|number| Parcel::new(&gathering, message(number)).unwrap()).collect();
    let stored: Vec<_> = parcels.iter().map(|one| log.deliver(one, manner(), &gathering).unwrap()).collect();
    drop(gathering.append(parcels));
    let sent = |store: &MemoryStore| -> Vec<bool> {
        store.commit(usize::MAX);
        let Recovered { sessions, losses, .. } = Recovered::load(&store.crashed(usize::MAX));
        assert!(losses.is_none(), "{losses:?}");
        sessions[0].deliveries.iter().map(|one| one.may_be_sent).collect()
    };
    assert_eq!(sent(&store), [true; 4], "it has just begun");
    for (below, expected) in [
        (Some(1), [true, false, false, false]),
        (Some(3), [true, true, true, false]),
        (Some(9), [true; 4]),
        (Some(0), [false; 4]),
        (None, [true; 4]),
    ] {
        let mut batch = store.batch();
        log.mark(below.map(Sequence), batch.as_mut());
        drop(batch.append());
        assert_eq!(sent(&store), expected, "{below:?}");
    }
    let mut batch = store.batch();
    log.connect_below(None, Some(Sequence(2)), batch.as_mut());
    drop(batch.append());
    assert_eq!(sent(&store), [true, true, false, false]);
    let mut batch = store.batch();
    log.disconnect(1, stored.get(1).map(|one| one.sequence()), batch.as_mut());
    drop(batch.append());
    assert_eq!(sent(&store), [true, false, false, false], "it is away");
}
