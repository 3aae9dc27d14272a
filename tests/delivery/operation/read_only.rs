//! An ext4 that the kernel makes read-only below a running gateway, as it does after an error of the device with
//! `errors=remount-ro`. A `mount -o remount,ro` is refused by the kernel while files are open for writing.
//!
//! Such a file system has to be mounted again. One that becomes writable again is in `tests/interop/scenarios_disk.py`.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::{Gateway, Plan};
use fogmux_tests::suite::Case;
use rustix::process::Signal;

use super::disk::{SKIPPED, live_traffic_flows, none_was_kept, refuses_to_keep};
use super::{http, keep};

pub(super) const LATER: Case =
    Case { name: "a disk that becomes read-only: every door says so, and what it took is there", run: later };

const VALUES: u16 = 50;
const IMAGE_BYTES: u64 = 64 << 20;

/// An ext4 on a loop device, in a namespace of its own, which goes with it.
struct Ext4 {
    holder: Child,
    at: PathBuf,
}

impl Ext4 {
    /// `None` where the system has no loop device for us.
    fn mount(image: &Path, at: &Path) -> Result<Option<Self>> {
        let script = r#"mount -o loop,errors=remount-ro "$0" "$1" && echo && exec cat"#;
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", script]).args([image, at]);
        let Ok(mut holder) = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn() else {
            return Ok(None);
        };
        let mut told = holder.stdout.take().context("no standard output")?;
        if told.read_exact(&mut [0]).is_err() {
            holder.wait()?;
            return Ok(None);
        }
        Ok(Some(Self { holder, at: at.to_owned() }))
    }

    /// Its root as it is seen from here.
    fn seen(&self) -> Result<PathBuf> {
        let root = Path::new("/proc").join(self.holder.id().to_string()).join("root");
        Ok(root.join(self.at.strip_prefix("/")?))
    }

    /// Has the kernel find an error. `false` where it cannot be told to.
    fn fail(&self) -> Result<bool> {
        let device = fs::metadata(self.seen()?)?.dev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let device = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}"))?;
        let name = device.file_name().context("no name of the device")?;
        Ok(fs::write(Path::new("/sys/fs/ext4").join(name).join("trigger_fs_error"), b"1").is_ok())
    }

    fn start(&self, data: &Path) -> Result<Gateway> {
        let pid = self.holder.id().to_string();
        let launcher = ["nsenter", "-t", &pid, "-m"];
        Gateway::start_as(Plan { data: Some(data), launcher: &launcher, ..Plan::default() })
    }
}

impl Drop for Ext4 {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

fn later() -> Result<String> {
    let home = tempfile::tempdir()?;
    let (image, at) = (home.path().join("image"), home.path().join("disk"));
    fs::create_dir(&at)?;
    fs::File::create(&image)?.set_len(IMAGE_BYTES)?;
    let made = Command::new("mkfs.ext4").arg("-q").arg(&image).stderr(Stdio::null()).status();
    if !made.is_ok_and(|status| status.success()) {
        return Ok(SKIPPED.to_owned());
    }
    let data = at.join("data");
    let Some(disk) = Ext4::mount(&image, &at)? else { return Ok(SKIPPED.to_owned()) };
    fs::create_dir(disk.seen()?.join("data"))?;
    let mut gateway = disk.start(&data)?;
    keep(&gateway, VALUES, 100)?;
    if !disk.fail()? {
        return Ok("(skipped: the kernel cannot be told to find an error)".to_owned());
    }
    // The first that is refused tells the gateway.
    let put = http(&gateway, "PUT", "/topics/kept/new", b"1")?;
    ensure!(put.0 == 507, "PUT: {put:?}");
    let ready = http(&gateway, "GET", "/readyz", b"")?;
    ensure!(ready.0 == 503 && ready.1.contains("Read-only file system"), "/readyz: {ready:?}");
    refuses_to_keep(&gateway, &disk.seen()?.join("data/pki/ca.pem"))?;
    live_traffic_flows(&gateway)?;
    none_was_kept(&gateway)?;
    gateway.signal(Signal::KILL)?;
    gateway.wait_exit(Duration::from_secs(30))?;
    drop((gateway, disk));
    let disk = Ext4::mount(&image, &at)?.context("it cannot be mounted again")?;
    let mut gateway = disk.start(&data)?;
    for number in 1..=VALUES {
        let kept = http(&gateway, "GET", &format!("/topics/kept/{number:06}"), b"")?;
        ensure!(kept.0 == 200 && kept.1.starts_with(&format!("{number:06}")), "value {number}: {kept:?}");
    }
    let new = http(&gateway, "GET", "/topics/kept/new", b"")?;
    ensure!(new.0 == 404, "a refused value is there after all: {new:?}");
    let put = http(&gateway, "PUT", "/topics/kept/new", b"2")?;
    ensure!(put.0 < 300, "PUT on the disk that was mounted again: {put:?}");
    gateway.settle()?;
    Ok(String::new())
}
