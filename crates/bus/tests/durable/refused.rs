//! A property: whatever a full disk refused, a session is there with its subscriptions, and nothing of it is left when
//! it has ended.

use std::collections::{BTreeSet, HashSet};

use fogmux_bus::{
    Completion, Qos, SessionKey, Subscription,
    durable::{Batch, MemoryStore, Recovered, SessionLog, SessionStore, Wanted},
};
use proptest::{collection::vec, prelude::*};

#[derive(Clone, Copy, Debug)]
enum Op {
    Full(bool),
    Commit,
    Connect,
    Disconnect,
    Subscribe(u8),
    Unsubscribe(u8),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        2 => any::<bool>().prop_map(Op::Full),
        1 => Just(Op::Commit),
        2 => Just(Op::Connect),
        2 => Just(Op::Disconnect),
        3 => (0_u8..3).prop_map(Op::Subscribe),
        1 => (0_u8..3).prop_map(Op::Unsubscribe),
    ]
}

/// Appends changes of a session. Returns whether they were taken.
fn change(store: &MemoryStore, log: &mut SessionLog, change: impl FnOnce(&mut SessionLog, &mut dyn Batch)) -> bool {
    let mut batch = store.batch();
    change(log, batch.as_mut());
    let completion = batch.append();
    log.appended(&completion);
    !matches!(completion, Completion::Failed)
}

fn filter(number: u8) -> Subscription {
    Subscription::parse(&number.to_string()).unwrap()
}

const WANTED: Wanted = Wanted { max_qos: Qos::AtLeastOnce, no_local: false, retain_as_published: false, id: None };

proptest! {
    #[test]
    fn what_a_full_disk_refused_costs_no_session_and_leaves_nothing(ops in vec(op(), 0..40)) {
        let store = MemoryStore::default();
        let mut batch = store.batch();
        let mut log = SessionLog::begin(SessionKey("s".into()), "ann".into(), None, batch.as_mut());
        log.appended(&batch.append());
        let mut subscriptions = BTreeSet::new();
        for op in ops {
            match op {
                Op::Full(full) => store.set_full(full),
                Op::Commit => store.commit(usize::MAX),
                Op::Connect => drop(change(&store, &mut log, |log, batch| log.connect(None, batch))),
                Op::Disconnect => drop(change(&store, &mut log, |log, batch| log.disconnect(1, None, batch))),
                Op::Subscribe(number) => {
                    let taken = change(&store, &mut log, |log, batch| log.subscribe(&filter(number), WANTED, batch));
                    if taken {
                        subscriptions.insert(number);
                    } else if !subscriptions.contains(&number) {
                        // SUBACK refuses.
                        change(&store, &mut log, |log, batch| log.unsubscribe(&filter(number), batch));
                    }
                }
                Op::Unsubscribe(number) => {
                    subscriptions.remove(&number);
                    change(&store, &mut log, |log, batch| log.unsubscribe(&filter(number), batch));
                }
            }
            let recovered = Recovered::load(&store.crashed(usize::MAX));
            let [found] = &recovered.sessions[..] else { panic!("{} sessions", recovered.sessions.len()) };
            let found = found.subscriptions.iter().map(|(found, _)| found.clone()).collect::<HashSet<_>>();
            prop_assert_eq!(found, subscriptions.iter().copied().map(filter).collect());
        }
        store.set_full(true);
        prop_assert!(end(&store, log), "a full disk refuses the end");
        prop_assert!(store.crashed(usize::MAX).is_empty());
    }
}

fn end(store: &MemoryStore, log: SessionLog) -> bool {
    let mut batch = store.batch();
    log.end([], batch.as_mut());
    !matches!(batch.append(), Completion::Failed)
}
