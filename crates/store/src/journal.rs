//! Cuts a torn tail from the database's journals before the database reads them.
//!
//! A power cut leaves the end of a journal half-written, and pages reach the disk in any order: the last batch may
//! have its end but not its middle. The database cuts a batch without an end itself, but refuses to start when a batch
//! is whole in length and wrong in checksum, and trusts a damaged length. So each journal is walked first, and cut
//! behind its last good batch. The walk allocates nothing, whatever the lengths say.
//!
//! The format is that of `fjall` 3: a batch is Start (tag 1, number of items u32, sequence u64), items, and End
//! (tag 3, xxh3 of the items' bytes u64, `FJL` 3); an item is tag 2, type u8, compression u8, keyspace u64, length of
//! the key u16, of the value u32, of the value as stored u32, key, value; a Clear is tag 4 and keyspace u64. A test
//! holds this against what the database writes.

use std::{
    fs::{File, OpenOptions},
    io::{self, BufReader, Read, Seek},
    path::Path,
};

use xxhash_rust::xxh3::Xxh3;

const START: u8 = 1;
const ITEM: u8 = 2;
const END: u8 = 3;
const CLEAR: u8 = 4;
const MAGIC: [u8; 4] = *b"FJL\x03";
const READ_BYTES: usize = 64 << 10;
const TAIL_BYTES: u64 = 1 << 20;

/// Cuts the torn tails of all journals in a directory. Returns how many bytes other than padding were cut. `damaged` is
/// called before a journal is cut in which other batches follow the damage.
pub(crate) fn cut_torn_tails(directory: &Path, damaged: &mut dyn FnMut(&Path)) -> io::Result<u64> {
    let mut cut = 0;
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "jnl") && path.is_file() {
            cut += cut_torn_tail(&path, damaged)?;
        }
    }
    Ok(cut)
}

/// The numbers of the journals in a directory, in order.
pub(crate) fn numbers(directory: &Path) -> io::Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let name = entry?.file_name();
        numbers.extend(name.to_str().and_then(|name| name.strip_suffix(".jnl")?.parse::<u64>().ok()));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

fn cut_torn_tail(path: &Path, damaged: &mut dyn FnMut(&Path)) -> io::Result<u64> {
    let good = Walk::new(File::open(path)?).good_bytes()?;
    let tail = tail(path, good)?;
    let torn = tail.iter().rposition(|&byte| byte != 0).map_or(0, |index| index as u64 + 1);
    if torn > 0 {
        if tail.windows(MAGIC.len()).any(|bytes| bytes == MAGIC) {
            damaged(path);
        }
        let file = OpenOptions::new().write(true).open(path)?;
        file.set_len(good)?;
        file.sync_all()?;
    }
    Ok(torn)
}

// The first MiB behind `start`. Journals are made 64 MiB long and filled: zeros at the end are no torn write, and the
// database itself stops where zeros begin.
fn tail(path: &Path, start: u64) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    file.seek(io::SeekFrom::Start(start))?;
    let mut tail = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut tail)?;
    Ok(tail)
}

struct Walk<R> {
    reader: R,
    position: u64,
    hasher: Xxh3,
}

/// The end of the readable part: end of file or damage, which are treated alike.
struct Torn;

impl Walk<BufReader<File>> {
    fn new(file: File) -> Self {
        Self { reader: BufReader::with_capacity(READ_BYTES, file), position: 0, hasher: Xxh3::new() }
    }
}

impl<R: Read> Walk<R> {
    /// The length of the whole batches at the beginning.
    fn good_bytes(mut self) -> io::Result<u64> {
        let mut good = 0;
        while self.batch()?.is_ok() {
            good = self.position;
        }
        Ok(good)
    }

    fn batch(&mut self) -> io::Result<Result<(), Torn>> {
        match self.batch_or_end() {
            Ok(whole) => Ok(if whole { Ok(()) } else { Err(Torn) }),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(Err(Torn)),
            Err(error) => Err(error),
        }
    }

    // Whether a whole, good batch was read.
    fn batch_or_end(&mut self) -> io::Result<bool> {
        if self.take::<1>()? != [START] {
            return Ok(false);
        }
        let items = u32::from_le_bytes(self.take()?);
        self.take::<8>()?;
        self.hasher.reset();
        for _ in 0..items {
            if !self.item()? {
                return Ok(false);
            }
        }
        let checksum = self.hasher.digest();
        if self.take::<1>()? != [END] {
            return Ok(false);
        }
        Ok(u64::from_le_bytes(self.take()?) == checksum && self.take()? == MAGIC)
    }

    fn item(&mut self) -> io::Result<bool> {
        match self.take()? {
            [ITEM] => {
                self.take::<10>()?;
                let key = u64::from(u16::from_le_bytes(self.take()?));
                self.take::<4>()?;
                let value = u64::from(u32::from_le_bytes(self.take()?));
                self.skip(key + value)?;
                Ok(true)
            }
            [CLEAR] => {
                self.take::<8>()?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    fn take<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.reader.read_exact(&mut bytes)?;
        self.hasher.update(&bytes);
        self.position += N as u64;
        Ok(bytes)
    }

    fn skip(&mut self, mut count: u64) -> io::Result<()> {
        let mut buffer = [0; 4096];
        while count > 0 {
            let wanted = usize::try_from(count).map_or(buffer.len(), |count| count.min(buffer.len()));
            let part = buffer.get_mut(..wanted).unwrap_or_default();
            self.reader.read_exact(part)?;
            self.hasher.update(part);
            self.position += part.len() as u64;
            count -= part.len() as u64;
        }
        Ok(())
    }
}
