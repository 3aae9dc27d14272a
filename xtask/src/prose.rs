//! The form of prose: lines of at most 120 characters, comments whose subject comes first, and the index of decisions.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::tree::Tree;

/// Characters of a line.
const LINE_MAX: usize = 120;
/// Words that no comment begins with: the subject comes first.
const RIDDLES: [&str; 5] = ["What", "Who", "Whoever", "Whom", "Whose"];
/// The marks of comments in Rust, and in Python, TOML and YAML.
const MARKS: [&str; 4] = ["///", "//!", "//", "#"];
const DECISIONS: &str = "docs/adr";

/// Checks pages, comments and decisions; everything that is wrong is reported at once.
pub(crate) fn check(tree: &Tree) -> Result<()> {
    let mut files = Vec::new();
    collect(tree.root(), &mut files)?;
    let mut wrong = Vec::new();
    for file in &files {
        let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
        let name = file.strip_prefix(tree.root()).unwrap_or(file).display();
        let found = if is(file, &["md"]) { page(&text) } else { comments(&text, is(file, &["rs"])) };
        wrong.extend(found.into_iter().map(|(line, fault)| format!("{name}:{line}: {fault}")));
    }
    wrong.extend(decisions(&tree.root().join(DECISIONS))?);
    println!("{} files of prose, {} faults", files.len(), wrong.len());
    if wrong.is_empty() { Ok(()) } else { bail!("prose:\n{}", wrong.join("\n")) }
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(directory).with_context(|| directory.display().to_string())? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() && !name.starts_with('.') && !["target", "node_modules", "corpus"].contains(&&*name) {
            collect(&path, files)?;
        } else if is(&path, &["md", "rs", "py", "toml", "yml"]) {
            files.push(path);
        }
    }
    Ok(())
}

fn is(file: &Path, endings: &[&str]) -> bool {
    file.extension().is_some_and(|ending| endings.iter().any(|one| ending == *one))
}

/// The faults of a Markdown page, with their lines. Tables and code cannot be wrapped.
fn page(text: &str) -> Vec<(usize, String)> {
    let mut is_code = false;
    let mut wrong = Vec::new();
    for (line, text) in (1..).zip(text.lines()) {
        is_code ^= text.trim_start().starts_with("```");
        if !is_code && !text.starts_with("    ") && !text.trim_start().starts_with('|') {
            wrong.extend(too_long(text).map(|fault| (line, fault)));
        }
    }
    wrong
}

/// The faults of a source file's comments, with their lines.
fn comments(text: &str, is_rust: bool) -> Vec<(usize, String)> {
    let marks = if is_rust { &MARKS[..3] } else { &MARKS[3..] };
    let mut before = None;
    let mut wrong = Vec::new();
    for (line, text) in (1..).zip(text.lines()) {
        let mark = marks.iter().find(|mark| text.trim_start().starts_with(**mark));
        if let Some(mark) = mark {
            wrong.extend(too_long(text).map(|fault| (line, fault)));
            let words = text.trim_start().trim_start_matches(mark);
            let first = words.trim_start().split(|one: char| !one.is_alphabetic()).next().unwrap_or_default();
            if before != Some(mark) && RIDDLES.contains(&first) {
                wrong.push((line, format!("begins with {first}: name the subject first")));
            }
        }
        before = mark;
    }
    wrong
}

fn too_long(line: &str) -> Option<String> {
    let characters = line.chars().count();
    (characters > LINE_MAX).then(|| format!("{characters} characters, {LINE_MAX} at most"))
}

/// The faults of decisions: each has a heading of one form, and the index has its title.
fn decisions(directory: &Path) -> Result<Vec<String>> {
    let index = std::fs::read_to_string(directory.join("README.md")).context("the index of decisions")?;
    let index = index.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut files: Vec<_> = std::fs::read_dir(directory)?.collect::<std::io::Result<_>>()?;
    files.sort_by_key(std::fs::DirEntry::file_name);
    let mut wrong = Vec::new();
    for file in files.iter().map(|file| file.file_name().to_string_lossy().into_owned()) {
        if file != "README.md" {
            let text = std::fs::read_to_string(directory.join(&file))?;
            wrong.extend(decision(&file, &text, &index).map(|fault| format!("{DECISIONS}/{file}: {fault}")));
        }
    }
    Ok(wrong)
}

/// The fault of a decision. `index` has single spaces between its words.
fn decision(file: &str, text: &str, index: &str) -> Option<String> {
    let number = file.split('-').next().unwrap_or_default();
    let mut lines = text.lines();
    let Some(title) = lines.next().and_then(|line| line.strip_prefix(&format!("# ADR {number}: "))) else {
        return Some(format!("the heading is not `# ADR {number}: Title`"));
    };
    if !lines.nth(1).is_some_and(|line| line.starts_with("Date: ") && line.contains(" · Status: ")) {
        return Some("the third line is not `Date: … · Status: …`".to_owned());
    }
    let entry = format!("[{number}]({file}): {title} (");
    (!index.contains(&entry)).then(|| format!("the index has no `{entry}…)`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_is_short_but_for_tables_and_code() {
        let long = "x".repeat(LINE_MAX + 1);
        let text = format!("{long}\n| {long} |\n    {long}\n```\n{long}\n```\n- {long}\n{}", "ä".repeat(LINE_MAX));
        assert_eq!(page(&text).into_iter().map(|(line, _)| line).collect::<Vec<_>>(), [1, 7]);
    }

    #[test]
    fn comments_name_their_subject_first() {
        let text = "// Who asks.\nlet who = 1; // What\n/// A list.\n/// Who is in it.\n    //! Whose.\n/// Whole.";
        assert_eq!(comments(text, true).into_iter().map(|(line, _)| line).collect::<Vec<_>>(), [1, 5]);
        assert_eq!(comments("# What is this?\n// Who", false).len(), 1);
    }

    #[test]
    fn decisions_are_in_the_index_by_their_titles() {
        let index = "- [0001](0001-a.md): A title (accepted)";
        let text = "# ADR 0001: A title\n\nDate: 2026-11-21 · Status: accepted\n";
        assert_eq!(decision("0001-a.md", text, index), None);
        for wrong in [text.replace("ADR", "Adr"), text.replace("A title", "Another"), text.replace("Status", "State")] {
            assert!(decision("0001-a.md", &wrong, index).is_some(), "{wrong}");
        }
    }
}
