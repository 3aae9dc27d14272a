//! Where things are: the root of the tree and what the tests make under `target/`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The work tree and its target directory.
pub(crate) struct Tree {
    root: PathBuf,
    target: PathBuf,
}

impl Tree {
    /// The tree this program was built from.
    pub(crate) fn find() -> Result<Self> {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = manifest.parent().context("xtask has no parent directory")?.to_owned();
        let target = match std::env::var_os("CARGO_TARGET_DIR") {
            Some(target) => root.join(target),
            None => root.join("target"),
        };
        Ok(Self { root, target })
    }

    /// The directory of the workspace.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Cargo's target directory.
    pub(crate) fn target(&self) -> &Path {
        &self.target
    }

    /// Where foreign clients are installed.
    pub(crate) fn clients(&self) -> PathBuf {
        self.target.join("clients")
    }

    /// The gateway of the dev profile.
    pub(crate) fn gateway(&self) -> PathBuf {
        self.target.join("debug").join("fogmux")
    }

    /// The interpreter with the Python clients.
    pub(crate) fn python(&self) -> PathBuf {
        self.clients().join("venv/bin/python")
    }

    /// The HTTP/2 conformance tester.
    pub(crate) fn h2spec(&self) -> PathBuf {
        self.clients().join("bin/h2spec")
    }
}

/// Whether both files are there and have the same content.
pub(crate) fn same(left: &Path, right: &Path) -> bool {
    matches!((fs::read(left), fs::read(right)), (Ok(left), Ok(right)) if left == right)
}
