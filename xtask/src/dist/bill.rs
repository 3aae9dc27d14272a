//! The bill of materials: every crate that is in the program or was used to build it, with version and licence, in the
//! format CycloneDX 1.5 (ECMA-424).

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::Release;
use crate::command::{cargo, output};
use crate::size;
use crate::tree::Tree;

/// Between the fields of a line; no licence expression has it.
const SEPARATOR: char = '|';

/// A crate.
#[derive(Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Part {
    name: String,
    version: String,
    licence: String,
}

/// Writes the file.
pub(super) fn write(tree: &Tree, release: &Release, place: &Path) -> Result<PathBuf> {
    let mut list = cargo(&["tree", "--package", "fogmux", "--locked", "--target", release.platform.target]);
    list.args(["--edges", "normal,build", "--prefix", "none", "--format", "{p}|{l}"]);
    if release.lean {
        list.args(["--no-default-features", "--features", size::LEAN]);
    }
    let told = output(list.current_dir(tree.root()))?;
    let parts: BTreeSet<Part> = told.lines().filter(|line| !line.is_empty()).map(part).collect::<Result<_>>()?;
    let to = place.join(format!("{}-{}-{}.cdx.json", release.name(), release.version, release.platform.archive));
    fs::write(&to, text(release, &parts)?).with_context(|| to.display().to_string())?;
    Ok(to)
}

/// A line `NAME vVERSION (WHERE)|LICENCE (*)`.
fn part(line: &str) -> Result<Part> {
    let (package, licence) = line.split_once(SEPARATOR).with_context(|| format!("`{line}` names no licence"))?;
    let mut words = package.split_whitespace();
    let name = words.next().with_context(|| format!("`{line}` names no crate"))?.to_owned();
    let version = words.next().and_then(|word| word.strip_prefix('v'));
    let version = version.with_context(|| format!("`{line}` names no version"))?.to_owned();
    // Old manifests write `MIT/Apache-2.0`, which SPDX does not know.
    let licence = licence.trim_end_matches(" (*)").replace(" / ", "/").replace('/', " OR ");
    Ok(Part { name, version, licence })
}

fn text(release: &Release, parts: &BTreeSet<Part>) -> Result<String> {
    let Release { version, .. } = release;
    let name = release.name();
    let mut text = format!(
        "{{\n  \"bomFormat\": \"CycloneDX\",\n  \"specVersion\": \"1.5\",\n  \"version\": 1,\n  \"metadata\": {{\n    \
         \"component\": {{\"type\": \"application\", \"name\": {name:?}, \"version\": {version:?}}}\n  }},\n  \
         \"components\": ["
    );
    for (index, Part { name, version, licence }) in parts.iter().enumerate() {
        // Debug strings of names, versions and licences are JSON strings: they are ASCII without control characters.
        let comma = if index == 0 { "" } else { "," };
        write!(
            text,
            "{comma}\n    {{\"type\": \"library\", \"name\": {name:?}, \"version\": {version:?}, \"purl\": \
             \"pkg:cargo/{name}@{version}\", \"licenses\": [{{\"expression\": {licence:?}}}]}}"
        )?;
    }
    text.push_str("\n  ]\n}\n");
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_cargo_tree_are_read() {
        let read = |line| part(line).map(|part| (part.name, part.version, part.licence)).ok();
        let expected = |name: &str, version: &str, licence: &str| Some((name.into(), version.into(), licence.into()));
        assert_eq!(read("aes v0.9.0|MIT OR Apache-2.0"), expected("aes", "0.9.0", "MIT OR Apache-2.0"));
        assert_eq!(read("foo v1.0.0 (proc-macro)|MIT/Apache-2.0 (*)"), expected("foo", "1.0.0", "MIT OR Apache-2.0"));
        assert_eq!(read("[build-dependencies]"), None);
    }
}
