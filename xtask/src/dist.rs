//! `cargo xtask dist`: the files that people install, made of the release program, under `target/dist`: a Debian
//! package with its symbols in a second one, an archive with an installer, a container image of a static program, a
//! list of what is inside, and checksums.

mod archive;
mod bill;
mod check;
mod container;
mod deb;
mod debian;
mod image;
mod program;
mod recipe;
mod stage;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::command::{command, output};
use crate::tree::Tree;
use program::Program;
use stage::Stage;

pub(crate) use check::check;
pub(crate) use program::Platform;
pub(crate) use recipe::Recipe;

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

/// `[--lean] [--target TRIPLE] [--check [--previous PROGRAM]]`: makes all files for one platform, this machine's unless
/// told otherwise, and with `--check` installs and uses them. Packages of the previous program are upgraded then.
pub(crate) fn dist(tree: &Tree, words: &[&str]) -> Result<()> {
    let mut words = words.iter();
    let (mut platform, mut lean, mut is_checked, mut previous) = (Platform::host()?, false, false, None);
    while let Some(word) = words.next() {
        match *word {
            "--lean" => lean = true,
            "--check" => is_checked = true,
            "--previous" => previous = Some(Path::new(words.next().context("--previous needs a program")?)),
            "--target" => platform = Platform::of(words.next().context("--target needs a name")?)?,
            word => bail!("dist does not know `{word}`"),
        }
    }
    let release = Release::new(tree, platform, lean)?;
    let program = program::build(tree, &release)?;
    let place = tree.target().join("dist");
    fs::create_dir_all(&place)?;
    let made = Made::of(tree, &release, &program, &place)?;
    sums(&place)?;
    for file in made.files() {
        println!("{}: {:.1} MB", file.display(), fs::metadata(file)?.len() as f64 / 1e6);
    }
    if is_checked { check::made(tree, release, previous.unwrap_or(&program.file), &made) } else { Ok(()) }
}

/// The files of one platform.
struct Made {
    /// The package, and that of its symbols.
    packages: Option<[PathBuf; 2]>,
    archive: PathBuf,
    image: Option<PathBuf>,
    bill: PathBuf,
}

impl Made {
    /// Makes them in a directory.
    fn of(tree: &Tree, release: &Release, program: &Program, place: &Path) -> Result<Self> {
        let stage = Stage::fill(tree, release, &program.file)?;
        let (packages, image) = if release.platform.is_static() {
            (None, Some(image::make(tree, release, &program.file, place)?))
        } else {
            let symbols = deb::symbols(tree, release, program, place)?;
            (Some([deb::package(tree, release, &stage, place)?, symbols]), None)
        };
        let archive = archive::make(tree, release, &stage, place)?;
        Ok(Self { packages, archive, image, bill: bill::write(tree, release, place)? })
    }

    fn files(&self) -> impl Iterator<Item = &PathBuf> {
        self.packages.iter().flatten().chain([&self.archive]).chain(&self.image).chain([&self.bill])
    }
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
