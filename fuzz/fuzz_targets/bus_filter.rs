//! Topics and filters: the first line is a filter, the second a topic. The bus's route agrees with the filter's own
//! matching, and both with the definition.
#![no_main]

use fogmux_bus::{
    Bus, BusConfig, FifoLimits, FifoMailbox, Forgetful, Meaning, Payload, Publication, Publisher, SubscribeOptions,
    Subscription, Timestamp, TopicRef, WorkerId,
};
use libfuzzer_sys::fuzz_target;

// MQTT 5.0 §4.7, as literally as it can be written.
fn defined(filter: &[&str], topic: &[&str]) -> bool {
    match (filter.split_first(), topic.split_first()) {
        (None, None) => true,
        (Some((&"#", _)), _) => true,
        (Some((&wanted, filter)), Some((&level, topic))) => {
            (wanted == "+" || wanted == level) && defined(filter, topic)
        }
        (None, Some(_)) | (Some(_), None) => false,
    }
}

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (filter, topic) = text.split_once('\n').unwrap_or((text, "a/b"));
    let (subscription, topic) = (Subscription::parse(filter), TopicRef::new(topic));
    let (Ok(subscription), Ok(topic)) = (subscription, topic) else { return };
    let filter: Vec<_> = subscription.filter.split('/').collect();
    let levels: Vec<_> = topic.split('/').collect();
    let hidden = topic.starts_with('$') && matches!(filter.first(), Some(&("+" | "#")));
    let expected = !hidden && defined(&filter, &levels);
    assert_eq!(subscription.filter.matches(&topic), expected);

    let bus = Bus::new(&BusConfig::default(), Box::new(Forgetful), Timestamp::ZERO, 0);
    let slot = bus.slot(FifoMailbox::new(FifoLimits { messages: 10, bytes: 1 << 20 }), WorkerId(0));
    bus.subscribe(&slot, &subscription, SubscribeOptions::default()).expect("room for one");
    let publisher = Publisher::internal();
    let mut worker = bus.worker(WorkerId(0));
    let mut batch = [Publication::new(topic, Payload::Slice(b"x"), &publisher, Timestamp::ZERO, 0)];
    batch[0].meaning = Meaning::Value;
    let _ = worker.publish(&mut batch);
    assert_eq!(slot.with(|mailbox| mailbox.pop().is_some()), expected);
    let kept = bus.retained(&subscription.filter, None, 10, Timestamp::ZERO);
    assert_eq!(!kept.messages.is_empty(), expected);
    assert!(bus.unsubscribe(&slot, &subscription, 0));
    assert_eq!(bus.subscriptions(), 0);
});
