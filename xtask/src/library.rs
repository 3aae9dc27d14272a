//! DTLS libraries in C, and peers of ours over them that the interop tests drive.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::command::{cargo, command, output, run};
use crate::tree::{Tree, same};

/// A library, and the directory of its peer in `tests/interop/NAME`.
struct Library {
    name: &'static str,
    /// Where its sources are in the package `NAME-sys`.
    sources: &'static str,
    flags: &'static [&'static str],
    /// Directories of which every file belongs to it, and single files.
    parts: &'static [&'static str],
}

const LIBRARIES: [Library; 2] = [
    Library {
        name: "wolfssl",
        sources: "wolfssl-src",
        flags: &["-DWOLFSSL_USER_SETTINGS", "-lm"],
        parts: &["src", "wolfcrypt/src"],
    },
    Library {
        name: "tinydtls",
        sources: "src/tinydtls",
        flags: &[
            "-D_GNU_SOURCE",
            "-DWITH_POSIX",
            "-DDTLSv12",
            "-DWITH_SHA256",
            "-DSHA2_USE_INTTYPES_H",
            "-DDTLS_CHECK_CONTENTTYPE",
        ],
        parts: &[
            "aes/rijndael.c",
            "aes/rijndael_wrap.c",
            "ccm.c",
            "crypto.c",
            "dtls.c",
            "dtls_debug.c",
            "dtls_prng.c",
            "dtls_time.c",
            "hmac.c",
            "netq.c",
            "peer.c",
            "session.c",
            "sha2/sha2.c",
        ],
    },
];

/// Compiles the peers that are missing.
pub(crate) fn peers(tree: &Tree) -> Result<()> {
    LIBRARIES.iter().try_for_each(|library| peer(tree, library))
}

/// Cargo brings the sources, by checksum; what is compiled is a peer that the tests drive, and links to nothing of
/// ours.
fn peer(tree: &Tree, library: &Library) -> Result<()> {
    let Library { name, sources, flags, parts } = library;
    let place = tree.root().join("tests/interop").join(name);
    let bin = tree.clients().join("bin");
    let (binary, stamp) = (bin.join(format!("{name}-peer")), bin.join(format!("{name}-peer.c")));
    if binary.exists() && same(&place.join("peer.c"), &stamp) {
        println!("setup: the peer of {name} is there");
        return Ok(());
    }
    println!("setup: the peer of {name} into {}", bin.display());
    let manifest = place.join("Cargo.toml");
    run(cargo(&["fetch", "--locked", "--manifest-path"]).arg(&manifest))?;
    let mut asked = cargo(&["metadata", "--locked", "--offline", "--format-version", "1", "--manifest-path"]);
    let told = output(asked.arg(&manifest))?;
    let directory = format!("/{name}-sys-");
    let package = told.split('"').find(|word| word.contains(&directory) && word.ends_with("/Cargo.toml"));
    let package = Path::new(package.with_context(|| format!("{name}-sys is not there"))?);
    let source = package.parent().context("a manifest is in no directory")?.join(sources);
    fs::create_dir_all(&bin)?;
    let mut compile = command("cc", &["-O1", "-w", "-I"]);
    compile.arg(&place).arg("-I").arg(&source).arg(place.join("peer.c"));
    for part in parts.iter().map(|part| source.join(part)) {
        if part.is_file() {
            compile.arg(part);
            continue;
        }
        for file in fs::read_dir(part)? {
            let file = file?.path();
            // An included file need not have content.
            if file.extension().is_some_and(|extension| extension == "c") {
                compile.arg(file);
            }
        }
    }
    run(compile.args(*flags).arg("-o").arg(&binary))?;
    fs::copy(place.join("peer.c"), &stamp).map(drop).with_context(|| stamp.display().to_string())
}
