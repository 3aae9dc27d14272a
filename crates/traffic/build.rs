//! Which versions of the libraries that shape traffic are built in: reports name them.

use std::fs;
use std::path::Path;

/// Of what a gateway and a generator say and encrypt with; OpenSSL is asked when it runs.
const NAMED: [&str; 4] = ["h2", "quinn", "ring", "rustls"];

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
}

/// Names and versions, as Cargo writes them: a line each, one after the other.
fn packages(lock: &str) -> impl Iterator<Item = (&str, &str)> {
    lock.lines().zip(lock.lines().skip(1)).filter_map(|(first, second)| {
        let name = first.strip_prefix("name = \"")?.strip_suffix('"')?;
        Some((name, second.strip_prefix("version = \"")?.strip_suffix('"')?))
    })
}
