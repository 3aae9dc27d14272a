//! The build as a report names it: the versions of the libraries that shape traffic, the commit, the profile.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

/// Of what a gateway and a generator say and encrypt with; OpenSSL is asked when it runs.
const NAMED: [&str; 4] = ["h2", "quinn", "ring", "rustls"];
/// A build that has no repository may be told its commit.
const COMMIT: &str = "FOGMUX_COMMIT";

fn main() {
    let lock = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.lock");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={}", lock.display());
    // Built elsewhere than in its workspace, it says nothing.
    let text = fs::read_to_string(lock).unwrap_or_default();
    let named: Vec<String> = packages(&text)
        .filter(|(name, _)| NAMED.contains(name))
        .map(|(name, version)| format!("{name} {version}"))
        .collect();
    println!("cargo::rustc-env=FOGMUX_LIBRARIES={}", named.join(","));
    println!("cargo::rerun-if-env-changed={COMMIT}");
    println!("cargo::rustc-env={COMMIT}={}", env::var(COMMIT).ok().or_else(commit).unwrap_or_default());
    for (name, cargo) in [("FOGMUX_PROFILE", "PROFILE"), ("FOGMUX_OPT_LEVEL", "OPT_LEVEL"), ("FOGMUX_TARGET", "TARGET")]
    {
        println!("cargo::rustc-env={name}={}", env::var(cargo).unwrap_or_default());
    }
}

/// Names and versions, as Cargo writes them: a line each, one after the other.
fn packages(lock: &str) -> impl Iterator<Item = (&str, &str)> {
    lock.lines().zip(lock.lines().skip(1)).filter_map(|(first, second)| {
        let name = first.strip_prefix("name = \"")?.strip_suffix('"')?;
        Some((name, second.strip_prefix("version = \"")?.strip_suffix('"')?))
    })
}

/// The commit that is checked out, and whether files differ from it.
fn commit() -> Option<String> {
    let head = git(&["rev-parse", "HEAD"])?;
    // A line is added with each commit and checkout. A debug build, which nobody publishes, is not made anew for that.
    if env::var("PROFILE").is_ok_and(|profile| profile == "release") {
        let log = git(&["rev-parse", "--git-path", "logs/HEAD"])?;
        println!("cargo::rerun-if-changed={}", Path::new(env!("CARGO_MANIFEST_DIR")).join(log).display());
    }
    let is_dirty = git(&["status", "--porcelain", "--untracked-files=no"]).is_none_or(|changed| !changed.is_empty());
    Some(if is_dirty { format!("{head}-dirty") } else { head })
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .arg("--no-optional-locks")
        .args(arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
