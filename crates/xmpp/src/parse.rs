//! Reads one frame, strictly: XML 1.0 without what RFC 6120 §11.1 forbids, with Namespaces in XML.
//!
//! A stanza becomes an [`Element`]; the payloads inside pubsub items are checked just as strictly but kept as text.

use crate::chars::{all_chars, is_nc_name, is_space};
use crate::element::{Attribute, Element, Node};
use crate::error::{StreamCondition, StreamError};
use crate::limits::Limits;
use crate::ns;
use std::borrow::Cow;

mod raw;
mod spare;
mod text;

pub use raw::{Embedding, embedding, fragment};
pub use spare::Spare;

/// The namespace declarations of a stream header that hold in every stanza.
///
/// The two that every stream has cost nothing; others are kept, bounded by the size of a header.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scope {
    extra: Vec<(Box<str>, Box<str>)>,
}

/// Longest namespace name that a stream header may declare for its stanzas, in bytes. It is copied where it is used.
const HEADER_NAMESPACE_BYTES_MAX: usize = 256;

/// Namespace declarations in force at once. They are searched in a line for each name.
const BINDINGS_MAX: usize = 128;

/// Reads a stanza.
///
/// # Errors
/// The stream error that the peer earns.
pub fn stanza<'a>(frame: &'a [u8], scope: &Scope, limits: &Limits) -> Result<Element<'a>, StreamError> {
    stanza_with(frame, scope, limits, &mut Spare::default())
}

/// As [`stanza`], in the allocations of earlier stanzas.
///
/// # Errors
/// The stream error that the peer earns.
pub fn stanza_with<'a>(
    frame: &'a [u8],
    scope: &Scope,
    limits: &Limits,
    spare: &mut Spare,
) -> Result<Element<'a>, StreamError> {
    let mut parser = Parser::new(utf8(frame)?, limits)?;
    parser.spare = std::mem::take(spare);
    (parser.bindings, parser.found) = parser.spare.tables();
    let element = parser.stanza(scope);
    *spare = parser.spare;
    spare.return_tables(parser.bindings, parser.found);
    element
}

impl<'a> Parser<'a> {
    fn stanza(&mut self, scope: &Scope) -> Parsed<Element<'a>> {
        self.bind("", Cow::Borrowed(ns::CLIENT));
        self.bind("stream", Cow::Borrowed(ns::STREAM));
        self.inherited.extend(scope.extra.iter().map(|(prefix, uri)| (prefix.to_string(), uri.to_string())));
        let element = self.element(2)?;
        self.finish()?;
        Ok(element)
    }
}

/// Reads the start tag of a stream: its attributes, and the scope that its declarations open.
///
/// # Errors
/// The stream error that the peer earns.
pub fn header<'a>(frame: &'a [u8], limits: &Limits) -> Result<(Element<'a>, Scope), StreamError> {
    let mut parser = Parser::new(utf8(frame)?, limits)?;
    let tag = parser.start_tag(1)?;
    if !tag.element.is(ns::STREAM, "stream") {
        return Err(StreamError::new(StreamCondition::InvalidNamespace, "not a stream element"));
    }
    let mut scope = Scope::default();
    let mut default_namespace = "";
    for binding in &parser.bindings {
        match (binding.prefix, binding.uri.as_ref()) {
            ("", uri) => default_namespace = uri,
            ("stream", ns::STREAM) => {}
            (_, uri) if uri.len() > HEADER_NAMESPACE_BYTES_MAX => {
                return Err(StreamError::new(StreamCondition::PolicyViolation, "namespace name too long"));
            }
            (prefix, uri) => scope.extra.push((prefix.into(), uri.into())),
        }
    }
    if default_namespace != ns::CLIENT {
        return Err(StreamError::new(StreamCondition::InvalidNamespace, "jabber:client is served here"));
    }
    Ok((tag.element, scope))
}

fn utf8(frame: &[u8]) -> Result<&str, StreamError> {
    // RFC 6120 §11.6
    std::str::from_utf8(frame).map_err(|_| StreamError::new(StreamCondition::UnsupportedEncoding, "not UTF-8"))
}

#[derive(Debug, Clone)]
struct Binding<'a> {
    depth: usize,
    prefix: &'a str,
    uri: Cow<'a, str>,
}

/// A start tag; `element` has no children yet.
struct StartTag<'a> {
    qualified: &'a str,
    prefix: &'a str,
    element: Element<'a>,
    empty: bool,
    /// The namespace came from a binding with this index, if from any.
    bound_by: Option<usize>,
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    limits: Limits,
    elements: usize,
    bindings: Vec<Binding<'a>>,
    /// The attributes of the start tag that is being read.
    found: Vec<RawAttribute<'a>>,
    spare: Spare,
    inherited: Vec<(String, String)>,
    outer: raw::Outer<'a>,
}

type Parsed<T> = Result<T, StreamError>;

impl<'a> Parser<'a> {
    fn new(text: &'a str, limits: &Limits) -> Parsed<Self> {
        if !all_chars(text) {
            return Err(malformed("forbidden character"));
        }
        Ok(Self {
            text,
            at: 0,
            limits: *limits,
            elements: 0,
            bindings: Vec::new(),
            found: Vec::new(),
            spare: Spare::default(),
            inherited: Vec::new(),
            outer: raw::Outer::default(),
        })
    }

    fn bind(&mut self, prefix: &'a str, uri: Cow<'a, str>) {
        self.bindings.push(Binding { depth: 0, prefix, uri });
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn finish(&self) -> Parsed<()> {
        if self.rest().is_empty() { Ok(()) } else { Err(malformed("something after the element")) }
    }

    /// Takes `token` if it comes next.
    fn eat(&mut self, token: &str) -> bool {
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    fn expect(&mut self, token: &str) -> Parsed<()> {
        if self.eat(token) { Ok(()) } else { Err(malformed("unexpected character")) }
    }

    /// Takes the next `bytes` bytes.
    fn take(&mut self, bytes: usize) -> &'a str {
        let taken = self.rest().get(..bytes).unwrap_or_default();
        self.at += taken.len();
        taken
    }

    fn space(&mut self) -> bool {
        let bytes = self.rest().bytes().take_while(|b| is_space(*b)).count();
        self.at += bytes;
        bytes > 0
    }

    /// A name, as `(qualified, prefix, local)`.
    fn name(&mut self) -> Parsed<(&'a str, &'a str, &'a str)> {
        let end = self.rest().bytes().position(|b| is_space(b) || matches!(b, b'/' | b'>' | b'=' | b'<'));
        let qualified = self.take(end.ok_or(malformed("unfinished name"))?);
        let (prefix, local) = match qualified.split_once(':') {
            Some((prefix, local)) if is_nc_name(prefix) => (prefix, local),
            Some(_) => return Err(malformed("bad name")),
            None => ("", qualified),
        };
        if is_nc_name(local) { Ok((qualified, prefix, local)) } else { Err(malformed("bad name")) }
    }

    /// An element and all that is in it.
    fn element(&mut self, depth: usize) -> Parsed<Element<'a>> {
        self.elements += 1;
        if self.elements > self.limits.elements_max {
            return Err(StreamError::new(StreamCondition::PolicyViolation, "too many elements"));
        }
        let tag = self.start_tag(depth)?;
        let mut element = tag.element;
        if !tag.empty {
            while let Some(node) = self.content(&element, depth)? {
                if element.children.capacity() == 0 {
                    element.children = self.spare.children();
                }
                element.children.push(node);
            }
            self.end_tag(tag.qualified)?;
        }
        self.leave(depth);
        Ok(element)
    }

    /// The next child or text; none at the end tag.
    fn content(&mut self, parent: &Element<'a>, depth: usize) -> Parsed<Option<Node<'a>>> {
        if self.rest().starts_with("</") {
            return Ok(None);
        }
        if let Some(text) = self.character_data()? {
            return Ok(Some(Node::Text(text)));
        }
        let holds_payload =
            parent.name == "item" && (parent.namespace == ns::PUBSUB || parent.namespace == ns::PUBSUB_EVENT);
        if holds_payload {
            self.payload(depth + 1).map(Some)
        } else {
            self.element(depth + 1).map(Node::Element).map(Some)
        }
    }

    /// Text up to the next tag, or one CDATA section; none where an element begins.
    fn character_data(&mut self) -> Parsed<Option<Cow<'a, str>>> {
        if self.eat("<![CDATA[") {
            let end = self.rest().find("]]>").ok_or(malformed("unfinished CDATA section"))?;
            let section = self.take(end);
            self.at += 3;
            return Ok(Some(text::line_ends(section)));
        }
        let end = memchr::memchr(b'<', self.rest().as_bytes()).ok_or(malformed("unfinished element"))?;
        if end == 0 {
            return Ok(None);
        }
        text::content(self.take(end)).map(Some)
    }

    fn end_tag(&mut self, qualified: &str) -> Parsed<()> {
        self.expect("</")?;
        self.expect(qualified)?;
        self.space();
        self.expect(">")
    }

    /// Forgets the declarations of the element at `depth`.
    fn leave(&mut self, depth: usize) {
        while self.bindings.last().is_some_and(|b| b.depth >= depth) {
            self.bindings.pop();
        }
    }

    fn start_tag(&mut self, depth: usize) -> Parsed<StartTag<'a>> {
        if depth > self.limits.depth_max {
            return Err(StreamError::new(StreamCondition::PolicyViolation, "elements nested too deep"));
        }
        self.expect("<")?;
        let (qualified, prefix, name) = self.name()?;
        self.found.clear();
        let mut count = 0;
        let empty = loop {
            let spaced = self.space();
            if self.eat(">") {
                break false;
            }
            if self.eat("/>") {
                break true;
            }
            if !spaced {
                return Err(malformed("no space before an attribute"));
            }
            count += 1;
            if count > self.limits.attributes_max {
                return Err(StreamError::new(StreamCondition::PolicyViolation, "too many attributes"));
            }
            self.attribute(depth)?;
        };
        let attributes = self.resolve_attributes()?;
        let (namespace, bound_by) = self.resolve(prefix)?;
        let element = Element { namespace, name, attributes, children: Vec::new() };
        Ok(StartTag { qualified, prefix, element, empty, bound_by })
    }

    fn attribute(&mut self, depth: usize) -> Parsed<()> {
        let (_, prefix, name) = self.name()?;
        self.space();
        self.expect("=")?;
        self.space();
        let value = self.quoted()?;
        match (prefix, name) {
            ("", "xmlns") => self.declare(depth, "", value),
            ("xmlns", declared) => self.declare(depth, declared, value),
            _ => {
                self.found.push((prefix, name, text::attribute(value)?));
                Ok(())
            }
        }
    }

    fn quoted(&mut self) -> Parsed<&'a str> {
        let quote = if self.eat("'") { b'\'' } else { self.expect("\"").map(|()| b'"')? };
        let end = memchr::memchr(quote, self.rest().as_bytes()).ok_or(malformed("unfinished attribute"))?;
        let value = self.take(end);
        self.at += 1;
        if memchr::memchr(b'<', value.as_bytes()).is_some() { Err(malformed("< in an attribute")) } else { Ok(value) }
    }

    /// Namespaces in XML §3 to §5. A namespace name written with references is refused: it would have to be copied for
    /// each element, and nobody has one. So is one that could only be written back with references, for no URI holds
    /// such characters (RFC 3986 §2).
    fn declare(&mut self, depth: usize, prefix: &'a str, uri: &'a str) -> Parsed<()> {
        if uri.bytes().any(|b| matches!(b, b'&' | b'\'' | b'"' | b'>' | b'\t' | b'\n' | b'\r')) {
            return Err(StreamError::new(StreamCondition::RestrictedXml, "reference or quote in a namespace name"));
        }
        let reserved = prefix == "xmlns" || uri == ns::XMLNS || (prefix == "xml") != (uri == ns::XML);
        let unbinds = !prefix.is_empty() && uri.is_empty();
        let again = self.bindings.iter().rev().take_while(|b| b.depth == depth).any(|b| b.prefix == prefix);
        if reserved || unbinds || again {
            return Err(malformed("bad namespace declaration"));
        }
        if self.bindings.len() >= BINDINGS_MAX {
            return Err(StreamError::new(StreamCondition::PolicyViolation, "too many namespace declarations"));
        }
        self.bindings.push(Binding { depth, prefix, uri: Cow::Borrowed(uri) });
        Ok(())
    }

    fn resolve(&mut self, prefix: &str) -> Parsed<(Cow<'a, str>, Option<usize>)> {
        if prefix == "xml" {
            return Ok((Cow::Borrowed(ns::XML), None));
        }
        if let Some((index, binding)) = self.bindings.iter().enumerate().rev().find(|(_, b)| b.prefix == prefix) {
            return Ok((binding.uri.clone(), Some(index)));
        }
        if let Some((_, uri)) = self.inherited.iter().find(|(p, _)| p == prefix) {
            return Ok((Cow::Owned(uri.clone()), None));
        }
        if prefix.is_empty() {
            return Ok((Cow::Borrowed(""), None));
        }
        Err(StreamError::new(StreamCondition::NotWellFormed, "prefix without a declaration"))
    }

    /// Resolves the prefixes of the attributes, when all declarations of the start tag are known.
    fn resolve_attributes(&mut self) -> Parsed<Vec<Attribute<'a>>> {
        if self.found.is_empty() {
            return Ok(Vec::new());
        }
        let mut attributes = self.spare.attributes();
        let mut found = std::mem::take(&mut self.found);
        for (prefix, name, value) in found.drain(..) {
            let namespace = if prefix.is_empty() { Cow::Borrowed("") } else { self.resolve_used(prefix)? };
            if attributes.iter().any(|a| a.name == name && a.namespace == namespace) {
                return Err(malformed("attribute given twice"));
            }
            attributes.push(Attribute { namespace, name, value });
        }
        self.found = found;
        Ok(attributes)
    }

    fn resolve_used(&mut self, prefix: &'a str) -> Parsed<Cow<'a, str>> {
        let (uri, bound_by) = self.resolve(prefix)?;
        self.outer.note(prefix, uri.clone(), bound_by);
        Ok(uri)
    }
}

/// An attribute before all declarations of its start tag are known: prefix, name and value.
type RawAttribute<'a> = (&'a str, &'a str, Cow<'a, str>);

const fn malformed(detail: &'static str) -> StreamError {
    StreamError::new(StreamCondition::NotWellFormed, detail)
}
