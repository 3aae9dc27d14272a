//! Writes elements into the caller's buffer. The names come from us and are trusted; values are escaped.

use crate::chars::{escape_attribute, escape_text};

/// Appends XML to a buffer; start tags are closed when the first child or the end comes.
#[derive(Debug)]
pub struct Writer<'o> {
    out: &'o mut Vec<u8>,
    in_tag: bool,
}

impl<'o> Writer<'o> {
    /// Appends to `out`.
    pub fn new(out: &'o mut Vec<u8>) -> Self {
        Self { out, in_tag: false }
    }

    /// `<name`
    pub fn start(&mut self, name: &str) -> &mut Self {
        self.close_tag();
        self.out.push(b'<');
        self.out.extend_from_slice(name.as_bytes());
        self.in_tag = true;
        self
    }

    /// `<name xmlns='namespace'`
    pub fn start_ns(&mut self, name: &str, namespace: &str) -> &mut Self {
        self.start(name).attr("xmlns", namespace)
    }

    /// ` name='value'`, inside a start tag.
    pub fn attr(&mut self, name: &str, value: &str) -> &mut Self {
        self.out.push(b' ');
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b"='");
        escape_attribute(self.out, value);
        self.out.push(b'\'');
        self
    }

    /// An attribute that may be absent.
    pub fn attr_opt(&mut self, name: &str, value: Option<&str>) -> &mut Self {
        match value {
            Some(value) => self.attr(name, value),
            None => self,
        }
    }

    /// Character data.
    pub fn text(&mut self, text: &str) -> &mut Self {
        self.close_tag();
        escape_text(self.out, text);
        self
    }

    /// Bytes that are well-formed XML already.
    pub fn raw(&mut self, xml: &[u8]) -> &mut Self {
        self.close_tag();
        self.out.extend_from_slice(xml);
        self
    }

    /// Lets `fill` append well-formed XML itself.
    pub fn raw_with(&mut self, fill: impl FnOnce(&mut Vec<u8>)) -> &mut Self {
        self.close_tag();
        fill(self.out);
        self
    }

    /// `</name>`, or `/>` when nothing came since the start.
    pub fn end(&mut self, name: &str) -> &mut Self {
        if self.in_tag {
            self.out.extend_from_slice(b"/>");
            self.in_tag = false;
        } else {
            self.out.extend_from_slice(b"</");
            self.out.extend_from_slice(name.as_bytes());
            self.out.push(b'>');
        }
        self
    }

    /// `<name/>`
    pub fn empty(&mut self, name: &str) -> &mut Self {
        self.start(name).end(name)
    }

    /// `<name>text</name>`
    pub fn leaf(&mut self, name: &str, text: &str) -> &mut Self {
        self.start(name).text(text).end(name)
    }

    fn close_tag(&mut self) {
        if self.in_tag {
            self.out.push(b'>');
            self.in_tag = false;
        }
    }
}

/// The bytes of a text as the value of an attribute, or between tags, at most.
#[must_use]
pub fn written_len(text: &str) -> usize {
    let of = |byte| match byte {
        b'&' => "&amp;".len(),
        b'<' | b'>' => "&lt;".len(),
        b'\'' | b'"' => "&quot;".len(),
        _ => 1,
    };
    text.bytes().map(of).sum()
}

/// Whether XML can hold this text: names of topics may have control characters that it cannot.
#[must_use]
pub fn is_representable(text: &str) -> bool {
    crate::chars::all_chars(text)
}
