//! Rust source as nested tokens, without tests.

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};

/// A token; literals are left out.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Token {
    Word(String),
    /// `::`
    Colons,
    Sign(char),
    Group(Delimiter, Vec<Token>),
}

use Token::{Colons, Group, Sign, Word};

/// The words that an item begins with.
const ITEMS: [&str; 16] = [
    "async",
    "const",
    "enum",
    "extern",
    "fn",
    "impl",
    "let",
    "macro_rules",
    "mod",
    "static",
    "struct",
    "trait",
    "type",
    "union",
    "unsafe",
    "use",
];

/// The tokens of a file.
pub(super) fn tokens(stream: TokenStream) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut trees = stream.into_iter().peekable();
    while let Some(tree) = trees.next() {
        match tree {
            TokenTree::Group(group) => tokens.push(Group(group.delimiter(), self::tokens(group.stream()))),
            TokenTree::Ident(word) => tokens.push(Word(word.to_string())),
            TokenTree::Punct(sign) if sign.as_char() == '\'' => drop(trees.next()),
            TokenTree::Punct(sign) if sign.as_char() == ':' && sign.spacing() == Spacing::Joint => {
                drop(trees.next());
                tokens.push(Colons);
            }
            TokenTree::Punct(sign) => tokens.push(Sign(sign.as_char())),
            TokenTree::Literal(_) => {}
        }
    }
    without_tests(tokens)
}

/// Leaves out what `#[cfg(test)]` stands before, and all attributes.
fn without_tests(tokens: Vec<Token>) -> Vec<Token> {
    let mut left = Vec::new();
    let mut tokens = tokens.into_iter().peekable();
    let mut is_test = false;
    while let Some(token) = tokens.next() {
        if token == Sign('#') {
            tokens.next_if_eq(&Sign('!'));
            if let Some(Group(Delimiter::Bracket, attribute)) = tokens.next() {
                is_test |= is_cfg_test(&attribute);
            }
        } else if std::mem::take(&mut is_test) {
            let mut item = vec![token];
            while !is_whole(&item) {
                let Some(next) = tokens.next() else { break };
                item.push(next);
            }
        } else {
            left.push(token);
        }
    }
    left
}

fn is_cfg_test(attribute: &[Token]) -> bool {
    let [Word(cfg), Group(_, condition)] = attribute else { return false };
    let condition = match condition.as_slice() {
        [Word(all), Group(_, conditions)] if all == "all" => conditions.as_slice(),
        one => one,
    };
    cfg == "cfg" && matches!(condition, [Word(test)] | [Word(test), Sign(','), ..] if test == "test")
}

/// Whether these are all tokens of an item, a field or a statement.
fn is_whole(tokens: &[Token]) -> bool {
    let unqualified = match tokens {
        [Word(public), Group(Delimiter::Parenthesis, _), rest @ ..] | [Word(public), rest @ ..] if public == "pub" => {
            rest
        }
        all => all,
    };
    let is_item = matches!(unqualified, [Word(first), ..] if ITEMS.contains(&first.as_str()));
    let is_import = matches!(unqualified, [Word(first), ..] if first == "use");
    match tokens.last() {
        Some(Sign(';')) => true,
        Some(Sign(',')) => !is_item,
        Some(Group(Delimiter::Brace, _)) => !is_import,
        _ => false,
    }
}
