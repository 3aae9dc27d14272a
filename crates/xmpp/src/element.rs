//! One stanza as a tree that borrows from the bytes it came in.

use std::borrow::Cow;

/// An attribute that is no namespace declaration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attribute<'a> {
    /// Namespace name, empty for an attribute without prefix.
    pub namespace: Cow<'a, str>,
    /// Name without prefix.
    pub name: &'a str,
    /// Value, references resolved and white space normalised (XML §3.3.3).
    pub value: Cow<'a, str>,
}

/// A child node of an element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node<'a> {
    /// A child element.
    Element(Element<'a>),
    /// Character data, references resolved and line ends normalised (XML §2.11).
    Text(Cow<'a, str>),
    /// A child element of a pubsub item, as its source text.
    Raw(RawXml<'a>),
}

/// An element kept as text, complete in itself: it declares each prefix that it uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawXml<'a> {
    /// Namespace name, empty for none.
    pub namespace: Cow<'a, str>,
    /// Name without prefix.
    pub name: &'a str,
    /// From the `<` of the start tag to the `>` of the end tag, with the line ends normalised.
    pub xml: Cow<'a, str>,
}

/// An element with its namespace resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Element<'a> {
    /// Namespace name, empty for none.
    pub namespace: Cow<'a, str>,
    /// Name without prefix.
    pub name: &'a str,
    /// Its attributes, in document order.
    pub attributes: Vec<Attribute<'a>>,
    /// Its children, in document order.
    pub children: Vec<Node<'a>>,
}

impl<'a> Element<'a> {
    /// Whether this is the element `{namespace}name`.
    #[must_use]
    pub fn is(&self, namespace: &str, name: &str) -> bool {
        self.name == name && self.namespace == namespace
    }

    /// The attribute `name` that has no prefix.
    #[must_use]
    pub fn attr(&self, name: &str) -> Option<&str> {
        let found = self.attributes.iter().find(|a| a.name == name && a.namespace.is_empty());
        found.map(|a| a.value.as_ref())
    }

    /// The child elements.
    pub fn elements(&self) -> impl Iterator<Item = &Element<'a>> {
        self.children.iter().filter_map(|node| match node {
            Node::Element(element) => Some(element),
            Node::Text(_) | Node::Raw(_) => None,
        })
    }

    /// The first child `{namespace}name`.
    #[must_use]
    pub fn child(&self, namespace: &str, name: &str) -> Option<&Element<'a>> {
        self.elements().find(|e| e.is(namespace, name))
    }

    /// The children `{namespace}name`.
    pub fn children_named(&self, namespace: &str, name: &str) -> impl Iterator<Item = &Element<'a>> {
        self.elements().filter(move |e| e.is(namespace, name))
    }

    /// The character data right inside the element, child elements skipped.
    #[must_use]
    pub fn text(&self) -> Cow<'_, str> {
        let mut texts = self.children.iter().filter_map(|node| match node {
            Node::Text(text) => Some(text.as_ref()),
            Node::Element(_) | Node::Raw(_) => None,
        });
        let first = texts.next().unwrap_or_default();
        texts.fold(Cow::Borrowed(first), |mut all, more| {
            all.to_mut().push_str(more);
            all
        })
    }
}
