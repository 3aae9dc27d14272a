//! Stream headers (RFC 6120 §4.7).

use crate::element::Element;
use crate::error::{StreamCondition, StreamError};
use crate::ns;
use crate::writer::Writer;

/// Appends the start tag of a stream.
pub(super) fn write(out: &mut Vec<u8>, from: Option<&str>, to: Option<&str>, id: Option<&str>) {
    out.extend_from_slice(b"<?xml version='1.0'?>");
    let mut w = Writer::new(out);
    w.start_ns("stream:stream", ns::CLIENT).attr("xmlns:stream", ns::STREAM);
    w.attr_opt("from", from).attr_opt("to", to).attr_opt("id", id).attr("version", "1.0").attr("xml:lang", "en");
    w.raw(&[]);
}

/// RFC 6120 §4.7.5: anything from 1.0 up; a missing version is that of a protocol without SASL.
pub(super) fn check_version(header: &Element<'_>) -> Result<(), StreamError> {
    let major = header.attr("version").and_then(|v| v.split('.').next()?.parse::<u32>().ok());
    match major {
        Some(1..) => Ok(()),
        Some(0) | None => Err(StreamError::new(StreamCondition::UnsupportedVersion, "version 1.0 is needed")),
    }
}
