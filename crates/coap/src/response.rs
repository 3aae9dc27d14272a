//! Responses of the application. The state machine adds the options of the protocol (Block, Observe, Size).

use std::time::Duration;

use bytes::Bytes;

use crate::block::Block;
use crate::code::Code;
use crate::encode::Encoder;
use crate::etag::ETag;
use crate::option::OptionNumber;

/// The payload of a response.
#[derive(Clone, Copy, Debug)]
pub enum Payload<'a> {
    /// Borrowed; copied where it must outlive the call.
    Slice(&'a [u8]),
    /// Shared; cheap to keep.
    Shared(&'a Bytes),
}

impl<'a> Payload<'a> {
    /// The bytes.
    #[must_use]
    pub fn as_slice(&self) -> &'a [u8] {
        match self {
            Self::Slice(bytes) => bytes,
            Self::Shared(bytes) => bytes,
        }
    }

    pub(crate) fn to_bytes(self) -> Bytes {
        match self {
            Self::Slice(bytes) => Bytes::copy_from_slice(bytes),
            Self::Shared(bytes) => bytes.clone(),
        }
    }
}

/// The location of a resource: `root`, then `path`, which is split at each `/` into Location-Path options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location<'a> {
    /// The first level.
    pub root: &'a str,
    /// All further levels.
    pub path: &'a str,
}

/// A response, or the content of a notification.
#[derive(Clone, Copy, Debug)]
pub struct Response<'a> {
    /// 2.xx, 4.xx or 5.xx.
    pub code: Code,
    /// The entity-tag of the representation in the payload.
    pub etag: Option<ETag>,
    /// The Location of the resource, if the request does not name it.
    pub location: Option<Location<'a>>,
    /// The Content-Format of the payload.
    pub content_format: Option<u16>,
    /// The freshness lifetime in seconds; `None` means 60 (RFC 7252 §5.10.5).
    pub max_age: Option<u32>,
    /// The largest body in bytes that would be accepted (RFC 7959 §4).
    pub size1: Option<u32>,
    /// The payload, or a diagnostic text in an error (RFC 7252 §5.5.2).
    pub payload: Payload<'a>,
}

impl<'a> Response<'a> {
    /// A response that is only a code.
    #[must_use]
    pub const fn new(code: Code) -> Self {
        Self {
            code,
            etag: None,
            location: None,
            content_format: None,
            max_age: None,
            size1: None,
            payload: Payload::Slice(&[]),
        }
    }

    /// An error with a text for a person (RFC 7252 §5.5.2).
    #[must_use]
    pub const fn diagnostic(code: Code, text: &'a str) -> Self {
        Self { payload: Payload::Slice(text.as_bytes()), ..Self::new(code) }
    }

    /// 4.29: too many requests, come back later (RFC 8516 §4).
    #[must_use]
    pub fn too_many_requests(retry_after: Duration) -> Self {
        Self { max_age: Some(seconds(retry_after)), ..Self::new(Code::TOO_MANY_REQUESTS) }
    }

    /// 5.03 with the time to wait (RFC 7252 §5.9.3.4).
    #[must_use]
    pub fn unavailable(retry_after: Duration) -> Self {
        Self { max_age: Some(seconds(retry_after)), ..Self::new(Code::SERVICE_UNAVAILABLE) }
    }

    /// Writes options and payload in their order; the head is there already.
    pub(crate) fn write(&self, mut encoder: Encoder<'_>, extra: &Extra<'_>) {
        if let Some(etag) = self.etag {
            encoder.etag(etag);
        }
        self.write_rest(encoder.uint_if(OptionNumber::OBSERVE, extra.observe), extra);
    }

    /// The options behind Observe, and the payload.
    fn write_rest(&self, mut encoder: Encoder<'_>, extra: &Extra<'_>) {
        if let Some(Location { root, path }) = self.location {
            encoder.push(OptionNumber::LOCATION_PATH, root.as_bytes());
            path.split('/').for_each(|level| encoder.push(OptionNumber::LOCATION_PATH, level.as_bytes()));
        }
        encoder = encoder
            .uint_if(OptionNumber::CONTENT_FORMAT, self.content_format.map(u32::from))
            .uint_if(OptionNumber::MAX_AGE, self.max_age)
            .uint_if(OptionNumber::BLOCK2, extra.block2.map(Block::encode))
            .uint_if(OptionNumber::BLOCK1, extra.block1.map(Block::encode))
            .uint_if(OptionNumber::SIZE2, extra.size2)
            .uint_if(OptionNumber::SIZE1, self.size1);
        if let Some(echo) = extra.echo {
            encoder.push(OptionNumber::ECHO, echo);
        }
        encoder.payload(extra.payload);
    }
}

/// The options and the payload of a response, written once for many observers: only Observe differs among their
/// notifications.
#[derive(Debug, Default)]
pub struct Encoded {
    etag: Option<ETag>,
    /// Behind Observe.
    rest: Vec<u8>,
}

impl Encoded {
    /// Writes a response, in place of the one before.
    pub fn encode(&mut self, response: &Response<'_>) {
        self.etag = response.etag;
        self.rest.clear();
        let extra = Extra { payload: response.payload.as_slice(), ..Extra::default() };
        response.write_rest(Encoder::body_behind(&mut self.rest, OptionNumber::OBSERVE), &extra);
    }

    /// Writes a notification with this sequence number; the head is there already.
    pub(crate) fn write(&self, mut encoder: Encoder<'_>, observe: u32) {
        if let Some(etag) = self.etag {
            encoder.etag(etag);
        }
        encoder.uint(OptionNumber::OBSERVE, observe).append(&self.rest);
    }
}

/// The options that the state machine adds to a response, and the part of the payload that this message carries.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Extra<'a> {
    pub(crate) observe: Option<u32>,
    pub(crate) block1: Option<Block>,
    pub(crate) block2: Option<Block>,
    pub(crate) size2: Option<u32>,
    pub(crate) echo: Option<&'a [u8]>,
    pub(crate) payload: &'a [u8],
}

/// Whole seconds for Max-Age.
pub(crate) fn seconds(span: Duration) -> u32 {
    u32::try_from(span.as_secs()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::message::Type;
    use crate::token::Token;

    proptest! {
        #[test]
        fn an_encoded_notification_is_the_same_as_one_written_anew(
            etag in proptest::option::of(proptest::collection::vec(any::<u8>(), 1..=8)),
            path in proptest::option::of(proptest::collection::vec("[a-z]{0,20}|[a-z]{255}", 1..4)),
            content_format: Option<u16>,
            max_age: Option<u32>,
            payload in proptest::collection::vec(any::<u8>(), 0..64),
            token in proptest::collection::vec(any::<u8>(), 0..=8),
            observe in prop_oneof![0..=0x0100_u32, 0..=0x00ff_ffff_u32],
        ) {
            let path = path.map(|levels| levels.join("/"));
            let response = Response {
                etag: etag.as_deref().and_then(ETag::new),
                location: path.as_deref().map(|path| Location { root: "ps", path }),
                content_format,
                max_age,
                payload: Payload::Slice(&payload),
                ..Response::new(Code::CONTENT)
            };
            let token = Token::new(&token).unwrap();
            let mut encoded = Encoded::default();
            encoded.encode(&Response { max_age: Some(7), ..Response::diagnostic(Code::CONTENT, "another before") });
            encoded.encode(&response);
            let (mut anew, mut again) = (b"before".to_vec(), b"before".to_vec());
            let extra = Extra { observe: Some(observe), payload: &payload, ..Extra::default() };
            response.write(Encoder::new(&mut anew, Type::NonConfirmable, Code::CONTENT, 7, &token), &extra);
            encoded.write(Encoder::new(&mut again, Type::NonConfirmable, Code::CONTENT, 7, &token), observe);
            prop_assert_eq!(anew, again);
        }
    }
}
