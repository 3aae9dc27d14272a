//! Messages: a borrowed [`Publication`] on its way in, a shared [`Message`] once a mailbox has to keep it.

use std::{
    cell::OnceCell,
    hash::{BuildHasher, Hasher},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;

use crate::{
    Timestamp,
    door::Door,
    id::SlotId,
    meaning::Meaning,
    outcome::OutcomeCell,
    sampling::Sample,
    topic::{Topic, TopicRef},
};

/// The delivery guarantee over one hop (MQTT 5.0 §4.3). Doors of other protocols translate to and from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Qos {
    /// May be lost.
    #[default]
    AtMostOnce = 0,
    /// Acknowledged; may arrive twice.
    AtLeastOnce = 1,
    /// Acknowledged in two steps.
    ExactlyOnce = 2,
}

impl Qos {
    /// Converts 0, 1 or 2.
    #[must_use]
    pub const fn from_u8(value: u8) -> Option<Self> {
        match value {
            0 => Some(Self::AtMostOnce),
            1 => Some(Self::AtLeastOnce),
            2 => Some(Self::ExactlyOnce),
            _ => None,
        }
    }
}

/// The publisher of a message; one per connection, shared by its messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publisher {
    /// Name of the authenticated principal.
    pub principal: Arc<str>,
    /// Client identifier within the door.
    pub client: Arc<str>,
    /// The door it came in by; `None` for the gateway itself.
    pub door: Option<Door>,
    /// The publisher's own mailbox, for subscriptions that do not want their own messages back.
    pub slot: Option<SlotId>,
}

impl Publisher {
    /// The gateway itself.
    #[must_use]
    pub fn internal() -> Arc<Self> {
        Arc::new(Self { principal: Arc::from("fogmux"), client: Arc::default(), door: None, slot: None })
    }
}

/// Fields that few messages have, behind one pointer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Properties {
    /// The payload is UTF-8 text (MQTT payload format indicator 1).
    pub utf8: bool,
    /// The topic to respond to.
    pub reply_to: Option<Box<str>>,
    /// The correlation data that a response repeats.
    pub correlation: Option<Bytes>,
    /// Name and value pairs, in order; names may repeat.
    pub user: Vec<(Box<str>, Box<str>)>,
    /// The item identifier that an XMPP publisher chose (XEP-0060 §7.1).
    pub item_id: Option<Box<str>>,
}

/// Identifies a message within this run of the gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(pub u64);

impl MessageId {
    /// A new one, for a message that the store gives back. Those of workers are below.
    pub(crate) fn restored() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1 << 63);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// A shared message, as mailboxes and the retained map keep it.
#[derive(Debug)]
pub struct Message {
    /// Unique within this run.
    pub id: MessageId,
    /// The topic it was published to.
    pub topic: Topic,
    /// The payload, as it came in.
    pub payload: Bytes,
    /// The QoS it was published with.
    pub qos: Qos,
    /// Whether it is a value, an event or a clearing.
    pub meaning: Meaning,
    /// If its deliveries are timed: when it was taken. Messages of an earlier run and wills have none.
    pub sample: Option<Sample>,
    /// MIME type, if the publisher gave one.
    pub content_type: Option<Arc<str>>,
    /// When it expires.
    pub expires_at: Option<Timestamp>,
    /// Rare fields.
    pub properties: Option<Arc<Properties>>,
    /// The publisher.
    pub publisher: Arc<Publisher>,
    /// When it came in.
    pub ingest: Timestamp,
    /// When it came in, in milliseconds since 1970-01-01T00:00:00Z.
    pub ingest_unix_ms: u64,
    /// Entity tag, computed at the first call of [`Message::etag`].
    pub tag: OnceLock<u64>,
}

impl Message {
    /// The entity tag of payload and content type: equal contents have equal tags, also after a restart. Computed at
    /// the first call, because most messages never need it.
    #[must_use]
    pub fn etag(&self) -> u64 {
        *self.tag.get_or_init(|| etag(&self.payload, self.content_type.as_deref()))
    }

    /// Whether it has expired at `now`.
    #[must_use]
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }

    /// Seconds until it expires, rounded up, as told to receivers. `None`: it never expires.
    #[must_use]
    pub fn seconds_left(&self, now: Timestamp) -> Option<u32> {
        self.expires_at.map(|at| seconds(at, now))
    }

    /// Its memory in bytes, roughly, without its publisher, which is its connection's.
    #[must_use]
    pub fn size(&self) -> usize {
        // Each field is named, so that a new one is not forgotten.
        let Self {
            topic,
            payload,
            content_type,
            properties,
            id: _,
            qos: _,
            meaning: _,
            sample: _,
            expires_at: _,
            publisher: _,
            ingest: _,
            ingest_unix_ms: _,
            tag: _,
        } = self;
        message_size(topic, payload, content_type.as_deref(), properties.as_deref())
    }
}

/// See [`Message::size`].
pub(crate) fn message_size(
    topic: &Topic,
    payload: &[u8],
    content_type: Option<&str>,
    properties: Option<&Properties>,
) -> usize {
    let content_type = content_type.map_or(0, |name| name.len() + 32);
    payload.len() + topic.len() + 160 + content_type + properties.map_or(0, Properties::size)
}

impl Properties {
    /// Their memory in bytes, roughly.
    #[must_use]
    pub fn size(&self) -> usize {
        let Self { utf8: _, reply_to, correlation, user, item_id } = self;
        // Two places in the list, and two allocations.
        user.iter().map(|(name, value)| name.len() + value.len() + 80).sum::<usize>()
            + correlation.as_ref().map_or(0, Bytes::len)
            + reply_to.as_ref().map_or(0, |topic| topic.len())
            + item_id.as_ref().map_or(0, |id| id.len())
            + 128
    }
}

fn seconds(at: Timestamp, now: Timestamp) -> u32 {
    u32::try_from(at.since(now).as_millis().div_ceil(1000)).unwrap_or(u32::MAX)
}

/// The entity tag of a payload with its type. The seed is fixed, so that a tag survives a restart.
#[must_use]
pub fn etag(payload: &[u8], content_type: Option<&str>) -> u64 {
    let mut hasher = foldhash::quality::FixedState::with_seed(0x0066_6f67_6d75_7800).build_hasher();
    hasher.write(payload);
    if let Some(content_type) = content_type {
        hasher.write_u8(1);
        hasher.write(content_type.as_bytes());
    }
    hasher.finish()
}

/// A payload on its way in: still in the read buffer, or already shared.
#[derive(Clone, Copy, Debug)]
pub enum Payload<'a> {
    /// Borrowed; copied when a mailbox keeps it.
    Slice(&'a [u8]),
    /// Shared; never copied.
    Shared(&'a Bytes),
}

impl<'a> Payload<'a> {
    /// The bytes.
    #[must_use]
    pub fn as_slice(&self) -> &'a [u8] {
        match *self {
            Self::Slice(slice) => slice,
            Self::Shared(bytes) => bytes,
        }
    }

    fn to_bytes(self) -> Bytes {
        match self {
            Self::Slice(slice) => Bytes::copy_from_slice(slice),
            Self::Shared(bytes) => bytes.clone(),
        }
    }
}

/// Decides by a topic's retained message whether a publication goes ahead.
pub type Precondition<'a> = dyn Fn(Option<&Arc<Message>>) -> bool + 'a;

/// A message on its way in, borrowed from where it was read. It becomes a shared [`Message`] at most once, and only
/// when a mailbox or the retained map has to keep it.
pub struct Publication<'a> {
    /// The topic.
    pub topic: TopicRef<'a>,
    /// The payload.
    pub payload: Payload<'a>,
    /// The QoS.
    pub qos: Qos,
    /// Whether it becomes the topic's retained message, or clears that.
    pub meaning: Meaning,
    /// MIME type.
    pub content_type: Option<&'a str>,
    /// When it expires.
    pub expires_at: Option<Timestamp>,
    /// Rare fields.
    pub properties: Option<Arc<Properties>>,
    /// The publisher.
    pub publisher: &'a Arc<Publisher>,
    /// When it came in, in milliseconds since 1970-01-01T00:00:00Z.
    pub ingest_unix_ms: u64,
    /// When it came in.
    pub ingest: Timestamp,
    /// Evaluated with the topic's retained message, under the lock that orders retained publications: the message is
    /// published only if it returns `true` (`If-Match`, `If-None-Match`).
    pub precondition: Option<&'a Precondition<'a>>,
    /// Whether nobody waits for its outcome, as of a will: it is delivered even if it cannot be retained.
    pub unanswered: bool,
    pub(crate) id: MessageId,
    pub(crate) sample: Option<Sample>,
    pub(crate) outcome: OutcomeCell,
    shared: OnceCell<Arc<Message>>,
}

impl std::fmt::Debug for Publication<'_> {
    /// Leaves the payload out: it may be secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Publication")
            .field("id", &self.id)
            .field("topic", &self.topic)
            .field("bytes", &self.payload.as_slice().len())
            .field("qos", &self.qos)
            .field("meaning", &self.meaning)
            .finish_non_exhaustive()
    }
}

impl<'a> Publication<'a> {
    /// A publication with QoS 0 and nothing else set.
    #[must_use]
    pub fn new(
        topic: TopicRef<'a>,
        payload: Payload<'a>,
        publisher: &'a Arc<Publisher>,
        ingest: Timestamp,
        ingest_unix_ms: u64,
    ) -> Self {
        Self {
            topic,
            payload,
            qos: Qos::AtMostOnce,
            meaning: Meaning::Event,
            content_type: None,
            expires_at: None,
            properties: None,
            publisher,
            ingest_unix_ms,
            ingest,
            precondition: None,
            unanswered: false,
            id: MessageId(0),
            sample: None,
            outcome: OutcomeCell::default(),
            shared: OnceCell::new(),
        }
    }

    /// Publishes an existing message again: a retained one to a new subscriber, a will.
    #[must_use]
    pub fn of(message: &'a Arc<Message>) -> Self {
        let shared = OnceCell::new();
        let _ = shared.set(Arc::clone(message));
        Self {
            topic: message.topic.as_ref(),
            payload: Payload::Shared(&message.payload),
            qos: message.qos,
            meaning: message.meaning,
            content_type: message.content_type.as_deref(),
            expires_at: message.expires_at,
            properties: message.properties.clone(),
            publisher: &message.publisher,
            ingest_unix_ms: message.ingest_unix_ms,
            ingest: message.ingest,
            precondition: None,
            unanswered: false,
            id: message.id,
            sample: message.sample,
            outcome: OutcomeCell::default(),
            shared,
        }
    }

    /// A message of a batch that was not taken ([`Worker::publish_some`](crate::Worker::publish_some)), to be published
    /// for the first time: it gets an identifier of its own then.
    #[must_use]
    pub fn set_aside(message: &'a Arc<Message>) -> Self {
        Self { shared: OnceCell::new(), sample: None, ..Self::of(message) }
    }

    /// A message that goes from one member of a shared subscription to another. Its delivery is not timed: the first
    /// member may have been away for long.
    pub(crate) fn handed_on(message: &'a Arc<Message>) -> Self {
        Self { sample: None, ..Self::of(message) }
    }

    /// Whether it is ordered among all publishers of its topic: it replaces the retained message, or depends on it.
    pub(crate) const fn is_ordered(&self) -> bool {
        self.meaning.is_state() || self.precondition.is_some()
    }

    /// Whether the publisher can be told of a refusal: not of a will, nor of an MQTT message of QoS 0, nor is the
    /// gateway itself told. Requests of CoAP, HTTP and XMPP are always answered.
    pub(crate) fn can_be_refused(&self) -> bool {
        let is_answered = match self.publisher.door {
            Some(Door::Mqtt) => self.qos != Qos::AtMostOnce,
            Some(Door::Coap | Door::Http | Door::Xmpp) => true,
            None => false,
        };
        is_answered && !self.unanswered
    }

    /// The shared message, built at the first call.
    pub fn share(&self) -> &Arc<Message> {
        self.share_with(None)
    }

    pub(crate) fn share_with(&self, topic: Option<&Topic>) -> &Arc<Message> {
        self.shared.get_or_init(|| {
            Arc::new(Message {
                id: self.id,
                topic: topic.cloned().unwrap_or_else(|| self.topic.to_topic()),
                payload: self.payload.to_bytes(),
                qos: self.qos,
                meaning: self.meaning,
                sample: self.sample,
                content_type: self.content_type.map(Arc::from),
                expires_at: self.expires_at,
                properties: self.properties.clone(),
                publisher: Arc::clone(self.publisher),
                ingest: self.ingest,
                ingest_unix_ms: self.ingest_unix_ms,
                tag: OnceLock::new(),
            })
        })
    }

    /// Has its deliveries timed. Not those of a message that is shared already, which would not tell.
    pub(crate) fn time(&mut self, sample: Sample) {
        if self.shared.get().is_none() {
            #[cfg(feature = "traces")]
            let sample = sample.and_traced(self.sample);
            self.sample = Some(sample);
        }
    }

    /// Whether a shared message was built of it.
    #[cfg(feature = "traces")]
    pub(crate) fn is_shared(&self) -> bool {
        self.shared.get().is_some()
    }

    /// If its deliveries are timed: when it was taken.
    #[must_use]
    pub const fn sample(&self) -> Option<Sample> {
        self.sample
    }

    /// Its identifier, known after it was published.
    #[must_use]
    pub const fn id(&self) -> MessageId {
        self.id
    }

    /// Seconds until it expires, rounded up. `None`: it never expires.
    #[must_use]
    pub fn seconds_left(&self, now: Timestamp) -> Option<u32> {
        self.expires_at.map(|at| seconds(at, now))
    }

    /// Whether it has expired at `now`.
    #[must_use]
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{footprint, meaning::Clearing};

    /// Mailboxes count all that a message takes, whichever of its fields is the large one.
    #[test]
    fn no_field_is_left_out_of_the_size() {
        const LARGE: usize = 65_000;
        let text = || "x".repeat(LARGE).into_boxed_str();
        let with = |properties: Properties| Some(Arc::new(properties));
        let user = |count: usize, length: usize| {
            let one = || "y".repeat(length).into_boxed_str();
            Properties { user: (0..count).map(|_| (one(), one())).collect(), ..Properties::default() }
        };
        let properties = [
            None,
            with(Properties { reply_to: Some(text()), ..Properties::default() }),
            with(Properties { correlation: Some(vec![0; LARGE].into()), ..Properties::default() }),
            with(Properties { item_id: Some(text()), ..Properties::default() }),
            with(user(1, LARGE)),
            with(user(1_000, 1)),
            with(user(1_000, 0)),
            with(user(1_000, 17)),
        ];
        let publisher = Publisher::internal();
        for properties in properties {
            for (topic, payload, content_type) in
                [(1, 0, None), (LARGE, 0, None), (1, LARGE, None), (1, 0, Some(text()))]
            {
                let topic = "t".repeat(topic);
                let payload = vec![0; payload];
                let topic = TopicRef::new(&topic).unwrap();
                let mut publication = Publication::new(topic, Payload::Slice(&payload), &publisher, Timestamp::ZERO, 0);
                publication.content_type = content_type.as_deref();
                publication.properties.clone_from(&properties);
                let message = publication.share();
                let (counted, taken) = (message.size(), footprint::of_message(message));
                // The headers of a few allocations are as good as nothing.
                assert!(counted + 256 >= taken, "{counted} counted, {taken} taken");
            }
        }
    }

    #[test]
    fn a_message_that_is_published_again_means_the_same() {
        let publisher = Publisher::internal();
        let cleared =
            [Clearing::Cleared, Clearing::Retracted, Clearing::Purged, Clearing::Deleted, Clearing::Unannounced];
        for meaning in cleared.map(Meaning::Clearing).into_iter().chain([Meaning::Value, Meaning::Event]) {
            let topic = TopicRef::new("t").unwrap();
            // An empty value is none the less a value.
            let mut first = Publication::new(topic, Payload::Slice(b""), &publisher, Timestamp::ZERO, 0);
            first.meaning = meaning;
            let message = Arc::clone(first.share());
            let again = Publication::of(&message);
            assert_eq!((message.meaning, again.meaning, message.copy().meaning), (meaning, meaning, meaning));
        }
    }
}
