//! A Debian of any architecture in a directory, and namespaces to run its programs in.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::check::written;
use super::empty;
use super::program::Platform;
use crate::command::{command, on_path, output, run};
use crate::cross;
use crate::setup;
use crate::tree::Tree;

/// Namespaces in which programs of another architecture run.
const EMULATED: &str = include_str!("emulated.sh");

/// A Debian of this machine's release with nothing but what every Debian has.
pub(super) struct Debian {
    pub(super) root: PathBuf,
    platform: Platform,
}

impl Debian {
    /// Unpacks it anew.
    pub(super) fn unpack(tree: &Tree, platform: &Platform) -> Result<Self> {
        let release = output(&mut command("sh", &["-c", ". /etc/os-release && echo \"$VERSION_CODENAME\""]))?;
        let release = release.trim();
        let architecture = if platform.is_native() { String::new() } else { format!("-{}", platform.debian) };
        let image = tree.clients().join(format!("debian-{release}{architecture}.tar"));
        let debian = Self { root: empty(tree, "debian")?, platform: *platform };
        if !image.exists() {
            println!("setup: Debian {release} into {}", image.display());
            debian.bootstrap(tree, release)?;
            fs::create_dir_all(tree.clients())?;
            let partial = image.with_extension("partial");
            run(command("tar", &["--create", "--file"]).arg(&partial).arg("--directory").arg(&debian.root).arg("."))?;
            fs::rename(&partial, &image)?;
            return Ok(debian);
        }
        run(command("tar", &["--extract", "--file"]).arg(&image).arg("--directory").arg(&debian.root))?;
        Ok(debian)
    }

    fn bootstrap(&self, tree: &Tree, release: &str) -> Result<()> {
        if !on_path("debootstrap") && !Path::new("/usr/sbin/debootstrap").exists() {
            setup::debian(&["debootstrap"])?;
        }
        let mut first = command("/usr/sbin/debootstrap", &["--variant=minbase", "--arch", self.platform.debian]);
        if self.platform.is_native() {
            return run(first.arg(release).arg(&self.root));
        }
        run(first.arg("--foreign").arg(release).arg(&self.root))?;
        // In a user namespace nobody makes devices. The first stage has made them, and the second takes what is there
        // if it is told so by systemd's name for such a place.
        let mut second = self.alone(&empty(tree, "debian-scripts")?)?;
        second.args(["env", "container=lxc", "chroot"]).arg(&self.root);
        run(second.args(["/debootstrap/debootstrap", "--second-stage"]))
    }

    /// Runs the command that is appended in namespaces of its own. A script for that is written to `place`.
    pub(super) fn alone(&self, place: &Path) -> Result<Command> {
        if self.platform.is_native() {
            return Ok(command("unshare", &["--net", "--mount", "--pid", "--fork", "--kill-child"]));
        }
        let emulator = cross::emulator(self.platform.target)?;
        let handler = format!("/usr/lib/binfmt.d/{}.conf", emulator.trim_end_matches("-static"));
        fs::metadata(&handler).with_context(|| format!("{handler}, of the package qemu-user-static"))?;
        let mut alone = command("sh", &["-eu"]);
        alone.arg(written(place, "emulated.sh", EMULATED)?).arg(handler);
        Ok(alone)
    }
}
