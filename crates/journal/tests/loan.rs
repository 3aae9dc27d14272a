//! Copies of a journal at work: what was appended before a copy began is in it, what was forgotten before is not, and a
//! start from it finds no damage – at any pace, in every mode, and however much is written meanwhile.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use fogmux_journal::{Committer, Config, Files, Journal, Loan, LoanError, Mode, Progress, RecordId};

const SMALL: Config = Config {
    segment_bytes: 64 << 10,
    frame_bytes: 16 << 10,
    pending_bytes_max: 64 << 20,
    commit_bytes_max: usize::MAX,
};
const PATIENCE: Duration = Duration::from_secs(30);

/// Ends a neighbour, also when a test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Sets that are done.
type Done = Arc<(Mutex<BTreeSet<u64>>, Condvar)>;

fn start(directory: &Path, mode: Mode) -> (Committer<Files>, Done) {
    let files = Files::open(directory).unwrap();
    let (journal, _) = Journal::open(&files, SMALL).unwrap();
    let done: Done = Arc::default();
    let tell = Arc::clone(&done);
    let watch = move |progress: Progress| {
        assert_eq!(progress.outcome, Ok(()));
        tell.0.lock().unwrap().extend(progress.sets);
        tell.1.notify_all();
    };
    (Committer::start(journal, files, mode, watch).unwrap(), done)
}

fn wait(done: &Done, set: u64) {
    let waiting = done.0.lock().unwrap();
    assert!(!done.1.wait_timeout_while(waiting, PATIENCE, |done| !done.contains(&set)).unwrap().1.timed_out());
}

/// Writes the segments of a loan as files; `pause` runs before each.
fn copy(mut loan: Loan<Files>, to: &Path, mut pause: impl FnMut()) -> Result<(), LoanError> {
    fs::create_dir_all(to)?;
    while let Some(mut segment) = {
        pause();
        loan.next_segment()?
    } {
        assert_eq!(segment.unreadable_blocks, 0);
        segment.content.resize(segment.bytes as usize, 0);
        fs::write(to.join(Files::name(segment.slot)), segment.content)?;
    }
    Ok(())
}

/// The records of a copy, of which a start says that nothing is missing.
fn records(directory: &Path) -> BTreeMap<RecordId, Vec<u8>> {
    let files = Files::open(directory).unwrap();
    let (journal, report) = Journal::open(&files, SMALL).unwrap();
    assert!(!report.is_damaged() && report.torn == 0 && report.dropped == 0, "{report:?}");
    let mut records = BTreeMap::new();
    journal.visit(&files, |id, record| drop(records.insert(id, record.unwrap().bytes.to_vec())));
    records
}

#[test]
fn a_copy_has_what_was_appended_before_it_began_and_nothing_that_was_forgotten() {
    let modes = [
        Mode::Always,
        Mode::Group(Duration::from_millis(2)),
        Mode::Interval(Duration::from_secs(600)),
        Mode::None(Duration::from_secs(600)),
    ];
    for mode in modes {
        let directory = tempfile::tempdir().unwrap();
        let (committer, done) = start(&directory.path().join("journal"), mode);
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            // A neighbour that writes as fast as it can, so that segments leave and are overwritten all the time.
            let (committer, stop) = (&committer, &stop);
            scope.spawn(move || {
                let mut last = None;
                while !stop.load(Ordering::Relaxed) {
                    let mut batch = committer.batch();
                    let id = batch.put(9, vec![9; 20_000]);
                    last.replace(id).into_iter().for_each(|old| batch.forget(old));
                    committer.append(batch).unwrap();
                    thread::sleep(Duration::from_micros(200));
                }
            });
            let _stop = Stop(stop);
            let mut kept = BTreeMap::new();
            let mut forgotten = BTreeSet::new();
            for round in 0..12_u8 {
                for n in 0..30_usize {
                    let mut batch = committer.batch();
                    let bytes = vec![round; (n * 7919 + usize::from(round) * 31) % 5_000];
                    let id = batch.put(round, bytes.clone());
                    if n % 3 == 0
                        && let Some((old, _)) = kept.pop_first()
                    {
                        batch.forget(old);
                        forgotten.insert(old);
                    }
                    let set = committer.append(batch).unwrap().set;
                    kept.insert(id, bytes);
                    if mode.waits() {
                        wait(&done, set);
                    }
                }
                let to = directory.path().join(format!("copy-{round}"));
                let loan = committer.lend(PATIENCE).unwrap();
                assert!(matches!(committer.lend(PATIENCE), Err(LoanError::Busy)));
                // Slow enough that the neighbour goes round in the journal.
                copy(loan, &to, || thread::sleep(Duration::from_millis(1))).unwrap();
                let found = records(&to);
                for (id, bytes) in &kept {
                    assert_eq!(found.get(id), Some(bytes), "{mode:?}, round {round}");
                }
                assert!(forgotten.iter().all(|id| !found.contains_key(id)), "{mode:?}, round {round}");
                fs::remove_dir_all(&to).unwrap();
            }
        });
        drop(committer);
        assert!(!records(&directory.path().join("journal")).is_empty());
    }
}

#[test]
fn a_copy_that_nobody_takes_on_lets_the_files_grow_by_no_more_than_they_had() {
    let directory = tempfile::tempdir().unwrap();
    let (committer, done) = start(directory.path(), Mode::Always);
    let put = |last: &mut Vec<RecordId>, count: usize| {
        let mut batch = committer.batch();
        last.push(batch.put(2, vec![2; 15_000]));
        if last.len() > count {
            batch.forget(last.remove(0));
        }
        wait(&done, committer.append(batch).unwrap().set);
        committer.figures().disk_bytes
    };
    let mut last = Vec::new();
    let before = (0..200).map(|_| put(&mut last, 40)).max().unwrap();
    let mut loan = committer.lend(PATIENCE).unwrap();
    let first = loan.next_segment().unwrap();
    let kept: BTreeSet<RecordId> = last.iter().copied().collect();
    let most = (0..1_000).map(|_| put(&mut last, 40)).max().unwrap();
    assert!(most <= 2 * before + 2 * 64 * 1024, "{before} before, {most} at most");
    // It is as good as one that was taken at once.
    let to = directory.path().join("copy");
    fs::create_dir(&to).unwrap();
    for segment in std::iter::once(first).chain(std::iter::from_fn(|| Some(loan.next_segment().unwrap()))) {
        let Some(mut segment) = segment else { break };
        segment.content.resize(segment.bytes as usize, 0);
        fs::write(to.join(Files::name(segment.slot)), segment.content).unwrap();
    }
    drop(loan);
    assert_eq!(records(&to).into_keys().collect::<BTreeSet<_>>(), kept);
    // Given back, the segments are used again, and those that are too many are removed.
    let after = (0..400).map(|_| put(&mut last, 40)).last().unwrap();
    let bound = 2 * committer.figures().live_bytes + 6 * 64 * 1024;
    assert!(after <= bound, "{before} before, {after} after");
}

#[test]
fn an_empty_journal_can_be_copied() {
    let directory = tempfile::tempdir().unwrap();
    let (committer, _) = start(directory.path(), Mode::Always);
    copy(committer.lend(PATIENCE).unwrap(), &directory.path().join("copy"), || {}).unwrap();
    assert!(records(&directory.path().join("copy")).is_empty());
}
