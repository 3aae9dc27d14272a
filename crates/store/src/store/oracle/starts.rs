//! Starts and ends on a disk that reads badly, does not answer or has no room.

use fogmux_journal::Slot;

use super::*;

/// A start that may not read a segment, or has no descriptor for it, knows nothing about its contents.
#[test]
fn a_start_that_cannot_read_a_segment_ends_or_leaves_it_alone() {
    for errno in ERRORS {
        let medium = Arc::new(Medium::default());
        let rig = Rig::open(&medium, Durability::Group);
        for n in 0..60 {
            assert!(wait(&rig.write(&format!("t/{n}"), Some(20_000 + n))));
        }
        rig.store.close().unwrap();
        let mut expected = rig.readable();
        drop(rig);
        let slots: Vec<Slot> = medium.platters().files.keys().copied().collect();
        assert!(slots.len() > 4);
        for slot in slots {
            medium.platters().outage = Some((errno, usize::MAX, Some(slot)));
            let config = StoreConfig::new("/nonexistent");
            let disk: AnyDisk = Arc::clone(&medium) as AnyDisk;
            let opened =
                JournalStore::open_by(&config, |journal, shared| open::open_on(&config.path, disk, journal, shared));
            if errno == EIO {
                let store = opened.unwrap();
                let topic = format!("new/{}", slot.0);
                assert!(store.counters().has_lost());
                assert!(wait(&store.put(&message(&topic, 7), None, None)));
                store.close().unwrap();
                expected.insert(topic, 7);
            } else {
                let OpenError::Io { path, source } = opened.unwrap_err() else { panic!("another error") };
                assert!(path.ends_with(format!("journal/{:08}.segment", slot.0)), "{}", path.display());
                assert_eq!(source.raw_os_error(), Some(errno));
            }
            medium.platters().outage = None;
            let rig = Rig::open(&medium, Durability::Group);
            assert_eq!(rig.readable(), expected, "{errno} {slot:?}");
            rig.store.close().unwrap();
        }
    }
}

#[test]
fn a_disk_that_does_not_answer_is_waited_for_once() {
    let medium = Arc::new(Medium::default());
    let rig = Rig::open(&medium, Durability::Group);
    let hangs = medium.platters();
    drop(rig.write("a", Some(1)));
    assert!(rig.store.0.close(Duration::from_millis(20)).is_err());
    let began = Instant::now();
    drop(rig);
    assert!(began.elapsed() < CLOSE_PATIENCE / 2, "waited again");
    drop(hangs);
}

/// A board without a clock stamps again what it finds. A full disk takes a stamp in the place of the one before.
#[test]
fn messages_with_an_expiry_survive_a_start_without_a_clock_on_a_full_disk() {
    assert_eq!(start_without_a_clock(false), (0, 0));
}

/// Where the disk takes no stamp the message stays as it is.
#[test]
fn messages_with_an_expiry_survive_a_start_without_a_clock_on_a_disk_that_fails() {
    let (_, failed) = start_without_a_clock(true);
    assert!(failed > 0, "the disk took it");
}

/// Starts on a full disk, and one that fails if it is broken. Returns what was refused and what failed.
fn start_without_a_clock(is_broken: bool) -> (u64, u64) {
    let medium = Arc::new(Medium::default());
    let start = || {
        let config = StoreConfig::new("/nonexistent");
        let disk: AnyDisk = Arc::clone(&medium) as AnyDisk;
        let store =
            JournalStore::open_by(&config, |journal, shared| open::open_on(&config.path, disk, journal, shared));
        store.unwrap()
    };
    let store = start();
    assert!(wait(&store.put(&message("day", 1000), Some(86_400_000), None)));
    medium.platters().space = Some(0);
    for bytes in [20_000, 500] {
        let mut n = 0;
        while wait(&store.put(&message(&format!("fill/{bytes}/{n}"), bytes), None, None)) {
            n += 1;
        }
    }
    let _ = store.close();
    drop(store);
    medium.platters().broken = is_broken;
    let store = start();
    let bus = fogmux_bus::Bus::new(&fogmux_bus::BusConfig::default(), Box::new(store.clone()), Timestamp::ZERO, 10_000);
    let _ = wait(&store.pending("day"));
    assert!(bus.latest("day", Timestamp::ZERO).is_some());
    let counters = store.counters();
    (counters.refused, counters.failed)
}
