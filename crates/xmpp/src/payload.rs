//! How the bytes of a message stand in a pubsub item, and come out of it again unchanged.
//!
//! | content type | element |
//! |---|---|
//! | `application/json`, text that XML can hold | `<json xmlns='urn:xmpp:json:0'>` (XEP-0335) |
//! | `application/xml`, one element that XMPP can hold | the element itself |
//! | anything else that is text | `<data xmlns='urn:fogmux:0' content-type='…' encoding='utf8'>` |
//! | the rest | the same with `encoding='base64'` |
//!
//! Only the exact types above have forms of their own: a parameter (`; charset=…`) would be lost. A message without a
//! type has no `content-type` attribute.

use crate::chars::{all_chars, escape_attribute, escape_text};
use crate::element::{Element, Node};
use crate::error::{PubsubCondition, StanzaError};
use crate::limits::Limits;
use crate::ns;
use crate::parse::{Embedding, embedding};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::borrow::Cow;

/// The type of JSON text (RFC 8259 §11).
pub const APPLICATION_JSON: &str = "application/json";
/// The type of XML (RFC 7303 §9.1).
pub const APPLICATION_XML: &str = "application/xml";

/// The payload of an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payload<'e> {
    /// The media type, if it has one.
    pub content_type: Option<&'e str>,
    /// The bytes.
    pub bytes: Cow<'e, [u8]>,
}

impl<'e> Payload<'e> {
    /// Returns the payload of the element `item`; `None` if it is empty.
    ///
    /// # Errors
    /// `<invalid-payload/>` for more than one element, for text beside it, and for a `<data/>` whose attributes
    /// contradict its content (XEP-0060 §7.1.3.4).
    pub fn of_item(item: &'e Element<'_>) -> Result<Option<Self>, StanzaError> {
        let mut found = None;
        for node in &item.children {
            let payload = match node {
                Node::Text(text) if text.chars().all(char::is_whitespace) => continue,
                Node::Text(_) => return Err(invalid("text beside the payload")),
                Node::Raw(raw) => {
                    Self { content_type: Some(APPLICATION_XML), bytes: Cow::Borrowed(raw.xml.as_bytes()) }
                }
                Node::Element(wrapper) if wrapper.namespace == ns::JSON => {
                    Self { content_type: Some(APPLICATION_JSON), bytes: text_bytes(wrapper)? }
                }
                Node::Element(wrapper) => Self::of_data(wrapper)?,
            };
            if found.replace(payload).is_some() {
                return Err(invalid("more than one payload"));
            }
        }
        Ok(found)
    }

    fn of_data(data: &'e Element<'_>) -> Result<Self, StanzaError> {
        let text = text_bytes(data)?;
        let bytes = match data.attr("encoding") {
            None | Some("utf8") => text,
            Some("base64") => Cow::Owned(decode(&text).ok_or(invalid("not base64"))?),
            Some(_) => return Err(invalid("unknown encoding")),
        };
        Ok(Self { content_type: data.attr("content-type"), bytes })
    }
}

fn text_bytes<'e>(wrapper: &'e Element<'_>) -> Result<Cow<'e, [u8]>, StanzaError> {
    if wrapper.elements().next().is_some() {
        return Err(invalid("elements where text belongs"));
    }
    Ok(match wrapper.text() {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    })
}

/// Base64, white space in it allowed: XML tools like to break lines.
fn decode(text: &[u8]) -> Option<Vec<u8>> {
    if text.iter().any(u8::is_ascii_whitespace) {
        let packed: Vec<u8> = text.iter().copied().filter(|b| !b.is_ascii_whitespace()).collect();
        return STANDARD.decode(packed).ok();
    }
    STANDARD.decode(text).ok()
}

fn invalid(why: &'static str) -> StanzaError {
    StanzaError::bad_request().with(PubsubCondition::InvalidPayload).because(why)
}

/// Appends the element for these bytes.
pub fn write(out: &mut Vec<u8>, content_type: Option<&str>, bytes: &[u8]) {
    match content_type {
        Some(APPLICATION_XML) => {
            if let Some(embedding) = embedding(bytes, &Limits::default()) {
                return write_xml(out, bytes, embedding);
            }
        }
        Some(APPLICATION_JSON) => {
            if let Some(text) = representable(bytes) {
                out.extend_from_slice(b"<json xmlns='urn:xmpp:json:0'>");
                escape_text(out, text);
                out.extend_from_slice(b"</json>");
                return;
            }
        }
        Some(_) | None => {}
    }
    write_data(out, content_type, bytes);
}

fn write_xml(out: &mut Vec<u8>, bytes: &[u8], embedding: Embedding) {
    match embedding {
        Embedding::Whole => out.extend_from_slice(bytes),
        Embedding::Undeclared(at) => {
            let (name, rest) = bytes.split_at_checked(at).unwrap_or((bytes, &[]));
            out.extend_from_slice(name);
            out.extend_from_slice(b" xmlns=''");
            out.extend_from_slice(rest);
        }
    }
}

fn write_data(out: &mut Vec<u8>, content_type: Option<&str>, bytes: &[u8]) {
    out.extend_from_slice(b"<data xmlns='urn:fogmux:0'");
    if let Some(content_type) = content_type.filter(|t| all_chars(t)) {
        out.extend_from_slice(b" content-type='");
        escape_attribute(out, content_type);
        out.push(b'\'');
    }
    if let Some(text) = representable(bytes) {
        out.extend_from_slice(b" encoding='utf8'>");
        escape_text(out, text);
    } else {
        out.extend_from_slice(b" encoding='base64'>");
        encode(out, bytes);
    }
    out.extend_from_slice(b"</data>");
}

fn representable(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok().filter(|text| all_chars(text))
}

fn encode(out: &mut Vec<u8>, bytes: &[u8]) {
    let start = out.len();
    let room = base64::encoded_len(bytes.len(), true).unwrap_or(0);
    out.resize(start + room, b'=');
    let written = out.get_mut(start..).map_or(0, |slot| STANDARD.encode_slice(bytes, slot).unwrap_or(0));
    out.truncate(start + written);
}
