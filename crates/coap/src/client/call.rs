//! A request as programs put it, with every option that a client of this gateway needs.

use bytes::Bytes;

use super::template::Template;
use crate::code::Code;
use crate::encode::Encoder;
use crate::etag::ETag;
use crate::message::Type;
use crate::option::{OptionNumber, UintValue};

/// A request.
#[derive(Clone, Debug)]
pub struct Call {
    /// The method.
    pub method: Code,
    /// Whether it must be acknowledged; the blocks of a large body are in any case.
    pub confirmable: bool,
    /// The levels of the path, not encoded.
    pub path: Vec<String>,
    /// The query parameters, not encoded.
    pub queries: Vec<String>,
    /// The Content-Format of the payload.
    pub content_format: Option<u16>,
    /// The Content-Format wanted.
    pub accept: Option<u16>,
    /// States that need not be sent again.
    pub etags: Vec<ETag>,
    /// Only if this is the state.
    pub if_match: Vec<ETag>,
    /// Only if there is no state.
    pub if_none_match: bool,
    /// Whether to be told of every change (RFC 7641).
    pub observe: bool,
    /// Classes of answers not wanted (RFC 7967 §2.1).
    pub no_response: Option<u8>,
    /// The body, cut into blocks where it is large.
    pub payload: Bytes,
}

impl Call {
    /// A Confirmable request for a path; empty levels count.
    #[must_use]
    pub fn new(method: Code, path: &str) -> Self {
        let path = path.strip_prefix('/').unwrap_or(path);
        Self {
            method,
            confirmable: true,
            path: path.split('/').map(str::to_owned).collect(),
            queries: Vec::new(),
            content_format: None,
            accept: None,
            etags: Vec::new(),
            if_match: Vec::new(),
            if_none_match: false,
            observe: false,
            no_response: None,
            payload: Bytes::new(),
        }
    }

    /// Type, method and options.
    pub(super) fn template(&self) -> Template {
        let kind = if self.confirmable { Type::Confirmable } else { Type::NonConfirmable };
        Template::new(kind, self.method, |encoder| self.push_options(encoder))
    }

    fn push_options(&self, encoder: &mut Encoder<'_>) {
        let uint = |encoder: &mut Encoder<'_>, number, value: Option<u32>| {
            value.iter().for_each(|value| encoder.push(number, UintValue::new(*value).as_slice()));
        };
        self.if_match.iter().for_each(|tag| encoder.push(OptionNumber::IF_MATCH, tag.as_slice()));
        self.etags.iter().for_each(|tag| encoder.push(OptionNumber::ETAG, tag.as_slice()));
        if self.if_none_match {
            encoder.push(OptionNumber::IF_NONE_MATCH, &[]);
        }
        uint(encoder, OptionNumber::OBSERVE, self.observe.then_some(super::amend::REGISTER));
        self.path.iter().for_each(|level| encoder.push(OptionNumber::URI_PATH, level.as_bytes()));
        uint(encoder, OptionNumber::CONTENT_FORMAT, self.content_format.map(u32::from));
        self.queries.iter().for_each(|query| encoder.push(OptionNumber::URI_QUERY, query.as_bytes()));
        uint(encoder, OptionNumber::ACCEPT, self.accept.map(u32::from));
        uint(encoder, OptionNumber::NO_RESPONSE, self.no_response.map(u32::from));
    }
}
