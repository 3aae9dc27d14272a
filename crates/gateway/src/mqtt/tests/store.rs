//! Acknowledgements that wait for a store which fails.

use fogmux_bus::{Completer, Completion, StoreFailed, Stored, Topic};

use super::*;

/// Takes every write, and says later whether it succeeded.
#[derive(Default)]
struct Later(Arc<Completer>);

impl RetainedStore for Later {
    fn put(&self, _: &Arc<fogmux_bus::Message>, _: Option<u64>, _: Option<&Arc<fogmux_bus::Message>>) -> Completion {
        Completion::Waiting(Arc::clone(&self.0))
    }

    fn remove(&self, _: &Topic, _: Option<&Arc<fogmux_bus::Message>>) -> Completion {
        Completion::Waiting(Arc::clone(&self.0))
    }

    fn pending(&self, _: &str) -> Completion {
        Completion::Waiting(Arc::clone(&self.0))
    }

    fn load(&self, _: &mut dyn FnMut(Stored)) {}
}

/// The first removal may fail, and is undone then: the topic has its message again.
#[test]
fn clearing_what_is_cleared_but_not_yet_on_disk_waits_for_the_disk_too() {
    let store = Later::default();
    let completer = Arc::clone(&store.0);
    run_on(Box::new(store), MqttConfig::default(), Rules::default(), async |house: House| {
        let mut reader = house.client(Version::V5, "reader").await;
        reader.subscribe("a", Qos::AtLeastOnce).await;
        let mut writers = Vec::new();
        for payload in [b"1".as_slice(), b"", b""] {
            let mut writer = house.client(Version::V5, &format!("writer-{}", writers.len())).await;
            let mut out = Vec::new();
            let retained = Outgoing { retain: true, ..message("a", payload, Qos::AtLeastOnce) };
            writer.client.publish(&retained, &mut out).unwrap();
            writer.stream.write_all(&out).await.unwrap();
            assert_eq!(reader.message().await.payload, payload);
            writers.push(writer);
        }
        completer.complete(Err(StoreFailed));
        for mut writer in writers {
            let reason = writer.next(|event| match event {
                Event::Published { reason, .. } => *reason,
                other => panic!("{other:?}"),
            });
            assert_eq!(reason.await, ReasonCode::QUOTA_EXCEEDED);
        }
    });
}

/// A message that was delivered would come twice if its publisher were told to send it again.
#[test]
fn a_failed_write_refuses_only_what_is_retained() {
    let store = Later::default();
    let completer = Arc::clone(&store.0);
    run_on(Box::new(store), MqttConfig::default(), Rules::default(), async |house: House| {
        let mut reader = house.client(Version::V5, "reader").await;
        reader.subscribe("live", Qos::AtLeastOnce).await;
        let mut writer = house.client(Version::V5, "writer").await;
        let mut out = Vec::new();
        let retained = Outgoing { retain: true, ..message("retained", b"1", Qos::AtLeastOnce) };
        for one in [&retained, &message("live", b"2", Qos::AtLeastOnce)] {
            writer.client.publish(one, &mut out).unwrap();
        }
        writer.stream.write_all(&out).await.unwrap();
        assert_eq!(reader.message().await.payload, b"2");
        completer.complete(Err(StoreFailed));
        for expected in [ReasonCode::QUOTA_EXCEEDED, ReasonCode::SUCCESS] {
            let reason = writer.next(|event| match event {
                Event::Published { reason, .. } => *reason,
                other => panic!("{other:?}"),
            });
            assert_eq!(reason.await, expected);
        }
    });
}

/// Writes topic `b` in its second commit, and all others in its first.
#[derive(Default)]
struct Two([Arc<Completer>; 2]);

impl Two {
    fn completion(&self, topic: &str) -> Completion {
        Completion::Waiting(Arc::clone(&self.0[usize::from(topic == "b")]))
    }
}

impl RetainedStore for Two {
    fn put(&self, one: &Arc<fogmux_bus::Message>, _: Option<u64>, _: Option<&Arc<fogmux_bus::Message>>) -> Completion {
        self.completion(&one.topic)
    }

    fn remove(&self, topic: &Topic, _: Option<&Arc<fogmux_bus::Message>>) -> Completion {
        self.completion(topic)
    }

    fn pending(&self, topic: &str) -> Completion {
        self.completion(topic)
    }

    fn load(&self, _: &mut dyn FnMut(Stored)) {}
}

/// Publishes on `a`, `live`, `b` and `live` at once. The commit that writes `a` succeeds, the one of `b` fails. Returns
/// the reasons of the acknowledgements, as far as there are any before the end of the connection.
fn over_two_commits(version: Version) -> Vec<ReasonCode> {
    let store = Two::default();
    let [first, second] = store.0.clone();
    let mut reasons = Vec::new();
    run_on(Box::new(store), MqttConfig::default(), Rules::default(), async |house: House| {
        let mut reader = house.client(version, "reader").await;
        reader.subscribe("#", Qos::AtMostOnce).await;
        let mut writer = house.client(version, "writer").await;
        let mut out = Vec::new();
        for topic in ["a", "live", "b", "live"] {
            let one = Outgoing { retain: topic != "live", ..message(topic, b"x", Qos::AtLeastOnce) };
            writer.client.publish(&one, &mut out).unwrap();
        }
        writer.stream.write_all(&out).await.unwrap();
        for _ in 0..4 {
            reader.message().await;
        }
        first.complete(Ok(()));
        second.complete(Err(StoreFailed));
        let mut buffer = Vec::new();
        loop {
            while let Some((event, used)) = writer.client.handle(&buffer, &mut out).unwrap() {
                if let Event::Published { reason, .. } = event {
                    reasons.push(reason);
                }
                buffer.drain(..used);
            }
            if reasons.len() == 4 || writer.stream.read_buf(&mut buffer).await.unwrap() == 0 {
                break;
            }
        }
    });
    reasons
}

#[test]
fn a_batch_over_two_commits_is_refused_only_from_the_one_on_that_fails() {
    const FAILED: ReasonCode = ReasonCode::QUOTA_EXCEEDED;
    const DONE: ReasonCode = ReasonCode::SUCCESS;
    assert_eq!(over_two_commits(Version::V5), [DONE, DONE, FAILED, DONE]);
    assert_eq!(over_two_commits(Version::V311), [DONE, DONE], "then it is closed, for there is no way to refuse");
}
