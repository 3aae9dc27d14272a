//! Properties: the tree and the retained map agree with matching filters one by one.

use super::*;

fn level() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), "[ab]", "\\$a"]
}

fn topic() -> impl Strategy<Value = String> {
    prop::collection::vec(level(), 1..5).prop_map(|levels| levels.join("/")).prop_filter("not empty", |t| !t.is_empty())
}

fn filter() -> impl Strategy<Value = String> {
    let wild = prop_oneof![3 => level(), 1 => Just("+".to_owned())];
    (prop::collection::vec(wild, 0..4), any::<bool>())
        .prop_map(|(mut levels, multi)| {
            if multi {
                levels.push("#".to_owned());
            }
            levels.join("/")
        })
        .prop_filter("not empty", |f| !f.is_empty())
}

proptest! {
    /// The tree, its removal and the cache agree with [`Filter::matches`], which is written from the standard.
    #[test]
    fn the_tree_agrees_with_matching_one_by_one(
        filters in prop::collection::vec(filter(), 1..12),
        removed in prop::collection::vec(any::<bool>(), 12),
        topics in prop::collection::vec(topic(), 1..12),
    ) {
        let bus = bus(1);
        let mut worker = bus.worker(WorkerId(0));
        let slots: Vec<_> = filters.iter().map(|f| subscriber(&bus, &[f.as_str()])).collect();
        let me = Publisher::internal();
        for gone in [false, true] {
            for topic in &topics {
                let mut batch = [publication(topic, b"x", &me)];
                let _ = worker.publish(&mut batch);
                for ((filter, slot), removed) in filters.iter().zip(&slots).zip(&removed) {
                    let expected = Filter::new(filter).unwrap().matches(topic) && !(gone && *removed);
                    prop_assert_eq!(received(slot).len(), usize::from(expected), "{} {}", filter, topic);
                }
            }
            for ((filter, slot), _) in filters.iter().zip(&slots).zip(&removed).filter(|(_, r)| **r && !gone) {
                prop_assert!(bus.unsubscribe(slot, &Subscription::parse(filter).unwrap(), 0));
            }
        }
        for (filter, slot) in filters.iter().zip(&slots) {
            bus.unsubscribe(slot, &Subscription::parse(filter).unwrap(), 0);
        }
        prop_assert_eq!(bus.subscriptions(), 0);
    }

    /// Retained lookup agrees with matching one by one, whatever the size of the chunks.
    #[test]
    fn retained_lookup_agrees_with_matching(
        topics in prop::collection::btree_set(topic(), 1..20), filter in filter(), limit in 1..5_usize,
    ) {
        let bus = bus(1);
        let mut worker = bus.worker(WorkerId(0));
        let me = Publisher::internal();
        for topic in &topics {
            let mut batch = [publication(topic, b"v", &me)];
            batch[0].meaning = Meaning::Value;
            let _ = worker.publish(&mut batch);
        }
        let filter = Filter::new(&filter).unwrap();
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let chunk = bus.retained(&filter, after.as_ref(), limit, Timestamp::ZERO);
            seen.extend(chunk.messages.iter().map(|m| m.topic.to_string()));
            match chunk.next { Some(next) => after = Some(next), None => break }
        }
        let expected: Vec<_> = topics.iter().filter(|t| filter.matches(t)).cloned().collect();
        prop_assert_eq!(seen, expected);
    }
}
