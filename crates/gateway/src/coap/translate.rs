//! Mapping between CoAP and the bus: paths, queries and options.

use std::{sync::Arc, time::Duration};

use fogmux_bus::{Message, Qos, Timestamp};
use fogmux_coap::{Code, ETag, Location, Payload, Request, Response, content_format};

/// The first level of every topic's path.
pub(super) const ROOT: &str = "ps";

/// The resource that a path names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// `/ps/<topic>`; the topic is in the buffer.
    Topic,
    /// `/ps`: all topics, to be narrowed by `?filter=`.
    Root,
    /// `/.well-known/core` (RFC 6690 §4).
    WellKnown,
    /// No resource.
    Nowhere,
    /// A level with a slash in it, which would be two.
    Ambiguous,
}

/// Finds the resource of a request and appends the topic to `topic`: one level for each Uri-Path, unchanged, joined by
/// slashes. The option is not percent-encoded (RFC 7252 §5.10.1), so nothing is decoded.
pub(super) fn target(request: &Request<'_>, topic: &mut String) -> Target {
    let mut path = request.path();
    match path.next() {
        Some(ROOT) => {}
        Some(".well-known") if path.next() == Some("core") && path.next().is_none() => return Target::WellKnown,
        Some(_) | None => return Target::Nowhere,
    }
    let mut found = Target::Root;
    for level in path {
        if level.contains('/') {
            return Target::Ambiguous;
        }
        if found == Target::Topic {
            topic.push('/');
        }
        topic.push_str(level);
        found = Target::Topic;
    }
    found
}

/// The parameters of a query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Parameters<'a> {
    pub(super) qos: Option<Qos>,
    pub(super) retain: Option<bool>,
    pub(super) expiry: Option<Duration>,
    pub(super) filter: Option<&'a str>,
}

impl<'a> Parameters<'a> {
    /// Parses the query; a wrong value is an error.
    pub(super) fn of(request: &Request<'a>) -> Result<Self, &'static str> {
        let mut parameters = Self::default();
        for query in request.queries() {
            let number = query.value.parse::<u32>().ok();
            match query.name {
                "qos" => {
                    let qos = number.and_then(|number| u8::try_from(number).ok()).and_then(Qos::from_u8);
                    parameters.qos = Some(qos.ok_or("qos is 0, 1 or 2")?);
                }
                "retain" => {
                    parameters.retain = Some(query.value.parse().map_err(|_| "retain is true or false")?);
                }
                "expiry" => {
                    let seconds = number.ok_or("expiry is a number of seconds")?;
                    parameters.expiry = Some(Duration::from_secs(seconds.into()));
                }
                "filter" => parameters.filter = Some(query.value),
                // As at the HTTP door, unknown parameters are ignored.
                _ => {}
            }
        }
        Ok(parameters)
    }
}

/// The MIME type of a body. A format without one could not be told to readers at other doors, so it is refused.
pub(super) fn content_type(request: &Request<'_>) -> Result<Option<&'static str>, Code> {
    match request.content_format {
        None => Ok(None),
        Some(format) => content_format::mime_type(format).map(Some).ok_or(Code::UNSUPPORTED_CONTENT_FORMAT),
    }
}

/// A message as a representation of its topic.
pub(super) fn representation(message: &Arc<Message>, now: Timestamp) -> Response<'_> {
    let content_type = message.content_type.as_deref();
    Response {
        etag: Some(ETag::from_u64(message.etag())),
        content_format: content_type.and_then(|mime| content_format::of_representation(mime, &message.payload)),
        max_age: message.seconds_left(now),
        payload: Payload::Shared(&message.payload),
        ..Response::new(Code::CONTENT)
    }
}

/// Longer levels do not fit an option (RFC 7252 table 4).
const LEVEL_BYTES_MAX: usize = 255;

/// The location of a topic; `None` when a level is too long for an option.
pub(super) fn location(topic: &str) -> Option<Location<'_>> {
    let fits = topic.split('/').all(|level| level.len() <= LEVEL_BYTES_MAX);
    fits.then_some(Location { root: ROOT, path: topic })
}

#[cfg(test)]
mod tests {
    use fogmux_coap::{Encoder, Message as Datagram, OptionNumber, Token, Type};

    use super::*;

    fn with_request<T>(path: &[&str], queries: &[&str], check: impl Fn(&Request<'_>) -> T) -> T {
        let mut bytes = Vec::new();
        let mut encoder = Encoder::new(&mut bytes, Type::Confirmable, Code::GET, 1, &Token::EMPTY);
        path.iter().for_each(|level| encoder.push(OptionNumber::URI_PATH, level.as_bytes()));
        queries.iter().for_each(|query| encoder.push(OptionNumber::URI_QUERY, query.as_bytes()));
        encoder.finish();
        check(&Request::parse(Datagram::decode(&bytes).unwrap()).unwrap())
    }

    #[test]
    fn every_level_is_one_option_and_none_is_decoded() {
        for (path, target_expected, topic_expected) in [
            (&["ps", "a", "b"][..], Target::Topic, "a/b"),
            (&["ps", "a", ""], Target::Topic, "a/"),
            (&["ps", "", "a"], Target::Topic, "/a"),
            (&["ps", "", ""], Target::Topic, "/"),
            (&["ps", "a%2Fb", "é ü"], Target::Topic, "a%2Fb/é ü"),
            (&["ps"], Target::Root, ""),
            (&["ps", "a/b"], Target::Ambiguous, ""),
            (&[".well-known", "core"], Target::WellKnown, ""),
            (&[".well-known", "core", "x"], Target::Nowhere, ""),
            (&["other"], Target::Nowhere, ""),
            (&[], Target::Nowhere, ""),
        ] {
            let mut topic = String::new();
            let found = with_request(path, &[], |request| {
                let mut buffer = String::new();
                (target(request, &mut buffer), buffer)
            });
            topic.push_str(&found.1);
            assert_eq!((found.0, topic.as_str()), (target_expected, topic_expected), "{path:?}");
        }
    }

    #[test]
    fn queries_are_understood_or_refused() {
        let parse = |queries: &[&str]| with_request(&["ps", "a"], queries, |request| Parameters::of(request).is_ok());
        assert!(parse(&["qos=1", "retain=true", "expiry=60", "other=x"]));
        for wrong in ["qos=3", "qos=", "retain=yes", "expiry=-1", "expiry=x"] {
            assert!(!parse(&[wrong]), "{wrong}");
        }
        with_request(&["ps"], &["filter=a/+/#"], |request| {
            assert_eq!(Parameters::of(request).unwrap().filter, Some("a/+/#"));
        });
    }
}
