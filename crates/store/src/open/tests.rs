//! Opening trees in every state.

use super::*;

fn neighbours(path: &Path) -> usize {
    fs::read_dir(path.parent().unwrap()).unwrap().count()
}

#[test]
fn a_tree_of_another_process_is_left_alone() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("store");
    let counters = Counters::default();
    let _tree = open(&path, &counters).unwrap();
    assert!(matches!(open(&path, &counters), Err(OpenError::InUse(_))));
    assert_eq!(neighbours(&path), 1);
}

#[test]
fn a_tree_of_a_later_release_is_left_alone() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("store");
    let counters = Counters::default();
    drop(open(&path, &counters).unwrap());
    fs::write(path.join(VERSION), b"FJL\x09").unwrap();
    for _ in 0..20 {
        let error = open(&path, &counters).unwrap_err();
        assert!(matches!(error, OpenError::Format { found: 9, .. }));
        let told = error.to_string();
        assert!(told.contains("has format 9") && told.contains("writes format 3"), "{told}");
    }
    assert_eq!(neighbours(&path), 1);
    fs::write(path.join(VERSION), b"FJL\x03").unwrap();
    assert!(open(&path, &counters).unwrap().tree.is_some());
    assert_eq!(counters.snapshot().moved_aside, 0);
}

#[test]
fn a_tree_without_its_head_is_moved_aside() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("store");
    let counters = Counters::default();
    drop(open(&path, &counters).unwrap());
    fs::write(path.join(VERSION), b"rubbish").unwrap();
    drop(open(&path, &counters).unwrap());
    assert_eq!((counters.snapshot().moved_aside, neighbours(&path)), (1, 2));
}

fn fresh() -> (tempfile::TempDir, PathBuf, Counters) {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("store");
    let counters = Counters::default();
    drop(open(&path, &counters).unwrap());
    (home, path, counters)
}

#[test]
fn an_attempt_that_returns_leaves_no_count() {
    let (_home, path, _) = fresh();
    assert!(!path.join("opening").exists());
}

#[test]
fn a_tree_that_crashes_the_process_is_moved_aside_in_the_end() {
    let (_home, path, counters) = fresh();
    for crashes in 0..=3 {
        fs::write(path.join("opening"), format!("crashes={crashes:<5} unexplained={:<5}\n", 0)).unwrap();
        let opened = open(&path, &counters).unwrap();
        assert!(opened.tree.is_some());
        let moved = u64::from(crashes == 3);
        assert_eq!((counters.snapshot().moved_aside, neighbours(&path) as u64), (moved, 1 + moved));
    }
}

#[test]
fn a_tree_whose_opening_was_ended_from_outside_is_not_touched() {
    let (_home, path, _) = fresh();
    for unexplained in 0..=5 {
        let counters = Counters::default();
        fs::write(path.join("opening"), format!("crashes={:<5} unexplained={unexplained:<5}\n", 2)).unwrap();
        let opened = open(&path, &counters).unwrap();
        assert_eq!(opened.tree.is_some(), unexplained < 5);
        let state = if unexplained < 5 { State::Writable } else { State::Failed };
        assert_eq!((counters.state(), neighbours(&path)), (state, 1));
    }
    // The next start tries it again.
    assert!(open(&path, &Counters::default()).unwrap().tree.is_some());
}

#[test]
fn a_panic_is_noted_before_it_can_end_the_process() {
    let (_home, path, _) = fresh();
    let past = Past::default();
    let attempt = Attempt::begin(&path, &past).unwrap();
    let during = fs::read_to_string(path.join("opening")).unwrap();
    assert!(during.starts_with("crashes=0     unexplained=1"), "{during:.40}");
    let failed = attempt.run(|| -> fjall::Result<()> { panic!("as told") });
    assert!(matches!(judge(&path, failed.unwrap_err()), Fault::Damage(_)));
    let after = fs::read_to_string(path.join("opening")).unwrap();
    assert!(after.starts_with("crashes=1     unexplained=0"), "{after:.40}");
    attempt.end(&path);
    assert_eq!(Past::read(&path).proof(), None);
}

#[test]
fn an_attempt_without_room_counts_for_nothing() {
    let (_home, path, _) = fresh();
    let past = Past::default();
    // A file that cannot be written, as on a full disk.
    std::os::unix::fs::symlink("/dev/full", path.join("opening")).unwrap();
    let error = Attempt::begin(&path, &past).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    assert!(!path.join("opening").exists());
}

#[test]
fn a_first_start_that_was_interrupted_is_no_damage() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("store");
    for with_version in [false, true] {
        fs::create_dir(&path).unwrap();
        File::create_new(path.join("0.jnl")).unwrap().set_len(64 << 20).unwrap();
        if with_version {
            File::create_new(path.join(VERSION)).unwrap();
        }
        let counters = Counters::default();
        assert!(open(&path, &counters).unwrap().tree.is_some());
        assert_eq!((counters.snapshot().moved_aside, neighbours(&path)), (0, 1));
        fs::remove_dir_all(&path).unwrap();
    }
}

#[test]
fn names_for_what_is_damaged_are_never_used_twice() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("store");
    for number in 0..5 {
        let free = aside(&path, "");
        assert!(!free.exists());
        fs::create_dir(&free).unwrap();
        assert_eq!(neighbours(&path), number + 1);
    }
}

#[test]
fn a_damaged_journal_without_room_for_a_copy_is_not_cut() {
    let (_home, path, _) = fresh();
    let journal = path.join("0.jnl");
    let mut bytes = fs::read(&journal).unwrap();
    // Damage with a whole end of a batch behind it.
    bytes[..8].copy_from_slice(b"\x05rub\x46JL\x03");
    fs::write(&journal, &bytes).unwrap();
    let full = || Err(io::Error::from(io::ErrorKind::StorageFull));
    let fault = repair(&path, &Counters::default(), &mut |_| full()).unwrap_err();
    assert!(matches!(fault, Fault::Error(OpenError::Io { .. })), "{fault:?}");
    assert!(fs::read(&journal).unwrap() == bytes);
}

#[test]
fn a_directory_that_cannot_be_made_is_an_error() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("file");
    fs::write(&file, b"").unwrap();
    assert!(matches!(open(&file.join("store"), &Counters::default()), Err(OpenError::Io { .. })));
}
