//! Commit numbers, by which a loss of commits is noticed.
//!
//! The number of the last commit is in a small file beside the database's own, and in each keyspace, written in the
//! same batch as the values. A keyspace or journal that is lost takes its number with it, and the difference shows when
//! the store is opened. The file is written in place once the commit is as safe as the durability asks, and never
//! synchronised: it may be behind, never ahead.

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

/// The contents of the file.
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
        match std::fs::read(directory.join(FILE)) {
            Ok(bytes) => Ok(parse(&bytes).map_or(Self::Damaged, Self::Commit)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::Nothing),
            Err(error) => Err(error),
        }
    }

    /// The number, or 0.
    pub(crate) const fn number(self) -> u64 {
        match self {
            Self::Nothing | Self::Damaged => 0,
            Self::Commit(number) => number,
        }
    }
}

fn parse(bytes: &[u8]) -> Option<u64> {
    let (number, rest) = bytes.split_first_chunk::<8>()?;
    let checksum = rest.first_chunk::<8>()?;
    (xxh3_64(number) == u64::from_le_bytes(*checksum)).then_some(u64::from_le_bytes(*number))
}

/// The commit numbers of an open store.
#[derive(Debug)]
pub(crate) struct Marks {
    file: File,
    number: AtomicU64,
}

impl Marks {
    /// Opens or creates the file, and continues from `number`.
    pub(crate) fn open(directory: &Path, number: u64) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(directory.join(FILE))?;
        let marks = Self { file, number: AtomicU64::new(number) };
        marks.write()?;
        Ok(marks)
    }

    /// The number of the next commit.
    pub(crate) fn advance(&self) -> u64 {
        self.number.fetch_add(1, Relaxed) + 1
    }

    /// Notes in the file that all commits up to now are written.
    pub(crate) fn write(&self) -> io::Result<()> {
        let number = self.number.load(Relaxed).to_le_bytes();
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&number);
        bytes[8..].copy_from_slice(&xxh3_64(&number).to_le_bytes());
        self.file.write_all_at(&bytes, 0)
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
        assert_eq!((read(), marks.advance()), (Found::Commit(7), 8));
        marks.write().unwrap();
        assert_eq!(read(), Found::Commit(8));
        let path = directory.path().join(FILE);
        let whole = std::fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            std::fs::write(&path, bytes).unwrap();
            assert_eq!(read(), Found::Damaged, "byte {at}");
            std::fs::write(&path, &whole[..at]).unwrap();
            assert_eq!(read(), Found::Damaged, "cut at {at}");
        }
    }
}
