//! `cargo xtask dist`: what people install, made of the release program: a Debian package with its symbols in a second
//! one, an archive with an installer, a list of what is inside, and checksums, all under `target/dist`.

mod archive;
mod bill;
mod check;
mod deb;
mod program;
mod stage;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::command::{command, output};
use crate::tree::Tree;
use program::Platform;
use stage::Stage;

pub(crate) use check::check;

/// A variant of the program for a platform.
struct Release {
    platform: Platform,
    /// All doors, neither the traffic generator nor OpenSSL.
    lean: bool,
    version: String,
    /// Seconds since the epoch: of the commit, so that the same sources make the same files.
    date: String,
    /// Compressed quickly, for tests.
    quick: bool,
}

impl Release {
    /// The version of the workspace.
    fn new(tree: &Tree, platform: Platform, lean: bool) -> Result<Self> {
        let manifest = fs::read_to_string(tree.root().join("Cargo.toml")).context("Cargo.toml")?;
        let version = manifest.lines().find_map(|line| line.strip_prefix("version = \""));
        let version = version.context("Cargo.toml has no version")?.trim_end_matches('"').to_owned();
        // Set by whoever builds without git's directory (reproducible-builds.org).
        let date = match std::env::var("SOURCE_DATE_EPOCH") {
            Ok(date) => date,
            Err(_) => {
                let mut log = command("git", &["log", "-1", "--format=%ct"]);
                output(log.current_dir(tree.root()))?.trim().to_owned()
            }
        };
        Ok(Self { platform, lean, version, date, quick: false })
    }

    /// The name of the package.
    fn name(&self) -> &'static str {
        if self.lean { "fogmux-lean" } else { "fogmux" }
    }
}

/// `[--lean] [--target TRIPLE]`: makes all files for one platform, this machine's unless told otherwise.
pub(crate) fn dist(tree: &Tree, words: &[&str]) -> Result<()> {
    let mut words = words.iter();
    let (mut platform, mut lean) = (Platform::host()?, false);
    while let Some(word) = words.next() {
        match *word {
            "--lean" => lean = true,
            "--target" => platform = Platform::of(words.next().context("--target needs a name")?)?,
            word => bail!("dist does not know `{word}`"),
        }
    }
    let release = Release::new(tree, platform, lean)?;
    let program = program::build(tree, &release)?;
    let stage = Stage::fill(tree, &release, &program.file)?;
    let place = tree.target().join("dist");
    fs::create_dir_all(&place)?;
    let mut made = Vec::new();
    if release.platform.debian.is_some() {
        made.push(deb::package(tree, &release, &stage, &place)?);
        made.push(deb::symbols(tree, &release, &program, &place)?);
    }
    made.push(archive::make(tree, &release, &stage, &place)?);
    made.push(bill::write(tree, &release, &place)?);
    sums(&place)?;
    for file in made {
        println!("{}: {:.1} MB", file.display(), fs::metadata(&file)?.len() as f64 / 1e6);
    }
    Ok(())
}

/// `SHA256SUMS` of all files that are there, in the form that `sha256sum --check` reads.
fn sums(place: &Path) -> Result<()> {
    let mut names: Vec<_> = fs::read_dir(place)?.map(|entry| Ok(entry?.file_name())).collect::<Result<_>>()?;
    names.retain(|name| name != "SHA256SUMS");
    names.sort();
    let mut sum = command("sha256sum", &["--"]);
    let told = output(sum.args(&names).current_dir(place))?;
    fs::write(place.join("SHA256SUMS"), told).context("SHA256SUMS")
}

/// An empty directory below `target/tmp`.
fn empty(tree: &Tree, name: &str) -> Result<PathBuf> {
    let place = tree.target().join("tmp").join(name);
    if place.exists() {
        fs::remove_dir_all(&place).with_context(|| place.display().to_string())?;
    }
    fs::create_dir_all(&place)?;
    Ok(place)
}
