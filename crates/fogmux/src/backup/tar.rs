//! The part of the tar format that backups need (POSIX.1-2017, pax utility): regular files, and extended headers for
//! paths that a ustar header has no room for. Written and read by hand, because what is read is not to be trusted.

use std::io::{self, Read, Write};

/// Everything is in blocks of this size.
const BLOCK: usize = 512;
/// The longest name in a ustar header.
const NAME_MAX: usize = 100;
/// The longest path in an extended header that is read.
const PATH_MAX: u64 = 4096;
/// The position of the checksum in a header.
const CHECKSUM: std::ops::Range<usize> = 148..156;

/// Writes a header and, for a long name, an extended one before it. `bytes` bytes of content and [`pad`] follow.
pub(super) fn write_header(out: &mut dyn Write, name: &str, bytes: u64) -> io::Result<()> {
    if name.len() > NAME_MAX {
        let record = record("path", name);
        out.write_all(&header("pax", record.len() as u64, b'x')?)?;
        out.write_all(record.as_bytes())?;
        pad(out, record.len() as u64)?;
    }
    let mut end = name.len().min(NAME_MAX);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    out.write_all(&header(name.get(..end).unwrap_or_default(), bytes, b'0')?)
}

/// Fills the last block of a file.
pub(super) fn pad(out: &mut dyn Write, bytes: u64) -> io::Result<()> {
    out.write_all([0; BLOCK].get(..padding(bytes)).unwrap_or_default())
}

/// Writes the two blocks of zeros that end an archive.
pub(super) fn end(out: &mut dyn Write) -> io::Result<()> {
    out.write_all(&[0; 2 * BLOCK])
}

fn padding(bytes: u64) -> usize {
    usize::try_from(bytes.next_multiple_of(BLOCK as u64) - bytes).unwrap_or_default()
}

/// `LENGTH KEY=VALUE\n`, where the length counts itself.
fn record(key: &str, value: &str) -> String {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while length != rest + length.to_string().len() {
        length = rest + length.to_string().len();
    }
    format!("{length} {key}={value}\n")
}

fn header(name: &str, bytes: u64, kind: u8) -> io::Result<[u8; BLOCK]> {
    let mut header = [0; BLOCK];
    let mut put = |at: usize, text: &[u8]| {
        if let Some(field) = header.get_mut(at..at + text.len()) {
            field.copy_from_slice(text);
        }
    };
    if bytes >= 1 << 33 {
        return Err(io::Error::other("a file is too large for the archive"));
    }
    put(0, name.as_bytes());
    put(100, b"0000600\0");
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    put(124, format!("{bytes:011o}\0").as_bytes());
    put(136, b"00000000000\0");
    put(156, &[kind]);
    put(257, b"ustar\x0000");
    let sum = checksum(&header);
    header[CHECKSUM].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    Ok(header)
}

/// The sum of all bytes, those of the sum itself taken for spaces.
fn checksum(header: &[u8; BLOCK]) -> u32 {
    let own = header[CHECKSUM].iter().map(|byte| u32::from(*byte)).sum::<u32>();
    header.iter().map(|byte| u32::from(*byte)).sum::<u32>() - own + 8 * u32::from(b' ')
}

/// An error that says what is wrong with an archive.
pub(super) fn malformed(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.to_owned())
}

/// Reads the files of an archive in their order.
pub(super) struct Reader<R> {
    from: R,
    /// Bytes of the present file that were not read.
    left: u64,
    /// The padding behind them.
    padding: usize,
}

impl<R: Read> Reader<R> {
    pub(super) fn new(from: R) -> Self {
        Self { from, left: 0, padding: 0 }
    }

    /// The next file: its path and length. `None` at the end, behind which there are only zeros.
    pub(super) fn next_file(&mut self) -> io::Result<Option<(String, u64)>> {
        let mut path = None;
        loop {
            self.skip()?;
            let Some(header) = self.header()? else {
                return if path.is_none() { self.rest().map(|()| None) } else { Err(malformed("a file is missing")) };
            };
            let bytes = octal(&header[124..136])?;
            (self.left, self.padding) = (bytes, padding(bytes));
            match header[156] {
                b'0' => {
                    let name = match path {
                        Some(path) => path,
                        None => text(&header[..NAME_MAX])?,
                    };
                    if header[345..500].iter().any(|byte| *byte != 0) {
                        return Err(malformed("a path has a prefix, which backups do not have"));
                    }
                    return Ok(Some((name, bytes)));
                }
                b'x' if path.is_none() && bytes <= PATH_MAX => path = Some(self.path()?),
                _ => return Err(malformed("there is something else than regular files in it")),
            }
        }
    }

    fn skip(&mut self) -> io::Result<()> {
        if self.left > 0 {
            return Err(malformed("a file was not read to its end"));
        }
        let padding = std::mem::take(&mut self.padding);
        let mut block = [0; BLOCK];
        let block = block.get_mut(..padding).unwrap_or_default();
        self.from.read_exact(block)?;
        if block.iter().all(|byte| *byte == 0) { Ok(()) } else { Err(malformed("padding is not zero")) }
    }

    /// `None` for the block of zeros that begins the end.
    fn header(&mut self) -> io::Result<Option<[u8; BLOCK]>> {
        let mut header = [0; BLOCK];
        self.from.read_exact(&mut header)?;
        if header.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        if octal(&header[CHECKSUM])? != u64::from(checksum(&header)) || header[257..263] != *b"ustar\0" {
            return Err(malformed("it is no backup, or is damaged"));
        }
        Ok(Some(header))
    }

    /// The path in an extended header, which has nothing else.
    fn path(&mut self) -> io::Result<String> {
        let mut content = String::new();
        self.read_to_string(&mut content)?;
        let path = content.split_once(" path=").and_then(|(_, path)| path.strip_suffix('\n'));
        let path = path.filter(|path| record("path", path) == content);
        path.map(str::to_owned).ok_or_else(|| malformed("an extended header is not one of a backup"))
    }

    /// A whole block of zeros at least.
    fn rest(&mut self) -> io::Result<()> {
        let mut rest = Vec::new();
        self.from.by_ref().take(64 << 10).read_to_end(&mut rest)?;
        let zeros = rest.len() >= BLOCK && rest.iter().all(|byte| *byte == 0);
        if zeros { Ok(()) } else { Err(malformed("its end is missing, or something follows it")) }
    }
}

/// Reads the present file.
impl<R: Read> Read for Reader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let wanted = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let Some(buffer) = buffer.get_mut(..wanted).filter(|buffer| !buffer.is_empty()) else { return Ok(0) };
        let read = self.from.read(buffer)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.left -= read as u64;
        Ok(read)
    }
}

fn text(field: &[u8]) -> io::Result<String> {
    let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
    let text = field.get(..end).unwrap_or_default();
    String::from_utf8(text.to_vec()).map_err(|_| malformed("a path is not UTF-8"))
}

fn octal(field: &[u8]) -> io::Result<u64> {
    let text = text(field)?;
    u64::from_str_radix(text.trim(), 8).map_err(|_| malformed("a number is not octal"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn archive(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut out = Vec::new();
        for (name, content) in files {
            write_header(&mut out, name, content.len() as u64).unwrap();
            out.extend(*content);
            pad(&mut out, content.len() as u64).unwrap();
        }
        end(&mut out).unwrap();
        out
    }

    fn read(bytes: &[u8]) -> io::Result<Vec<(String, Vec<u8>)>> {
        let mut reader = Reader::new(bytes);
        let mut files = Vec::new();
        while let Some((name, _)) = reader.next_file()? {
            let mut content = Vec::new();
            reader.read_to_end(&mut content)?;
            files.push((name, content));
        }
        Ok(files)
    }

    #[test]
    fn what_is_written_is_read_whatever_its_size_and_name() {
        let long = format!("data/{}/é{}", "d".repeat(99), "f".repeat(255));
        let border = "é".repeat(50) + "x";
        let contents: Vec<Vec<u8>> = [0, 1, 511, 512, 513, 5000].iter().map(|size| vec![7; *size]).collect();
        let names = ["a", &border, &long, "b/c", "d", "e"];
        let files: Vec<(&str, &[u8])> = names.into_iter().zip(contents.iter().map(Vec::as_slice)).collect();
        let read = read(&archive(&files)).unwrap();
        let expected: Vec<_> = files.iter().map(|(name, content)| ((*name).to_owned(), content.to_vec())).collect();
        assert_eq!(read, expected);
    }

    #[test]
    fn the_length_of_a_record_counts_itself() {
        for length in 1..2_000 {
            let text = record("path", &"p".repeat(length));
            assert_eq!(text.split_once(' ').unwrap().0.parse::<usize>().unwrap(), text.len());
        }
    }

    #[test]
    fn whatever_is_cut_off_or_appended_is_noticed() {
        let whole = archive(&[("a", b"content"), ("b", &[1; 600])]);
        for end in 0..whole.len() - BLOCK {
            assert!(read(&whole[..end]).is_err(), "{end}");
        }
        let mut more = whole.clone();
        more.extend(b"more");
        assert!(read(&more).is_err());
        more.truncate(whole.len());
        more.extend([0; 10 * BLOCK]);
        assert_eq!(read(&more).unwrap().len(), 2, "tar fills up records of twenty blocks");
    }

    #[test]
    fn links_and_directories_are_refused() {
        for kind in [b'1', b'2', b'5', b'3', b'L', b'g', 0, b'7'] {
            let mut bytes = header("a", 0, kind).unwrap().to_vec();
            end(&mut bytes).unwrap();
            assert!(read(&bytes).is_err(), "{kind}");
        }
    }

    /// Foreign bytes never panic, whatever they are.
    #[test]
    fn any_bytes_are_an_error_or_files() {
        let whole = archive(&[("a", b"content"), (&"n".repeat(200), &[1; 600])]);
        for at in 0..whole.len() {
            for value in [0, 0x37, 0x7f, 0xff] {
                let mut changed = whole.clone();
                changed[at] = value;
                let _ = read(&changed);
            }
        }
    }
}
