//! The file system that a broker writes to: ext4 in a file on a loop device of its own, so that what the file system
//! adds is counted and nobody else's writes are. It is in a mount namespace, which goes with its holder, and the device
//! goes with the mount, however a measurement ends.
//!
//! Where there is no loop device (no root, or a container), it is a directory, and only the process is counted.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

/// Bytes of the file system. Its file is sparse.
const BYTES: u64 = 512 << 20;
/// The block of ext4 and of the journal.
pub(crate) const BLOCK: u64 = 4096;
/// The unit of `/sys/dev/block/*/stat`.
const SECTOR: u64 = 512;

/// A file system, or a directory.
pub(crate) struct Medium {
    mount: Option<Mount>,
    /// The data directory as a broker sees it.
    data: PathBuf,
    /// The image and the place where it is mounted, or the directory.
    _home: TempDir,
}

/// A mount and its namespace.
struct Mount {
    holder: Child,
    /// Directory of the device in `/sys`.
    device: PathBuf,
}

impl Medium {
    /// An empty file system, mounted with these options.
    pub(crate) fn new(options: &str) -> Result<Self> {
        let home = tempfile::tempdir()?;
        let at = home.path().join("disk");
        fs::create_dir(&at)?;
        let mount = Mount::new(&home.path().join("image"), &at, options)?;
        let data = at.join("data");
        let medium = Self { mount, data, _home: home };
        fs::DirBuilder::new().mode(0o700).create(medium.seen())?;
        Ok(medium)
    }

    /// Whether writes of the device can be counted.
    pub(crate) const fn has_device(&self) -> bool {
        self.mount.is_some()
    }

    /// The data directory as a broker sees that was started with [`Medium::enter`].
    pub(crate) fn data(&self) -> &Path {
        &self.data
    }

    /// The data directory as it is seen from here.
    pub(crate) fn seen(&self) -> PathBuf {
        match &self.mount {
            Some(mount) => mount.root().join(self.data.strip_prefix("/").unwrap_or(&self.data)),
            None => self.data.clone(),
        }
    }

    /// The command that runs the command behind it where the file system is mounted; it does not become its parent.
    pub(crate) fn enter(&self) -> Vec<String> {
        let Some(mount) = &self.mount else { return Vec::new() };
        ["nsenter", "-t", &mount.holder.id().to_string(), "-m"].map(str::to_owned).into()
    }

    /// Has the kernel write everything that waits.
    pub(crate) fn sync(&self) -> Result<()> {
        let status = Command::new("sync").arg("-f").arg(self.seen()).status()?;
        ensure!(status.success(), "sync -f ended with {status}");
        Ok(())
    }

    /// Bytes that the device was given to write since it was made.
    pub(crate) fn device_bytes(&self) -> Result<Option<u64>> {
        let Some(mount) = &self.mount else { return Ok(None) };
        let stat = fs::read_to_string(mount.device.join("stat"))?;
        let sectors = stat.split_whitespace().nth(6).with_context(|| format!("no sectors in {stat:?}"))?;
        Ok(Some(sectors.parse::<u64>()? * SECTOR))
    }

    /// Bytes that files take on the disk.
    pub(crate) fn files_bytes(&self) -> u64 {
        files_bytes(&self.seen())
    }
}

/// Bytes of disk that the files below take; those that vanish meanwhile take none.
pub(crate) fn files_bytes(directory: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(directory) else { return 0 };
    let bytes = |entry: fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => files_bytes(&entry.path()),
        Ok(metadata) => metadata.blocks() * SECTOR,
        Err(_) => 0,
    };
    entries.flatten().map(bytes).sum()
}

impl Mount {
    /// `None` where the system has no loop device for us.
    fn new(image: &Path, at: &Path, options: &str) -> Result<Option<Self>> {
        fs::File::create(image)?.set_len(BYTES)?;
        // Nothing is left to be written behind by a thread of the kernel.
        let made = Command::new("mkfs.ext4")
            .args(["-q", "-b", &BLOCK.to_string(), "-E", "lazy_itable_init=0,lazy_journal_init=0"])
            .arg(image)
            .stderr(Stdio::null())
            .status();
        if !made.is_ok_and(|status| status.success()) {
            return Ok(None);
        }
        // With `loop` the device is detached when it is unmounted, and that is when the last process has left.
        let script = r#"mount -o "$2" "$0" "$1" && echo && exec cat"#;
        let mut holder = Command::new("unshare")
            .args(["-m", "sh", "-c", script])
            .args([image, at])
            .arg(format!("loop,{options}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let mut told = holder.stdout.take().context("no standard output")?;
        if told.read_exact(&mut [0]).is_err() {
            holder.wait()?;
            return Ok(None);
        }
        let mut mount = Self { holder, device: PathBuf::new() };
        let device = fs::metadata(mount.root().join(at.strip_prefix("/")?))?.dev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        mount.device = Path::new("/sys/dev/block").join(format!("{major}:{minor}"));
        Ok(Some(mount))
    }

    /// The root directory of the namespace.
    fn root(&self) -> PathBuf {
        Path::new("/proc").join(self.holder.id().to_string()).join("root")
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}
