//! Installs the files that `dist` makes in a fresh Debian and uses them: first message, upgrade, downgrade, removal,
//! purge; and starts the image.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::debian::Debian;
use super::program::{self, Platform};
use super::stage::Stage;
use super::{Made, Release, archive, container, deb, empty, image, sums};
use crate::command::{command, on_path, run};
use crate::tree::Tree;
use crate::{gateway, setup};

/// The steps, run in namespaces of their own.
const SCRIPT: &str = include_str!("check.sh");

/// Checks files that are made of the gateway that the black-box suites run, not of a release.
pub(crate) fn check(tree: &Tree) -> Result<()> {
    if !on_path("dpkg-deb") || !setup::is_root()? {
        println!("deploy: packages are installed in a Debian of their own, as root; left out here");
        return Ok(());
    }
    let built = gateway::build(tree)?;
    let mut release = Release::new(tree, Platform::host()?, false)?;
    release.quick = true;
    let program = program::separate(tree, &release, &built)?;
    let place = empty(tree, "dist-check")?;
    let mut files = Made::of(tree, &release, &program, &place)?;
    // That of a release is made of a static program, which the tests do not build.
    let image = image::make(tree, &release, &program.file, &place)?;
    let first = fs::read(&image)?;
    files.image = Some(image::make(tree, &release, &program.file, &place)?);
    ensure!(first == fs::read(&image)?, "two images of the same files differ");
    sums(&place)?;
    run(command("sha256sum", &["--check", "--quiet", "SHA256SUMS"]).current_dir(&place))?;
    made(tree, release, &program.file, &files)
}

/// Checks files of this machine's architecture, or of one that qemu emulates. Packages of `previous` are upgraded to
/// them. If that is the same program, what is shown is that dpkg and our scripts keep everything.
pub(super) fn made(tree: &Tree, mut release: Release, previous: &Path, files: &Made) -> Result<()> {
    ensure!(setup::is_root()?, "only root can install packages in a Debian of their own");
    let Made { packages, archive, image, .. } = files;
    let mut inside = vec![(archive.clone(), "new.tar.gz")];
    let mut parts = Vec::new();
    let image_name = image::name(&release);
    release.quick = true;
    release.version = format!("{}~previous", release.version);
    let stage = Stage::fill(tree, &release, previous)?;
    let place = empty(tree, "dist-previous")?;
    inside.push((archive::make(tree, &release, &stage, &place)?, "old.tar.gz"));
    if let Some([package, symbols]) = packages {
        inside.push((deb::package(tree, &release, &stage, &place)?, "old.deb"));
        inside.extend([(package.clone(), "new.deb"), (symbols.clone(), "symbols.deb")]);
        parts.push("packages");
    }
    parts.push("archive");
    if release.platform.is_static() {
        parts.push("alone");
    }
    setup::packages_of(&["mosquitto_pub", "ip", "unshare"])?;
    let debian = Debian::unpack(tree, &release.platform)?;
    for (file, name) in inside {
        fs::copy(&file, debian.root.join("root").join(name)).with_context(|| file.display().to_string())?;
    }
    let script = written(&place, "check.sh", SCRIPT)?;
    let mut check = debian.alone(&place)?;
    run(check.args(["sh", "-eu"]).arg(script).arg(&debian.root).args(parts))?;
    match image {
        Some(image) => container::check(tree, &release.platform, image, &image_name),
        None => Ok(()),
    }
}

/// Writes a script to be run.
pub(super) fn written(place: &Path, name: &str, text: &str) -> Result<PathBuf> {
    let script = place.join(name);
    fs::write(&script, text).with_context(|| script.display().to_string())?;
    Ok(script)
}
