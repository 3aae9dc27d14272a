//! Power cuts and failing operations: what was acknowledged is there, what was forgotten is not.

use fogmux_journal::{Config, Occasion};

use crate::{disk::Faults, model::Subject, random::Random, seeds};

/// Sizes that make everything happen soon.
fn config(random: &mut Random) -> Config {
    let frame_bytes = 4096 << random.below(3);
    let commit_bytes_max = [usize::MAX, 50_000, 8_000][random.below(3)];
    Config {
        segment_bytes: frame_bytes * (4 + random.below(3) as u32 * 3),
        frame_bytes,
        pending_bytes_max: 100_000,
        commit_bytes_max,
    }
}

fn some_steps(subject: &mut Subject, steps: usize, sync: bool) -> bool {
    for _ in 0..steps {
        let crashed = match subject.random.below(14) {
            0 => subject.drive(Occasion::Idle),
            1 => {
                subject.check_read();
                subject.disk.has_crashed()
            }
            2..5 => subject.drive(Occasion::Commit { sync }),
            5 => {
                // Larger than a frame, now and then than a segment.
                let _ = subject.append(1, 70_000, 2);
                false
            }
            6 => {
                let _ = subject.append(0, 0, 20);
                false
            }
            7 | 8 => {
                let length = [10, 300, 5000][subject.random.below(3)];
                let _ = subject.replace(length);
                false
            }
            _ => {
                let puts = subject.random.below(5);
                let length = [10, 300, 5000][subject.random.below(3)];
                let forgets = subject.random.below(6);
                let _ = subject.append(puts, length, forgets);
                false
            }
        };
        if crashed {
            return true;
        }
    }
    false
}

fn crash_often(seed: u64, sync: bool, faults: impl Fn(&mut Random) -> Faults) {
    let mut random = Random::new(seed ^ 0xc0ff);
    let config = config(&mut random);
    let mut subject = Subject::new(seed, config);
    for _ in 0..1 + random.below(6) {
        let faults = if random.once_in(4) { Faults::default() } else { faults(&mut random) };
        subject.disk.set_faults(faults);
        subject.disk.light_fuse(random.below(120));
        let steps = 10 + random.below(80);
        let crashed = some_steps(&mut subject, steps, sync);
        let closed = !crashed && random.once_in(3) && !subject.drive(Occasion::Close);
        let report = subject.reopen();
        // A close whose frame could not be written is none.
        assert!(!closed || report.closed || faults != Faults::default() || report.frames == 0, "{report:?}");
    }
}

#[test]
fn a_power_cut_takes_nothing_that_was_acknowledged() {
    seeds(|seed| crash_often(seed, true, |_| Faults::default()));
}

#[test]
fn without_synchronisation_a_power_cut_leaves_the_state_of_some_commit() {
    seeds(|seed| crash_often(seed, false, |_| Faults::default()));
}

#[test]
fn what_failed_did_not_happen() {
    seeds(|seed| {
        crash_often(seed, true, |random| Faults {
            write: [0, 3, 20][random.below(3)],
            sync: [0, 3, 20][random.below(3)],
            create: [0, 2, 10][random.below(3)],
            read: [0, 2, 10][random.below(3)],
            remove: [0, 2][random.below(2)],
        });
    });
}

#[test]
fn a_record_that_waits_takes_other_bytes_under_its_identifier() {
    let mut subject = Subject::new(1, Config::default());
    subject.append(1, 1000, 0).unwrap();
    assert!(subject.replace(300) && subject.replace(3000) && subject.replace(10));
    subject.drive(Occasion::Commit { sync: true });
    assert_eq!(subject.committed().len(), 1);
    assert_eq!(&subject.visit(), subject.committed());
    assert!(!subject.replace(10), "it is on the disk");
}

#[test]
fn a_record_that_is_forgotten_before_its_commit_is_not_written() {
    let mut subject = Subject::new(1, Config::default());
    subject.append(3, 1000, 0).unwrap();
    subject.append(0, 0, 3).unwrap();
    subject.drive(Occasion::Commit { sync: true });
    assert_eq!(subject.journal.figures().written_bytes, 0);
    assert!(!subject.journal.is_waiting());
}
