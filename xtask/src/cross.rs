//! Builds for aarch64 – the Raspberry Pi – and runs `fogmux demo` with it under qemu.
//!
//! Where rustup has the target's standard library it is used; else Debian's `rustc-web` with the arm64 build of its
//! library, which comes from the same source as the compiler and therefore fits.

use std::process::Command;

use anyhow::{Result, bail};

use crate::command::{cargo, command, on_path, output, run, succeeds};
use crate::setup;
use crate::tree::Tree;

const TARGET: &str = "aarch64-unknown-linux-gnu";
const LINKER: &str = "aarch64-linux-gnu-gcc";
const QEMU: &str = "qemu-aarch64-static";
const LIBRARY: &str = "/usr/lib/rustlib/aarch64-unknown-linux-gnu";

/// Build and demonstration.
pub(crate) fn cross(tree: &Tree) -> Result<()> {
    let mut build = cargo(&["build", "--release", "--package", "fogmux", "--locked", "--target", TARGET]);
    prepare(&mut build, TARGET)?;
    run(build.current_dir(tree.root()))?;
    let binary = tree.target().join(TARGET).join("release/fogmux");
    let size = std::fs::metadata(&binary)?.len();
    println!("{}: {:.1} MiB", binary.display(), size as f64 / f64::from(1 << 20));
    run(Command::new(QEMU).args(["-L", "/usr/aarch64-linux-gnu"]).arg(binary).arg("demo"))
}

/// Makes a build for another target possible: its standard library, and for aarch64 a linker and qemu.
pub(crate) fn prepare(build: &mut Command, target: &str) -> Result<()> {
    let has_library = rustup_has(target);
    if target != TARGET {
        return if has_library { Ok(()) } else { bail!("`rustup target add {target}` does not work here") };
    }
    let mut packages = Vec::new();
    if !on_path(LINKER) {
        packages.extend(["gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross"]);
    }
    if !on_path(QEMU) {
        packages.push("qemu-user-static");
    }
    setup::debian(&packages)?;
    if !has_library {
        debian_compiler()?;
        // The toolchain's own cargo, but Debian's compiler: cargo would else ask rustup for a target it has not.
        build.env("RUSTC", "/usr/bin/rustc");
    }
    build.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", LINKER).env("CC_aarch64_unknown_linux_gnu", LINKER);
    Ok(())
}

fn rustup_has(target: &str) -> bool {
    if !on_path("rustup") {
        return false;
    }
    let installed = || output(&mut command("rustup", &["target", "list", "--installed"])).unwrap_or_default();
    installed().lines().any(|line| line == target)
        || (succeeds(&mut command("rustup", &["target", "add", target]))
            && installed().lines().any(|line| line == target))
}

/// `rustc-web` and, of the foreign architecture, its standard library.
fn debian_compiler() -> Result<()> {
    if std::path::Path::new(LIBRARY).exists() {
        return Ok(());
    }
    if !on_path("dpkg") {
        bail!("neither `rustup target add {TARGET}` nor Debian's packages are to be had here");
    }
    run(&mut command("dpkg", &["--add-architecture", "arm64"]))?;
    setup::debian(&["rustc-web", "libstd-rust-web-dev:arm64"])
}
