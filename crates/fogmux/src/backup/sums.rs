//! An archive with the sums of its files, as it is written.

use std::io::{self, Write};

use sha2::{Digest as _, Sha256};

use super::tar;

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

    /// Adds a file of so many bytes, of which `content` is the beginning; the rest is zeros.
    pub(super) fn add_padded(&mut self, name: &str, bytes: u64, content: &[u8]) -> io::Result<()> {
        if name.contains(['\n', '\\']) {
            return Err(io::Error::other(format!("{name:?} is no name for a file of an archive")));
        }
        let mut sum = Sha256::new();
        tar::write_header(self.out, name, bytes)?;
        self.out.write_all(content)?;
        sum.update(content);
        let mut left = bytes.saturating_sub(content.len() as u64);
        while left > 0 {
            let zeros = ZEROS.get(..usize::try_from(left).unwrap_or(ZEROS.len()).min(ZEROS.len())).unwrap_or_default();
            self.out.write_all(zeros)?;
            sum.update(zeros);
            left -= zeros.len() as u64;
        }
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
