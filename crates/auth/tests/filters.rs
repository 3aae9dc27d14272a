//! The two readers of a topic filter: the bus routes by it, a rule allows by it. Both must mean the same topics.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::{path::Path, sync::Arc};

use fogmux_auth::{Acl, Action, AnonymousPolicy, Authority, Door, Principal, Reach, Rules, Users};
use fogmux_bus::{
    Bus, BusConfig, FifoLimits, FifoMailbox, Filter, Forgetful, Payload, Publication, Publisher, SubscribeOptions,
    Subscription, Timestamp, TopicRef, WorkerId,
};
use proptest::prelude::*;

/// An authority whose only rule allows this filter.
fn allowing(filter: &str) -> Arc<Authority> {
    let acl = format!("[[allow]]\nanonymous = true\nboth = [\"{filter}\"]\n");
    let acl = Acl::parse(Path::new("acl.toml"), &acl).unwrap();
    let users = Users::parse(Path::new("users.toml"), "").unwrap();
    Arc::new(Authority::new(Rules::new(users, Some(acl), AnonymousPolicy::Loopback)))
}

/// Whether a subscription with this filter is routed each of the topics.
fn routed(filter: &str, topics: &[String]) -> Vec<bool> {
    let bus = Bus::new(&BusConfig::default(), Box::new(Forgetful), Timestamp::ZERO, 0);
    let limits = FifoLimits { messages: 100, bytes: 1 << 20 };
    let slot = bus.slot(FifoMailbox::new(limits), WorkerId(0));
    bus.subscribe(&slot, &Subscription::parse(filter).unwrap(), SubscribeOptions::default()).unwrap();
    let publisher = Publisher::internal();
    let publication =
        |topic| Publication::new(TopicRef::new(topic).unwrap(), Payload::Slice(b""), &publisher, Timestamp::ZERO, 0);
    let mut batch: Vec<_> = topics.iter().map(|topic| publication(topic)).collect();
    let _ = bus.worker(WorkerId(0)).publish(&mut batch);
    batch.iter().map(|publication| publication.outcome().matched == 1).collect()
}

const FILTER: &str = "(\\$?[ab]|\\$SYS|\\+|)(/([abc]|\\+|)){0,4}(/#)?|#";
const TOPIC: &str = "(\\$?[abc]|\\$SYS)(/[abc]?){0,5}|(/[abc]?){1,5}";

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]
    #[test]
    fn a_rule_allows_the_topics_that_its_filter_is_routed(
        filter in FILTER,
        topics in proptest::collection::vec(TOPIC, 1..20),
    ) {
        let Ok(known) = Filter::new(&filter) else { return Ok(()) };
        let access = allowing(&filter).access(&Principal::anonymous(), "", Door::Mqtt);
        for (topic, routed) in topics.iter().zip(routed(&filter, &topics)) {
            prop_assert_eq!(routed, known.matches(topic), "{} {}: the tree against the filter", &filter, topic);
            prop_assert_eq!(access.may_read(topic), routed, "{} {}: the rule against the route", &filter, topic);
            let writes = access.decide(Action::Write, topic).allowed;
            prop_assert_eq!(writes, routed && !topic.starts_with("$SYS"), "{} {}: writing", &filter, topic);
        }
        prop_assert_eq!(access.may_subscribe(&filter), Reach::Everything, "{}: a filter covers itself", &filter);
    }
}
