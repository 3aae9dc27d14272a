//! The tree of files that is installed: the same in a package and in an archive.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::{Release, empty};
use crate::command::{cargo_tree, command, run};
use crate::tree::Tree;

/// Where the shells look for completions.
const COMPLETIONS: [(&str, &str); 3] = [
    ("fogmux.bash", "usr/share/bash-completion/completions/fogmux"),
    ("fogmux.fish", "usr/share/fish/vendor_completions.d/fogmux.fish"),
    ("_fogmux", "usr/share/zsh/vendor-completions/_fogmux"),
];

/// A directory with `usr` and `etc`.
pub(super) struct Stage {
    pub(super) root: PathBuf,
}

impl Stage {
    /// Lays out everything. `program` has no symbols.
    pub(super) fn fill(tree: &Tree, release: &Release, program: &Path) -> Result<Self> {
        let stage = Self { root: empty(tree, &format!("dist-{}-{}", release.name(), release.platform.archive))? };
        let source = |name: &str| tree.root().join(name);
        stage.put(program, "usr/bin/fogmux", 0o755)?;
        stage.put(&source("deploy/fogmux.service"), "usr/lib/systemd/system/fogmux.service", 0o644)?;
        stage.put(&source("deploy/fogmux.toml"), "etc/fogmux/fogmux.toml", 0o644)?;
        fs::create_dir_all(stage.root.join("etc/fogmux/conf.d"))?;

        let documents = Path::new("usr/share/doc").join(release.name());
        let documents = documents.to_str().context("a path is not UTF-8")?;
        for name in ["README.md", "SECURITY.md", "config/fogmux.toml"] {
            let file = Path::new(name).file_name().and_then(|name| name.to_str()).context("a file has no name")?;
            stage.put(&source(name), &format!("{documents}/{file}"), 0o644)?;
        }
        stage.put(&source("deploy/debian/copyright"), &format!("{documents}/copyright"), 0o644)?;
        let mut texts = vec![stage.put(&source("CHANGELOG.md"), &format!("{documents}/changelog"), 0o644)?];
        for (from, to) in [("config", "presets"), ("deploy/monitoring", "monitoring")] {
            for entry in fs::read_dir(source(from))? {
                let file = entry?.path();
                let name = file.file_name().and_then(|name| name.to_str()).context("a file has no name")?;
                if name != "fogmux.toml" {
                    stage.put(&file, &format!("{documents}/{to}/{name}"), 0o644)?;
                }
            }
        }
        texts.extend(stage.manuals(tree)?);
        // Without names and dates, so that the same sources make the same files.
        run(command("gzip", &["--no-name", "-9"]).args(texts))?;
        Ok(stage)
    }

    /// Manual pages and completions. The command line is that of all features, in the lean program as well: it says of
    /// a command that it lacks which feature has it. Returns the manual pages.
    fn manuals(&self, tree: &Tree) -> Result<Vec<PathBuf>> {
        let place = empty(tree, "dist-manuals")?;
        run(cargo_tree("build", &["--example", "manuals"]).current_dir(tree.root()))?;
        run(command(tree.target().join("debug/examples/manuals"), &[]).arg(&place))?;
        for (name, to) in COMPLETIONS {
            self.put(&place.join("completions").join(name), to, 0o644)?;
        }
        let pages = fs::read_dir(place.join("man"))?;
        let put = pages.map(|entry| {
            let file = entry?.path();
            let name = file.file_name().and_then(|name| name.to_str()).context("a manual page has no name")?;
            self.put(&file, &format!("usr/share/man/man1/{name}"), 0o644)
        });
        put.collect()
    }

    /// Copies a file to its place in the tree.
    fn put(&self, from: &Path, to: &str, mode: u32) -> Result<PathBuf> {
        let to = self.root.join(to);
        fs::create_dir_all(to.parent().context("a file is in no directory")?)?;
        fs::copy(from, &to).with_context(|| from.display().to_string())?;
        fs::set_permissions(&to, fs::Permissions::from_mode(mode))?;
        Ok(to)
    }
}
