//! Stanza headers (XEP-0131): the user properties of a message.

use crate::element::Element;
use crate::ns;
use crate::writer::Writer;

/// Headers of one stanza that are read; the rest is an error of the sender's.
pub const HEADERS_MAX: usize = 64;

/// The headers among the children of `parent`; none when there are more than [`HEADERS_MAX`].
#[must_use]
pub fn in_element(parent: &Element<'_>) -> Option<Vec<(Box<str>, Box<str>)>> {
    let Some(headers) = parent.child(ns::SHIM, "headers") else { return Some(Vec::new()) };
    let mut found = Vec::new();
    for header in headers.children_named(ns::SHIM, "header") {
        if found.len() == HEADERS_MAX {
            return None;
        }
        if let Some(name) = header.attr("name") {
            found.push((name.into(), header.text().into()));
        }
    }
    Some(found)
}

/// Appends `<headers/>`, or nothing when there are none. A header that XML cannot hold is left out.
pub fn write<'h>(w: &mut Writer<'_>, headers: impl Iterator<Item = (&'h str, &'h str)>) {
    let mut any = false;
    for (name, value) in headers.filter(|(n, v)| crate::chars::all_chars(n) && crate::chars::all_chars(v)) {
        if !std::mem::replace(&mut any, true) {
            w.start_ns("headers", ns::SHIM);
        }
        w.start("header").attr("name", name).text(value).end("header");
    }
    if any {
        w.end("headers");
    }
}
