//! The notification of a message, made once for all its observers of a turn.

use std::sync::Arc;

use fogmux_bus::{Message, Timestamp};
use fogmux_coap::{Code, ETag, Encoded, Location, Payload, Response};

use super::translate;

/// A longer payload is sent in blocks to most observers, and not copied for the others.
const ENCODED_MAX: usize = 1024;

/// The representation that an observer of a turn was notified of last.
#[derive(Default)]
pub(super) struct Shown {
    /// Held, so that no other message can be at its address.
    message: Option<Arc<Message>>,
    content_format: Option<u16>,
    max_age: Option<u32>,
    is_encoded: bool,
    encoded: Encoded,
}

/// The last notifications: of observers of one topic, and of observers of filters.
#[derive(Default)]
pub(super) struct ShownLast {
    plain: Shown,
    /// With its topic.
    named: Shown,
}

impl ShownLast {
    /// The representation of a message for one more observer; `None` if it cannot name its topic.
    pub(super) fn show<'a>(
        &'a mut self,
        message: &'a Arc<Message>,
        is_named: bool,
        now: Timestamp,
    ) -> Option<(Response<'a>, Option<&'a Encoded>)> {
        let shown = if is_named { &mut self.named } else { &mut self.plain };
        let max_age = message.seconds_left(now);
        if shown.message.as_ref().is_some_and(|last| Arc::ptr_eq(last, message)) && shown.max_age == max_age {
            return Some(shown.again(message, is_named));
        }
        let mut response = translate::representation(message, now);
        if is_named {
            response.location = Some(translate::location(&message.topic)?);
        }
        shown.message = Some(Arc::clone(message));
        (shown.content_format, shown.max_age, shown.is_encoded) = (response.content_format, max_age, false);
        Some((response, None))
    }

    /// Lets go of the messages, at the end of a turn.
    pub(super) fn forget(&mut self) {
        (self.plain.message, self.named.message) = (None, None);
    }
}

impl Shown {
    /// The same for a second observer and those that follow.
    fn again<'a>(&'a mut self, message: &'a Message, is_named: bool) -> (Response<'a>, Option<&'a Encoded>) {
        let location = Location { root: translate::ROOT, path: &message.topic };
        let response = Response {
            etag: Some(ETag::from_u64(message.etag())),
            location: is_named.then_some(location),
            content_format: self.content_format,
            max_age: self.max_age,
            payload: Payload::Shared(&message.payload),
            ..Response::new(Code::CONTENT)
        };
        if !self.is_encoded && message.payload.len() <= ENCODED_MAX {
            self.encoded.encode(&response);
            self.is_encoded = true;
        }
        (response, self.is_encoded.then_some(&self.encoded))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use fogmux_bus::{Payload, Publication, Publisher, TopicRef};

    use super::*;

    fn message(topic: &str, payload: &[u8], expires_at: Option<Timestamp>) -> Arc<Message> {
        let publisher = Publisher::internal();
        let mut publication =
            Publication::new(TopicRef::new(topic).unwrap(), Payload::Slice(payload), &publisher, Timestamp::ZERO, 0);
        publication.expires_at = expires_at;
        Arc::clone(publication.share())
    }

    /// The parts of a representation that observers see, and whether it is encoded.
    type Seen = (Option<ETag>, Option<String>, Option<u32>, Bytes, bool);

    fn show(shown: &mut ShownLast, message: &Arc<Message>, is_named: bool, now: Timestamp) -> Seen {
        let (response, encoded) = shown.show(message, is_named, now).unwrap();
        let path = response.location.map(|location| location.path.to_owned());
        let payload = Bytes::copy_from_slice(response.payload.as_slice());
        (response.etag, path, response.max_age, payload, encoded.is_some())
    }

    #[test]
    fn it_is_encoded_for_the_second_observer_and_anew_when_it_changes() {
        let mut shown = ShownLast::default();
        let start = Timestamp::ZERO;
        let (one, other) = (message("a/b", b"1", None), message("a/b", b"2", Some(start + Duration::from_secs(9))));
        let seen = |of: &Message, is_named: bool, max_age, encoded| {
            let path = is_named.then(|| of.topic.as_str().to_owned());
            (Some(ETag::from_u64(of.etag())), path, max_age, of.payload.clone(), encoded)
        };
        for (message, is_named, now, max_age, encoded) in [
            (&one, false, start, None, false),
            (&one, true, start, None, false),
            (&one, false, start, None, true),
            (&one, true, start, None, true),
            (&other, false, start, Some(9), false),
            (&other, false, start, Some(9), true),
            (&other, false, start + Duration::from_secs(2), Some(7), false),
            (&other, false, start + Duration::from_secs(2), Some(7), true),
            (&one, true, start, None, true),
            (&one, false, start, None, false),
        ] {
            assert_eq!(show(&mut shown, message, is_named, now), seen(message, is_named, max_age, encoded));
        }
        shown.forget();
        assert_eq!((Arc::strong_count(&one), Arc::strong_count(&other)), (1, 1));
    }

    #[test]
    fn a_payload_of_several_blocks_is_not_copied_and_a_topic_that_fits_no_option_is_not_named() {
        let mut shown = ShownLast::default();
        for (length, encoded) in [(ENCODED_MAX, true), (ENCODED_MAX + 1, false)] {
            let message = message("a", &vec![1; length], None);
            show(&mut shown, &message, false, Timestamp::ZERO);
            assert_eq!(show(&mut shown, &message, false, Timestamp::ZERO).4, encoded);
        }
        let long = message(&"x".repeat(256), b"1", None);
        assert!(shown.show(&long, true, Timestamp::ZERO).is_none());
        assert!(shown.show(&long, false, Timestamp::ZERO).is_some());
    }
}
