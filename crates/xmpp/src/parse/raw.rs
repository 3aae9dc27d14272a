//! Elements that are kept as text: the payloads of pubsub items.
//!
//! The text has to mean the same anywhere else, so prefixes that were declared further out are declared again. A
//! payload that leaves its default namespace to the surrounding pubsub element has none of its own and gets none.

use super::{Parsed, Parser, StartTag, malformed, text};
use crate::chars::escape_attribute;
use crate::element::{Node, RawXml};
use crate::error::StreamError;
use crate::limits::Limits;
use crate::ns;
use std::borrow::Cow;

/// The namespace bindings that a payload uses and that are declared outside of it.
#[derive(Debug, Default)]
pub(super) struct Outer<'a> {
    /// Bindings below this index were declared before the payload.
    floor: usize,
    prefixes: Vec<(&'a str, Cow<'a, str>)>,
    default_used: bool,
}

impl<'a> Outer<'a> {
    pub(super) fn note(&mut self, prefix: &'a str, uri: Cow<'a, str>, bound_by: Option<usize>) {
        let inner = bound_by.is_some_and(|index| index >= self.floor);
        if inner || prefix == "xml" {
            return;
        }
        if prefix.is_empty() {
            self.default_used = true;
        }
        if !self.prefixes.iter().any(|(p, _)| *p == prefix) {
            self.prefixes.push((prefix, uri));
        }
    }
}

/// How XML text can stand inside another document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Embedding {
    /// As it is.
    Whole,
    /// With ` xmlns=''` written at this offset, the end of the root's name.
    Undeclared(usize),
}

/// Whether `bytes` are exactly one element that may stand in an XMPP stanza and comes out of a parser unchanged; how it
/// has to be written there.
#[must_use]
pub fn embedding(bytes: &[u8], limits: &Limits) -> Option<Embedding> {
    // A parser at the other end would turn carriage returns into line feeds.
    if bytes.first() != Some(&b'<') || memchr::memchr(b'\r', bytes).is_some() {
        return None;
    }
    // Message, event, items and item stand around it.
    let around = 5;
    let mut parser = Parser::new(std::str::from_utf8(bytes).ok()?, limits).ok()?;
    let name_end = 1 + parser.skip(around + 1).ok()?.len();
    parser.finish().ok()?;
    Some(if parser.outer.default_used { Embedding::Undeclared(name_end) } else { Embedding::Whole })
}

impl<'a> Parser<'a> {
    /// A child of an item: one of the two wrappers as a tree, anything else as text.
    pub(super) fn payload(&mut self, depth: usize) -> Parsed<Node<'a>> {
        let begins = self.at;
        let bindings = self.bindings.len();
        let tag = self.start_tag(depth)?;
        let wrapper = tag.element.is(ns::JSON, "json") || tag.element.is(ns::FOGMUX, "data");
        self.at = begins;
        self.bindings.truncate(bindings);
        if wrapper {
            return self.element(depth).map(Node::Element);
        }
        self.outer = Outer { floor: bindings, ..Outer::default() };
        let qualified = self.skip(depth)?;
        let span = self.text.get(begins..self.at).unwrap_or_default();
        let outer = std::mem::take(&mut self.outer);
        let xml = complete(text::line_ends(span), qualified.len(), &outer);
        Ok(Node::Raw(RawXml { namespace: tag.element.namespace, name: tag.element.name, xml }))
    }

    /// Checks an element and passes over it; its qualified name.
    fn skip(&mut self, depth: usize) -> Parsed<&'a str> {
        let tag = self.start_tag(depth)?;
        self.note_element(&tag);
        if !tag.empty {
            while !self.rest().starts_with("</") {
                if !self.skip_character_data()? {
                    self.skip(depth + 1)?;
                }
            }
            self.end_tag(tag.qualified)?;
        }
        self.leave(depth);
        Ok(tag.qualified)
    }

    fn note_element(&mut self, tag: &StartTag<'a>) {
        self.outer.note(tag.prefix, tag.element.namespace.clone(), tag.bound_by);
    }

    fn skip_character_data(&mut self) -> Parsed<bool> {
        if self.rest().starts_with("<![CDATA[") {
            return self.character_data().map(|_| true);
        }
        let end = memchr::memchr(b'<', self.rest().as_bytes()).ok_or(malformed("unfinished element"))?;
        let raw = self.take(end);
        if memchr::memmem::find(raw.as_bytes(), b"]]>").is_some() {
            return Err(malformed("]]> in text"));
        }
        text::check(raw)?;
        Ok(end > 0)
    }
}

/// The text with the declarations that it needs from outside written into its start tag.
fn complete<'a>(xml: Cow<'a, str>, qualified_len: usize, outer: &Outer<'a>) -> Cow<'a, str> {
    let mut declarations = Vec::new();
    for (prefix, uri) in &outer.prefixes {
        let pubsub = prefix.is_empty() && (uri == ns::PUBSUB || uri == ns::PUBSUB_EVENT);
        if pubsub {
            continue;
        }
        declarations.extend_from_slice(if prefix.is_empty() { b" xmlns" } else { b" xmlns:" });
        declarations.extend_from_slice(prefix.as_bytes());
        declarations.extend_from_slice(b"='");
        escape_attribute(&mut declarations, uri);
        declarations.push(b'\'');
    }
    let Ok(declarations) = String::from_utf8(declarations) else { return xml };
    if declarations.is_empty() {
        return xml;
    }
    let mut whole = xml.into_owned();
    whole.insert_str(1 + qualified_len, &declarations);
    Cow::Owned(whole)
}

/// Parses a standalone element into a tree.
///
/// # Errors
/// The stream error that describes the malformed or oversized XML.
pub fn fragment<'a>(xml: &'a str, limits: &Limits) -> Result<crate::element::Element<'a>, StreamError> {
    let mut parser = Parser::new(xml, limits)?;
    let element = parser.element(1)?;
    parser.finish()?;
    Ok(element)
}
