//! Sessions and subscriptions in the store: when a client hears of them, when they end, whose memory they are.

use super::*;

#[test]
fn connack_waits_for_the_store_and_refuses_what_it_does_not_take() {
    let store = MemoryStore::default();
    run_stored(&store, async |house: House| {
        let mut list = PropertyBuffer::new();
        let mut out = Vec::new();
        Client::connect(&lasting(&mut list, "s"), ClientLimits::default(), &mut out).unwrap();
        let mut stream = house.open();
        stream.write_all(&out).await.unwrap();
        while store.waiting() == 0 {
            tokio::task::yield_now().await;
        }
        // Another client is served meanwhile.
        house.client(Version::V5, "other").await.nothing().await;
        let mut answer = Vec::new();
        assert!(futures_pending(stream.read_buf(&mut answer)).await);
        store.commit(usize::MAX);
        assert!(stream.read_buf(&mut answer).await.unwrap() > 0);
        assert_eq!((answer[0], answer[3]), (0x20, 0));
        store.set_full(true);
        let mut list = PropertyBuffer::new();
        let refused = house.try_connect(house.open(), &lasting(&mut list, "t")).await;
        assert_eq!(refused.err(), Some(ReasonCode::QUOTA_EXCEEDED));
        let lasting = Connect { clean_start: false, ..connect(Version::V311, "t") };
        assert!(house.try_connect(house.open(), &lasting).await.is_err());
        // A session that ends with its connection needs no store.
        house.client(Version::V5, "t").await.nothing().await;
    });
}

/// Whether a future is not ready.
async fn futures_pending<F: Future>(future: F) -> bool {
    let mut future = std::pin::pin!(future);
    std::future::poll_fn(|cx| std::task::Poll::Ready(future.as_mut().poll(cx).is_pending())).await
}

#[test]
fn s3_1_2_4_a_clean_start_takes_the_session_out_of_the_store() {
    let store = MemoryStore::default();
    run_stored(&store, async |house: House| {
        committing(&store, async {
            leave_behind(&house, "s", "q", Qos::AtLeastOnce).await;
            let mut writer = house.client(Version::V5, "writer").await;
            writer.publish(&message("q", b"1", Qos::AtLeastOnce)).await;
            assert_eq!(store.crashed(usize::MAX).len(), 4);
            // It ends with its connection, so nothing but the end of the one before is committed.
            assert!(!house.client(Version::V5, "s").await.session_present);
        })
        .await;
        assert!(store.is_empty(), "CONNACK came before that");
    });
}

#[test]
fn s3_10_unsuback_waits_and_the_subscription_is_gone() {
    let store = MemoryStore::default();
    run_stored(&store, async |house: House| {
        let mut client = committing(&store, async {
            let mut client = house.lasting("s").await;
            client.subscribe("q", Qos::AtLeastOnce).await;
            client
        })
        .await;
        client.write(&[0xA2, 6, 0, 9, 0, 0, 1, b'q']).await;
        client.silence().await;
        assert_eq!(store.crashed(0).len(), 2);
        store.commit(usize::MAX);
        assert_eq!(client.packet().await, [0xB0, 4, 0, 9, 0, 0]);
        assert_eq!(store.len(), 1);
    });
}

#[test]
fn a_refused_subscription_is_none() {
    let store = MemoryStore::default();
    run_committing(&store, async |house: House| {
        let mut client = house.lasting("s").await;
        store.set_full(true);
        let options = SubscriptionOptions::qos(Qos::AtLeastOnce);
        let granted = client.subscribe_with("q", options, Properties::NONE).await;
        assert_eq!(granted, ReasonCode::QUOTA_EXCEEDED);
        assert_eq!(house.ctx.bus().subscriptions(), 0);
    });
}

fn away_since(store: &MemoryStore) -> Vec<Option<u64>> {
    let Recovered { sessions, .. } = Recovered::load(&store.crashed(usize::MAX));
    sessions.iter().map(|session| session.away_since_unix_ms).collect()
}

/// A board without a battery hears of the time after its start.
#[test]
fn the_ends_of_sessions_follow_a_clock_that_is_set() {
    const SHIFT: u64 = 1_000_000;
    let store = MemoryStore::default();
    let unix = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let since = u64::try_from(unix.as_millis()).unwrap() - 50_000;
    let mut batch = store.batch();
    let mut log = SessionLog::begin(SessionKey(Arc::from("s")), Arc::from("anonymous"), Some(100), batch.as_mut());
    log.disconnect(since, None, batch.as_mut());
    drop(batch.append());
    store.commit(usize::MAX);
    run_stored(&store, async |house: House| {
        let door = &house.ctx.door;
        let left = || door.sessions.next_expiry().since(house.ctx.now()).as_secs();
        assert!((45..=50).contains(&left()), "{} s", left());
        let before_unix_ms = house.ctx.unix_ms(Timestamp::ZERO);
        // The last is ahead: a minute remains to find that out.
        for (origin_unix_ms, expected) in
            [(before_unix_ms - 20_000, 70), (before_unix_ms + 30_000, 20), (before_unix_ms + 100_000, 60)]
        {
            door.restamp(ClockSet { before_unix_ms, origin_unix_ms }, house.ctx.now());
            assert!((expected - 5..=expected).contains(&left()), "{} s instead of {expected}", left());
        }
        // One that was left since the start keeps its time, and is stamped again.
        committing(&store, leave_behind(&house, "t", "q", Qos::AtLeastOnce)).await;
        let [restored, Some(left_at)] = away_since(&store)[..] else { panic!("two sessions") };
        assert_eq!(restored, Some(since));
        let clock = ClockSet { before_unix_ms, origin_unix_ms: before_unix_ms + SHIFT };
        door.restamp(clock, house.ctx.now());
        assert_eq!(away_since(&store), [Some(since), Some(left_at + SHIFT)]);
    });
}

/// Clients without a name share their memory by addresses, and the store has none.
#[test]
fn a_restored_session_is_in_the_account_of_its_client_again() {
    let store = MemoryStore::default();
    run_committing(&store, async |house: House| {
        leave_behind(&house, "s", "q", Qos::AtLeastOnce).await;
        let mut writer = house.client(Version::V5, "writer").await;
        writer.publish(&message("q", &[b'x'; 1000], Qos::AtLeastOnce)).await;
    });
    let store = store.crashed(usize::MAX);
    run_stored(&store, async |house: House| {
        let slot = house.ctx.door.sessions.get(&SessionKey(Arc::from("s"))).unwrap();
        let account = || slot.with(|mailbox| (Arc::clone(mailbox.owned_by()), mailbox.held().bytes));
        let (nobody, held) = account();
        assert!(held > 0 && nobody.used() == held, "{held} of {}", nobody.used());
        committing(&store, async {
            let mut client = house.lasting("s").await;
            client.packet().await;
        })
        .await;
        let (own, held) = account();
        assert_eq!(own.owner(), &crate::unfinished::owner(&fogmux_auth::Principal::anonymous(), LOCAL));
        assert!(held >= 1000 && own.used() == held && nobody.used() == 0, "{held} of {}", own.used());
    });
}

const LOCAL: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 1);
