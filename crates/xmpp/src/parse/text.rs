//! Character data and attribute values: references resolved, white space normalised.

use super::{Parsed, malformed};
use crate::chars::is_char;
use crate::error::{StreamCondition, StreamError};
use std::borrow::Cow;

/// Character data (XML §2.4), line ends normalised (§2.11), references resolved (§4.1).
pub(super) fn content(raw: &str) -> Parsed<Cow<'_, str>> {
    if memchr::memmem::find(raw.as_bytes(), b"]]>").is_some() {
        return Err(malformed("]]> in text"));
    }
    if memchr::memchr2(b'&', b'\r', raw.as_bytes()).is_none() {
        return Ok(Cow::Borrowed(raw));
    }
    // References are resolved after line ends are normalised, so that `&#13;` stays a carriage return.
    references(&line_ends(raw)).map(Cow::Owned)
}

/// An attribute value (XML §3.3.3): white space becomes blanks, references do not.
pub(super) fn attribute(raw: &str) -> Parsed<Cow<'_, str>> {
    if !raw.bytes().any(|b| matches!(b, b'&' | b'\r' | b'\n' | b'\t')) {
        return Ok(Cow::Borrowed(raw));
    }
    let blanks = line_ends(raw).replace(['\n', '\t'], " ");
    references(&blanks).map(Cow::Owned)
}

/// CR LF and lone CR become LF (XML §2.11).
pub(super) fn line_ends(raw: &str) -> Cow<'_, str> {
    if memchr::memchr(b'\r', raw.as_bytes()).is_none() {
        return Cow::Borrowed(raw);
    }
    Cow::Owned(raw.replace("\r\n", "\n").replace('\r', "\n"))
}

fn references(text: &str) -> Parsed<String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((plain, tail)) = rest.split_once('&') {
        out.push_str(plain);
        let (name, tail) = tail.split_once(';').ok_or(malformed("unfinished reference"))?;
        out.push(reference(name)?);
        rest = tail;
    }
    out.push_str(rest);
    Ok(out)
}

/// RFC 6120 §11.1: only the predefined entities, and character references.
fn reference(name: &str) -> Parsed<char> {
    let number = match name {
        "lt" => return Ok('<'),
        "gt" => return Ok('>'),
        "amp" => return Ok('&'),
        "apos" => return Ok('\''),
        "quot" => return Ok('"'),
        _ => name.strip_prefix('#'),
    };
    let number = number.ok_or(StreamError::new(StreamCondition::RestrictedXml, "entity reference"))?;
    let (digits, radix) = number.strip_prefix('x').map_or((number, 10), |hex| (hex, 16));
    // `from_str_radix` would take a sign.
    let plain = digits.bytes().all(|b| b.is_ascii_alphanumeric());
    let code = if plain { u32::from_str_radix(digits, radix).ok() } else { None };
    code.and_then(char::from_u32).filter(|c| is_char(*c)).ok_or(malformed("bad character reference"))
}

/// Checks the references of `raw` without keeping what they stand for.
pub(super) fn check(raw: &str) -> Parsed<()> {
    let mut rest = raw;
    while let Some((_, tail)) = rest.split_once('&') {
        let (name, tail) = tail.split_once(';').ok_or(malformed("unfinished reference"))?;
        reference(name)?;
        rest = tail;
    }
    Ok(())
}
