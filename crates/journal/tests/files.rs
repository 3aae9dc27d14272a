//! The journal and its thread over real files.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::{
    collections::{BTreeMap, BTreeSet},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    sync::{Arc, Condvar, Mutex, mpsc},
    thread,
    time::{Duration, Instant},
};

use fogmux_journal::{Committer, Config, Files, Journal, Mode, OpenError, Progress, RecordId, Recovery};

const SMALL: Config =
    Config { segment_bytes: 64 << 10, frame_bytes: 16 << 10, pending_bytes_max: 1 << 20, commit_bytes_max: usize::MAX };

/// Which sets of batches are done.
#[derive(Default)]
struct Done(Mutex<BTreeSet<u64>>, Condvar);

impl Done {
    fn wait(&self, set: u64) {
        let done = self.0.lock().unwrap();
        let deadline = Duration::from_secs(60);
        let (_done, waited) = self.1.wait_timeout_while(done, deadline, |done| !done.contains(&set)).unwrap();
        assert!(!waited.timed_out());
    }
}

fn open(directory: &Path, mode: Mode) -> (Committer<Files>, Recovery, Arc<Done>, BTreeMap<RecordId, Vec<u8>>) {
    let files = Files::open(directory).unwrap();
    let (journal, report) = Journal::open(&files, SMALL).unwrap();
    let mut records = BTreeMap::new();
    journal.visit(&files, |id, record| drop(records.insert(id, record.unwrap().bytes.to_vec())));
    let done = Arc::new(Done::default());
    let tell = Arc::clone(&done);
    let watch = move |progress: Progress| {
        assert_eq!(progress.outcome, Ok(()));
        tell.0.lock().unwrap().extend(progress.sets);
        tell.1.notify_all();
    };
    (Committer::start(journal, files, mode, watch).unwrap(), report, done, records)
}

#[test]
fn records_of_many_threads_are_there_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let (committer, report, done, records) = open(&path, Mode::Always);
    assert_eq!((report.records, records.len()), (0, 0));
    let mut expected = BTreeMap::new();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..4_u8)
            .map(|worker| {
                let (committer, done) = (&committer, &done);
                scope.spawn(move || {
                    let mut last = None;
                    for n in 0..200_usize {
                        let mut batch = committer.batch();
                        let bytes = vec![worker; n * 7 % 3000];
                        let id = batch.put(worker, bytes.clone());
                        if let Some((old, _)) = last.replace((id, bytes)) {
                            batch.forget(old);
                        }
                        let set = committer.append(batch).unwrap().set;
                        let read = committer.read(id).unwrap().unwrap();
                        assert_eq!((read.kind, read.bytes.len()), (worker, n * 7 % 3000));
                        if n % 10 == 0 {
                            done.wait(set);
                        }
                    }
                    last
                })
            })
            .collect();
        expected.extend(workers.into_iter().filter_map(|worker| worker.join().unwrap()));
    });
    committer.close();
    assert!(committer.figures().disk_bytes <= 8 * (64 << 10), "{:?}", committer.figures());
    drop(committer);
    let (_committer, report, _, records) = open(&path, Mode::Always);
    assert!(report.closed && !report.is_damaged(), "{report:?}");
    assert_eq!(records, expected);
}

#[test]
fn nothing_is_committed_more_often_than_the_delay() {
    const DELAY: Duration = Duration::from_millis(50);
    let directory = tempfile::tempdir().unwrap();
    let (committer, _, done, _) = open(directory.path(), Mode::Group(DELAY));
    let start = Instant::now();
    let mut batches = 0;
    while start.elapsed() < DELAY * 6 {
        let mut batch = committer.batch();
        batch.put(1, vec![1; 10]);
        done.wait(committer.append(batch).unwrap().set);
        batches += 1;
    }
    let commits = committer.figures().frames;
    assert!(u128::from(commits) <= start.elapsed().as_millis() / DELAY.as_millis() + 1, "{commits} commits");
    assert!(batches >= commits);
}

#[test]
fn an_interval_is_committed_later_and_at_the_end() {
    let directory = tempfile::tempdir().unwrap();
    for mode in [Mode::Interval(Duration::from_secs(3600)), Mode::None(Duration::from_secs(3600))] {
        let path = directory.path().join(mode.waits().to_string() + &format!("{mode:?}"));
        let (committer, _, _, _) = open(&path, mode);
        let mut batch = committer.batch();
        let id = batch.put(3, &b"later"[..]);
        committer.append(batch).unwrap();
        assert_eq!(committer.figures().frames, 0);
        assert_eq!(&*committer.read(id).unwrap().unwrap().bytes, b"later");
        committer.close();
        assert!(committer.append(committer.batch()).is_err());
        drop(committer);
        let (_, report, _, records) = open(&path, mode);
        assert!(report.closed);
        assert_eq!(records, BTreeMap::from([(id, b"later".to_vec())]));
    }
}

#[test]
fn a_directory_belongs_to_one_process_and_to_nobody_else() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a/b");
    let (committer, _, done, _) = open(&path, Mode::Always);
    assert!(matches!(Files::open(&path), Err(OpenError::InUse(_))));
    let mut batch = committer.batch();
    batch.put(0, vec![0; 100_000]);
    done.wait(committer.append(batch).unwrap().set);
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o700);
    let files: Vec<_> = path.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() > 2 && files.iter().all(|file| mode(file) == 0o600), "{files:?}");
    drop(committer);
    drop(Files::open(&path).unwrap());
}

#[test]
fn a_panic_of_the_watcher_closes_the_journal() {
    let directory = tempfile::tempdir().unwrap();
    let files = Files::open(directory.path()).unwrap();
    let (journal, _) = Journal::open(&files, SMALL).unwrap();
    let (send, receive) = mpsc::channel();
    let committer = Committer::start(journal, files, Mode::Always, move |_| {
        let _ = send.send(());
        panic!("on purpose");
    });
    let committer = committer.unwrap();
    let mut batch = committer.batch();
    batch.put(0, vec![1]);
    committer.append(batch).unwrap();
    receive.recv_timeout(Duration::from_secs(60)).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while committer.append(committer.batch()).is_ok() {
        assert!(Instant::now() < deadline, "batches are refused when nobody commits them");
        thread::yield_now();
    }
    drop(committer);
}
