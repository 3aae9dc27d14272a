//! Retained messages: pulling in chunks, expiry and preconditions.

use super::*;

#[test]
fn retained_messages_are_pulled_in_chunks() {
    let bus = bus(1);
    let mut worker = bus.worker(WorkerId(0));
    let me = Publisher::internal();
    let topics: Vec<String> =
        (0..100).map(|i| format!("a/{i:03}")).chain(["a".into(), "ab".into(), "b/x".into()]).collect();
    for topic in &topics {
        let mut batch = [publication(topic, b"v", &me)];
        batch[0].meaning = Meaning::Value;
        let _ = worker.publish(&mut batch);
    }
    let filter = Filter::new("a/#").unwrap();
    let (mut seen, mut after): (Vec<Topic>, Option<Topic>) = (Vec::new(), None);
    loop {
        let chunk = bus.retained(&filter, after.as_ref(), 7, Timestamp::ZERO);
        assert!(chunk.messages.len() <= 7);
        seen.extend(chunk.messages.iter().map(|m| m.topic.clone()));
        match chunk.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    assert_eq!(seen.len(), 101);
    assert!(seen.iter().all(|t| filter.matches(t)));
    let mut clear = [publication("a/007", b"", &me)];
    clear[0].meaning = Meaning::Clearing(Clearing::Cleared);
    let _ = worker.publish(&mut clear);
    assert!(clear[0].outcome().replaced);
    assert!(bus.latest("a/007", Timestamp::ZERO).is_none());
}

#[test]
fn expiry_and_preconditions_of_retained_messages() {
    let bus = bus(1);
    let mut worker = bus.worker(WorkerId(0));
    let me = Publisher::internal();
    let mut batch = [publication("t", b"v", &me)];
    batch[0].meaning = Meaning::Value;
    batch[0].expires_at = Some(Timestamp::from_millis(1500));
    let _ = worker.publish(&mut batch);
    let kept = bus.latest("t", Timestamp::from_millis(600)).unwrap();
    assert_eq!(kept.seconds_left(Timestamp::from_millis(600)), Some(1));
    assert_eq!(kept.seconds_left(Timestamp::from_millis(400)), Some(2));
    assert!(bus.latest("t", Timestamp::from_millis(1500)).is_none());
    assert_eq!(bus.sweep(None, 10, Timestamp::from_millis(2000)).as_deref(), Some("t"));
    assert_eq!(bus.retained_size(), (0, 0));

    let mut batch = [publication("t", b"transient", &me)];
    batch[0].precondition = Some(&|current| current.is_none());
    let _ = worker.publish(&mut batch);
    assert_eq!(bus.retained_size(), (0, 0), "a condition does not keep what is not retained");

    let slot = subscriber(&bus, &["t"]);
    let absent = |current: Option<&Arc<fogmux_bus::Message>>| current.is_none();
    for expected in [false, true] {
        let mut batch = [publication("t", b"v", &me)];
        batch[0].meaning = Meaning::Value;
        batch[0].precondition = Some(&absent);
        let _ = worker.publish(&mut batch);
        assert_eq!(batch[0].outcome().precondition_failed, expected);
    }
    assert_eq!(received(&slot), ["t=v"]);
}
