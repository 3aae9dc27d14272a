//! Space: the files stay in proportion to what is live, and a full disk refuses records but never forgets.

use fogmux_journal::{Config, Occasion};

use crate::{model::Subject, random::Random, some_seeds};

const COMMIT: Occasion = Occasion::Commit { sync: true };
const SMALL: Config =
    Config { segment_bytes: 64 << 10, frame_bytes: 16 << 10, pending_bytes_max: 1 << 20, commit_bytes_max: usize::MAX };

fn bytes_max(subject: &Subject) -> u64 {
    2 * subject.journal.figures().live_bytes + 6 * u64::from(subject.config.segment_bytes)
}

#[test]
fn files_take_twice_what_is_live_and_six_segments() {
    some_seeds(10, |seed| {
        let mut random = Random::new(seed);
        let mut subject = Subject::new(seed, SMALL);
        for _ in 0..random.below(4) {
            // Grows, is replaced for a while, and shrinks.
            for _ in 0..random.below(60) {
                subject.append(4, 6000, random.below(2)).unwrap();
                subject.drive(COMMIT);
                assert!(subject.disk.bytes() as u64 <= bytes_max(&subject) + 2 * 65_536);
            }
            for _ in 0..random.below(100) {
                subject.append(3, 3000, 3).unwrap();
                subject.drive(COMMIT);
                assert!(subject.disk.bytes() as u64 <= bytes_max(&subject) + 2 * 65_536);
            }
            for _ in 0..random.below(30) {
                subject.append(0, 0, 8).unwrap();
                subject.drive(COMMIT);
            }
            subject.drive(Occasion::Idle);
            assert!(
                subject.disk.bytes() as u64 <= bytes_max(&subject),
                "{} of {}",
                subject.disk.bytes(),
                bytes_max(&subject)
            );
        }
        subject.reopen();
    });
}

#[test]
fn a_small_set_that_changes_for_ever_takes_one_block_a_commit() {
    let mut subject = Subject::new(7, Config::default());
    subject.append(100, 120, 0).unwrap();
    subject.drive(COMMIT);
    let before = subject.journal.figures();
    for _ in 0..3000 {
        subject.append(1, 120, 1).unwrap();
        subject.drive(COMMIT);
        assert!(subject.disk.bytes() <= 6 * (512 << 10));
    }
    let figures = subject.journal.figures();
    let commits = (figures.frames - before.frames) as f64;
    let blocks = (figures.written_bytes - before.written_bytes) as f64 / 4096.0 / commits;
    assert!(blocks < 1.01, "{blocks} blocks a commit");
    subject.reopen();
}

#[test]
fn a_full_disk_refuses_records_and_never_forgets() {
    some_seeds(10, |seed| {
        let mut random = Random::new(seed);
        let mut subject = Subject::new(seed, SMALL);
        subject.disk.set_space((64 << 10) * (4 + random.below(12)));
        for _ in 0..2 {
            while subject.refused.is_empty() {
                subject.append(1 + random.below(4), 6000, random.below(2)).unwrap();
                subject.drive(COMMIT);
                if random.once_in(3) {
                    subject.drive(Occasion::Idle);
                }
            }
            if random.once_in(2) {
                subject.reopen();
            }
            let left = random.below(3);
            while subject.known.len() > left {
                // One at a time, a block each, is what takes most space.
                subject.append(0, 0, 1).unwrap();
                subject.drive(COMMIT);
                assert_eq!(subject.failures, [], "{} records left", subject.known.len());
            }
            subject.refused.clear();
            subject.append(1, 5000, 0).unwrap();
            subject.drive(COMMIT);
            assert_eq!((&*subject.refused, &*subject.failures), (&[][..], &[][..]), "space came back");
        }
        subject.reopen();
    });
}

/// Releases on a full disk: each record gives way to a small one, and that is forgotten.
#[test]
fn a_full_disk_takes_small_records_in_the_place_of_large_ones() {
    some_seeds(20, |seed| {
        let mut random = Random::new(seed);
        let mut subject = Subject::new(seed, SMALL);
        subject.disk.set_space((64 << 10) * (4 + random.below(12)));
        while subject.refused.is_empty() {
            subject.append(1 + random.below(4), 100 + random.below(6000), 0).unwrap();
            subject.drive(COMMIT);
        }
        if random.once_in(2) {
            subject.reopen();
        }
        subject.refused.clear();
        for _ in 0..subject.known.len() {
            subject.append(1, 17, 1).unwrap();
            subject.drive(COMMIT);
            assert_eq!((&*subject.refused, &*subject.failures), (&[][..], &[][..]), "{} records", subject.known.len());
            if random.once_in(3) {
                subject.append(0, 0, 1).unwrap();
                subject.drive(COMMIT);
            }
        }
        subject.reopen();
    });
}

/// Values of a gateway that is young or not, replaced for ever on a disk that others have filled.
#[test]
fn a_small_set_goes_round_on_a_full_disk() {
    for before in [0, 5, 20, 200] {
        let mut subject = Subject::new(before, SMALL);
        let replace = |subject: &mut Subject| {
            subject.append(1, 200, 1).unwrap();
            subject.drive(COMMIT);
            subject.drive(Occasion::Idle);
        };
        subject.append(3, 200, 0).unwrap();
        subject.drive(COMMIT);
        subject.drive(Occasion::Idle);
        (0..before).for_each(|_| replace(&mut subject));
        subject.disk.set_space(subject.disk.bytes());
        for _ in 0..500 {
            replace(&mut subject);
            assert_eq!(subject.refused, [], "after {before} commits");
        }
        subject.reopen();
    }
}
