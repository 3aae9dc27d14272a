//! Debian packages, by `dpkg-deb`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::program::{self, Program};
use super::stage::Stage;
use super::{Release, empty};
use crate::command::{command, output, run};
use crate::tree::Tree;

/// Revision of the package, after the version of the program.
const REVISION: u32 = 1;

/// Scripts that dpkg runs.
const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];

/// The package of the program.
pub(super) fn package(tree: &Tree, release: &Release, stage: &Stage, place: &Path) -> Result<PathBuf> {
    let program = stage.root.join("usr/bin/fogmux");
    let needs = program::c_library(&release.platform, &program)?;
    let root = empty(tree, &format!("dist-deb-{}", release.name()))?;
    run(command("cp", &["-a"]).arg(stage.root.join("usr")).arg(stage.root.join("etc")).arg(&root))?;
    let text = fs::read_to_string(tree.root().join("deploy/debian/control")).context("deploy/debian/control")?;
    let other = if release.lean { "fogmux" } else { "fogmux-lean" };
    let control = text
        .replace("@PACKAGE@", release.name())
        .replace("@OTHER@", other)
        .replace("@VERSION@", &version(release))
        .replace("@ARCHITECTURE@", release.platform.debian)
        .replace("@SIZE@", &kibibytes(&root)?)
        .replace("@LIBC@", &needs)
        .replace("@FEATURES@", if release.lean { LEAN } else { FULL });
    let debian = root.join("DEBIAN");
    fs::create_dir(&debian)?;
    fs::write(debian.join("control"), control)?;
    fs::write(debian.join("conffiles"), "/etc/fogmux/fogmux.toml\n")?;
    for name in SCRIPTS {
        let to = debian.join(name);
        fs::copy(tree.root().join("deploy/debian").join(name), &to).with_context(|| name.to_owned())?;
        fs::set_permissions(&to, fs::Permissions::from_mode(0o755))?;
    }
    sums(&root)?;
    let name = format!("{}_{}_{}.deb", release.name(), version(release), release.platform.debian);
    seal(release, &root, &place.join(name))
}

const FULL: &str = "This package has the traffic generator (fogmux bench) and OpenSSL for pre-shared keys over TLS.";
const LEAN: &str = "This package has neither the traffic generator nor OpenSSL, which serves pre-shared keys over TLS.";

/// The package of its symbols, where debuggers look for them by build identifier.
pub(super) fn symbols(tree: &Tree, release: &Release, program: &Program, place: &Path) -> Result<PathBuf> {
    let root = empty(tree, &format!("dist-dbgsym-{}", release.name()))?;
    let (first, rest) = program.build_id.split_at_checked(2).context("a build identifier is too short")?;
    let directory = root.join("usr/lib/debug/.build-id").join(first);
    fs::create_dir_all(&directory)?;
    fs::copy(&program.symbols, directory.join(format!("{rest}.debug")))?;
    fs::create_dir(root.join("DEBIAN"))?;
    let control = format!(
        "Package: {name}-dbgsym\nVersion: {version}\nArchitecture: {architecture}\nMaintainer: {MAINTAINER}\n\
         Installed-Size: {size}\nDepends: {name} (= {version})\nSection: debug\nPriority: optional\n\
         Build-Ids: {id}\nDescription: debug symbols for {name}\n Function names for backtraces and profiles.\n",
        name = release.name(),
        version = version(release),
        architecture = release.platform.debian,
        size = program::kibibytes(&program.symbols)?,
        id = program.build_id,
    );
    fs::write(root.join("DEBIAN/control"), control)?;
    sums(&root)?;
    let name = format!("{}-dbgsym_{}_{}.deb", release.name(), version(release), release.platform.debian);
    seal(release, &root, &place.join(name))
}

const MAINTAINER: &str = "The fogmux authors <fogmux@localhost>";

fn version(release: &Release) -> String {
    format!("{}-{REVISION}", release.version)
}

/// Size of a tree, as `Installed-Size` counts it.
fn kibibytes(root: &Path) -> Result<String> {
    let told = output(command("du", &["-k", "-s", "--apparent-size"]).arg(root))?;
    Ok(told.split_whitespace().next().context("du printed nothing")?.to_owned())
}

/// `md5sums`, with which `dpkg --verify` finds changed files.
fn sums(root: &Path) -> Result<()> {
    let script = "find usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum > DEBIAN/md5sums";
    run(command("sh", &["-c", script]).current_dir(root))
}

fn seal(release: &Release, root: &Path, to: &Path) -> Result<PathBuf> {
    // The mode of directories must not depend on the umask of who builds.
    run(command("find", &[]).arg(root).args(["-type", "d", "-exec", "chmod", "0755", "{}", "+"]))?;
    let mut build =
        command("dpkg-deb", &["--root-owner-group", "-Zxz", if release.quick { "-z0" } else { "-z6" }, "--build"]);
    run(build.arg(root).arg(to).env("SOURCE_DATE_EPOCH", &release.date))?;
    Ok(to.to_owned())
}
