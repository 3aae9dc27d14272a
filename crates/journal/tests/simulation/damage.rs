//! Damage behind the journal's back: it costs the frames that it hit, and it is reported.

use std::panic::RefUnwindSafe;

use fogmux_journal::{Batch, Config, Occasion, RecordId, Slot};

use crate::{
    model::{Records, Subject},
    random::Random,
    seeds,
};

const BLOCK: usize = 4096;
const COMMIT: Occasion = Occasion::Commit { sync: true };

/// A journal that was closed.
pub(crate) fn closed(seed: u64) -> Subject {
    let mut random = Random::new(seed);
    let config = Config {
        segment_bytes: 64 << 10,
        frame_bytes: 16 << 10,
        pending_bytes_max: 1 << 20,
        commit_bytes_max: usize::MAX,
    };
    let mut subject = Subject::new(seed, config);
    for _ in 0..5 + random.below(80) {
        let length = [100, 3000, 30_000][random.below(3)];
        subject.append(random.below(5), length, random.below(4)).unwrap();
        subject.drive(COMMIT);
    }
    subject.drive(Occasion::Close);
    subject
}

/// The frame that has a block, as a range of bytes.
fn frame(content: &[u8], block: usize) -> std::ops::Range<usize> {
    let begins = |block: usize| content[block * BLOCK..].starts_with(b"fmJ[");
    let continues = |block: usize| content[block * BLOCK..].starts_with(b"fmJ+");
    let first = (0..=block).rev().find(|block| begins(*block)).unwrap_or(block);
    let last = (block + 1..content.len() / BLOCK).take_while(|block| continues(*block)).last().unwrap_or(block);
    first * BLOCK..(last + 1) * BLOCK
}

/// Whether some of a record is among these bytes. Its number is repeated in it; short ones may be anywhere.
fn has(bytes: &[u8], id: RecordId, records: &Records) -> bool {
    let number = id.get().to_be_bytes();
    let key = (id.get() << 8).to_le_bytes();
    let part = &key[1..];
    records[&id].bytes.len() < 32 && bytes.windows(7).any(|window| window == part)
        || bytes.windows(8).any(|window| window == number)
}

fn check(subject: &mut Subject, expected: &Records, hit: &[u8]) {
    let report = subject.reopen_damaged();
    let found = subject.visit();
    if found != *expected {
        assert!(report.is_damaged(), "{report:?}");
    }
    for (id, record) in expected {
        match found.get(id) {
            Some(found) => assert_eq!(found, record),
            // A commit whose end was in a file that is gone cannot be told from one that was cut off.
            None if report.dropped > 0 => assert!(report.short_files > 0 || report.lost_end),
            None => assert!(has(hit, *id, expected), "{id:?} was not in what was hit: {report:?}"),
        }
    }
    // It goes on.
    subject.accept(found);
    for _ in 0..40 {
        subject.append(2, 2000, 2).unwrap();
        subject.drive(COMMIT);
    }
    subject.drive(Occasion::Close);
    let expected = subject.committed().clone();
    subject.reopen_damaged();
    assert_eq!(subject.visit(), expected);
}

fn any_file(subject: &mut Subject) -> Slot {
    let slots = subject.disk.slots();
    slots[subject.random.below(slots.len())]
}

/// Damages a file of a journal that was closed, under every seed. `damage` returns the bytes that it has hit.
fn costs_what_was_hit(damage: impl Fn(&mut Subject, Slot, Vec<u8>) -> Vec<u8> + RefUnwindSafe) {
    seeds(|seed| {
        let mut subject = closed(seed);
        let expected = subject.committed().clone();
        let slot = any_file(&mut subject);
        let content = subject.disk.content(slot);
        let hit = damage(&mut subject, slot, content);
        check(&mut subject, &expected, &hit);
    });
}

/// A block, near the beginning, where something is.
fn any_block(subject: &mut Subject, content: &[u8]) -> usize {
    subject.random.below(content.len() / BLOCK) >> subject.random.below(4)
}

#[test]
fn a_flipped_bit_costs_the_frame() {
    costs_what_was_hit(|subject, slot, content| {
        // Near the beginning, where something is.
        let bit = subject.random.below(content.len() * 8) >> subject.random.below(4);
        subject.disk.damage(slot, |content| content[bit / 8] ^= 1 << (bit % 8));
        content[frame(&content, bit / 8 / BLOCK)].to_vec()
    });
}

#[test]
fn a_block_of_garbage_costs_the_frame() {
    costs_what_was_hit(|subject, slot, content| {
        let block = any_block(subject, &content);
        let byte = subject.random.next() as u8;
        subject.disk.damage(slot, |content| content[block * BLOCK..][..BLOCK].fill(byte));
        content[frame(&content, block)].to_vec()
    });
}

#[test]
fn a_block_that_cannot_be_read_costs_the_frame() {
    costs_what_was_hit(|subject, slot, content| {
        let block = any_block(subject, &content);
        subject.disk.set_bad_block(slot, block);
        content[frame(&content, block)].to_vec()
    });
}

#[test]
fn a_file_that_is_cut_costs_what_was_cut_off() {
    costs_what_was_hit(|subject, slot, content| {
        let length = (subject.random.below(content.len() / 512) * 512) >> subject.random.below(3);
        subject.disk.damage(slot, |content| content.truncate(length));
        content[frame(&content, length / BLOCK).start..].to_vec()
    });
}

#[test]
fn a_file_that_is_gone_costs_what_was_in_it() {
    costs_what_was_hit(|subject, slot, content| {
        fogmux_journal::Disk::remove(&subject.disk, slot).unwrap();
        content
    });
}

#[test]
fn a_payload_cannot_pose_as_a_frame() {
    // So that copies of a frame begin where blocks do, with and without the marks of the blocks.
    for shift in [0, 3992, 3996, 4000, 4004, 4008] {
        let config = Config {
            segment_bytes: 64 << 10,
            frame_bytes: 16 << 10,
            pending_bytes_max: 1 << 20,
            commit_bytes_max: usize::MAX,
        };
        let mut subject = Subject::new(1, config);
        subject.append(1, 100, 0).unwrap();
        subject.drive(COMMIT);
        let slot = subject.disk.slots()[0];
        let frame = subject.disk.content(slot)[..BLOCK].to_vec();
        let mut batch = Batch::new(&subject.journal.ids());
        batch.put(1, [vec![0; shift], frame.repeat(2)].concat());
        subject.journal.append(batch).unwrap();
        subject.drive(COMMIT);
        // Its own frame is damaged, so what is in it is looked at block by block.
        subject.disk.damage(slot, |content| content[BLOCK + 40] ^= 1);
        let expected = subject.committed().clone();
        let report = subject.reopen_damaged();
        assert_eq!((report.frames, report.dropped), (1, 0), "{report:?}");
        assert_eq!(subject.visit(), expected);
    }
}
