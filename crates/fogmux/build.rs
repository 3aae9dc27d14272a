//! How the program is linked.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // A position-independent program of this size begins with 1.2 MB of addresses to be corrected, each with 24 bytes
    // of its own; packed they are 50 KB, which an idle gateway does not have to hold. Needs glibc 2.36.
    let target = |part: &str| std::env::var(format!("CARGO_CFG_TARGET_{part}")).unwrap_or_default();
    if target("OS") == "linux" && target("ENV") == "gnu" {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}
