//! Reads the two stanzas that come by the hundred thousand – the answer to a request, and a notification – without
//! building elements.
//!
//! The framer has seen that the tags are balanced. What is written in another way than servers write these stanzas –
//! prefixes, references, CDATA, several items – is not understood here (`None`), and left to the parser of
//! `fogmux_xmpp`: nothing is guessed.

use fogmux_xmpp::ns;
use memchr::{memchr, memchr2, memchr3};

/// Where an item stands in a notification and in a result; `event` and `pubsub` say their namespace.
const NOTIFIED: [(&[u8], Option<&str>); 4] =
    [(b"message", None), (b"event", Some(ns::PUBSUB_EVENT)), (b"items", None), (b"item", None)];
const FOUND: [(&[u8], Option<&str>); 4] =
    [(b"iq", None), (b"pubsub", Some(ns::PUBSUB)), (b"items", None), (b"item", None)];

/// The head of an IQ that answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answered<'b> {
    /// As it was asked.
    pub(super) id: &'b [u8],
    /// `result`, or else `error`.
    pub(super) success: bool,
}

/// A notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Notified<'b> {
    /// The node, if its name is written without references.
    pub(super) node: Option<&'b str>,
    pub(super) text: Text<'b>,
}

/// The text of a payload's element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Text<'b> {
    /// The payload itself.
    Plain(&'b [u8]),
    /// The payload in base64.
    Base64(&'b [u8]),
}

/// The head of `stanza`, if it is an answer.
pub(super) fn answer(stanza: &[u8]) -> Option<Answered<'_>> {
    let tag = Tags(stanza).next()?;
    if tag.name != b"iq" {
        return None;
    }
    let success = match tag.attribute(b"type")? {
        b"result" => true,
        b"error" => false,
        _ => return None,
    };
    let id = tag.attribute(b"id")?;
    memchr(b'&', id).is_none().then_some(Answered { id, success })
}

/// The node and the payload of the one item of a notification.
pub(super) fn notified(stanza: &[u8]) -> Option<Notified<'_>> {
    let (node, text) = item(stanza, &NOTIFIED)?;
    let node = node.filter(|node| memchr(b'&', node).is_none()).and_then(|node| std::str::from_utf8(node).ok());
    Some(Notified { node, text })
}

/// The payload of the one item of a result.
pub(super) fn found(stanza: &[u8]) -> Option<Text<'_>> {
    item(stanza, &FOUND).map(|(_, text)| text)
}

/// The node as it is written, and the payload.
fn item<'b>(stanza: &'b [u8], path: &[(&[u8], Option<&str>)]) -> Option<(Option<&'b [u8]>, Text<'b>)> {
    let (mut tags, mut node) = (Tags(stanza), None);
    for (name, namespace) in path {
        let tag = tags.next().filter(|tag| tag.kind == Kind::Start && tag.name == *name)?;
        if let Some(namespace) = namespace {
            tag.attribute(b"xmlns").filter(|uri| *uri == namespace.as_bytes())?;
        }
        if *name == b"items" {
            node = tag.attribute(b"node");
        }
    }
    let wrapper = tags.next().filter(|tag| tag.kind == Kind::Start)?;
    let base64 = match (wrapper.name, wrapper.attribute(b"xmlns")?) {
        (b"data", uri) if uri == ns::FOGMUX.as_bytes() => match wrapper.attribute(b"encoding") {
            None | Some(b"utf8") => false,
            Some(b"base64") => true,
            Some(_) => return None,
        },
        (b"json", uri) if uri == ns::JSON.as_bytes() => false,
        _ => return None,
    };
    let text = tags.text();
    // A carriage return would have to be normalised (XML §2.11), a reference resolved.
    if memchr2(b'&', b'\r', text).is_some() {
        return None;
    }
    for name in [wrapper.name, b"item", b"items"] {
        tags.next().filter(|tag| tag.kind == Kind::End && tag.name == name)?;
    }
    Some((node, if base64 { Text::Base64(text) } else { Text::Plain(text) }))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Start,
    Empty,
    End,
}

#[derive(Clone, Copy, Debug)]
struct Tag<'b> {
    name: &'b [u8],
    attributes: &'b [u8],
    kind: Kind,
}

impl<'b> Tag<'b> {
    /// The value of an attribute, as it is written.
    fn attribute(&self, wanted: &[u8]) -> Option<&'b [u8]> {
        let mut rest = self.attributes.trim_ascii_start();
        while !rest.is_empty() {
            let (name, tail) = rest.split_at_checked(memchr(b'=', rest)?)?;
            let (quote, tail) = tail.get(1..)?.trim_ascii_start().split_first()?;
            let (value, tail) = tail.split_at_checked(memchr(*quote, tail)?)?;
            if name.trim_ascii_end() == wanted {
                return Some(value);
            }
            rest = tail.get(1..)?.trim_ascii_start();
        }
        None
    }
}

/// A position in a stanza.
struct Tags<'b>(&'b [u8]);

impl<'b> Tags<'b> {
    /// The tag that comes right here.
    fn next(&mut self) -> Option<Tag<'b>> {
        let inside = self.0.strip_prefix(b"<")?;
        let (body, rest) = inside.split_at_checked(tag_end(inside)?)?;
        self.0 = rest.get(1..)?;
        let (kind, body) = match (body.strip_prefix(b"/"), body.strip_suffix(b"/")) {
            (Some(body), _) => (Kind::End, body),
            (None, Some(body)) => (Kind::Empty, body),
            (None, None) => (Kind::Start, body),
        };
        let name_ends = body.iter().position(u8::is_ascii_whitespace).unwrap_or(body.len());
        let (name, attributes) = body.split_at_checked(name_ends)?;
        Some(Tag { name, attributes, kind })
    }

    /// Returns the text before the next tag.
    fn text(&mut self) -> &'b [u8] {
        let (text, rest) = self.0.split_at(memchr(b'<', self.0).unwrap_or(self.0.len()));
        self.0 = rest;
        text
    }
}

/// Where the `>` is that is in no attribute's value.
fn tag_end(inside: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        let rest = inside.get(at..)?;
        let found = memchr3(b'>', b'"', b'\'', rest)?;
        let quote = *rest.get(found)?;
        if quote == b'>' {
            return Some(at + found);
        }
        at += found + 1;
        at += memchr(quote, inside.get(at..)?)? + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notification(item: &str) -> String {
        format!(
            "<message from='pubsub.localhost' to=\"a@localhost/x>y\" type='headline'>\
             <event xmlns='http://jabber.org/protocol/pubsub#event'><items node='it&apos;s'>{item}</items></event>\
             <headers xmlns='http://jabber.org/protocol/shim'/></message>"
        )
    }

    #[test]
    fn an_answer_is_told_by_its_head() {
        let result = b"<iq id = \"p1f\" to='a' type='result'><pubsub xmlns='x'><iq id='q' type='error'/></pubsub></iq>";
        assert_eq!(answer(result), Some(Answered { id: b"p1f", success: true }));
        assert_eq!(answer(b"<iq type='error' id='g0'/>"), Some(Answered { id: b"g0", success: false }));
        for other in
            ["<iq type='get' id='1'/>", "<iq type='result' id='&amp;'/>", "<iqs type='result' id='1'/>", "<iq/>"]
        {
            assert_eq!(answer(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn a_payload_is_found_in_the_forms_that_servers_write() {
        for (item, expected) in [
            (
                "<item id='1'><data xmlns='urn:fogmux:0' encoding='utf8'>12.5 °C</data></item>",
                Text::Plain("12.5 °C".as_bytes()),
            ),
            ("<item id='1'><data encoding='base64' xmlns='urn:fogmux:0'>AAE=</data></item>", Text::Base64(b"AAE=")),
            ("<item publisher='a' id='>'><data xmlns='urn:fogmux:0'></data></item>", Text::Plain(b"")),
            ("<item><json xmlns='urn:xmpp:json:0'>{\"a\":1}</json></item>", Text::Plain(b"{\"a\":1}")),
        ] {
            let stanza = notification(item);
            assert_eq!(notified(stanza.as_bytes()), Some(Notified { node: None, text: expected }), "{item}");
            let plain = stanza.replace("it&apos;s", "a/b");
            assert_eq!(notified(plain.as_bytes()), Some(Notified { node: Some("a/b"), text: expected }), "{item}");
            assert_eq!(found(stanza.as_bytes()), None);
        }
        let result = b"<iq type='result' id='g0'><pubsub xmlns='http://jabber.org/protocol/pubsub'><items node='t'>\
            <item id='current'><data xmlns='urn:fogmux:0' encoding='utf8'>x</data></item></items></pubsub></iq>";
        assert_eq!(found(result), Some(Text::Plain(b"x")));
    }

    #[test]
    fn what_is_written_otherwise_is_left_to_the_parser() {
        for item in [
            "<item/>",
            "<retract id='1'/>",
            "<item><data xmlns='urn:fogmux:0'>&lt;</data></item>",
            "<item><data xmlns='urn:fogmux:0'>a\rb</data></item>",
            "<item><data xmlns='urn:fogmux:0'><![CDATA[x]]></data></item>",
            "<item><data xmlns='urn:fogmux:0' encoding='hex'>00</data></item>",
            "<item><data xmlns='urn:fogmux:0'>a</data></item><item><data xmlns='urn:fogmux:0'>b</data></item>",
            "<item><reading xmlns='urn:example'>1</reading></item>",
            "<item><data>1</data></item>",
            "<p:item xmlns:p='x'><data xmlns='urn:fogmux:0'>a</data></p:item>",
            " <item><data xmlns='urn:fogmux:0'>a</data></item>",
        ] {
            assert_eq!(notified(notification(item).as_bytes()), None, "{item}");
        }
    }

    #[test]
    fn cut_stanzas_are_not_understood_and_do_no_harm() {
        let whole = notification("<item id='1'><data xmlns='urn:fogmux:0' encoding='utf8'>payload</data></item>");
        let told = whole.find("</items>").unwrap() + "</items>".len();
        for end in 0..told {
            assert_eq!(notified(whole.get(..end).unwrap_or_default().as_bytes()), None, "{end}");
            let _ = answer(whole.get(..end).unwrap_or_default().as_bytes());
        }
    }
}
