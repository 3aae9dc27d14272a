//! Publications to very many subscribers: each connection has turns, however many requests it sends at once.

use fogmux_bus::{FifoLimits, FifoMailbox, SubscribeOptions, Subscription};

use super::*;

/// More than the deliveries of a turn.
const SUBSCRIBERS: usize = 17_000;
const REQUESTS: usize = 64;

#[test]
fn publications_of_one_connection_to_very_many_let_others_have_their_turn() {
    run(HttpConfig::default(), async |house| {
        let (bus, wide) = (house.ctx.bus(), Subscription::parse("wide").unwrap());
        let limits = FifoLimits { messages: 100, bytes: 1 << 20 };
        let slots: Vec<_> = (0..SUBSCRIBERS).map(|_| bus.slot(FifoMailbox::new(limits), WorkerId(0))).collect();
        for slot in &slots {
            bus.subscribe(slot, &wide, SubscribeOptions::default()).unwrap();
        }
        let (mut many, mut neighbour) = (house.connect(true), house.connect(true));
        assert_eq!(neighbour.ask("GET /healthz").await.status(), 200);
        for _ in 0..REQUESTS {
            many.send("POST /topics/wide||x").await;
        }
        let answers = async {
            for _ in 0..REQUESTS {
                assert_eq!(many.receive(false).await.status(), 202);
            }
        };
        let published = || bus.counters().published.load(std::sync::atomic::Ordering::Relaxed);
        let mut turns = Vec::new();
        let asks = async {
            loop {
                assert_eq!(neighbour.ask("GET /healthz").await.status(), 200);
                turns.push(published());
            }
        };
        tokio::select! {
            biased;
            never = asks => never,
            () = answers => {}
        }
        assert!(turns.len() >= REQUESTS / 2, "{REQUESTS} publications, after turns of the neighbour: {turns:?}");
    });
}

#[test]
fn lists_that_are_asked_for_at_once_let_others_have_their_turn() {
    for list in ["status", "listeners", "topics", "clients", "sessions", "users", "groups"] {
        lists_let_others_have_their_turn(list);
    }
}

fn lists_let_others_have_their_turn(list: &str) {
    run(HttpConfig::default(), async |house| {
        for number in 0..1000 {
            house.publish_retained(&format!("plant/{number}"), b"x");
        }
        let mut many: Vec<_> = (0..REQUESTS).map(|_| house.connect(true)).collect();
        let mut neighbour = house.connect(true);
        assert_eq!(neighbour.ask("GET /healthz").await.status(), 200);
        let answered = Rc::new(std::cell::Cell::new(0));
        for client in &mut many {
            client.send(&format!("GET /api/v1/{list}?limit=1000")).await;
        }
        let readers = many.into_iter().map(|mut client| {
            let answered = Rc::clone(&answered);
            tokio::task::spawn_local(async move {
                assert_eq!(client.receive(false).await.status(), 200);
                answered.set(answered.get() + 1);
            })
        });
        let readers: Vec<_> = readers.collect();
        let answers = async {
            for reader in readers {
                reader.await.unwrap();
            }
        };
        let mut turns = Vec::new();
        let asks = async {
            loop {
                assert_eq!(neighbour.ask("GET /healthz").await.status(), 200);
                turns.push(answered.get());
            }
        };
        tokio::select! {
            biased;
            never = asks => never,
            () = answers => {}
        }
        assert!(turns.len() >= REQUESTS / 2, "{REQUESTS} times {list}, after turns of the neighbour: {turns:?}");
    });
}
