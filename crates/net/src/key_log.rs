//! Secrets of connections in a file (`SSLKEYLOGFILE`, draft-ietf-tls-keylogfile), so that Wireshark can read a capture
//! of them. Clients of ours write it when they are told to; the gateway never does.

use std::{
    fmt,
    fs::File,
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
    sync::{Mutex, PoisonError},
};

use rustls::KeyLog;

/// A file that secrets are appended to.
pub struct KeyLogFile(Mutex<File>);

impl KeyLogFile {
    /// Opens the file, or makes it for its owner alone.
    ///
    /// # Errors
    /// The file system's.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(Mutex::new(File::options().append(true).create(true).mode(0o600).open(path)?)))
    }

    /// Appends a line that some stack has made. One that cannot be written is missing in the file, and nowhere else.
    pub fn line(&self, line: &str) {
        // One write, so that lines of several processes do not mix.
        let line = format!("{line}\n");
        let _ = self.0.lock().unwrap_or_else(PoisonError::into_inner).write_all(line.as_bytes());
    }
}

impl KeyLog for KeyLogFile {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        self.line(&format!("{label} {} {}", Hex(client_random), Hex(secret)));
    }
}

impl fmt::Debug for KeyLogFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyLogFile").finish_non_exhaustive()
    }
}

struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn lines_are_appended_for_the_owner_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys");
        KeyLogFile::open(&path).unwrap().log("CLIENT_RANDOM", &[0x0a, 0xff], &[1]);
        KeyLogFile::open(&path).unwrap().line("# end");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "CLIENT_RANDOM 0aff 01\n# end\n");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
