//! Reads that fail for a while: whatever the error, a later start with a good disk finds all that was acknowledged.

use std::collections::{BTreeMap, BTreeSet};

use fogmux_journal::{Config, Journal, Occasion, RecoveryError, Slot};

use crate::{
    damage::closed,
    disk::{EIO, NOT_OF_THE_MEDIUM, Outage},
    model::{Records, Subject},
    seeds, some_seeds,
};

const COMMIT: Occasion = Occasion::Commit { sync: true };
const SMALL: Config =
    Config { segment_bytes: 64 << 10, frame_bytes: 16 << 10, pending_bytes_max: 1 << 20, commit_bytes_max: usize::MAX };

fn contents(subject: &Subject) -> BTreeMap<Slot, Vec<u8>> {
    subject.disk.slots().into_iter().map(|slot| (slot, subject.disk.content(slot))).collect()
}

fn some_files(subject: &mut Subject) -> BTreeSet<Slot> {
    let mut slots = subject.disk.slots();
    let count = 1 + subject.random.below(3);
    (0..count.min(slots.len())).map(|_| slots.swap_remove(subject.random.below(slots.len()))).collect()
}

/// The records that are there although some cannot be read.
fn readable(subject: &Subject) -> Records {
    let mut found = Records::new();
    subject.journal.visit(&subject.disk, |id, record| found.extend(record.ok().map(|record| (id, record))));
    found
}

#[test]
fn a_start_that_may_not_read_a_segment_ends_and_changes_nothing() {
    seeds(|seed| {
        let mut subject = closed(seed);
        let expected = subject.committed().clone();
        let before = contents(&subject);
        let errno = NOT_OF_THE_MEDIUM[subject.random.below(NOT_OF_THE_MEDIUM.len())];
        let slots = some_files(&mut subject);
        // From the first reading on, or not before the second.
        let reads = [1, usize::MAX][subject.random.below(2)];
        subject.disk.set_outage(Some(Outage { slots: slots.clone(), errno, reads }));
        match Journal::open(&subject.disk, subject.config) {
            Err(RecoveryError::Read { slot, error }) => {
                assert!(slots.contains(&slot));
                assert_eq!(error.raw_os_error(), Some(errno));
            }
            other => panic!("{other:?}"),
        }
        assert!(contents(&subject) == before, "something was changed");
        subject.disk.set_outage(None);
        let report = subject.reopen_damaged();
        assert!(!report.is_damaged(), "{report:?}");
        assert_eq!(subject.visit(), expected);
    });
}

/// The gateway works meanwhile, and is started several times.
#[test]
fn what_a_medium_did_not_give_at_some_starts_is_there_when_it_does() {
    some_seeds(3, |seed| {
        let mut subject = closed(seed);
        let mut expected = subject.committed().clone();
        let slots = some_files(&mut subject);
        for _ in 0..1 + subject.random.below(3) {
            let reads = [1, 2, 40, usize::MAX][subject.random.below(4)];
            subject.disk.set_outage(Some(Outage { slots: slots.clone(), errno: EIO, reads }));
            let alone: BTreeMap<_, _> =
                contents(&subject).into_iter().filter(|(slot, _)| slots.contains(slot)).collect();
            let report = subject.reopen_damaged();
            let found = readable(&subject);
            subject.accept(found.clone());
            for _ in 0..subject.random.below(60) {
                let (puts, forgets) = (1 + subject.random.below(2), subject.random.below(3));
                subject.append(puts, 3000, forgets).unwrap();
                subject.drive(COMMIT);
                if subject.random.once_in(4) {
                    subject.drive(Occasion::Idle);
                }
            }
            if subject.random.once_in(2) {
                subject.drive(Occasion::Close);
            }
            assert_eq!(&*subject.failures, &[]);
            let after = subject.committed();
            expected.retain(|id, _| !found.contains_key(id) || after.contains_key(id));
            expected.extend(after.iter().filter(|(id, _)| !found.contains_key(id)).map(|(id, it)| (*id, it.clone())));
            if report.unreadable_blocks > 0 && reads == usize::MAX {
                let now = contents(&subject);
                assert!(alone.iter().all(|(slot, bytes)| now.get(slot) == Some(bytes)), "it was left alone");
            }
        }
        subject.disk.set_outage(None);
        let report = subject.reopen_damaged();
        let found = subject.visit();
        let lost: Vec<_> = expected.keys().filter(|id| !found.contains_key(id)).collect();
        let risen: Vec<_> = found.keys().filter(|id| !expected.contains_key(id)).collect();
        assert!(lost.is_empty() && risen.is_empty(), "lost {lost:?}, risen {risen:?}: {report:?}");
        assert!(found == expected && !report.is_damaged(), "{report:?}");
    });
}

/// A journal of which much has to be cleaned, and a record in its oldest segment that nobody touches.
fn before_cleaning(seed: u64) -> Subject {
    let mut subject = Subject::new(seed, SMALL);
    subject.append(20, 3000, 0).unwrap();
    subject.drive(COMMIT);
    subject
}

fn replace(subject: &mut Subject, commits: usize) {
    for _ in 0..commits {
        subject.append(2, 3000, 2).unwrap();
        subject.drive(COMMIT);
    }
}

#[test]
fn cleaning_waits_for_descriptors_memory_and_permissions_and_loses_nothing() {
    some_seeds(10, |seed| {
        let mut subject = before_cleaning(seed);
        let errno = NOT_OF_THE_MEDIUM[subject.random.below(NOT_OF_THE_MEDIUM.len())];
        let slots = (0..1000).map(Slot).collect();
        subject.disk.set_outage(Some(Outage { slots, errno, reads: usize::MAX }));
        replace(&mut subject, 300);
        subject.disk.set_outage(None);
        replace(&mut subject, 100);
        assert_eq!(subject.journal.figures().lost_parts, 0);
        subject.reopen();
    });
}

#[test]
fn cleaning_waits_for_a_medium_that_fails_for_a_while() {
    some_seeds(10, |seed| {
        let mut subject = before_cleaning(seed);
        let slots = (0..1000).map(Slot).collect();
        subject.disk.set_outage(Some(Outage { slots, errno: EIO, reads: usize::MAX }));
        replace(&mut subject, 100);
        subject.disk.set_outage(None);
        replace(&mut subject, 100);
        assert_eq!(subject.journal.figures().lost_parts, 0);
        subject.reopen();
    });
}

/// In the end there is a bound, and word of what is lost.
#[test]
fn a_medium_that_fails_for_good_costs_what_it_has_and_it_is_told() {
    let mut subject = before_cleaning(1);
    let slots = BTreeSet::from([Slot(0)]);
    subject.disk.set_outage(Some(Outage { slots, errno: EIO, reads: usize::MAX }));
    while subject.told_lost_parts == 0 {
        // None of the oldest records is touched.
        let known = subject.known.split_off(subject.known.len().min(20));
        let old = std::mem::replace(&mut subject.known, known);
        replace(&mut subject, 1);
        subject.known.splice(0..0, old);
        assert!(subject.disk.bytes() <= 60 * (64 << 10), "no bound");
    }
    assert_eq!(subject.told_lost_parts, subject.journal.figures().lost_parts);
    let before = subject.disk.content(Slot(0));
    replace(&mut subject, 300);
    subject.drive(Occasion::Idle);
    assert!(subject.disk.bytes() <= 12 * (64 << 10), "{} bytes", subject.disk.bytes());
    assert!(subject.disk.content(Slot(0)) == before, "it was not left alone");
}
