//! The keys of `config/fogmux.toml` and which of them a reload applies, read from the comments that operators read.

use anyhow::{Context, Result, ensure};

const REFERENCE: &str = include_str!("../../../config/fogmux.toml");
/// The mark of a banner, a section or a key.
const RESTART: &str = "(restart";
/// The mark of a section that is an exception to its banner.
const READ_AGAIN: &str = "read again by SIGHUP";

/// A key with its whole name, its default as it is written, and its mark.
#[derive(Debug)]
pub(super) struct Key {
    pub(super) name: String,
    pub(super) value: String,
    pub(super) reloadable: bool,
}

/// Every key.
///
/// # Errors
/// When a line is none that this file has.
pub(super) fn keys() -> Result<Vec<Key>> {
    let described = descriptions();
    let mut keys = Vec::new();
    let (mut banner, mut section, mut section_restarts) = (false, String::new(), false);
    for line in REFERENCE.lines() {
        if line.starts_with("# ----") {
            banner = line.contains(RESTART);
        } else if let Some(rest) = line.strip_prefix('[') {
            let (name, comment) = rest.split_once(']').context("a section without an end")?;
            section = name.to_owned();
            section_restarts = (banner || comment.contains(RESTART)) && !comment.contains(READ_AGAIN);
        } else if let Some((key, rest)) = line.split_once(" = ").filter(|_| !line.starts_with('#')) {
            let (value, comment) = rest.split_once(" # ").unwrap_or((rest, ""));
            let of_listener = section.starts_with("listeners.");
            let description = described.iter().find(|(name, _)| name == key).map(|(_, text)| text.as_str());
            let said = if of_listener { description.with_context(|| format!("nothing about {key}"))? } else { comment };
            keys.push(Key {
                name: format!("{section}.{key}"),
                value: value.to_owned(),
                reloadable: !section_restarts && !said.contains(RESTART),
            });
        } else {
            ensure!(line.is_empty() || line.starts_with('#'), "what is {line:?}?");
        }
    }
    Ok(keys)
}

/// The keys of listeners are described once, each with the lines that are indented below it.
fn descriptions() -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    for line in REFERENCE.lines().filter_map(|line| line.strip_prefix("# ")) {
        if let Some(more) = line.strip_prefix("   ") {
            if let Some((_, text)) = found.last_mut() {
                text.push_str(more);
            }
        } else if let Some((key, text)) = line.split_once("  ").filter(|(key, _)| !key.contains(' ')) {
            found.push((key.to_owned(), text.to_owned()));
        } else if let Some((key, text)) = line.split_once(' ').filter(|(key, _)| key.contains('_')) {
            found.push((key.to_owned(), text.to_owned()));
        }
    }
    found
}
