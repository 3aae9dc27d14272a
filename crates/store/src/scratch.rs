//! A copy of a store in memory, because the database writes while it opens, which a full or read-only disk refuses.

use std::{
    fs::{self, DirBuilder, File},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

const CHUNK_BYTES: usize = 64 << 10;
/// The largest copy in bytes: twice the retained messages of the largest configuration we know of.
const COPY_BYTES_MAX: u64 = 512 << 20;

/// A private directory, removed on drop.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// Copies `store` into the first suitable directory. Returns the copy and the path of the store in it.
    pub(crate) fn copy(store: &Path) -> io::Result<(Self, PathBuf)> {
        let mut last = io::Error::other("there is no place for a copy");
        for place in places() {
            match Self::within(&place).and_then(|scratch| scratch.fill(store)) {
                Ok(made) => return Ok(made),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn within(place: &Path) -> io::Result<Self> {
        let nanos = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let directory = place.join(format!("fogmux-{}-{nanos}", std::process::id()));
        // Fails if another user has created it before us.
        DirBuilder::new().mode(0o700).create(&directory)?;
        Ok(Self(directory))
    }

    fn fill(self, store: &Path) -> io::Result<(Self, PathBuf)> {
        let copy = self.0.join("store");
        let mut left = COPY_BYTES_MAX;
        copy_directory(store, &copy, &mut left)?;
        Ok((self, copy))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Files that cannot be removed are private, and in memory until the machine restarts.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Directories for a copy, those in memory first.
fn places() -> Vec<PathBuf> {
    let runtime = std::env::var_os("RUNTIME_DIRECTORY").map(PathBuf::from);
    let mut places: Vec<_> = runtime.into_iter().filter(|path| path.is_absolute()).collect();
    places.extend(["/dev/shm".into(), "/run".into(), std::env::temp_dir()]);
    places
}

fn copy_directory(from: &Path, to: &Path, left: &mut u64) -> io::Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (kind, to) = (entry.file_type()?, to.join(entry.file_name()));
        if kind.is_dir() {
            copy_directory(&entry.path(), &to, left)?;
        } else if kind.is_file() {
            copy_file(&entry.path(), &to, left)?;
        }
    }
    Ok(())
}

/// Copies a file and subtracts the bytes written from `left`. Holes stay holes: journals are 64 MiB long and mostly
/// empty.
pub(crate) fn copy_file(from: &Path, to: &Path, left: &mut u64) -> io::Result<()> {
    let (mut from, mut to) = (File::open(from)?, File::create_new(to)?);
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut length = 0_u64;
    loop {
        let count = from.read(&mut chunk)?;
        let Some(bytes) = chunk.get(..count).filter(|bytes| !bytes.is_empty()) else { break };
        length += count as u64;
        if bytes.iter().all(|&byte| byte == 0) {
            to.seek(SeekFrom::Start(length))?;
            continue;
        }
        *left = left.checked_sub(count as u64).ok_or_else(|| io::Error::other("too large to be copied into memory"))?;
        to.write_all(bytes)?;
    }
    to.set_len(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_byte_for_byte_and_goes_with_its_handle() {
        let store = tempfile::tempdir().unwrap();
        let mut journal = vec![0; 3 * CHUNK_BYTES + 5];
        journal[2 * CHUNK_BYTES] = 1;
        fs::create_dir(store.path().join("below")).unwrap();
        fs::write(store.path().join("below/0.jnl"), &journal).unwrap();
        let (scratch, copy) = Scratch::copy(store.path()).unwrap();
        assert!(fs::read(copy.join("below/0.jnl")).unwrap() == journal);
        drop(scratch);
        assert!(!copy.exists());
    }
}
