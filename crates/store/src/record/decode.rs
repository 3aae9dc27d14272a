//! A record read: whatever the bytes, a message or an error.

use std::sync::Arc;

use bytes::Bytes;
use fogmux_bus::{Door, Properties, Qos, Stored, Topic};

use super::{
    FLAG_PROPERTIES, FLAG_UTF8, RecordError, TAG_CONTENT_TYPE, TAG_CORRELATION, TAG_EXPIRES, TAG_ITEM_ID, TAG_PAYLOAD,
    TAG_PRINCIPAL, TAG_REPLY_TO, TAG_USER, VERSION,
};

/// Reads the record of a topic.
///
/// # Errors
/// The first thing that is wrong with it.
pub fn decode(topic: Topic, bytes: &[u8]) -> Result<Stored, RecordError> {
    let mut cursor = Cursor(bytes);
    let version = cursor.u8()?;
    if version != VERSION {
        return Err(RecordError::Version(version));
    }
    let qos = Qos::from_u8(cursor.u8()?).ok_or(RecordError::Impossible("QoS"))?;
    let door = door_of(cursor.u8()?)?;
    let flags = cursor.u8()?;
    let ingest_unix_ms = cursor.u64()?;
    let fields = Fields::read(cursor)?;
    let has_properties = flags & FLAG_PROPERTIES != 0;
    Ok(Stored {
        topic,
        payload: Bytes::copy_from_slice(fields.payload.ok_or(RecordError::Missing("payload"))?),
        qos,
        content_type: fields.content_type.map(Arc::from),
        expires_unix_ms: fields.expires,
        properties: has_properties.then(|| fields.properties(flags & FLAG_UTF8 != 0)),
        ingest_unix_ms,
        principal: Arc::from(fields.principal.ok_or(RecordError::Missing("principal"))?),
        door,
    })
}

#[derive(Default)]
struct Fields<'a> {
    payload: Option<&'a [u8]>,
    content_type: Option<&'a str>,
    expires: Option<u64>,
    principal: Option<&'a str>,
    reply_to: Option<&'a str>,
    correlation: Option<&'a [u8]>,
    user: Vec<(&'a str, &'a str)>,
    item_id: Option<&'a str>,
}

impl<'a> Fields<'a> {
    fn read(mut cursor: Cursor<'a>) -> Result<Self, RecordError> {
        let mut fields = Self::default();
        while !cursor.0.is_empty() {
            let tag = cursor.u8()?;
            let mut value = Cursor(cursor.counted()?);
            match tag {
                TAG_PAYLOAD => once(&mut fields.payload, value.0, "payload")?,
                TAG_CONTENT_TYPE => once(&mut fields.content_type, value.text("content type")?, "content type")?,
                TAG_EXPIRES => once(&mut fields.expires, value.u64()?, "expiry")?,
                TAG_PRINCIPAL => once(&mut fields.principal, value.text("principal")?, "principal")?,
                TAG_REPLY_TO => once(&mut fields.reply_to, value.text("reply topic")?, "reply topic")?,
                TAG_CORRELATION => once(&mut fields.correlation, value.0, "correlation")?,
                TAG_USER => {
                    let name = Cursor(value.counted()?).text("user property")?;
                    fields.user.push((name, value.text("user property")?));
                }
                TAG_ITEM_ID => once(&mut fields.item_id, value.text("item identifier")?, "item identifier")?,
                _ => {}
            }
        }
        Ok(fields)
    }

    fn properties(&self, utf8: bool) -> Properties {
        Properties {
            utf8,
            reply_to: self.reply_to.map(Box::from),
            correlation: self.correlation.map(Bytes::copy_from_slice),
            user: self.user.iter().map(|&(name, value)| (Box::from(name), Box::from(value))).collect(),
            item_id: self.item_id.map(Box::from),
        }
    }
}

fn once<T>(place: &mut Option<T>, value: T, name: &'static str) -> Result<(), RecordError> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(RecordError::Repeated(name)),
    }
}

/// The bytes left to read.
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], RecordError> {
        let (head, rest) = self.0.split_first_chunk::<N>().ok_or(RecordError::Truncated)?;
        self.0 = rest;
        Ok(*head)
    }

    fn u8(&mut self) -> Result<u8, RecordError> {
        self.take::<1>().map(|[byte]| byte)
    }

    fn u64(&mut self) -> Result<u64, RecordError> {
        self.take().map(u64::from_le_bytes)
    }

    fn counted(&mut self) -> Result<&'a [u8], RecordError> {
        let len = usize::try_from(u32::from_le_bytes(self.take()?)).map_err(|_| RecordError::Truncated)?;
        let (head, rest) = self.0.split_at_checked(len).ok_or(RecordError::Truncated)?;
        self.0 = rest;
        Ok(head)
    }

    fn text(&self, name: &'static str) -> Result<&'a str, RecordError> {
        std::str::from_utf8(self.0).map_err(|_| RecordError::Impossible(name))
    }
}

pub(super) fn door_of(number: u8) -> Result<Option<Door>, RecordError> {
    match number {
        0 => Ok(None),
        number => Door::of_number(number).ok_or(RecordError::Impossible("door")).map(Some),
    }
}
