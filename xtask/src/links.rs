//! Every relative link of every Markdown page leads to a file of the tree.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::tree::Tree;

/// Checks all pages; all dead links are reported at once.
pub(crate) fn check(tree: &Tree) -> Result<()> {
    let mut pages = Vec::new();
    collect(tree.root(), &mut pages)?;
    let mut dead = Vec::new();
    for page in &pages {
        let text = std::fs::read_to_string(page).with_context(|| page.display().to_string())?;
        let beside = page.parent().unwrap_or(tree.root());
        for target in targets(&text).filter(|target| is_local(target)) {
            let file = target.split('#').next().unwrap_or_default();
            if !file.is_empty() && !beside.join(file).exists() {
                dead.push(format!("{}: {target}", page.strip_prefix(tree.root()).unwrap_or(page).display()));
            }
        }
    }
    println!("{} pages, {} dead links", pages.len(), dead.len());
    if dead.is_empty() { Ok(()) } else { bail!("dead links:\n{}", dead.join("\n")) }
}

fn collect(directory: &Path, pages: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(directory).with_context(|| directory.display().to_string())? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() && !name.starts_with('.') && name != "target" && name != "node_modules" {
            collect(&path, pages)?;
        } else if name.ends_with(".md") {
            pages.push(path);
        }
    }
    Ok(())
}

/// Returns the link targets, between `](` and `)` and outside of code blocks.
fn targets(text: &str) -> impl Iterator<Item = &str> {
    text.split("```").step_by(2).flat_map(|prose| {
        prose.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target.trim())
    })
}

fn is_local(target: &str) -> bool {
    !target.contains("://") && !target.starts_with("mailto:") && !target.contains(char::is_whitespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_in_code_are_not_links() {
        let text = "see [a](one.md) and\n```\n[b](two.md)\n```\nthen [c](three.md#part)";
        assert_eq!(targets(text).collect::<Vec<_>>(), ["one.md", "three.md#part"]);
    }

    #[test]
    fn only_links_into_the_tree_are_local() {
        assert!(is_local("docs/x.md#y"));
        assert!(!is_local("https://example.org/"));
    }
}
