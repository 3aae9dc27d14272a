//! Wills of connections whose session another one takes over, and a process that ends meanwhile.

use super::*;

const GONE: Will<'_> =
    Will { qos: Qos::AtLeastOnce, retain: false, topic: "w", payload: b"gone", properties: Properties::NONE };

/// How often a store has the will: as one that is to be published, and delivered to the absent session.
fn wills_in(store: &MemoryStore) -> (usize, usize) {
    let Recovered { sessions, wills, losses } = Recovered::load(store);
    assert!(losses.is_none(), "{losses:?}");
    let of_sessions = sessions.iter().filter_map(|session| session.will.as_ref()).map(|(_, will)| will);
    let due = of_sessions.chain(wills.iter().map(|will| &will.message));
    let delivered = sessions.iter().flat_map(|session| &session.deliveries);
    let delivered = delivered.filter_map(|one| store.read(one.stored.message()));
    let is_gone = |message: &fogmux_bus::durable::StoredMessage| *message.payload == b"gone"[..];
    (due.filter(|one| is_gone(one)).count(), delivered.filter(is_gone).count())
}

/// The outcome at each moment at which the process may end, from the takeover on.
async fn taken_over(house: &House, store: &MemoryStore, delay: u32, clean_start: bool) -> Vec<(usize, usize)> {
    let mut delays = PropertyBuffer::new();
    delays.push(Property::WillDelayInterval(delay)).unwrap();
    let gone = Will { properties: delays.properties(), ..GONE };
    let willing = committing(store, async {
        leave_behind(house, "absent", "w", Qos::AtLeastOnce).await;
        let mut list = PropertyBuffer::new();
        house.connect(&Connect { will: Some(gone), ..lasting(&mut list, "willing") }).await
    })
    .await;
    let (mut list, mut out) = (PropertyBuffer::new(), Vec::new());
    let again = Connect { clean_start, will: Some(Will { payload: b"new", ..GONE }), ..lasting(&mut list, "willing") };
    Client::connect(&again, ClientLimits::default(), &mut out).unwrap();
    let mut stream = house.open();
    stream.write_all(&out).await.unwrap();
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
    assert!(store.waiting() > 0);
    drop(willing);
    (0..=store.waiting()).map(|commits| wills_in(&store.crashed(commits))).collect()
}

#[test]
fn s3_1_4_the_will_of_a_connection_that_is_taken_over_is_published_whenever_the_process_ends() {
    // Without a delay, and where the session ends, whatever the delay is.
    for (delay, clean_start) in [(0, false), (0, true), (50, true)] {
        let store = MemoryStore::default();
        run_stored(&store, async |house: House| {
            let outcomes = taken_over(&house, &store, delay, clean_start).await;
            let once = outcomes.iter().all(|(due, delivered)| due + delivered == 1);
            assert!(once && outcomes.last() == Some(&(0, 1)), "{delay} s, clean start {clean_start}: {outcomes:?}");
        });
    }
}

#[test]
fn s3_1_3_9_a_will_with_a_delay_is_not_published_when_the_session_goes_on() {
    let store = MemoryStore::default();
    run_stored(&store, async |house: House| {
        let outcomes = taken_over(&house, &store, 50, false).await;
        // Before the first commit nobody has come.
        assert_eq!(outcomes[0], (1, 0));
        assert!(outcomes[1..].iter().all(|outcome| *outcome == (0, 0)), "{outcomes:?}");
    });
}

/// A will of an ended session is published after a restart, and a will that is taken over comes before the new one.
#[test]
fn s3_1_2_8_wills_that_were_due_are_published_after_a_crash() {
    for clean_start in [false, true] {
        let store = MemoryStore::default();
        let mut crashed = MemoryStore::default();
        run_stored(&store, async |house: House| {
            taken_over(&house, &store, 0, clean_start).await;
            // The last batch is that of the will.
            crashed = store.crashed(store.waiting() - 1);
        });
        run_committing(&crashed, async |house: House| {
            let mut absent = house.lasting("absent").await;
            let mut got = [absent.message().await.payload, absent.message().await.payload];
            got.sort();
            assert_eq!(got, [&b"gone"[..], b"new"]);
            absent.nothing().await;
        });
        assert_eq!(wills_in(&crashed.crashed(usize::MAX)), (0, 0));
    }
}

/// The housekeeping looks at wills every now and then. A client that comes in between has not come in time.
#[test]
fn s3_1_3_9_a_will_whose_delay_was_over_when_its_client_returned_is_published() {
    let store = MemoryStore::default();
    run_committing(&store, async |house: House| {
        let mut watcher = house.client(Version::V5, "watcher").await;
        watcher.subscribe("w", Qos::AtLeastOnce).await;
        let mut delays = PropertyBuffer::new();
        delays.push(Property::WillDelayInterval(50)).unwrap();
        let gone = Will { properties: delays.properties(), ..GONE };
        let mut list = PropertyBuffer::new();
        drop(house.connect(&Connect { will: Some(gone), ..lasting(&mut list, "willing") }).await);
        while house.ctx.door.sessions_away() < 1 {
            tokio::task::yield_now().await;
        }
        let key = SessionKey(Arc::from("willing"));
        house.ctx.door.settle_will_of(&house.ctx, &key, house.ctx.now() + Duration::from_secs(60));
        assert_eq!(watcher.message().await.payload, b"gone");
    });
    assert_eq!(wills_in(&store.crashed(usize::MAX)), (0, 0));
}

/// §3.1.2.5: its connection has ended with the process.
#[test]
fn s3_1_2_5_a_will_is_published_after_a_crash() {
    let store = MemoryStore::default();
    let will = Will { qos: Qos::AtLeastOnce, retain: true, topic: "w", payload: b"gone", properties: Properties::NONE };
    let mut crashed = MemoryStore::default();
    run_stored(&store, async |house: House| {
        let client = committing(&store, async {
            let mut list = PropertyBuffer::new();
            house.connect(&Connect { will: Some(will), ..lasting(&mut list, "s") }).await
        })
        .await;
        // One that goes normally leaves none.
        committing(&store, async {
            let mut list = PropertyBuffer::new();
            let will = Will { topic: "none", ..will };
            let client = house.connect(&Connect { will: Some(will), ..lasting(&mut list, "t") }).await;
            client.disconnect(ReasonCode::SUCCESS).await;
        })
        .await;
        crashed = store.crashed(usize::MAX);
        drop(client);
    });
    let store = crashed;
    run_committing(&store, async |house: House| {
        let mut reader = house.client(Version::V5, "reader").await;
        reader.subscribe("#", Qos::AtLeastOnce).await;
        let got = reader.message().await;
        assert_eq!((&*got.topic, &*got.payload), ("w", &b"gone"[..]));
        reader.nothing().await;
    });
    assert_eq!(store.crashed(usize::MAX).len(), 2, "two sessions");
}
