//! XMPP framing and parsing: where the bytes are cut changes nothing, and a stanza that parses is written and parsed
//! again to the same element. The first byte chooses the pieces.
#![no_main]

use fogmux_xmpp::{Element, Frame, Framer, Limits, Node, Scope, Writer, parse};
use libfuzzer_sys::fuzz_target;

const HEADER: &[u8] = b"<stream:stream xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams' to='d'>";

// The units that the framer found, and whether it ended in an error.
fn frames(data: &[u8], piece: usize) -> (Vec<Vec<u8>>, bool) {
    let limits = Limits { stanza_bytes_before_authentication_max: 2048, ..Limits::default() };
    let mut framer = Framer::new(&limits);
    let (mut found, mut buffer) = (Vec::new(), Vec::new());
    for piece in data.chunks(piece) {
        buffer.extend_from_slice(piece);
        loop {
            let (used, unit) = match framer.next(&buffer) {
                Ok(framed) => (
                    framed.used,
                    framed.frame.map(|frame| match frame {
                        Frame::Header(bytes) => [b"H", bytes].concat(),
                        Frame::Stanza(bytes) => [b"S", bytes].concat(),
                        Frame::End => b"E".to_vec(),
                    }),
                ),
                Err(_) => return (found, true),
            };
            buffer.drain(..used);
            let Some(unit) = unit else { break };
            let ended = unit == b"E";
            found.push(unit);
            if ended {
                return (found, false);
            }
        }
        assert!(buffer.len() <= 2048, "{} bytes are kept", buffer.len());
    }
    (found, false)
}

fn write(element: &Element<'_>, w: &mut Writer<'_>) {
    w.start_ns(element.name, &element.namespace);
    for attribute in &element.attributes {
        w.attr(attribute.name, &attribute.value);
    }
    for child in &element.children {
        match child {
            Node::Element(element) => write(element, w),
            Node::Text(text) => drop(w.text(text)),
            Node::Raw(raw) => drop(w.raw(raw.xml.as_bytes())),
        }
    }
    w.end(element.name);
}

fn has_prefixed_attribute(element: &Element<'_>) -> bool {
    element.attributes.iter().any(|attribute| !attribute.namespace.is_empty())
        || element.elements().any(has_prefixed_attribute)
}

// CDATA sections stand apart when they are read, and are written as the text they are.
fn merged(mut element: Element<'_>) -> Element<'_> {
    let mut children: Vec<Node<'_>> = Vec::new();
    for child in element.children.drain(..) {
        match (children.last_mut(), child) {
            (Some(Node::Text(before)), Node::Text(more)) => before.to_mut().push_str(&more),
            (_, Node::Element(child)) => children.push(Node::Element(merged(child))),
            (_, child) => children.push(child),
        }
    }
    Element { children, ..element }
}

fn stanza(bytes: &[u8]) {
    let limits = Limits::default();
    let Ok(element) = parse::stanza(bytes, &Scope::default(), &limits) else { return };
    // The writer has no prefixes, and so no attributes in a namespace.
    if has_prefixed_attribute(&element) {
        return;
    }
    let mut again = Vec::new();
    write(&element, &mut Writer::new(&mut again));
    match parse::stanza(&again, &Scope::default(), &limits) {
        Ok(same) => assert_eq!(same, merged(element)),
        // A quote or line break in a namespace name is written as a reference, which is not accepted there.
        Err(error) => assert_eq!(error.detail, "reference in a namespace name"),
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&first, rest)) = data.split_first() else { return };
    let stream = if first & 0x80 == 0 { [HEADER, rest].concat() } else { rest.to_vec() };
    let whole = frames(&stream, stream.len().max(1));
    assert_eq!(frames(&stream, usize::from(first & 0x7f).max(1)), whole);
    for unit in whole.0 {
        match unit.split_first() {
            Some((b'H', header)) => drop(parse::header(header, &Limits::default())),
            Some((b'S', bytes)) => stanza(bytes),
            _ => {}
        }
    }
});
