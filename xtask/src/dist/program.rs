//! The release program, for one platform, and its symbols beside it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use super::Release;
use crate::command::{cargo, command, on_path, output, run};
use crate::cross;
use crate::size;
use crate::tree::Tree;

/// Where a program runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Platform {
    /// As rustc names it.
    pub(crate) target: &'static str,
    /// As Debian names the architecture.
    pub(super) debian: &'static str,
    /// As archives name it.
    pub(super) archive: &'static str,
    /// The prefix of the tools that read its programs.
    tools: &'static str,
}

const PLATFORMS: [Platform; 6] = [
    Platform {
        target: "x86_64-unknown-linux-gnu",
        debian: "amd64",
        archive: "x86_64-linux",
        tools: "x86_64-linux-gnu-",
    },
    Platform {
        target: "aarch64-unknown-linux-gnu",
        debian: "arm64",
        archive: "aarch64-linux",
        tools: "aarch64-linux-gnu-",
    },
    Platform {
        target: "armv7-unknown-linux-gnueabihf",
        debian: "armhf",
        archive: "armv7-linux",
        tools: "arm-linux-gnueabihf-",
    },
    Platform {
        target: "riscv64gc-unknown-linux-gnu",
        debian: "riscv64",
        archive: "riscv64-linux",
        tools: "riscv64-linux-gnu-",
    },
    Platform {
        target: "x86_64-unknown-linux-musl",
        debian: "amd64",
        archive: "x86_64-linux-static",
        tools: "x86_64-linux-gnu-",
    },
    Platform {
        target: "aarch64-unknown-linux-musl",
        debian: "arm64",
        archive: "aarch64-linux-static",
        tools: "aarch64-linux-gnu-",
    },
];

impl Platform {
    /// By rustc's name.
    pub(crate) fn of(target: &str) -> Result<Self> {
        let known = || PLATFORMS.map(|platform| platform.target).join(", ");
        let found = PLATFORMS.into_iter().find(|platform| platform.target == target);
        found.with_context(|| format!("{target} is none of {}", known()))
    }

    /// This machine's, with its C library.
    pub(super) fn host() -> Result<Self> {
        Self::of(&format!("{}-unknown-linux-gnu", std::env::consts::ARCH))
    }

    /// Whether its programs have the C library in them. They are in an archive and an image; packages are made of
    /// programs that use Debian's.
    pub(super) fn is_static(&self) -> bool {
        self.target.ends_with("-musl")
    }

    /// Whether this machine runs its programs by itself.
    pub(super) fn is_native(&self) -> bool {
        self.target.starts_with(std::env::consts::ARCH)
    }

    /// The architecture, as images name it (Go's `GOARCH`).
    pub(super) fn oci(&self) -> &'static str {
        if self.debian == "armhf" { "arm" } else { self.debian }
    }

    /// A program of binutils for this platform: `objcopy`, `objdump`.
    pub(super) fn tool(&self, name: &str) -> String {
        let own = format!("{}{name}", self.tools);
        if on_path(&own) { own } else { name.to_owned() }
    }
}

/// A built program.
pub(super) struct Program {
    /// Stripped.
    pub(super) file: PathBuf,
    /// The symbols that it had, which debuggers find by the build identifier.
    pub(super) symbols: PathBuf,
    pub(super) build_id: String,
}

/// Builds it with symbols and separates them.
pub(super) fn build(tree: &Tree, release: &Release) -> Result<Program> {
    let Platform { target, .. } = release.platform;
    let mut build = cargo(&["build", "--release", "--package", "fogmux", "--locked", "--target", target]);
    if release.lean {
        build.args(["--no-default-features", "--features", size::LEAN]);
    }
    if target != Platform::host()?.target {
        cross::prepare(&mut build, target)?;
    }
    // Linkers of some distributions add no build identifier by themselves.
    build.env("CARGO_PROFILE_RELEASE_STRIP", "none").env("RUSTFLAGS", "-C link-arg=-Wl,--build-id=sha1");
    run(build.current_dir(tree.root()))?;
    let program = separate(tree, release, &tree.target().join(target).join("release/fogmux"))?;
    let mut read = command(release.platform.tool("readelf"), &["--wide", "--program-headers"]);
    let headers = output(read.arg(&program.file))?;
    let is_dynamic = headers.lines().any(|line| line.trim_start().starts_with("INTERP"));
    ensure!(is_dynamic != release.platform.is_static(), "{} is linked the other way", program.file.display());
    Ok(program)
}

/// Makes a program without symbols and a file of symbols of one program with them.
pub(super) fn separate(tree: &Tree, release: &Release, built: &Path) -> Result<Program> {
    let place = super::empty(tree, &format!("dist-program-{}", release.platform.archive))?;
    let (file, symbols) = (place.join("fogmux"), place.join("fogmux.debug"));
    let objcopy = release.platform.tool("objcopy");
    run(command(&objcopy, &["--only-keep-debug", "--compress-debug-sections"]).arg(built).arg(&symbols))?;
    run(command(&objcopy, &["--strip-all"]).arg(built).arg(&file))?;
    let notes = output(command(release.platform.tool("readelf"), &["--notes"]).arg(&file))?;
    let build_id = notes.lines().find_map(|line| line.trim().strip_prefix("Build ID: "));
    let build_id = build_id.context("the program has no build identifier")?.to_owned();
    ensure!(build_id.len() > 2 && build_id.is_ascii(), "{build_id} is no build identifier");
    Ok(Program { file, symbols, build_id })
}

/// The version of the C library that the program needs at least.
pub(super) fn c_library(platform: &Platform, program: &Path) -> Result<String> {
    let told = output(command(platform.tool("objdump"), &["-T"]).arg(program))?;
    let versions = told.split(|c: char| c.is_whitespace() || "()".contains(c));
    let numbers = versions.filter_map(|word| {
        let parts: Option<Vec<u32>> = word.strip_prefix("GLIBC_")?.split('.').map(|part| part.parse().ok()).collect();
        parts
    });
    let Some(newest) = numbers.max() else { bail!("{} uses no versioned C library", program.display()) };
    Ok(newest.iter().map(ToString::to_string).collect::<Vec<_>>().join("."))
}

/// Its size, in KiB.
pub(super) fn kibibytes(file: &Path) -> Result<u64> {
    Ok(fs::metadata(file)?.len().div_ceil(1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn platforms_are_named_as_others_name_them() {
        let names =
            |target| Platform::of(target).map(|platform| (platform.is_static(), platform.debian, platform.oci()));
        assert_eq!(names("aarch64-unknown-linux-gnu").unwrap(), (false, "arm64", "arm64"));
        assert_eq!(names("armv7-unknown-linux-gnueabihf").unwrap(), (false, "armhf", "arm"));
        assert_eq!(names("x86_64-unknown-linux-musl").unwrap(), (true, "amd64", "amd64"));
        assert!(names("x86_64-pc-windows-msvc").unwrap_err().to_string().contains("riscv64gc-unknown-linux-gnu"));
    }
}
