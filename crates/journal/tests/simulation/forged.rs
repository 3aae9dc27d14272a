//! Files that were made on purpose: their checksums are right, and what they say is not what a journal says. They open
//! without a panic, in about the time that it takes to read them, and the journal goes on.

use std::time::{Duration, Instant};

use fogmux_journal::{Batch, Config, Journal, Occasion, Recovery, Slot};

use crate::{damage::closed, disk::SimulatedDisk, model::Subject, random::Random, seeds};

const BLOCK: usize = 4096;
const COMMIT: Occasion = Occasion::Commit { sync: true };
const CONFIG: Config =
    Config { segment_bytes: 64 << 10, frame_bytes: 16 << 10, pending_bytes_max: 1 << 20, commit_bytes_max: usize::MAX };
/// Bytes of a frame's header, and where its fields are with their sizes.
const HEADER: usize = 72;
const NUMBER: (usize, usize) = (16, 8);
const SYNCED: (usize, usize) = (24, 8);
const OLDEST: (usize, usize) = (32, 8);
const EPOCH_FIRST: (usize, usize) = (40, 8);
const NEXT_ID: (usize, usize) = (48, 8);
const EPOCH: (usize, usize) = (56, 4);
const LENGTH: (usize, usize) = (60, 4);
const NEXT_SLOT: (usize, usize) = (64, 4);
const SEGMENT_BYTES: (usize, usize) = (68, 4);
const FIELDS: [(usize, usize); 9] =
    [NUMBER, SYNCED, OLDEST, EPOCH_FIRST, NEXT_ID, EPOCH, LENGTH, NEXT_SLOT, SEGMENT_BYTES];

fn set(frame: &mut [u8], (at, size): (usize, usize), value: u64) {
    frame[at..at + size].copy_from_slice(&value.to_le_bytes()[..size]);
}

/// Makes the checksum of the frame at the beginning right, if it has a length.
fn seal(bytes: &mut [u8]) {
    let length = u32::from_le_bytes(bytes[LENGTH.0..][..4].try_into().unwrap()) as usize;
    if (HEADER..=bytes.len()).contains(&length) {
        let seed = u64::from_le_bytes(bytes[..8].try_into().unwrap());
        let sum = xxhash_rust::xxh3::xxh3_64_with_seed(&bytes[16..length], seed);
        bytes[8..16].copy_from_slice(&sum.to_le_bytes());
    }
}

/// A forget of consecutive identifiers.
fn forget(first: u64, count: u32) -> Vec<u8> {
    [&[2, 0, 0, 0][..], &count.to_le_bytes(), &first.to_le_bytes()].concat()
}

/// Opens a journal with one record after its only frame was changed. Bytes of the record may be overwritten.
fn opened(forge: impl FnOnce(&mut [u8])) -> Recovery {
    let mut subject = Subject::new(1, CONFIG);
    let mut batch = Batch::new(&subject.journal.ids());
    batch.put(1, &b"hello"[..]);
    subject.journal.append(batch).unwrap();
    subject.drive(COMMIT);
    subject.disk.damage(Slot(0), |content| {
        forge(content);
        seal(content);
    });
    let begun = Instant::now();
    let report = subject.reopen_damaged();
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    goes_on(&mut subject);
    report
}

/// Records are put and found again.
fn goes_on(subject: &mut Subject) {
    let mut batch = Batch::new(&subject.journal.ids());
    let ids = [(); 3].map(|()| batch.put(1, &b"later"[..]));
    subject.journal.append(batch).unwrap();
    work(&mut subject.journal, &subject.disk, COMMIT);
    let mut found = Vec::new();
    subject.journal.visit(&subject.disk, |id, record| {
        if ids.contains(&id) {
            found.push(record.unwrap().bytes);
        }
    });
    assert_eq!(found, [&b"later"[..]; 3]);
}

fn work(journal: &mut Journal, disk: &SimulatedDisk, occasion: Occasion) {
    while let Some(work) = journal.next_work(occasion) {
        let done = work.run(disk);
        journal.settle(&done);
    }
    while let Some(progress) = journal.progress() {
        assert_eq!(progress.outcome, Ok(()));
    }
}

#[test]
fn impossible_numbers_in_a_header_make_the_frame_a_broken_one() {
    assert_eq!(opened(|frame| set(frame, SYNCED, 0)).records, 1);
    let all = [
        (NUMBER, 0),
        (NUMBER, (1 << 62) + 1),
        (NUMBER, u64::MAX),
        (SYNCED, 1),
        (SYNCED, u64::MAX),
        (OLDEST, 0),
        (OLDEST, 2),
        (OLDEST, u64::MAX),
        (EPOCH_FIRST, 0),
        (EPOCH_FIRST, u64::MAX),
        (EPOCH, (1 << 31) + 1),
        (EPOCH, u64::MAX),
        (NEXT_ID, (1 << 55) + 1),
        (NEXT_ID, u64::MAX),
    ];
    for (field, value) in all {
        let report = opened(|frame| set(frame, field, value));
        assert_eq!((report.records, report.frames, report.torn), (0, 0, u64::from(value != 0 || field != NUMBER)));
    }
}

#[test]
fn the_largest_possible_numbers_overflow_nothing() {
    for (field, value) in [(NEXT_ID, 1 << 55), (EPOCH, 1 << 31), (NUMBER, 1 << 62)] {
        opened(|frame| set(frame, field, value));
    }
    opened(|frame| {
        set(frame, NUMBER, 1 << 62);
        set(frame, OLDEST, 1 << 62);
        set(frame, EPOCH_FIRST, 1 << 62);
        set(frame, SYNCED, (1 << 62) - 1);
        set(frame, NEXT_ID, 1 << 55);
        set(frame, EPOCH, 1 << 31);
    });
}

#[test]
fn billions_of_forgets_take_no_longer_than_the_records_there_are() {
    for (first, count) in [(0, u32::MAX), (1, u32::MAX), (u64::MAX - 2, 16), (u64::MAX, u32::MAX), (1 << 56, 1)] {
        let report = opened(|frame| frame[HEADER..HEADER + 16].copy_from_slice(&forget(first, count)));
        assert_eq!((report.records, report.frames), (0, 1));
    }
    // As many as fit into a segment, each of all identifiers that a forget can name.
    let content: Vec<u8> = forget(0, u32::MAX).repeat(4000);
    opened(|frame| {
        let mut file = frame[..HEADER].to_vec();
        for byte in content {
            if file.len() % BLOCK == 0 {
                file.extend_from_slice(b"fmJ+");
            }
            file.push(byte);
        }
        file.truncate(frame.len());
        frame[..file.len()].copy_from_slice(&file);
        set(frame, LENGTH, file.len() as u64);
    });
}

#[test]
fn a_record_whose_identifier_was_not_given_out_is_not_there() {
    for id in [1, 2, 1 << 55, (1 << 56) - 1] {
        // The key of a put has the identifier in its upper 56 bits.
        let report = opened(|frame| set(frame, (HEADER + 8, 8), id << 8));
        assert_eq!((report.records, report.frames, report.missing.len()), (0, 0, 1), "{id}");
    }
}

#[test]
fn blocks_that_all_begin_a_frame_up_to_the_end_are_read_once() {
    let mut subject = Subject::new(1, CONFIG);
    let mut batch = Batch::new(&subject.journal.ids());
    batch.put(1, &b"hello"[..]);
    subject.journal.append(batch).unwrap();
    subject.drive(COMMIT);
    // With each block read to the end this would be 550 GB.
    let length = 64 << 20;
    subject.disk.damage(Slot(0), |content| {
        let first = content[..BLOCK].to_vec();
        content.resize(length, 0);
        for at in (0..length).step_by(BLOCK) {
            content[at..at + HEADER].copy_from_slice(&first[..HEADER]);
            set(&mut content[at..], LENGTH, (length - at) as u64);
        }
    });
    let begun = Instant::now();
    assert_eq!(subject.reopen_damaged().records, 0);
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
}

/// A number near one of those that matter.
fn number(random: &mut Random) -> u64 {
    let near = [0, 1, 1 << 24, 1 << 31, 1 << 32, 1 << 55, 1 << 56, 1 << 62, 1 << 63, u64::MAX];
    match random.below(4) {
        0 => random.next() >> random.below(64),
        _ => near[random.below(near.len())].wrapping_add(random.below(5) as u64).wrapping_sub(2),
    }
}

#[test]
fn any_change_under_a_right_checksum_is_survived() {
    seeds(|seed| {
        let mut subject = closed(seed);
        let mut random = Random::new(seed ^ 0xf0_4ed);
        for _ in 0..1 + random.below(4) {
            let slots = subject.disk.slots();
            subject.disk.damage(slots[random.below(slots.len())], |content| forge(content, &mut random));
        }
        subject.reopen_damaged();
        goes_on(&mut subject);
        // Cleaning reads what is there, and closing and opening again count on from the numbers that were found.
        for occasion in [Occasion::Idle, COMMIT, Occasion::Close] {
            for _ in 0..20 {
                let mut batch = Batch::new(&subject.journal.ids());
                batch.put(2, vec![7; random.below(3000)]);
                subject.journal.append(batch).unwrap();
                work(&mut subject.journal, &subject.disk, occasion);
            }
        }
        subject.reopen_damaged();
        subject.journal.visit(&subject.disk, |_, _| {});
        goes_on(&mut subject);
    });
}

/// Changes a frame, and makes its checksum right.
fn forge(content: &mut [u8], random: &mut Random) {
    let begins = |at: &usize| content[*at..].starts_with(b"fmJ[");
    let frames: Vec<_> = (0..content.len()).step_by(BLOCK).filter(begins).collect();
    let Some(at) = frames.get(random.below(frames.len())) else { return };
    let frame = &mut content[*at..];
    for _ in 0..1 + random.below(3) {
        match random.below(4) {
            0 => {
                let entry = forget(number(random), number(random) as u32);
                frame[HEADER..HEADER + 16].copy_from_slice(&entry);
            }
            // Of the first entry, or anything of its bytes.
            1 => set(frame, (HEADER + 4 * random.below(6), 4), number(random)),
            2 => set(frame, (HEADER + random.below(200), 1), random.next()),
            _ => set(frame, FIELDS[random.below(FIELDS.len())], number(random)),
        }
    }
    seal(frame);
}
