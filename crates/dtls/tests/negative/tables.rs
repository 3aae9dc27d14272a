//! The tables of `docs/security.md` are these tables.

use std::{fmt::Write as _, fs, path::Path};

use super::{case::Case, client_12, client_13, server_12, server_13};

/// Our side, and how the page names it.
const SIDES: [(&str, &str, [&[Case]; 3]); 4] = [
    ("server_12", "Our server, DTLS 1.2", server_12::TABLES),
    ("server_13", "Our server, DTLS 1.3", server_13::TABLES),
    ("client_12", "Our client, DTLS 1.2", client_12::TABLES),
    ("client_13", "Our client, DTLS 1.3", client_13::TABLES),
];
const PARTS: [&str; 3] = ["hello", "handshake", "session"];

/// The text that the page has to have.
fn expected() -> String {
    let mut page = String::new();
    for (side, title, tables) in SIDES {
        let count: usize = tables.iter().map(|table| table.len()).sum();
        writeln!(page, "\n#### {title} (`{side}`, {count} cases)\n").unwrap();
        writeln!(page, "| clause (RFC) | what is sent | what comes back | test |\n|---|---|---|---|").unwrap();
        for (part, table) in PARTS.iter().zip(tables) {
            for case in table {
                let Case { name, clause, sent, back, .. } = case;
                writeln!(page, "| {clause} | {sent} | {} | `{part}::{name}` |", back.words()).unwrap();
            }
        }
    }
    page
}

#[test]
fn docs_security_md_has_every_case_and_no_other() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/security.md");
    let page = fs::read_to_string(path).unwrap();
    let start = page.find("\n#### Our server, DTLS 1.2").unwrap_or(page.len());
    let is_end = |at: &usize| page[*at..].starts_with("\n## ") || page[*at..].starts_with("\n### ");
    let end = (start..page.len()).filter(|at| page.is_char_boundary(*at)).find(is_end).unwrap_or(page.len());
    let expected = expected();
    assert!(page[start..end] == expected, "docs/security.md should say\n{expected}\nand not\n{}", &page[start..end]);
    assert!(expected.lines().all(|line| line.chars().count() <= 160), "rows stay short");
}

#[test]
fn a_name_is_that_of_one_case() {
    for (side, _, tables) in SIDES {
        for table in tables {
            for (at, case) in table.iter().enumerate() {
                assert!(table[..at].iter().all(|other| other.name != case.name), "{side} {}", case.name);
            }
        }
    }
}
