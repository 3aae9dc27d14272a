//! The records that a batch of publications gathers, and those who wait for them.

use std::{
    future::Future,
    num::NonZeroU16,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use fogmux_bus::{
    Bus, BusConfig, Completion, Delivered, Delivery, Forgetful, Mailbox, Meaning, Message, Payload, Publication,
    Publisher, Qos, SessionKey, SubscribeOptions, Subscription, Timestamp, TopicRef, WorkerId,
    durable::{
        Manner, MemoryStore, Record, RecordId, Recovered, RestoredDelivery, Sequence, SessionLog, SessionStore,
        StoredDelivery, session_left,
    },
};

fn cx() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

/// A mailbox with records.
struct Kept {
    store: MemoryStore,
    log: SessionLog,
    got: Vec<(Arc<Message>, StoredDelivery)>,
}

impl Mailbox for Kept {
    fn deliver(&mut self, publication: &Publication<'_>, delivery: &Delivery<'_>) -> Delivered {
        let manner = Manner { qos: delivery.qos(publication), retain: false, share: 0, ids: [].into_iter().collect() };
        let stored = publication.store(delivery, &self.store, &mut self.log, manner).unwrap();
        self.got.push((Arc::clone(delivery.share(publication)), stored));
        Delivered::Queued
    }

    fn buffered_bytes(&self) -> usize {
        0
    }

    fn waiting(&self) -> usize {
        self.got.len()
    }

    fn close(&mut self) {}
}

fn mailbox(store: &MemoryStore, name: &str) -> Kept {
    let mut batch = store.batch();
    let log = SessionLog::begin(SessionKey(Arc::from(name)), Arc::from("ann"), None, batch.as_mut());
    drop(batch.append());
    Kept { store: store.clone(), log, got: Vec::new() }
}

#[test]
fn a_message_is_stored_once_for_all_sessions_and_only_its_publisher_waits() {
    let store = MemoryStore::default();
    let bus = Bus::new(&BusConfig::default(), Box::new(Forgetful), Timestamp::ZERO, 0);
    let slots = ["one", "two"].map(|name| bus.slot(mailbox(&store, name), WorkerId(0)));
    for slot in &slots {
        let options = SubscribeOptions { max_qos: Qos::ExactlyOnce, ..SubscribeOptions::default() };
        bus.subscribe(slot, &Subscription::parse("kept").unwrap(), options).unwrap();
    }
    store.commit(usize::MAX);
    let (publisher, mut worker) = (Publisher::internal(), bus.worker(WorkerId(0)));
    let topics = ["other", "kept", "other", "kept"].map(|topic| TopicRef::new(topic).unwrap());
    let mut batch = topics.map(|topic| {
        let mut one = Publication::new(topic, Payload::Slice(b"x"), &publisher, Timestamp::ZERO, 0);
        (one.qos, one.meaning) = (Qos::AtLeastOnce, Meaning::Event);
        one
    });
    let published = worker.publish(&mut batch);
    assert_eq!(batch.each_ref().map(|one| one.outcome().stored), [false, true, false, true]);
    assert!(published.completions.of(0).is_ready());
    assert!([1, 3].into_iter().all(|index| matches!(published.completions.of(index), Completion::Sooner(_))));
    let fate = |slot: &fogmux_bus::Slot<Kept>| slot.with(|kept| kept.got[0].1.poll_stored(&mut cx()));
    assert_eq!(slots.each_ref().map(|slot| fate(slot)), [Poll::Pending; 2]);
    store.commit(usize::MAX);
    assert_eq!(slots.each_ref().map(|slot| fate(slot)), [Poll::Ready(Ok(())); 2]);
    // Two sessions, two messages, four deliveries.
    assert_eq!(store.len(), 8);
    store.set_full(true);
    let published = worker.publish(&mut batch);
    assert!(matches!(published.completions.of(1), Completion::Failed) && published.completions.of(0).is_ready());
    assert!(slots.iter().all(|slot| slot.with(|kept| kept.got.iter().skip(2).all(|(_, one)| one.is_refused()))));
}

#[test]
fn what_everybody_was_sent_is_appended_only_if_it_is_not_acknowledged_in_time() {
    let store = MemoryStore::default();
    store.set_holding(true);
    let mut logs = ["one", "two"].map(|name| mailbox(&store, name).log);
    store.commit(usize::MAX);
    let begun = store.len();
    let manner = || Manner { qos: Qos::AtLeastOnce, retain: false, share: 0, ids: [].into_iter().collect() };
    let mut publish = |sent: usize| {
        let gathering = fogmux_bus::durable::Gathering::new(&store);
        let parcel = fogmux_bus::durable::Parcel::new(&gathering, crate::restored::message(1)).unwrap();
        let deliveries = logs.each_mut().map(|log| log.deliver(&parcel, manner(), &gathering).unwrap());
        deliveries.iter().take(sent).for_each(StoredDelivery::sent);
        assert!(deliveries.iter().all(StoredDelivery::is_unpublished));
        (gathering.append_published([parcel]), deliveries)
    };
    let is_ready = |completion: &Completion| std::pin::pin!(completion.clone()).poll(&mut cx()).is_ready();
    let mut batch = store.batch();

    let (acknowledged, deliveries) = publish(2);
    let [first, second] = deliveries;
    assert!(!first.is_unpublished());
    first.acknowledge(batch.as_mut());
    assert!(!is_ready(&acknowledged));
    second.acknowledge(batch.as_mut());
    store.release(usize::MAX);
    assert!(is_ready(&acknowledged) && store.waiting() == 0, "all have it");

    let (gone, deliveries) = publish(2);
    drop(gone);
    deliveries.into_iter().for_each(|delivery| delivery.acknowledge(batch.as_mut()));
    store.release(usize::MAX);
    assert_eq!(store.waiting(), 0, "all have it, and the publisher has gone");

    let (late, [first, second]) = publish(2);
    first.acknowledge(batch.as_mut());
    store.release(usize::MAX);
    assert!(store.waiting() == 1 && !is_ready(&late), "one has not acknowledged it in time");
    store.commit(usize::MAX);
    assert!(is_ready(&late) && store.len() == begun + 2, "the message and one delivery");
    second.acknowledge(batch.as_mut());

    let (handed_on, [first, second]) = publish(2);
    first.acknowledge(batch.as_mut());
    second.finish(batch.as_mut());
    assert!(store.waiting() == 1 && !is_ready(&handed_on), "one is dropped, or somebody else gets it");

    let (apart, deliveries) = publish(1);
    assert_eq!(store.waiting(), 2, "one was not sent");
    deliveries.into_iter().for_each(|delivery| delivery.acknowledge(batch.as_mut()));
    assert!(is_ready(&apart));
}

#[test]
fn a_publisher_waits_for_the_disk_until_every_client_has_acknowledged() {
    let store = MemoryStore::default();
    let mut logs = ["one", "two"].map(|name| mailbox(&store, name).log);
    let manner = || Manner { qos: Qos::AtLeastOnce, retain: false, share: 0, ids: [].into_iter().collect() };
    let mut publish = |needs: bool| {
        let gathering = fogmux_bus::durable::Gathering::new(&store);
        let parcel = fogmux_bus::durable::Parcel::new(&gathering, crate::restored::message(1)).unwrap();
        let deliveries = logs.each_mut().map(|log| log.deliver(&parcel, manner(), &gathering).unwrap());
        if needs {
            gathering.need();
        }
        (gathering.append_published([parcel]), deliveries)
    };
    let is_ready = |completion: &Completion| std::pin::pin!(completion.clone()).poll(&mut cx()).is_ready();
    let mut batch = store.batch();
    let (completion, [first, second]) = publish(false);
    first.acknowledge(batch.as_mut());
    assert!(!is_ready(&completion));
    second.acknowledge(batch.as_mut());
    assert!(is_ready(&completion) && store.is_empty());
    // One that is dropped is not acknowledged, and neither is what its publisher has put beside.
    let (completion, [first, second]) = publish(false);
    first.acknowledge(batch.as_mut());
    second.finish(batch.as_mut());
    assert!(!is_ready(&completion));
    let (needed, deliveries) = publish(true);
    deliveries.into_iter().for_each(|delivery| delivery.acknowledge(batch.as_mut()));
    assert!(!is_ready(&needed));
    store.commit(usize::MAX);
    assert!(is_ready(&completion) && is_ready(&needed));
}

/// The messages that the store has for each session, by the names of the sessions.
fn kept_for(store: &MemoryStore) -> Vec<(String, Vec<String>)> {
    let Recovered { sessions, losses, .. } = Recovered::load(store);
    assert!(losses.is_none(), "{losses:?}");
    let payload = |one: &RestoredDelivery| {
        let message = store.read(one.stored.message()).unwrap();
        String::from_utf8(message.payload.to_vec()).unwrap()
    };
    sessions.iter().map(|one| (one.key.0.to_string(), one.deliveries.iter().map(payload).collect())).collect()
}

#[test]
fn what_is_handed_on_is_in_the_store_for_one_member_at_any_time() {
    for full in [false, true] {
        let store = MemoryStore::default();
        let bus = Bus::new(&BusConfig::default(), Box::new(Forgetful), Timestamp::ZERO, 0);
        let group = Arc::new(Subscription::parse("$share/g/t").unwrap());
        let slots = ["one", "two"].map(|name| bus.slot(mailbox(&store, name), WorkerId(0)));
        let options = || SubscribeOptions { max_qos: Qos::ExactlyOnce, ..SubscribeOptions::default() };
        bus.subscribe(&slots[0], &group, options()).unwrap();
        let (publisher, mut worker) = (Publisher::internal(), bus.worker(WorkerId(0)));
        let mut batch = [b"1", b"2"].map(|payload| {
            let topic = TopicRef::new("t").unwrap();
            let mut one = Publication::new(topic, Payload::Slice(payload), &publisher, Timestamp::ZERO, 0);
            (one.qos, one.meaning) = (Qos::ExactlyOnce, Meaning::Event);
            one
        });
        let _ = worker.publish(&mut batch);
        store.commit(usize::MAX);
        bus.subscribe(&slots[1], &group, options()).unwrap();
        bus.unsubscribe(&slots[0], &group, 0);
        let (mut left, mut forgets) = (Vec::new(), store.batch());
        for (message, stored) in slots[0].with(|kept| std::mem::take(&mut kept.got)) {
            left.push((message, Arc::clone(&group)));
            stored.finish(forgets.as_mut());
        }
        store.set_full(full);
        let completion = worker.hand_on(&left, Some(forgets));
        assert_eq!(matches!(completion, Completion::Failed), full);
        let fates = slots[1].with(|kept| {
            kept.got.iter().map(|(_, one)| (one.poll_stored(&mut cx()), one.is_refused())).collect::<Vec<_>>()
        });
        // Nobody was told that they are refused.
        let fate = if full { Poll::Ready(Ok(())) } else { Poll::Pending };
        assert_eq!(fates, [(fate, false); 2]);
        let both = || vec!["1".to_owned(), "2".to_owned()];
        for commits in 0..=store.waiting() {
            let (one, two) = if commits == 0 { (both(), vec![]) } else { (vec![], both()) };
            assert_eq!(kept_for(&store.crashed(commits)), [("one".to_owned(), one), ("two".to_owned(), two)]);
        }
        assert_eq!(store.waiting(), usize::from(!full));
    }
}

/// The client never completes its oldest exchange, and what comes meanwhile is dropped, or complete.
#[test]
fn a_released_delivery_is_found_however_far_it_is_from_the_oldest() {
    let store = MemoryStore::default();
    let Kept { mut log, .. } = mailbox(&store, "one");
    let mut batch = store.batch();
    let gathering = fogmux_bus::durable::Gathering::new(&store);
    let parcel = fogmux_bus::durable::Parcel::new(&gathering, crate::restored::message(1)).unwrap();
    let ids = u64::from(u16::MAX);
    for number in 0..=2 * ids + 9 {
        let manner = Manner { qos: Qos::ExactlyOnce, retain: false, share: 0, ids: [].into_iter().collect() };
        let delivery = log.deliver(&parcel, manner, &gathering).unwrap();
        if [0, ids + 4, 2 * ids + 9].contains(&number) {
            log.release(delivery, batch.as_mut());
        } else {
            delivery.finish(batch.as_mut());
        }
    }
    let id = |id| NonZeroU16::new(id).unwrap();
    let found = |log: &SessionLog| [1, 5, 10].map(|one| log.released_as(id(one)).map(|sequence| sequence.0));
    assert_eq!(found(&log), [Some(0), Some(ids + 4), Some(2 * ids + 9)]);
    // Another number with the same identifier is none of them.
    log.complete(Sequence(ids), batch.as_mut());
    log.complete(Sequence(ids + 4), batch.as_mut());
    assert_eq!(found(&log), [Some(0), None, Some(2 * ids + 9)]);
}

/// Its identifier was sent again, so PUBCOMP had come for the older one.
#[test]
fn of_two_released_deliveries_with_one_identifier_the_newer_counts() {
    let store = MemoryStore::default();
    let _ = mailbox(&store, "one");
    let (session, mut batch) = (RecordId(0), store.batch());
    let numbers = [7, 3 + u64::from(u16::MAX), 7 + u64::from(u16::MAX)].map(Sequence);
    for number in numbers {
        batch.put(&Record::Released(session, number));
    }
    drop(batch.append());
    store.commit(usize::MAX);
    let Recovered { sessions, losses, .. } = Recovered::load(&store);
    assert_eq!((&sessions[0].released[..], losses.replaced), (&numbers[1..], 1));
    store.commit(usize::MAX);
    assert_eq!(store.len(), 3);
}

#[test]
fn a_released_delivery_is_found_by_its_packet_identifier() {
    let store = MemoryStore::default();
    let Kept { mut log, .. } = mailbox(&store, "one");
    let mut batch = store.batch();
    let gathering = fogmux_bus::durable::Gathering::new(&store);
    let parcel = fogmux_bus::durable::Parcel::new(&gathering, crate::restored::message(1)).unwrap();
    let id = |id| NonZeroU16::new(id).unwrap();
    assert_eq!(log.released_as(id(1)), None);
    // As many as there are identifiers, and some more: the first ones are over by then.
    for number in 0..u32::from(u16::MAX) + 10 {
        let manner = Manner { qos: Qos::ExactlyOnce, retain: false, share: 0, ids: [].into_iter().collect() };
        let delivery = log.deliver(&parcel, manner, &gathering).unwrap();
        if number < u32::from(u16::MAX) - 2 {
            delivery.finish(batch.as_mut());
        } else {
            log.release(delivery, batch.as_mut());
        }
    }
    for (packet_id, number) in [(65_534, Some(65_533)), (65_535, Some(65_534)), (1, Some(65_535)), (10, Some(65_544))] {
        assert_eq!(log.released_as(id(packet_id)).map(|sequence| sequence.0), number);
    }
    assert_eq!([11, 65_533].map(|packet_id| log.released_as(id(packet_id))), [None; 2]);
}

#[test]
fn the_time_left_to_a_session_trusts_the_clock_as_far_as_it_can() {
    const SET: u64 = 1_800_000_000_000;
    let (hour, minute) = (Duration::from_hours(1), Duration::from_mins(1));
    for (since, now, left) in [
        (SET, SET + 600_000, hour - 10 * minute),
        (SET, SET, hour),
        // The clock is behind.
        (SET, SET - 1, hour),
        (SET, 1_000, hour),
        // It may be ahead.
        (SET, SET + 3_600_000, minute),
        // It had not been set.
        (1_000, SET, hour),
    ] {
        assert_eq!(session_left(since, Some(3600), now), Some(left), "left at {since}, now {now}");
        assert_eq!(session_left(since, None, now), None);
    }
}
