//! Cuts a torn tail from the database's journals before the database reads them.
//!
//! A power cut leaves the end of a journal half-written, and pages reach the disk in any order: the last batch may
//! have its end but not its middle. The database cuts a batch without an end itself, but refuses to start when a batch
//! is whole in length and wrong in checksum, and trusts a damaged length. So each journal is walked first, and cut
//! behind its last good batch, and before a commit that was refused to its publishers ([`marks`]). The walk allocates
//! nothing, whatever the lengths say.
//!
//! The format is that of `fjall` 3: a batch is Start (tag 1, number of items u32, sequence u64), items, and End
//! (tag 3, xxh3 of the items' bytes u64, `FJL` 3); an item is tag 2, type u8, compression u8, keyspace u64, length of
//! the key u16, of the value u32, of the value as stored u32, key, value; a Clear is tag 4 and keyspace u64. A test
//! holds this against what the database writes.

use std::{
    fs::{File, OpenOptions},
    io::{self, BufRead as _, BufReader, Read, Seek},
    path::Path,
};

use xxhash_rust::xxh3::Xxh3;

use crate::marks;

const START: u8 = 1;
const ITEM: u8 = 2;
const END: u8 = 3;
const CLEAR: u8 = 4;
const MAGIC: [u8; 4] = *b"FJL\x03";
const READ_BYTES: usize = 64 << 10;
const TAIL_BYTES: u64 = 1 << 20;

/// The result of cutting the journals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cut {
    /// Bytes of torn tails, other than padding.
    pub(crate) torn_bytes: u64,
    /// Commits that were whole, and refused to their publishers.
    pub(crate) refused: u64,
}

/// Cuts the torn tails of all journals in a directory, and the commit with the number `refused`. `damaged` is called
/// before a journal is cut in which other batches follow the damage; if it fails, nothing is cut.
pub(crate) fn cut(
    directory: &Path,
    refused: Option<u64>,
    damaged: &mut dyn FnMut(&Path) -> io::Result<()>,
) -> io::Result<Cut> {
    let mut cut = Cut::default();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "jnl") && path.is_file() {
            cut_one(&path, refused, damaged, &mut cut)?;
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

/// Whether a journal holds nothing but padding.
pub(crate) fn is_blank(path: &Path) -> io::Result<bool> {
    let mut reader = BufReader::with_capacity(READ_BYTES, File::open(path)?);
    loop {
        let bytes = reader.fill_buf()?;
        if bytes.is_empty() {
            return Ok(true);
        }
        if bytes.iter().any(|&byte| byte != 0) {
            return Ok(false);
        }
        let count = bytes.len();
        reader.consume(count);
    }
}

fn cut_one(
    path: &Path,
    refused: Option<u64>,
    damaged: &mut dyn FnMut(&Path) -> io::Result<()>,
    cut: &mut Cut,
) -> io::Result<()> {
    let good = Walk::new(File::open(path)?, refused).good_bytes()?;
    let shorten = || {
        let file = OpenOptions::new().write(true).open(path)?;
        file.set_len(good.bytes)?;
        file.sync_all()
    };
    // A store that refused a commit has written none behind it.
    if good.is_refused_behind {
        cut.refused += 1;
        return shorten();
    }
    let tail = tail(path, good.bytes)?;
    let torn = tail.iter().rposition(|&byte| byte != 0).map_or(0, |index| index as u64 + 1);
    if torn > 0 {
        if tail.windows(MAGIC.len()).any(|bytes| bytes == MAGIC) {
            damaged(path)?;
        }
        shorten()?;
        cut.torn_bytes += torn;
    }
    Ok(())
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
    /// The number of a commit that does not count.
    refused: Option<u64>,
    /// The number of the commit in this batch.
    commit: Option<u64>,
}

/// The whole batches at the beginning of a journal.
struct Good {
    bytes: u64,
    /// Whether the commit behind them is the refused one.
    is_refused_behind: bool,
}

/// The end of the readable part: end of file or damage, which are treated alike.
struct Torn;

impl Walk<BufReader<File>> {
    fn new(file: File, refused: Option<u64>) -> Self {
        let reader = BufReader::with_capacity(READ_BYTES, file);
        Self { reader, position: 0, hasher: Xxh3::new(), refused, commit: None }
    }
}

impl<R: Read> Walk<R> {
    /// The length of the whole batches at the beginning, up to the refused one.
    fn good_bytes(mut self) -> io::Result<Good> {
        let mut bytes = 0;
        while self.batch()?.is_ok() {
            if self.commit.is_some() && self.commit == self.refused {
                return Ok(Good { bytes, is_refused_behind: true });
            }
            bytes = self.position;
        }
        Ok(Good { bytes, is_refused_behind: false })
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
        self.commit = None;
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
                let key = u16::from_le_bytes(self.take()?);
                self.take::<4>()?;
                let value = u32::from_le_bytes(self.take()?);
                if usize::from(key) == marks::KEY.len() && value == u64::BITS / 8 {
                    self.commit_or_other()?;
                } else {
                    self.skip(u64::from(key) + u64::from(value))?;
                }
                Ok(true)
            }
            [CLEAR] => {
                self.take::<8>()?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    // A key and a value as long as those of the commit's number.
    fn commit_or_other(&mut self) -> io::Result<()> {
        let key: [u8; marks::KEY.len()] = self.take()?;
        let value = u64::from_le_bytes(self.take()?);
        if key == *marks::KEY {
            self.commit = Some(value);
        }
        Ok(())
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
