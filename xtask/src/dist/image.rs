//! An OCI image, made without a container engine: a layer by `tar`, the layout by `umoci`, in one file that container
//! engines load. The layer has the program and its files and no distribution below them.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::recipe::{Recipe, Source};
use super::{Release, empty};
use crate::command::{command, on_path, output, run};
use crate::setup;
use crate::tree::Tree;

/// Authorities that other people's servers are trusted by.
const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Writes `NAME-VERSION-PLATFORM.oci.tar` of a program without symbols. A program that is linked dynamically brings the
/// libraries of this machine, which only the tests do.
pub(super) fn make(tree: &Tree, release: &Release, program: &Path, place: &Path) -> Result<PathBuf> {
    let mut packages = Vec::new();
    packages.extend((!on_path("umoci")).then_some("umoci"));
    packages.extend((!Path::new(AUTHORITIES).exists()).then_some("ca-certificates"));
    if !packages.is_empty() {
        setup::debian(&packages)?;
    }
    let recipe = Recipe::read(tree)?;
    let layer = layer(tree, release, &recipe, program)?;
    let layout = layer.with_file_name("layout");
    let image = format!("{}:{}", layout.display(), name(release));
    run(command("umoci", &["init", "--layout"]).arg(&layout))?;
    run(&mut command("umoci", &["new", "--image", &image]))?;
    let date = date(release)?;
    let by = format!("--history.created_by=cargo xtask dist --target {}", release.platform.target);
    let mut add = command("umoci", &["raw", "add-layer", "--image", &image, "--history.created", &date]);
    run(add.arg(by).arg(&layer))?;
    let mut config = command("umoci", &["config", "--image", &image, "--no-history", "--created", &date]);
    run(config.args(settings(tree, release, &recipe, &date)))?;
    // Blobs of the steps before have the time of day in them.
    run(command("umoci", &["gc", "--layout"]).arg(&layout))?;

    let file = format!("{}-{}-{}.oci.tar", release.name(), release.version, release.platform.archive);
    let to = place.join(file);
    let mut pack = tar(release, &["--owner=0", "--group=0", "--mode=u+rwX,go+rX,go-w", "--create", "--file"]);
    run(pack.arg(&to).arg("--directory").arg(&layout).args(["blobs", "index.json", "oci-layout"]))?;
    Ok(to)
}

/// The name that an engine gives it when it is loaded.
pub(super) fn name(release: &Release) -> String {
    // Of Debian's characters in versions, these are not for tags.
    format!("{}:{}", release.name(), release.version.replace(['~', '+'], "-"))
}

/// GNU tar with all that makes two archives of the same files alike.
fn tar(release: &Release, arguments: &[&str]) -> std::process::Command {
    let mut tar = command("tar", &["--sort=name", "--format=ustar", "--numeric-owner"]);
    tar.arg(format!("--mtime=@{}", release.date)).args(arguments);
    tar
}

/// An archive of the files: root's, but for the volume, which is the user's, and `/tmp`.
fn layer(tree: &Tree, release: &Release, recipe: &Recipe, program: &Path) -> Result<PathBuf> {
    let above = empty(tree, &format!("dist-image-{}-{}", release.name(), release.platform.archive))?;
    let root = above.join("root");
    for (source, to) in &recipe.copies {
        let from = match source {
            Source::Program => program.to_owned(),
            Source::Tree(path) => tree.root().join(path),
            Source::System(path) => PathBuf::from(path),
        };
        put(&from, &root, to, if *source == Source::Program { 0o755 } else { 0o644 })?;
    }
    for library in libraries(release, program)? {
        put(Path::new(&library), &root, &library, 0o755)?;
    }
    let mut tops: Vec<_> = fs::read_dir(&root)?.map(|entry| Ok(entry?.file_name())).collect::<Result<_>>()?;
    tops.sort();
    let volume = recipe.volume.trim_start_matches('/');
    fs::create_dir_all(root.join(volume))?;
    fs::create_dir_all(root.join("tmp"))?;

    let layer = above.join("layer.tar");
    let mut pack = tar(release, &["--owner=0", "--group=0", "--mode=u+rwX,go+rX,go-w", "--create", "--file"]);
    pack.arg(&layer).arg("--directory").arg(&root).args(tops);
    // The directories above the volume.
    let above = Path::new(volume).ancestors().skip(1).filter(|path| !path.as_os_str().is_empty());
    let mut above: Vec<_> = above.collect();
    above.reverse();
    run(pack.arg("--no-recursion").args(above))?;
    let (user, group) = recipe.user.split_once(':').context("USER names no group")?;
    let owners = [format!("--owner=fogmux:{user}"), format!("--group=fogmux:{group}")];
    for (directory, owners, mode) in [
        (volume, owners, "--mode=0700"),
        ("tmp", ["--owner=root:0".to_owned(), "--group=root:0".to_owned()], "--mode=1777"),
    ] {
        let mut append = tar(release, &[mode, "--no-recursion", "--append", "--file"]);
        run(append.arg(&layer).args(owners).arg("--directory").arg(&root).arg(directory))?;
    }
    Ok(layer)
}

/// Copies a file to a place in the image.
fn put(from: &Path, root: &Path, to: &str, mode: u32) -> Result<()> {
    let to = root.join(to.trim_start_matches('/'));
    fs::create_dir_all(to.parent().context("a file is in no directory")?)?;
    fs::copy(from, &to).with_context(|| from.display().to_string())?;
    fs::set_permissions(&to, fs::Permissions::from_mode(mode))?;
    Ok(())
}

/// The libraries that a program loads, by their absolute paths.
fn libraries(release: &Release, program: &Path) -> Result<Vec<String>> {
    if release.platform.is_static() {
        return Ok(Vec::new());
    }
    let told = output(command("ldd", &[]).arg(program))?;
    Ok(told.split_whitespace().filter(|word| word.starts_with('/')).map(ToOwned::to_owned).collect())
}

/// Arguments of `umoci config`.
fn settings(tree: &Tree, release: &Release, recipe: &Recipe, date: &str) -> Vec<String> {
    let platform = [format!("--architecture={}", release.platform.oci()), "--os=linux".to_owned()];
    let mut labels = recipe.labels.clone();
    labels.push(format!("org.opencontainers.image.version={}", release.version));
    labels.push(format!("org.opencontainers.image.created={date}"));
    // Sources without git's directory have no commit.
    if let Ok(commit) = output(command("git", &["rev-parse", "HEAD"]).current_dir(tree.root())) {
        labels.push(format!("org.opencontainers.image.revision={}", commit.trim()));
    }
    let each = |key: &'static str, values: &[String]| -> Vec<String> {
        values.iter().map(|value| format!("--{key}={value}")).collect()
    };
    [
        platform.to_vec(),
        each("config.user", std::slice::from_ref(&recipe.user)),
        each("config.volume", std::slice::from_ref(&recipe.volume)),
        each("config.stopsignal", std::slice::from_ref(&recipe.stop_signal)),
        each("config.workingdir", &["/".to_owned()]),
        each("config.env", &recipe.environment),
        each("config.exposedports", &recipe.ports),
        each("config.entrypoint", &recipe.entrypoint),
        each("config.cmd", &recipe.command),
        each("config.label", &labels),
        each("manifest.annotation", &labels),
    ]
    .concat()
}

/// The release's date, as RFC 3339 writes it.
fn date(release: &Release) -> Result<String> {
    let at = format!("--date=@{}", release.date);
    Ok(output(&mut command("date", &["--utc", &at, "+%Y-%m-%dT%H:%M:%SZ"]))?.trim().to_owned())
}
