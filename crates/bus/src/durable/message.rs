//! A message as bytes: what a restart must give back to its subscribers.
//!
//! Four bytes – QoS, meaning, door, flags – and the time at which it came in (8 bytes) are followed by fields, each a
//! tag (1 byte), a length (4 bytes) and that many bytes. Unknown tags are skipped, so that a later release can add a
//! field. Numbers are little-endian.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use bytes::Bytes;

use super::{
    bytes::{Cursor, RecordError, put_counted, text},
    record::Record,
};
use crate::{
    Timestamp,
    door::Door,
    meaning::{Clearing, Meaning},
    message::{Message, MessageId, Properties, Publisher, Qos, message_size},
    retained::left_ms,
    topic::Topic,
};

const FLAG_PROPERTIES: u8 = 1;
const FLAG_UTF8: u8 = 2;

const TAG_TOPIC: u8 = 1;
const TAG_PAYLOAD: u8 = 2;
const TAG_CONTENT_TYPE: u8 = 3;
const TAG_EXPIRES: u8 = 4;
const TAG_PRINCIPAL: u8 = 5;
const TAG_CLIENT: u8 = 6;
const TAG_REPLY_TO: u8 = 7;
const TAG_CORRELATION: u8 = 8;
const TAG_USER: u8 = 9;
const TAG_ITEM_ID: u8 = 10;

/// A message as it is stored for sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredMessage {
    /// The topic.
    pub topic: Topic,
    /// The payload.
    pub payload: Bytes,
    /// The QoS it was published with.
    pub qos: Qos,
    /// Whether it is a value, an event or a clearing.
    pub meaning: Meaning,
    /// MIME type.
    pub content_type: Option<Arc<str>>,
    /// When it expires, in milliseconds since 1970.
    pub expires_unix_ms: Option<u64>,
    /// Rare fields.
    pub properties: Option<Arc<Properties>>,
    /// When it came in, in milliseconds since 1970.
    pub ingest_unix_ms: u64,
    /// The name of the publisher's principal.
    pub principal: Arc<str>,
    /// The publisher's client identifier.
    pub client: Arc<str>,
    /// The door it came in by; `None` for the gateway itself.
    pub door: Option<Door>,
}

impl StoredMessage {
    /// The fields of a message, with its expiry in wall-clock time.
    #[must_use]
    pub fn of(message: &Message, expires_unix_ms: Option<u64>) -> Self {
        Self {
            topic: message.topic.clone(),
            payload: message.payload.clone(),
            qos: message.qos,
            meaning: message.meaning,
            content_type: message.content_type.clone(),
            expires_unix_ms,
            properties: message.properties.clone(),
            ingest_unix_ms: message.ingest_unix_ms,
            principal: Arc::clone(&message.publisher.principal),
            client: Arc::clone(&message.publisher.client),
            door: message.publisher.door,
        }
    }

    /// The message of a record, if that is one.
    #[must_use]
    pub fn of_record(kind: u8, bytes: Bytes) -> Option<Self> {
        match Record::decode(kind, bytes) {
            Ok(Record::Message(message)) => Some(message),
            Ok(_) | Err(_) => None,
        }
    }

    /// The message as it is delivered. `now` and `now_unix_ms` are the same moment on both clocks.
    #[must_use]
    pub fn restore(&self, now: Timestamp, now_unix_ms: u64) -> Message {
        self.clone().read_back(now, self.expires_at(now, now_unix_ms))
    }

    /// When it expires, by the clock of this process.
    #[must_use]
    pub fn expires_at(&self, now: Timestamp, now_unix_ms: u64) -> Option<Timestamp> {
        self.expires_unix_ms.map(|expires| expires_at(self.ingest_unix_ms, expires, now, now_unix_ms))
    }

    /// The message as it is delivered, which expires then.
    #[must_use]
    pub fn read_back(self, now: Timestamp, expires_at: Option<Timestamp>) -> Message {
        let publisher = Publisher { principal: self.principal, client: self.client, door: self.door, slot: None };
        Message {
            id: MessageId::restored(),
            topic: self.topic,
            payload: self.payload,
            qos: self.qos,
            meaning: self.meaning,
            sample: None,
            content_type: self.content_type,
            expires_at,
            properties: self.properties,
            publisher: Arc::new(publisher),
            ingest: now,
            ingest_unix_ms: self.ingest_unix_ms,
            tag: OnceLock::new(),
        }
    }

    /// Its memory in bytes as a [`Message`], roughly; see [`Message::size`].
    #[must_use]
    pub fn size(&self) -> usize {
        message_size(&self.topic, &self.payload, self.content_type.as_deref(), self.properties.as_deref())
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let flags = self.properties.as_ref().map_or(0, |rare| FLAG_PROPERTIES | if rare.utf8 { FLAG_UTF8 } else { 0 });
        out.extend_from_slice(&[self.qos as u8, meaning_to_u8(self.meaning), self.door.map_or(0, Door::number), flags]);
        out.extend_from_slice(&self.ingest_unix_ms.to_le_bytes());
        field(out, TAG_TOPIC, self.topic.as_bytes());
        field(out, TAG_PRINCIPAL, self.principal.as_bytes());
        field(out, TAG_CLIENT, self.client.as_bytes());
        if let Some(content_type) = &self.content_type {
            field(out, TAG_CONTENT_TYPE, content_type.as_bytes());
        }
        if let Some(expires) = self.expires_unix_ms {
            field(out, TAG_EXPIRES, &expires.to_le_bytes());
        }
        if let Some(properties) = &self.properties {
            encode_properties(out, properties);
        }
        field(out, TAG_PAYLOAD, &self.payload);
    }

    pub(super) fn decode(mut cursor: Cursor) -> Result<Self, RecordError> {
        let qos = Qos::from_u8(cursor.u8()?).ok_or(RecordError::Impossible("QoS"))?;
        let meaning = meaning_from_u8(cursor.u8()?)?;
        let door = door_of(cursor.u8()?)?;
        let flags = cursor.u8()?;
        let ingest_unix_ms = cursor.u64()?;
        let fields = Fields::read(cursor)?;
        Ok(Self {
            topic: fields.topic.ok_or(RecordError::Missing("topic"))?,
            payload: fields.payload.ok_or(RecordError::Missing("payload"))?,
            qos,
            meaning,
            content_type: fields.content_type,
            expires_unix_ms: fields.expires,
            properties: (flags & FLAG_PROPERTIES != 0)
                .then(|| Arc::new(Properties { utf8: flags & FLAG_UTF8 != 0, ..fields.properties })),
            ingest_unix_ms,
            principal: fields.principal.ok_or(RecordError::Missing("principal"))?,
            client: fields.client.ok_or(RecordError::Missing("client"))?,
            door,
        })
    }
}

/// When a message expires that came in and expires at these moments of the wall clock.
pub(super) fn expires_at(ingest: u64, expires: u64, now: Timestamp, now_unix_ms: u64) -> Timestamp {
    now + Duration::from_millis(left_ms(ingest, expires, now_unix_ms))
}

fn field(out: &mut Vec<u8>, tag: u8, value: &[u8]) {
    out.push(tag);
    put_counted(out, value);
}

fn encode_properties(out: &mut Vec<u8>, properties: &Properties) {
    if let Some(reply_to) = &properties.reply_to {
        field(out, TAG_REPLY_TO, reply_to.as_bytes());
    }
    if let Some(correlation) = &properties.correlation {
        field(out, TAG_CORRELATION, correlation);
    }
    for (name, value) in &properties.user {
        let mut pair = Vec::with_capacity(8 + name.len() + value.len());
        put_counted(&mut pair, name.as_bytes());
        put_counted(&mut pair, value.as_bytes());
        field(out, TAG_USER, &pair);
    }
    if let Some(item_id) = &properties.item_id {
        field(out, TAG_ITEM_ID, item_id.as_bytes());
    }
}

#[derive(Default)]
struct Fields {
    topic: Option<Topic>,
    payload: Option<Bytes>,
    content_type: Option<Arc<str>>,
    expires: Option<u64>,
    principal: Option<Arc<str>>,
    client: Option<Arc<str>>,
    properties: Properties,
}

impl Fields {
    fn read(mut cursor: Cursor) -> Result<Self, RecordError> {
        let mut fields = Self::default();
        while !cursor.0.is_empty() {
            let tag = cursor.u8()?;
            let value = cursor.counted()?;
            fields.add(tag, value)?;
        }
        Ok(fields)
    }

    fn add(&mut self, tag: u8, value: Bytes) -> Result<(), RecordError> {
        let shared = |name| text(&value, name).map(Arc::from);
        let boxed = |name| text(&value, name).map(Box::from);
        let rare = &mut self.properties;
        match tag {
            TAG_TOPIC => {
                let topic = Topic::new(text(&value, "topic")?).map_err(|_| RecordError::Impossible("topic"))?;
                once(&mut self.topic, topic, "topic")
            }
            TAG_PAYLOAD => once(&mut self.payload, value, "payload"),
            TAG_CONTENT_TYPE => once(&mut self.content_type, shared("content type")?, "content type"),
            TAG_EXPIRES => {
                let mut number = Cursor(value);
                once(&mut self.expires, number.u64()?, "expiry")?;
                number.end()
            }
            TAG_PRINCIPAL => once(&mut self.principal, shared("principal")?, "principal"),
            TAG_CLIENT => once(&mut self.client, shared("client")?, "client"),
            TAG_REPLY_TO => once(&mut rare.reply_to, boxed("reply topic")?, "reply topic"),
            TAG_CORRELATION => once(&mut rare.correlation, value, "correlation"),
            TAG_USER => {
                let mut pair = Cursor(value);
                let (name, value) = (pair.counted()?, pair.counted()?);
                let (name, value) = (text(&name, "user property")?, text(&value, "user property")?);
                rare.user.push((Box::from(name), Box::from(value)));
                pair.end()
            }
            TAG_ITEM_ID => once(&mut rare.item_id, boxed("item identifier")?, "item identifier"),
            _ => Ok(()),
        }
    }
}

fn once<T>(place: &mut Option<T>, value: T, name: &'static str) -> Result<(), RecordError> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(RecordError::Repeated(name)),
    }
}

// Numbers of meanings on the disk: never reuse one.
const fn meaning_to_u8(meaning: Meaning) -> u8 {
    match meaning {
        Meaning::Event => 0,
        Meaning::Value => 1,
        Meaning::Clearing(Clearing::Cleared) => 2,
        Meaning::Clearing(Clearing::Retracted) => 3,
        Meaning::Clearing(Clearing::Purged) => 4,
        Meaning::Clearing(Clearing::Deleted) => 5,
        Meaning::Clearing(Clearing::Unannounced) => 6,
    }
}

const fn meaning_from_u8(byte: u8) -> Result<Meaning, RecordError> {
    Ok(match byte {
        0 => Meaning::Event,
        1 => Meaning::Value,
        2 => Meaning::Clearing(Clearing::Cleared),
        3 => Meaning::Clearing(Clearing::Retracted),
        4 => Meaning::Clearing(Clearing::Purged),
        5 => Meaning::Clearing(Clearing::Deleted),
        6 => Meaning::Clearing(Clearing::Unannounced),
        _ => return Err(RecordError::Impossible("meaning")),
    })
}

fn door_of(number: u8) -> Result<Option<Door>, RecordError> {
    match number {
        0 => Ok(None),
        number => Door::of_number(number).ok_or(RecordError::Impossible("door")).map(Some),
    }
}
