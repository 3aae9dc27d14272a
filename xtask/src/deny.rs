//! The dependency policy of `deny.toml`: licences, banned crates and registries. It is checked on the output of
//! `cargo tree`, so no tool has to be installed. `cargo deny` reads the same file and runs too if it is installed.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context, Result, bail};

use crate::command::{cargo, output, run, succeeds};
use crate::tree::Tree;

/// Fails with every offence at once.
pub(crate) fn deny(tree: &Tree) -> Result<()> {
    let policy = fs::read_to_string(tree.root().join("deny.toml")).context("deny.toml")?;
    let allowed = array(&policy, "[licenses]", "allow").context("deny.toml: no [licenses] allow")?;
    let banned = array(&policy, "[bans]", "deny").context("deny.toml: no [bans] deny")?;
    let arguments =
        ["tree", "--workspace", "--locked", "--target", "all", "--edges", "normal,build", "--prefix", "none"];
    let list = output(cargo(&arguments).args(["--format", "{p}|{l}"]).current_dir(tree.root()))?;
    let packages: BTreeSet<&str> = list.lines().filter(|line| !line.is_empty()).collect();
    let offences: Vec<String> = packages.iter().filter_map(|line| offence(line, &allowed, &banned)).collect();
    println!("{} packages, {} offences", packages.len(), offences.len());
    if !offences.is_empty() {
        bail!("{}", offences.join("\n"));
    }
    if succeeds(&mut cargo(&["deny", "--version"])) {
        run(cargo(&["deny", "--log-level", "error", "check", "licenses", "bans", "sources"]).current_dir(tree.root()))?;
    }
    Ok(())
}

/// `name vX.Y.Z (where)|licence expression` against the policy.
fn offence(line: &str, allowed: &[&str], banned: &[&str]) -> Option<String> {
    let (package, licence) = line.split_once('|')?;
    let name = package.split(' ').next().unwrap_or_default();
    if banned.contains(&name) {
        return Some(format!("{name}: banned"));
    }
    if package.contains("(http") || package.contains("(git") {
        return Some(format!("{package}: not from the registry"));
    }
    // `cargo tree` marks a repeated package after the licence.
    let licence = licence.trim_end_matches(" (*)");
    (!is_allowed(licence, allowed)).then(|| format!("{package}: licence `{licence}`"))
}

/// Whether an SPDX expression can be met with the allowed licences: `OR` needs one side, `AND` both.
fn is_allowed(expression: &str, allowed: &[&str]) -> bool {
    let flat = expression.replace('/', " OR ").replace(['(', ')'], " ");
    // AND binds tighter than OR (SPDX annex D.4.5); for `A AND (B OR C)` flattening only widens what has to hold.
    flat.split(" OR ").any(|side| side.split(" AND ").all(|licence| allowed.contains(&licence.trim())))
}

/// The strings of `key = [ … ]` after a table's head.
fn array<'a>(toml: &'a str, table: &str, key: &str) -> Option<Vec<&'a str>> {
    let (_, section) = toml.split_once(table)?;
    let section = section.split("\n[").next()?;
    let (_, value) = section.split_once(&format!("\n{key} = ["))?;
    let (value, _) = value.split_once(']')?;
    Some(value.split('"').skip(1).step_by(2).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_needs_one_side_of_or_and_both_of_and() {
        let allowed = ["MIT", "Apache-2.0"];
        assert!(is_allowed("GPL-3.0 OR MIT", &allowed));
        assert!(is_allowed("MIT/Apache-2.0", &allowed));
        assert!(is_allowed("(MIT OR Zlib) AND Apache-2.0", &allowed));
        assert!(!is_allowed("MIT AND ISC", &allowed));
        assert!(!is_allowed("", &allowed));
    }

    #[test]
    fn arrays_are_read_from_their_own_table() {
        let toml = "[bans]\ndeny = [\"x\"]\n[licenses]\nallow = [\n  \"MIT\",\n  \"ISC\", # why\n]\n";
        assert_eq!(array(toml, "[licenses]", "allow"), Some(vec!["MIT", "ISC"]));
        assert_eq!(array(toml, "[bans]", "deny"), Some(vec!["x"]));
        assert_eq!(array(toml, "[bans]", "allow"), None);
    }

    #[test]
    fn banned_and_foreign_packages_offend() {
        assert!(offence("a v1.0.0|MIT", &["MIT"], &["a"]).is_some());
        assert!(offence("b v1.0.0 (https://x/y#1)|MIT", &["MIT"], &["a"]).is_some());
        assert!(offence("b v1.0.0|MIT (*)", &["MIT"], &["a"]).is_none());
    }
}
