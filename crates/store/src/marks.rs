//! Commit numbers, by which a loss of commits is noticed.
//!
//! The number of the last commit is in a small file beside the database's own, and in each keyspace, written in the
//! same batch as the values. A keyspace or journal that is lost takes its number with it, and the difference shows when
//! the store is opened. The file is written in place once the commit is as safe as the durability asks, and never
//! synchronised: it may be behind, never ahead.
//!
//! The file also has the number of a commit that failed and was refused to its publishers. Its bytes may be in the
//! journal nevertheless, whole, because only the synchronisation failed or because a buffer is written again when the
//! database is closed. They are cut when the store is opened next. No number is used twice.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::FileExt as _,
    path::Path,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use xxhash_rust::xxh3::xxh3_64;

/// The file's name in the directory of the store.
const FILE: &str = "commits";
/// The number's key in each keyspace. No topic contains U+0000, and no door's key begins with it.
pub(crate) const KEY: &[u8] = b"\0commit";

/// Bytes of a number with its checksum. A refused commit's follow those of the last commit.
const MARK_BYTES: usize = 16;
const REFUSED_AT: u64 = MARK_BYTES as u64;

/// The last commit, as the file has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// No file: the store is new, or the file was removed.
    Nothing,
    /// Not a number with its checksum.
    Damaged,
    /// Commits up to this one were written.
    Commit(u64),
}

impl Found {
    /// Reads the file of a store.
    pub(crate) fn read(directory: &Path) -> io::Result<Self> {
        Ok(match contents(directory)? {
            Some(bytes) => parse(&bytes).map_or(Self::Damaged, Self::Commit),
            None => Self::Nothing,
        })
    }

    /// The number, or 0.
    pub(crate) const fn number(self) -> u64 {
        match self {
            Self::Nothing | Self::Damaged => 0,
            Self::Commit(number) => number,
        }
    }
}

/// The number of the commit that was refused last, if one was.
pub(crate) fn refused(directory: &Path) -> io::Result<Option<u64>> {
    let bytes = contents(directory)?.unwrap_or_default();
    Ok(bytes.get(MARK_BYTES..).and_then(parse))
}

fn contents(directory: &Path) -> io::Result<Option<Vec<u8>>> {
    match std::fs::read(directory.join(FILE)) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn parse(bytes: &[u8]) -> Option<u64> {
    let (number, rest) = bytes.split_first_chunk::<8>()?;
    let checksum = rest.first_chunk::<8>()?;
    (xxh3_64(number) == u64::from_le_bytes(*checksum)).then_some(u64::from_le_bytes(*number))
}

fn with_checksum(number: u64) -> [u8; MARK_BYTES] {
    let number = number.to_le_bytes();
    let mut bytes = [0; MARK_BYTES];
    bytes[..8].copy_from_slice(&number);
    bytes[8..].copy_from_slice(&xxh3_64(&number).to_le_bytes());
    bytes
}

/// The commit numbers of an open store.
#[derive(Debug)]
pub(crate) struct Marks {
    file: File,
    /// The commit that was begun last.
    number: AtomicU64,
    /// The commit that succeeded last.
    done: AtomicU64,
}

impl Marks {
    /// Opens or creates the file, and continues behind the commit `last` and any that was refused.
    pub(crate) fn open(directory: &Path, last: u64) -> io::Result<Self> {
        let refused = refused(directory)?.unwrap_or_default();
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(directory.join(FILE))?;
        file.write_all_at(&with_checksum(last), 0)?;
        if file.metadata()?.len() <= REFUSED_AT {
            // The place is there before the disk is full.
            file.write_all_at(&[0; MARK_BYTES], REFUSED_AT)?;
        }
        let last = last.max(refused);
        Ok(Self { file, number: AtomicU64::new(last), done: AtomicU64::new(last) })
    }

    /// The number of the commit that begins now.
    pub(crate) fn begin(&self) -> u64 {
        self.number.fetch_add(1, Relaxed) + 1
    }

    /// Notes that the last commit has succeeded.
    pub(crate) fn succeeded(&self) {
        self.done.store(self.number.load(Relaxed), Relaxed);
    }

    /// The number of the last commit, if it has not succeeded.
    pub(crate) fn failed(&self) -> Option<u64> {
        let number = self.number.load(Relaxed);
        (number != self.done.load(Relaxed)).then_some(number)
    }

    /// Notes in the file that all commits up to now are written.
    pub(crate) fn write(&self) -> io::Result<()> {
        self.file.write_all_at(&with_checksum(self.done.load(Relaxed)), 0)
    }

    /// Notes in the file, on the disk, that this commit is refused.
    pub(crate) fn refuse(&self, number: u64) -> io::Result<()> {
        self.file.write_all_at(&with_checksum(number), REFUSED_AT)?;
        self.file.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_comes_back_and_a_damaged_one_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let read = || Found::read(directory.path()).unwrap();
        assert_eq!(read(), Found::Nothing);
        let marks = Marks::open(directory.path(), 7).unwrap();
        assert_eq!((read(), marks.begin(), marks.failed()), (Found::Commit(7), 8, Some(8)));
        marks.succeeded();
        assert_eq!(marks.failed(), None);
        marks.write().unwrap();
        assert_eq!(read(), Found::Commit(8));
        let path = directory.path().join(FILE);
        let whole = std::fs::read(&path).unwrap();
        for at in 0..16 {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            std::fs::write(&path, bytes).unwrap();
            assert_eq!(read(), Found::Damaged, "byte {at}");
            std::fs::write(&path, &whole[..at]).unwrap();
            assert_eq!(read(), Found::Damaged, "cut at {at}");
        }
    }

    #[test]
    fn a_refused_number_is_not_used_again_and_the_last_commit_stays() {
        let directory = tempfile::tempdir().unwrap();
        let marks = Marks::open(directory.path(), 7).unwrap();
        assert_eq!(refused(directory.path()).unwrap(), None);
        assert_eq!(marks.begin(), 8);
        marks.refuse(8).unwrap();
        drop(marks);
        let marks = Marks::open(directory.path(), 7).unwrap();
        let read = (Found::read(directory.path()).unwrap(), refused(directory.path()).unwrap());
        assert_eq!(read, (Found::Commit(7), Some(8)));
        assert_eq!(marks.begin(), 9);
        marks.succeeded();
        marks.write().unwrap();
        let read = (Found::read(directory.path()).unwrap(), refused(directory.path()).unwrap());
        assert_eq!(read, (Found::Commit(9), Some(8)));
    }

    #[test]
    fn a_file_of_an_earlier_release_has_refused_nothing() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join(FILE), with_checksum(7)).unwrap();
        assert_eq!(refused(directory.path()).unwrap(), None);
        let marks = Marks::open(directory.path(), 7).unwrap();
        assert_eq!(marks.begin(), 8);
        marks.refuse(8).unwrap();
        assert_eq!(refused(directory.path()).unwrap(), Some(8));
    }
}
