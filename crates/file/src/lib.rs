//! The one way to read a file that an operator hands over: configuration, users, rules, keys, certificates.
//!
//! What has such a name need not be a file. To open a FIFO takes until somebody writes to it, and a device may never
//! end: either would stop the thread that watches the files, and with it the answers to signals and to the watchdog.
//! The descriptors of the process itself (`/dev/fd/63`, as shells write `<(command)`) are taken as they are.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::OFlags;

/// The largest file that is read whole: far above any of users, rules, keys or certificates.
pub const BYTES_MAX: u64 = 64 << 20;

/// Whether it is a descriptor that somebody has opened for this process.
fn is_descriptor(path: &Path) -> bool {
    path.starts_with("/dev/fd") || path.starts_with("/proc/self/fd") || path == Path::new("/dev/stdin")
}

/// Looks at a file without opening it.
///
/// # Errors
/// It is no regular file, or too large, or cannot be looked at.
pub fn check(path: &Path) -> io::Result<()> {
    if is_descriptor(path) {
        return Ok(());
    }
    judge(&std::fs::metadata(path)?)
}

/// The same for a file that need not be there, or that this process may not look at: who reads it is told that.
///
/// # Errors
/// It is there, and is no regular file or too large.
pub fn check_if_there(path: &Path) -> io::Result<()> {
    match check(path) {
        Err(error) if error.kind() == io::ErrorKind::Other || error.kind() == io::ErrorKind::IsADirectory => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Opens a file for reading.
///
/// # Errors
/// It is no regular file, or too large, or cannot be opened.
pub fn open(path: &Path) -> io::Result<File> {
    // Some devices do something when they are opened. What has the name may be another a moment later, which is why
    // what was opened is looked at too, and why that does not wait (open(2): O_NONBLOCK).
    if is_descriptor(path) {
        return File::open(path);
    }
    check(path)?;
    let file = OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)?;
    judge(&file.metadata()?)?;
    Ok(file)
}

/// Reads a whole file.
///
/// # Errors
/// As [`open`]; or reading fails, or finds more than [`BYTES_MAX`].
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let file = open(path)?;
    // The size is a hint: files of /proc have none, and one that is written grows.
    let mut bytes = Vec::with_capacity(usize::try_from(file.metadata()?.len()).unwrap_or_default());
    file.take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > BYTES_MAX { Err(too_large(bytes.len() as u64)) } else { Ok(bytes) }
}

/// Reads a whole file of text.
///
/// # Errors
/// As [`read`]; or the text is not UTF-8.
pub fn read_to_string(path: &Path) -> io::Result<String> {
    // In the words of the standard library, which operators have seen before.
    String::from_utf8(read(path)?)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "stream did not contain valid UTF-8"))
}

fn judge(found: &std::fs::Metadata) -> io::Result<()> {
    if found.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !found.is_file() {
        return Err(io::Error::other("is no regular file"));
    }
    if found.len() > BYTES_MAX { Err(too_large(found.len())) } else { Ok(()) }
}

fn too_large(bytes: u64) -> io::Error {
    io::Error::other(format!("has {} MiB, more than {}", bytes >> 20, BYTES_MAX >> 20))
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, Mode, mkfifoat};

    use super::*;

    #[test]
    fn only_regular_files_of_a_bounded_size_are_read() {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        std::fs::write(at("text"), "a\n").unwrap();
        assert_eq!(read_to_string(&at("text")).unwrap(), "a\n");
        std::fs::write(at("bytes"), [0xff]).unwrap();
        assert_eq!(read_to_string(&at("bytes")).unwrap_err().kind(), io::ErrorKind::InvalidData);
        mkfifoat(CWD, at("fifo"), Mode::RUSR | Mode::WUSR).unwrap();
        std::os::unix::fs::symlink("/dev/zero", at("device")).unwrap();
        File::create(at("large")).unwrap().set_len(BYTES_MAX + 1).unwrap();
        for name in ["fifo", "device", "large", "."] {
            assert!(read(&at(name)).is_err() && check_if_there(&at(name)).is_err(), "{name}");
        }
        assert_eq!(read(&at("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
        check_if_there(&at("none")).unwrap();
    }

    #[test]
    fn a_descriptor_of_the_process_is_read_to_its_end() {
        use std::io::Write as _;
        use std::os::fd::AsRawFd as _;

        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(b"a certificate").unwrap();
        drop(writer);
        assert_eq!(read(Path::new(&format!("/dev/fd/{}", reader.as_raw_fd()))).unwrap(), b"a certificate");
    }

    #[test]
    fn what_takes_the_name_of_a_file_in_between_is_not_waited_for() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("fifo");
        mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR).unwrap();
        // As `open` does behind its first look.
        let file = OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(&path);
        assert!(judge(&file.unwrap().metadata().unwrap()).is_err());
    }
}
