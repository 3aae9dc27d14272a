//! Every command line that a page shows is one that the program takes.

use std::path::{Path, PathBuf};

use clap::Parser as _;

use super::Cli;

/// The pages for people who use the program: the README, and what is below `docs` but for decisions.
fn pages(root: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut pages = vec![root.join("README.md")];
    let mut folders = vec![root.join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() && !path.ends_with("adr") {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    Ok(pages)
}

/// The words of a line up to a comment, a pipe or a redirection, as a shell splits them. A command in `$()` prints 1.
fn words(line: &str) -> Vec<String> {
    let mut line = line.to_owned();
    while let Some((before, rest)) = line.split_once("$(") {
        let after = rest.split_once(')').map_or("", |(_, after)| after);
        line = format!("{before}1{after}");
    }
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for letter in line.chars() {
        match letter {
            _ if quote == Some(letter) => quote = None,
            '\'' | '"' if quote.is_none() => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            '#' | '|' | '>' | '&' | ';' if quote.is_none() && word.is_none() => break,
            ' ' if quote.is_none() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}

#[test]
fn the_command_lines_of_pages_are_taken() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let mut count = 0;
    for page in pages(root).unwrap() {
        let text = std::fs::read_to_string(&page).unwrap();
        for line in text.lines().filter_map(|line| line.strip_prefix("    ")) {
            let command = line.strip_prefix("sudo ").unwrap_or(line);
            if !command.starts_with("fogmux ") {
                continue;
            }
            let words = words(command);
            let parsed = Cli::try_parse_from(&words);
            assert!(parsed.is_ok(), "{}: {line}\n{words:?}\n{}", page.display(), parsed.err().unwrap());
            count += 1;
        }
    }
    assert!(count >= 30, "{count} command lines");
}

#[test]
fn words_are_split_as_by_a_shell() {
    let split = |line| words(line).join("|");
    assert_eq!(split("fogmux sub 'https://h/a/#' --http 3  # all"), "fogmux|sub|https://h/a/#|--http|3");
    assert_eq!(split("fogmux pki oscore a > a.toml"), "fogmux|pki|oscore|a");
    assert_eq!(split("fogmux bench peer u --pid $(pidof x) --qos 1"), "fogmux|bench|peer|u|--pid|1|--qos|1");
}
