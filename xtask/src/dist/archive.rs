//! An archive for systems without Debian's packages.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::stage::Stage;
use super::{Release, empty};
use crate::command::{command, run};
use crate::tree::Tree;

/// The staged tree, with the installer at its top.
pub(super) fn make(tree: &Tree, release: &Release, stage: &Stage, place: &Path) -> Result<PathBuf> {
    let name = format!("{}-{}-{}", release.name(), release.version, release.platform.archive);
    let above = empty(tree, "dist-archive")?;
    let root = above.join(&name);
    fs::create_dir(&root)?;
    run(command("cp", &["-a"]).arg(stage.root.join("usr")).arg(stage.root.join("etc")).arg(&root))?;
    let installer = root.join("install.sh");
    fs::copy(tree.root().join("deploy/install.sh"), &installer)?;
    fs::set_permissions(&installer, fs::Permissions::from_mode(0o755))?;
    let to = place.join(format!("{name}.tar.gz"));
    let date = format!("--mtime=@{}", release.date);
    let compressor = if release.quick { "--use-compress-program=gzip -1n" } else { "--use-compress-program=gzip -9n" };
    let mut pack = command("tar", &["--sort=name", "--owner=0", "--group=0", "--numeric-owner", &date]);
    pack.args(["--mode=u+rwX,go+rX,go-w", compressor, "--create", "--file"]);
    run(pack.arg(&to).arg("--directory").arg(&above).arg(&name))?;
    Ok(to)
}
