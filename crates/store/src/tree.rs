//! The tree on disk, sized for a small machine.

use std::{
    path::Path,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use crate::{
    committer::{Change, Disk, Until},
    counters::Counters,
    journal,
    marks::{self, Found, Marks},
};

/// Cached blocks, in bytes. The bus has all retained messages in memory, so that only compaction reads.
const CACHE_BYTES: u64 = 1 << 20;
/// Bytes of a memtable before it becomes a table. The database keeps the last one that has become a table until the
/// next does, so that twice as much stays in memory after much was written.
const MEMTABLE_BYTES: u64 = 2 << 20;
/// Bytes of all journals together; the least that the database accepts. Files are sparse until they are filled.
const JOURNALS_BYTES: u64 = 64 << 20;
/// Bytes of all memtables above which the committer waits. The database itself is slow to flush them: 50 MB written at
/// once would be 50 MB of memory.
const UNFLUSHED_BYTES_MAX: u64 = 6 << 20;
/// The interval at which the committer looks, and the longest wait: a database that writes no tables any more fails a
/// commit.
const FLUSH_LOOK: Duration = Duration::from_millis(2);
const FLUSH_PATIENCE: Duration = Duration::from_secs(5);
/// Open tables.
const FILES_MAX: usize = 32;
/// Retained messages: key is the topic, value a [`crate::record`].
const RETAINED: &str = "retained";
/// Records of doors, opaque to the store.
const RECORDS: &str = "records";
/// Bytes of the records' memtable: they change rarely.
const RECORDS_MEMTABLE_BYTES: u64 = 256 << 10;

/// The database and its keyspaces.
#[derive(Clone)]
pub(crate) struct Tree {
    database: Database,
    keyspace: Keyspace,
    records: Keyspace,
    marks: Arc<Marks>,
    path: Arc<Path>,
}

impl Tree {
    /// Opens a repaired database and checks that all commits are there.
    pub(crate) fn open(path: &Path, counters: &Counters) -> fjall::Result<Self> {
        let found = Found::read(path)?;
        let database = Database::builder(path)
            .cache_size(CACHE_BYTES)
            .max_journaling_size(JOURNALS_BYTES)
            .max_cached_files(Some(FILES_MAX))
            .worker_threads(1)
            .manual_journal_persist(true)
            .open()?;
        let options =
            |bytes: u64| move || KeyspaceCreateOptions::default().max_memtable_size(bytes).manual_journal_persist(true);
        let keyspace = database.keyspace(RETAINED, options(MEMTABLE_BYTES))?;
        let records = database.keyspace(RECORDS, options(RECORDS_MEMTABLE_BYTES))?;
        let last = check_commits(found, &keyspace, &records, counters)?;
        Ok(Self { database, keyspace, records, marks: Arc::new(Marks::open(path, last)?), path: path.into() })
    }

    /// Writes the changes as the next commit.
    fn commit(&self, changes: &mut Vec<Change>, until: Until) -> fjall::Result<()> {
        let mut batch = self.database.batch();
        for change in changes.drain(..) {
            match change {
                Change::Topic(topic, Some(record)) => batch.insert(&self.keyspace, topic.as_bytes(), record),
                Change::Topic(topic, None) => batch.remove(&self.keyspace, topic.as_bytes()),
                Change::Record(key, Some(value)) => batch.insert(&self.records, key.as_bytes(), &*value),
                Change::Record(key, None) => batch.remove(&self.records, key.as_bytes()),
            }
        }
        let number = self.marks.begin().to_le_bytes();
        batch.insert(&self.keyspace, marks::KEY, number);
        batch.insert(&self.records, marks::KEY, number);
        let mode = match until {
            // To the kernel at once, so that acknowledged data survives the end of the process.
            Until::Written => PersistMode::Buffer,
            // Before the database has the batch in memory: one that fails never comes into a table.
            Until::Synced => PersistMode::SyncData,
        };
        batch.durability(Some(mode)).commit()
    }

    /// Bytes of the memtables that are in no table yet.
    pub(crate) fn unflushed_bytes(&self) -> u64 {
        self.database.write_buffer_size()
    }

    fn note_commits(&self) {
        // Without it a later loss may go unnoticed; nothing is lost now.
        if let Err(error) = self.marks.write() {
            tracing::warn!(%error, "the number of the last commit cannot be noted");
        }
    }

    fn cut_off(&self, commit: u64) -> std::io::Result<journal::Cut> {
        journal::cut(&self.path, Some(commit), &mut |_| Ok(()))
    }

    fn wait_for_tables(&self) {
        let began = Instant::now();
        while self.database.write_buffer_size() > UNFLUSHED_BYTES_MAX && began.elapsed() < FLUSH_PATIENCE {
            std::thread::sleep(FLUSH_LOOK);
        }
    }

    /// Visits the records with this prefix in order. Damaged ones are skipped.
    pub(crate) fn read_records(&self, prefix: &str, counters: &Counters, visit: &mut dyn FnMut(&[u8], &[u8])) {
        for entry in self.records.prefix(prefix.as_bytes()) {
            match entry.into_inner() {
                Ok((key, _)) if *key == *marks::KEY => {}
                Ok((key, value)) => visit(&key, &value),
                Err(error) => {
                    counters.damaged_blocks.fetch_add(1, Relaxed);
                    tracing::error!(%error, prefix, "a block of the store is damaged; the records in it are lost");
                    return;
                }
            }
        }
    }

    /// Visits all keys and values in order. A damaged block ends the way forward; what lies behind the damage is then
    /// visited from the end backward, so that one bad sector costs what it holds and no more.
    pub(crate) fn read_all(&self, counters: &Counters, visit: &mut dyn FnMut(&[u8], &[u8])) {
        let mut last = None;
        for entry in self.keyspace.iter() {
            match entry.into_inner() {
                Ok((key, value)) => {
                    if *key != *marks::KEY {
                        visit(&key, &value);
                    }
                    last = Some(key);
                }
                Err(error) => {
                    damaged(counters, &error);
                    self.read_back_to(last.as_deref(), counters, visit);
                    return;
                }
            }
        }
    }

    fn read_back_to(&self, seen: Option<&[u8]>, counters: &Counters, visit: &mut dyn FnMut(&[u8], &[u8])) {
        for entry in self.keyspace.iter().rev() {
            match entry.into_inner() {
                Ok((key, _)) if seen.is_some_and(|seen| *key <= *seen) => return,
                Ok((key, _)) if *key == *marks::KEY => {}
                Ok((key, value)) => visit(&key, &value),
                Err(error) => {
                    damaged(counters, &error);
                    return;
                }
            }
        }
    }
}

/// Logs and counts the commits that are missing from a keyspace. Returns the number of the last commit.
fn check_commits(found: Found, keyspace: &Keyspace, records: &Keyspace, counters: &Counters) -> fjall::Result<u64> {
    let (retained, others) = (commit_of(keyspace)?, commit_of(records)?);
    let last = found.number().max(retained).max(others);
    if found == Found::Damaged || (found == Found::Nothing && last > 0) {
        tracing::warn!("the store's note of its last commit is gone or damaged; it is made again");
    }
    for (name, there) in [(RETAINED, retained), (RECORDS, others)] {
        if there < last {
            counters.lost_commits.fetch_add(last - there, Relaxed);
            tracing::error!(
                commits = last - there,
                last,
                keyspace = name,
                "the store has lost commits: values that were kept are missing or older than they were"
            );
        }
    }
    Ok(last)
}

fn commit_of(keyspace: &Keyspace) -> fjall::Result<u64> {
    let value = keyspace.get(marks::KEY)?;
    Ok(value.and_then(|value| value.as_ref().try_into().ok()).map_or(0, u64::from_le_bytes))
}

fn damaged(counters: &Counters, error: &fjall::Error) {
    counters.damaged_blocks.fetch_add(1, Relaxed);
    tracing::error!(%error, "a block of the store is damaged; the retained messages in it are lost");
}

impl Disk for Tree {
    type Error = fjall::Error;

    fn write(&self, changes: &mut Vec<Change>, until: Until) -> fjall::Result<()> {
        self.commit(changes, until)?;
        self.marks.succeeded();
        if until == Until::Synced {
            self.note_commits();
        }
        self.wait_for_tables();
        Ok(())
    }

    fn sync(&self) -> fjall::Result<()> {
        self.database.persist(PersistMode::SyncData)?;
        self.note_commits();
        Ok(())
    }

    fn take_back(&self) {
        let Some(commit) = self.marks.failed() else { return };
        let Err(error) = self.marks.refuse(commit) else { return };
        // A file system that cannot write into a file may still cut one.
        let cut = self.cut_off(commit);
        tracing::error!(
            %error,
            cut = cut.is_ok(),
            "the failed commit cannot be noted as refused; unless its journal was cut, its values may be there after a \
             restart"
        );
    }
}

#[cfg(test)]
impl Tree {
    /// Begins a commit that fails. Returns the length of the journal.
    pub(crate) fn begin_to_fail(&self, path: &Path) -> usize {
        self.marks.begin();
        let bytes = std::fs::read(path.join("0.jnl")).unwrap();
        bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1)
    }

    /// [`Disk::take_back`] on a file system that writes into no file.
    pub(crate) fn cut_back(&self) {
        self.cut_off(self.marks.failed().unwrap()).unwrap();
    }
}

impl std::fmt::Debug for Tree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tree").finish_non_exhaustive()
    }
}
