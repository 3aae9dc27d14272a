//! Builds for other processors – those of Raspberry Pis – and for other C libraries, and runs `fogmux demo` of such a
//! program under qemu.
//!
//! Where rustup has the target's standard library it is used; else Debian's `rustc-web` with the build of its library
//! for that architecture, which comes from the same source as the compiler and therefore fits.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::command::{cargo, command, on_path, output, run, succeeds};
use crate::setup;
use crate::tree::Tree;

const DEFAULT: &str = "aarch64-unknown-linux-gnu";
const MUSL: &str = "-unknown-linux-musl";

/// An architecture, and the tools of Debian for it.
struct Foreign {
    /// How rustc's targets begin.
    target: &'static str,
    /// As gcc names the system: before the names of its programs and behind `/usr`.
    system: &'static str,
    /// The architecture's name in packages.
    debian: &'static str,
    emulator: &'static str,
}

const FOREIGN: [Foreign; 3] = [
    Foreign {
        target: "aarch64-unknown-linux-",
        system: "aarch64-linux-gnu",
        debian: "arm64",
        emulator: "qemu-aarch64-static",
    },
    Foreign {
        target: "armv7-unknown-linux-",
        system: "arm-linux-gnueabihf",
        debian: "armhf",
        emulator: "qemu-arm-static",
    },
    Foreign {
        target: "riscv64gc-unknown-linux-",
        system: "riscv64-linux-gnu",
        debian: "riscv64",
        emulator: "qemu-riscv64-static",
    },
];

impl Foreign {
    fn of(target: &str) -> Result<&'static Self> {
        let found = FOREIGN.iter().find(|foreign| target.starts_with(foreign.target));
        found.with_context(|| format!("no tools are known for {target}"))
    }

    fn compiler(&self) -> String {
        format!("{}-gcc", self.system)
    }

    /// A compiler for the architecture.
    fn tools(&self) -> Result<()> {
        if on_path(&self.compiler()) {
            return Ok(());
        }
        let packages = [format!("gcc-{}", self.system), format!("libc6-dev-{}-cross", self.debian)];
        setup::debian(&packages.each_ref().map(String::as_str))
    }

    /// `rustc-web` and, of the architecture, its standard library.
    fn rust(&self, target: &str) -> Result<()> {
        if Path::new("/usr/lib/rustlib").join(target).exists() {
            return Ok(());
        }
        self.package("libstd-rust-web-dev", &["rustc-web"])
            .with_context(|| format!("`rustup target add {target}` does not work here either"))
    }

    /// Headers and a file of settings with which gcc compiles for musl, as `musl-gcc` does.
    fn musl(&self) -> Result<String> {
        let settings = format!("/usr/lib/{}/musl-gcc.specs", self.system.replace("-gnu", "-musl"));
        if !Path::new(&settings).exists() {
            self.package("musl-dev", &[])?;
        }
        Ok(format!("-specs {settings}"))
    }

    /// Installs a package of the architecture, and others of this machine's.
    fn package(&self, name: &str, others: &[&str]) -> Result<()> {
        if !on_path("dpkg") {
            bail!("{name} of {} is to be had from Debian only", self.debian);
        }
        run(&mut command("dpkg", &["--add-architecture", self.debian]))?;
        let own = format!("{name}:{}", self.debian);
        setup::debian(&[&[own.as_str()], others].concat())
    }
}

/// `[TARGET]`: build and demonstration.
pub(crate) fn cross(tree: &Tree, target: Option<&str>) -> Result<()> {
    let target = target.unwrap_or(DEFAULT);
    let foreign = Foreign::of(target)?;
    let mut build = cargo(&["build", "--release", "--package", "fogmux", "--locked", "--target", target]);
    prepare(&mut build, target)?;
    run(build.current_dir(tree.root()))?;
    let binary = tree.target().join(target).join("release/fogmux");
    let size = std::fs::metadata(&binary)?.len();
    println!("{}: {:.1} MiB", binary.display(), size as f64 / f64::from(1 << 20));
    // A static program needs none of the libraries there.
    let libraries = Path::new("/usr").join(foreign.system);
    run(command(emulator(target)?, &["-L"]).arg(libraries).arg(binary).arg("demo"))
}

/// Makes a build for another target possible: its standard library, a compiler for C and a linker.
pub(crate) fn prepare(build: &mut Command, target: &str) -> Result<()> {
    let has_library = rustup_has(target);
    let variable = target.replace('-', "_");
    let is_musl = target.ends_with(MUSL);
    if is_musl && target.starts_with(std::env::consts::ARCH) {
        // It has the name by which build scripts find it.
        if !on_path("musl-gcc") {
            setup::debian(&["musl-tools"])?;
        }
    } else {
        let foreign = Foreign::of(target)?;
        foreign.tools()?;
        if is_musl {
            build.env(format!("CFLAGS_{variable}"), foreign.musl()?);
        }
        build.env(format!("CARGO_TARGET_{}_LINKER", variable.to_uppercase()), foreign.compiler());
        build.env(format!("CC_{variable}"), foreign.compiler());
        if !has_library && !is_musl {
            // The toolchain's own cargo, but Debian's compiler: cargo would else ask rustup for a target it has not.
            build.env("RUSTC", "/usr/bin/rustc");
            return foreign.rust(target);
        }
    }
    if has_library { Ok(()) } else { bail!("`rustup target add {target}` does not work here") }
}

/// The program that runs programs of a target, installed if it is missing.
pub(crate) fn emulator(target: &str) -> Result<&'static str> {
    let Foreign { emulator, .. } = Foreign::of(target)?;
    if !on_path(emulator) {
        setup::debian(&["qemu-user-static"])?;
    }
    Ok(emulator)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_have_the_tools_of_their_architecture() {
        assert_eq!(Foreign::of("aarch64-unknown-linux-musl").unwrap().compiler(), "aarch64-linux-gnu-gcc");
        assert_eq!(Foreign::of("armv7-unknown-linux-gnueabihf").unwrap().debian, "armhf");
        assert!(Foreign::of("x86_64-unknown-linux-gnu").is_err());
    }
}
