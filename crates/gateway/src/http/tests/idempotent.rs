//! Idempotency keys: their limits and gauges, and a client that gives up.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use fogmux_bus::{Completer, Completion, Message, Stored, Topic};
use fogmux_http::idempotency::Limits;

use super::*;
use crate::metrics::Counted as _;

#[test]
fn keys_are_bounded_as_configured_and_counted() {
    let idempotency = Limits { entries: 2, bytes: 8192, lifetime: Duration::from_secs(600) };
    run(HttpConfig { idempotency, ..HttpConfig::default() }, async |house| {
        let post = |key: &str| format!("POST /topics/a?retain=true|idempotency-key: {key}||1");
        for key in ["k1", "k2", "k3"] {
            assert_eq!(house.ask(&post(key)).await.status(), 202);
        }
        house.ask("DELETE /topics/a").await;
        assert_eq!(house.ask(&post("k3")).await.status(), 202);
        assert_eq!(house.ask("GET /topics/a").await.status(), 404, "the answer of the third key is kept");
        assert_eq!(house.ask(&post("k1")).await.status(), 202);
        assert_eq!(house.ask("GET /topics/a").await.text(), "1", "that of the first had to go");
        let gauges = house.ctx.door.counts().gauges;
        let value = |wanted| gauges.iter().find(|(name, ..)| *name == wanted).map(|(.., value)| *value);
        assert_eq!(value("http_idempotency_keys"), Some(2));
        assert_eq!(value("http_idempotency_bytes"), Some(8192));
    });
}

/// Counts what it is to keep, and says later whether it has.
#[derive(Clone, Default)]
struct Later {
    kept: Arc<AtomicUsize>,
    completer: Arc<Completer>,
}

impl RetainedStore for Later {
    fn put(&self, _: &Arc<Message>, _: Option<u64>, _: Option<&Arc<Message>>) -> Completion {
        self.kept.fetch_add(1, Relaxed);
        Completion::Waiting(Arc::clone(&self.completer))
    }

    fn remove(&self, _: &Topic, _: Option<&Arc<Message>>) -> Completion {
        Completion::Ready
    }

    fn pending(&self, _: &str) -> Completion {
        Completion::Ready
    }

    fn load(&self, _: &mut dyn FnMut(Stored)) {}
}

/// The client gives up while the store is slow, and asks again.
#[test]
fn a_request_goes_on_without_its_client() {
    const NDJSON: &str = "content-type: application/x-ndjson";
    // More lines than one turn has, of which the last is retained.
    let lines = "{\"topic\":\"b\"}\n".repeat(150) + "{\"topic\":\"b\",\"payload\":\"1\",\"retain\":true}";
    let requests = [
        "POST /topics/a?retain=true|idempotency-key: k||1".to_owned(),
        format!("POST /publish|{NDJSON}|idempotency-key: k||{lines}"),
    ];
    for request in requests {
        let store = Later::default();
        run_on(Box::new(store.clone()), HttpConfig::default(), Rules::default(), async |house| {
            let (stream, server) = duplex(64 << 10);
            let peer = Peer::plain(([127, 0, 0, 1], 9).into(), true);
            let connection = tokio::task::spawn_local(serve(Rc::clone(&house.ctx), server, peer, None));
            let mut client = Client { stream, left: Vec::new() };
            client.send(&request).await;
            while house.ctx.door.idempotency().is_empty() {
                tokio::task::yield_now().await;
            }
            drop(client);
            connection.await.unwrap();
            assert_eq!(house.ask(&request).await.status(), 409, "it is still under way");
            while store.kept.load(Relaxed) == 0 {
                tokio::task::yield_now().await;
            }
            store.completer.complete(Ok(()));
            let answer = loop {
                let answer = house.ask(&request).await;
                if answer.status() != 409 {
                    break answer;
                }
            };
            assert!(matches!(answer.status(), 200 | 202), "{answer:?}");
            assert_eq!(answer.text().lines().count(), if request.contains("/publish") { 151 } else { 0 });
            assert_eq!(store.kept.load(Relaxed), 1, "it is published once");
        });
    }
}
