//! An archive with the sums of its files, as it is written.

use std::io::{self, Read, Write};

use sha2::{Digest as _, Sha256};

use super::tar;

/// Bytes of a file that are read at a time.
const COPY_BYTES: usize = 64 << 10;
/// Zeros at the end of a segment.
const ZEROS: [u8; 16 << 10] = [0; 16 << 10];

/// Writes files, and their sums at the end.
pub(super) struct Summed<'a> {
    out: &'a mut dyn Write,
    /// `SUM  NAME` lines.
    sums: String,
    files: usize,
    bytes: u64,
}

impl<'a> Summed<'a> {
    pub(super) fn new(out: &'a mut dyn Write) -> Self {
        Self { out, sums: String::new(), files: 0, bytes: 0 }
    }

    pub(super) fn add(&mut self, name: &str, content: &[u8]) -> io::Result<()> {
        self.add_padded(name, content.len() as u64, content)
    }

    /// Adds a file of so many bytes, which are read a part at a time: it may be larger than the memory.
    pub(super) fn add_from(&mut self, name: &str, bytes: u64, from: &mut impl Read) -> io::Result<()> {
        let mut sum = self.begin(name, bytes)?;
        let mut buffer = vec![0; COPY_BYTES];
        let mut left = bytes;
        while left > 0 {
            let wanted = usize::try_from(left).unwrap_or(COPY_BYTES).min(COPY_BYTES);
            let part = buffer.get_mut(..wanted).unwrap_or_default();
            match from.read_exact(part) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Err(io::Error::other(format!("{name} became shorter while it was read")));
                }
                read => read?,
            }
            self.out.write_all(part)?;
            sum.update(&*part);
            left -= wanted as u64;
        }
        self.end(name, bytes, sum)
    }

    /// Adds a file of so many bytes, of which `content` is the beginning; the rest is zeros.
    pub(super) fn add_padded(&mut self, name: &str, bytes: u64, content: &[u8]) -> io::Result<()> {
        let mut sum = self.begin(name, bytes)?;
        self.out.write_all(content)?;
        sum.update(content);
        let mut left = bytes.saturating_sub(content.len() as u64);
        while left > 0 {
            let zeros = ZEROS.get(..usize::try_from(left).unwrap_or(ZEROS.len()).min(ZEROS.len())).unwrap_or_default();
            self.out.write_all(zeros)?;
            sum.update(zeros);
            left -= zeros.len() as u64;
        }
        self.end(name, bytes, sum)
    }

    fn begin(&mut self, name: &str, bytes: u64) -> io::Result<Sha256> {
        if name.contains(['\n', '\\']) {
            return Err(io::Error::other(format!("{name:?} is no name for a file of an archive")));
        }
        tar::write_header(self.out, name, bytes)?;
        Ok(Sha256::new())
    }

    fn end(&mut self, name: &str, bytes: u64, sum: Sha256) -> io::Result<()> {
        tar::pad(self.out, bytes)?;
        self.sums += &format!("{}  {name}\n", data_encoding::HEXLOWER.encode(&sum.finalize()));
        self.files += 1;
        self.bytes += bytes;
        Ok(())
    }

    /// Ends the archive. Returns the number of files, and their bytes.
    pub(super) fn finish(mut self, name: &str) -> io::Result<(usize, u64)> {
        let sums = std::mem::take(&mut self.sums);
        let (files, bytes) = (self.files, self.bytes);
        self.add(name, sums.as_bytes())?;
        tar::end(self.out)?;
        self.out.flush()?;
        Ok((files, bytes))
    }
}
