//! Copies of a store, at work or at rest, for backups.

use std::{fs, io, path::Path, time::Duration};

use fogmux_journal::{Disk, Files, LoanError, OpenError as JournalError, SegmentCopy, segment_at_rest};

use crate::{
    losses,
    open::{OpenError, SEGMENTS},
    store::{Engine, JournalStore},
};

/// How long a copy waits until the disk has what waits for it.
const PATIENCE: Duration = Duration::from_secs(10);

/// A file of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreFile {
    /// Its path in the directory of the store.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// Its beginning; the rest is zeros.
    pub content: Vec<u8>,
}

/// Why there is no copy.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// The journal did not lend its segments, or needed them.
    #[error(transparent)]
    Loan(#[from] LoanError),
    /// The store at rest cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A file cannot be read, or what takes the copy failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl JournalStore {
    /// Gives `take` the files of a copy. Everything that was acknowledged before is in it. The store goes on meanwhile;
    /// its files grow by no more than they have. Blocks for the disk. Returns the number of blocks that
    /// the medium did not give.
    ///
    /// # Errors
    /// [`CopyError`], or an error of `take`.
    pub fn copy(&self, take: &mut dyn FnMut(StoreFile) -> io::Result<()>) -> Result<u64, CopyError> {
        let mut unreadable = 0;
        match self.engine() {
            Engine::Running(committer) => {
                self.held().iter().for_each(|held| held.release_all());
                let mut loan = committer.lend(PATIENCE)?;
                while let Some(segment) = loan.next_segment()? {
                    unreadable += segment.unreadable_blocks;
                    take(file(segment))?;
                }
            }
            Engine::ReadOnly(_, disk) => unreadable = segments(&**disk, take)?,
            Engine::Nothing => {}
        }
        losses(self.path(), take)?;
        Ok(unreadable)
    }
}

/// Gives `take` the files of a store that no process has open. Nothing is changed. Returns as [`JournalStore::copy`].
///
/// # Errors
/// [`OpenError::InUse`] if a process has it, others as [`JournalStore::copy`].
pub fn copy_at_rest(path: &Path, take: &mut dyn FnMut(StoreFile) -> io::Result<()>) -> Result<u64, CopyError> {
    let directory = path.join(SEGMENTS);
    let unreadable = match Files::open_to_read(&directory) {
        Ok(files) => segments(&files, take)?,
        Err(JournalError::Io { error, .. }) if error.kind() == io::ErrorKind::NotFound => 0,
        Err(error) => return Err(OpenError::from(error).into()),
    };
    losses(path, take)?;
    Ok(unreadable)
}

fn segments(disk: &dyn Disk, take: &mut dyn FnMut(StoreFile) -> io::Result<()>) -> io::Result<u64> {
    let mut unreadable = 0;
    for (slot, bytes) in disk.list()? {
        let segment = segment_at_rest(disk, slot, bytes)?;
        unreadable += segment.unreadable_blocks;
        take(file(segment))?;
    }
    Ok(unreadable)
}

fn file(SegmentCopy { slot, bytes, content, .. }: SegmentCopy) -> StoreFile {
    StoreFile { name: format!("{SEGMENTS}/{}", Files::name(slot)), bytes: u64::from(bytes), content }
}

fn losses(path: &Path, take: &mut dyn FnMut(StoreFile) -> io::Result<()>) -> io::Result<()> {
    match fs::read(path.join(losses::FILE)) {
        Ok(content) => take(StoreFile { name: losses::FILE.to_owned(), bytes: content.len() as u64, content }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}
