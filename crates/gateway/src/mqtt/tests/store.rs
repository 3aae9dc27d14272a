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
            assert_eq!(reason.await, ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR);
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
        for expected in [ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR, ReasonCode::SUCCESS] {
            let reason = writer.next(|event| match event {
                Event::Published { reason, .. } => *reason,
                other => panic!("{other:?}"),
            });
            assert_eq!(reason.await, expected);
        }
    });
}
