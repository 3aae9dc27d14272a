//! Bounded commits, divided among the owners of what waits.

use std::collections::{BTreeMap, BTreeSet};

use fogmux_journal::{Batch, Config, Occasion, RecordId};

use crate::{model::Subject, random::Random, some_seeds};

const COMMIT: Occasion = Occasion::Commit { sync: true };
const COMMIT_BYTES: usize = 256 << 10;

fn subject(seed: u64) -> Subject {
    Subject::new(seed, Config { commit_bytes_max: COMMIT_BYTES, pending_bytes_max: usize::MAX, ..Config::default() })
}

fn put(subject: &mut Subject, owner: u64, bytes: usize) -> (RecordId, u64) {
    let mut batch = Batch::new(&subject.journal.ids());
    batch.own_by(owner);
    let id = batch.put(1, vec![7; bytes]);
    (id, subject.journal.append(batch).unwrap().set)
}

/// The sets of each commit, with its bytes.
fn commits(subject: &mut Subject) -> Vec<(BTreeSet<u64>, u64)> {
    let mut all = Vec::new();
    while let Some(work) = subject.journal.next_work(COMMIT) {
        let sets: BTreeSet<u64> = work.sets().map(|(set, _)| set).collect();
        let before = subject.journal.figures().written_bytes;
        let done = work.run(&subject.disk);
        subject.journal.settle(&done);
        if !sets.is_empty() {
            all.push((sets, subject.journal.figures().written_bytes - before));
        }
    }
    all
}

#[test]
fn one_owner_that_has_much_waiting_delays_nobody() {
    let mut subject = subject(1);
    let flood: Vec<_> = (0..8 << 10).map(|_| put(&mut subject, 1, 1000)).collect();
    let large = put(&mut subject, 3, 1 << 20);
    let few: Vec<_> = (0..20).map(|_| put(&mut subject, 2, 1000)).collect();
    let commits = commits(&mut subject);
    assert!(few.iter().all(|(_, set)| commits[0].0.contains(set)), "not in the first commit");
    let of_large = commits.iter().position(|(sets, _)| sets.contains(&large.1)).unwrap();
    assert!(of_large < 4, "a large record has its turn, not after {of_large} commits");
    for (place, (_, bytes)) in commits.iter().enumerate() {
        // A block for each frame is not full.
        let most = COMMIT_BYTES as u64 + (64 << 10) + if place == of_large { 1 << 20 } else { 0 };
        assert!(*bytes <= most, "{bytes} bytes in commit {place}");
    }
    assert!(commits.len() > 30, "{}", commits.len());
    assert!(flood.iter().chain(&few).chain([&large]).all(|(id, _)| subject.journal.find(*id).is_some()));
}

/// Whatever the owners and sizes: everything is committed, and the sets of an owner in their order.
#[test]
fn everything_is_committed_and_each_owner_in_order() {
    some_seeds(10, |seed| {
        let mut random = Random::new(seed);
        let mut subject = subject(seed);
        let owners = 1 + random.below(200);
        let mut sets: BTreeMap<u64, u64> = BTreeMap::new();
        for _ in 0..random.below(2000) {
            let owner = random.below(owners) as u64;
            let bytes = match random.below(50) {
                0 => 300_000,
                1..8 => 5000,
                8..30 => 1000,
                _ => 10,
            };
            sets.insert(put(&mut subject, owner, bytes).1, owner);
        }
        let mut last: BTreeMap<u64, u64> = BTreeMap::new();
        let mut count = 0;
        for (done, _) in commits(&mut subject) {
            count += done.len();
            for set in done {
                let before = last.insert(sets[&set], set);
                assert!(before.is_none_or(|before| before < set), "out of order");
            }
        }
        assert_eq!(count, sets.len());
        assert!(!subject.journal.is_waiting());
    });
}

/// A value that takes the place of one that waits is in its set, whoever it is from, and alone in the commit.
#[test]
fn a_record_that_follows_another_goes_with_it() {
    let mut subject = subject(1);
    for _ in 0..2 << 10 {
        put(&mut subject, 1, 1000);
    }
    let (mut id, set) = put(&mut subject, 2, 100);
    let first = id;
    for n in 0..1000 {
        let mut batch = Batch::new(&subject.journal.ids());
        batch.own_by(3 + n % 5);
        batch.join(set);
        batch.forget(id);
        id = batch.put(1, vec![7; 100]);
        assert_eq!(subject.journal.append(batch).unwrap().set, set);
    }
    let commits = commits(&mut subject);
    assert!(commits[0].0.contains(&set));
    assert!(subject.journal.find(first).is_none() && subject.journal.find(id).is_some());
    assert!(commits.iter().map(|(_, bytes)| bytes).sum::<u64>() < 3 << 20);
}
