//! Installs what `dist` makes in a fresh Debian and uses it: first message, upgrade, downgrade, removal, purge.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::program::{self, Platform};
use super::stage::Stage;
use super::{Release, archive, bill, deb, empty, sums};
use crate::command::{command, on_path, output, run};
use crate::tree::Tree;
use crate::{gateway, setup};

/// The steps, run in namespaces of their own.
const SCRIPT: &str = include_str!("check.sh");

/// The packages are made of the gateway that the black-box suites run, not of a release.
pub(crate) fn check(tree: &Tree) -> Result<()> {
    if !on_path("dpkg-deb") || !setup::is_root()? {
        println!("deploy: packages are installed in a Debian of their own, as root; left out here");
        return Ok(());
    }
    let built = gateway::build(tree)?;
    let mut release = Release::new(tree, Platform::host()?, false)?;
    release.quick = true;
    let program = program::separate(tree, &release, &built)?;
    let stage = Stage::fill(tree, &release, &program.file)?;
    let place = empty(tree, "dist-check")?;
    bill::write(tree, &release, &place)?;
    let archive = archive::make(tree, &release, &stage, &place)?;
    let symbols = deb::symbols(tree, &release, &program, &place)?;
    let new = deb::package(tree, &release, &stage, &place)?;
    // The same program under a lower number: what is shown is that dpkg and our scripts keep everything.
    release.version = format!("{}~previous", release.version);
    let old = deb::package(tree, &release, &stage, &place)?;

    sums(&place)?;
    run(command("sha256sum", &["--check", "--quiet", "SHA256SUMS"]).current_dir(&place))?;

    let root = debian(tree)?;
    let inside = root.join("root");
    for (file, name) in [(&old, "old.deb"), (&new, "new.deb"), (&symbols, "symbols.deb"), (&archive, "archive.tar.gz")]
    {
        fs::copy(file, inside.join(name)).with_context(|| file.display().to_string())?;
    }
    let script = place.join("check.sh");
    fs::write(&script, SCRIPT)?;
    setup::packages_of(&["mosquitto_pub", "ip", "unshare"])?;
    let alone = ["--net", "--mount", "--pid", "--fork", "--kill-child", "sh", "-eu"];
    run(command("unshare", &alone).arg(&script).arg(&root))
}

/// A Debian of this machine's release with nothing but what every Debian has, unpacked anew.
fn debian(tree: &Tree) -> Result<PathBuf> {
    let clients = tree.clients();
    let release = output(&mut command("sh", &["-c", ". /etc/os-release && echo \"$VERSION_CODENAME\""]))?;
    let release = release.trim();
    let image = clients.join(format!("debian-{release}.tar"));
    if !image.exists() {
        if !on_path("debootstrap") && !Path::new("/usr/sbin/debootstrap").exists() {
            setup::debian(&["debootstrap"])?;
        }
        println!("setup: Debian {release} into {}", image.display());
        let made = empty(tree, "debian")?;
        run(command("/usr/sbin/debootstrap", &["--variant=minbase", release]).arg(&made))?;
        fs::create_dir_all(&clients)?;
        let partial = image.with_extension("partial");
        run(command("tar", &["--create", "--file"]).arg(&partial).arg("--directory").arg(&made).arg("."))?;
        fs::rename(&partial, &image)?;
        fs::remove_dir_all(&made)?;
    }
    let root = empty(tree, "debian")?;
    run(command("tar", &["--extract", "--file"]).arg(&image).arg("--directory").arg(&root))?;
    Ok(root)
}
