//! The records of sessions as bytes. Decoding trusts nothing: whatever the bytes, it gives a record or an error, and
//! allocates no more than a small multiple of their length.

use std::{num::NonZeroU16, sync::Arc};

use bytes::Bytes;
use smallvec::SmallVec;

use super::{
    bytes::{Cursor, RecordError, put_counted, text},
    message::StoredMessage,
};
use crate::{message::Qos, session::SessionKey, subscription::Subscription};

// Kinds of records in the journal: never reuse one.
pub(super) const SESSION: u8 = 32;
const SUBSCRIPTION: u8 = 33;
pub(super) const MESSAGE: u8 = 34;
pub(super) const DELIVERY: u8 = 35;
const RELEASED: u8 = 36;
const RECEIVED: u8 = 37;
const WILL: u8 = 38;

const QOS_BITS: u8 = 3;
const NO_LOCAL: u8 = 4;
const RETAIN: u8 = 8;
const HAS_ID: u8 = 16;

pub(super) const CONTINUES: u8 = 1;
const AWAY: u8 = 2;
const EXPIRES: u8 = 4;
const MARKED: u8 = 8;

/// Identifies a record in the store. Identifiers ascend in the order in which they were given, and none is used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordId(pub u64);

/// The number of a delivery of QoS 1 or 2 in its session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sequence(pub u64);

impl Sequence {
    /// The packet identifier that a delivery with this number has, in every connection.
    #[must_use]
    pub fn packet_id(self) -> NonZeroU16 {
        let place = u16::try_from(self.0 % u64::from(u16::MAX)).unwrap_or_default();
        NonZeroU16::MIN.saturating_add(place)
    }

    /// The next number.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// A session, and whether its client is connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRecord {
    /// The session's first record; `None` in that one.
    pub first: Option<RecordId>,
    /// Its key.
    pub key: SessionKey,
    /// The principal that owns the session.
    pub principal: Arc<str>,
    /// The credential that has vouched for the principal; `None` if its name says everything.
    pub vouched: Option<Vouched>,
    /// Seconds from the end of a connection to the end of the session; `None`: it never ends.
    pub expiry_s: Option<u32>,
    /// Deliveries with lower numbers may have been sent.
    pub unsent: Sequence,
    /// No others were sent, although its client is connected. Otherwise all may have been.
    pub marked: bool,
    /// When its connection ended, in milliseconds since 1970; `None` while it has one.
    pub away_since_unix_ms: Option<u64>,
}

/// The credential that a session's client has shown, as far as rules look at it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vouched {
    /// The kind of credential, in the door's words.
    pub source: Arc<str>,
    /// The groups that it gave.
    pub groups: Arc<[Arc<str>]>,
}

/// How a session wants a filter's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Highest QoS to deliver with.
    pub max_qos: Qos,
    /// Do not deliver what the session's client published.
    pub no_local: bool,
    /// Deliver with the retain flag as published.
    pub retain_as_published: bool,
    /// Given back with each delivery.
    pub id: Option<u32>,
}

/// How a message is delivered to a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manner {
    /// QoS 1 or 2.
    pub qos: Qos,
    /// The retain flag.
    pub retain: bool,
    /// The tag of the shared subscription that it came by; 0 for any other.
    pub share: u32,
    /// Identifiers of the subscriptions that matched.
    pub ids: SmallVec<[u32; 2]>,
}

/// A record of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// The session itself; the newest of these counts.
    Session(SessionRecord),
    /// A subscription of a session.
    Subscription(RecordId, Subscription, Wanted),
    /// A message, for all sessions that wait for it.
    Message(StoredMessage),
    /// A message that waits for a session, or is in flight to it.
    Delivery {
        /// The session.
        session: RecordId,
        /// The message.
        message: RecordId,
        /// The number of the delivery.
        sequence: Sequence,
        /// How it is delivered.
        manner: Manner,
    },
    /// A session's delivery of QoS 2 for which PUBREC has come and PUBCOMP has not.
    Released(RecordId, Sequence),
    /// An identifier of a QoS 2 message from a session's client that waits for PUBREL.
    Received(RecordId, NonZeroU16),
    /// The will of a session's client, and its delay in seconds.
    Will(RecordId, u32, StoredMessage),
}

impl Record {
    /// The version that this release writes and reads: the first byte of each record.
    pub const VERSION: u8 = 1;
    /// Bytes of a delivery at least, and of its entry in a commit.
    pub(super) const DELIVERY_BYTES: usize = 54;
    /// The version of a session with the credential of its client.
    pub const VERSION_VOUCHED: u8 = 2;

    const fn version(&self) -> u8 {
        match self {
            Self::Session(SessionRecord { vouched: Some(_), .. }) => Self::VERSION_VOUCHED,
            Self::Session(_)
            | Self::Subscription(..)
            | Self::Message(_)
            | Self::Delivery { .. }
            | Self::Released(..)
            | Self::Received(..)
            | Self::Will(..) => Self::VERSION,
        }
    }

    /// Whether a store's kind is one of these.
    #[must_use]
    pub const fn is_kind(kind: u8) -> bool {
        matches!(kind, SESSION..=WILL)
    }

    /// Its kind in the store.
    #[must_use]
    pub const fn kind(&self) -> u8 {
        match self {
            Self::Session(_) => SESSION,
            Self::Subscription(..) => SUBSCRIPTION,
            Self::Message(_) => MESSAGE,
            Self::Delivery { .. } => DELIVERY,
            Self::Released(..) => RELEASED,
            Self::Received(..) => RECEIVED,
            Self::Will(..) => WILL,
        }
    }

    /// Its bytes in the store.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![self.version()];
        match self {
            Self::Session(record) => record.encode(&mut out),
            Self::Subscription(session, subscription, wanted) => {
                out.extend_from_slice(&session.0.to_le_bytes());
                out.push(wanted.flags());
                out.extend_from_slice(&wanted.id.unwrap_or(0).to_le_bytes());
                put_counted(&mut out, name_of(subscription).as_bytes());
            }
            Self::Message(message) => {
                out.reserve(128 + message.topic.len() + message.payload.len());
                message.encode(&mut out);
            }
            Self::Delivery { session, message, sequence, manner } => {
                for number in [session.0, message.0, sequence.0] {
                    out.extend_from_slice(&number.to_le_bytes());
                }
                out.push(manner.qos as u8 | if manner.retain { RETAIN } else { 0 });
                out.extend_from_slice(&manner.share.to_le_bytes());
                manner.ids.iter().for_each(|id| out.extend_from_slice(&id.to_le_bytes()));
            }
            Self::Released(session, sequence) => {
                out.extend_from_slice(&session.0.to_le_bytes());
                out.extend_from_slice(&sequence.0.to_le_bytes());
            }
            Self::Received(session, id) => {
                out.extend_from_slice(&session.0.to_le_bytes());
                out.extend_from_slice(&id.get().to_le_bytes());
            }
            Self::Will(session, delay_s, message) => {
                out.extend_from_slice(&session.0.to_le_bytes());
                out.extend_from_slice(&delay_s.to_le_bytes());
                message.encode(&mut out);
            }
        }
        out
    }

    /// Reads a record of this kind.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn decode(kind: u8, bytes: Bytes) -> Result<Self, RecordError> {
        if !Self::is_kind(kind) {
            return Err(RecordError::Kind(kind));
        }
        let mut cursor = Cursor(bytes);
        let version = cursor.u8()?;
        let is_vouched = kind == SESSION && version == Self::VERSION_VOUCHED;
        if version != Self::VERSION && !is_vouched {
            return Err(RecordError::Version(version));
        }
        let record = match kind {
            MESSAGE => return StoredMessage::decode(cursor).map(Self::Message),
            WILL => {
                let (session, delay_s) = (RecordId(cursor.u64()?), cursor.u32()?);
                return Ok(Self::Will(session, delay_s, StoredMessage::decode(cursor)?));
            }
            SESSION => Self::Session(SessionRecord::decode(&mut cursor, is_vouched)?),
            SUBSCRIPTION => decode_subscription(&mut cursor)?,
            DELIVERY => decode_delivery(&mut cursor)?,
            RELEASED => Self::Released(RecordId(cursor.u64()?), Sequence(cursor.u64()?)),
            _ => {
                let session = RecordId(cursor.u64()?);
                let id = NonZeroU16::new(cursor.u16()?).ok_or(RecordError::Impossible("packet identifier"))?;
                Self::Received(session, id)
            }
        };
        cursor.end()?;
        Ok(record)
    }
}

impl SessionRecord {
    fn encode(&self, out: &mut Vec<u8>) {
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        let flags = flag(self.first.is_some(), CONTINUES)
            | flag(self.away_since_unix_ms.is_some(), AWAY)
            | flag(self.expiry_s.is_some(), EXPIRES)
            | flag(self.marked, MARKED);
        out.push(flags);
        out.extend_from_slice(&self.first.map_or(0, |first| first.0).to_le_bytes());
        out.extend_from_slice(&self.expiry_s.unwrap_or(0).to_le_bytes());
        out.extend_from_slice(&self.unsent.0.to_le_bytes());
        out.extend_from_slice(&self.away_since_unix_ms.unwrap_or(0).to_le_bytes());
        put_counted(out, self.key.0.as_bytes());
        put_counted(out, self.principal.as_bytes());
        if let Some(Vouched { source, groups }) = &self.vouched {
            put_counted(out, source.as_bytes());
            // No credential has more.
            let count = u16::try_from(groups.len()).unwrap_or(u16::MAX);
            out.extend_from_slice(&count.to_le_bytes());
            groups.iter().take(usize::from(count)).for_each(|group| put_counted(out, group.as_bytes()));
        }
    }

    fn decode(cursor: &mut Cursor, is_vouched: bool) -> Result<Self, RecordError> {
        let flags = cursor.u8()?;
        let has = |flag| flags & flag != 0;
        let (first, expiry_s) = (RecordId(cursor.u64()?), cursor.u32()?);
        let (unsent, away_since) = (Sequence(cursor.u64()?), cursor.u64()?);
        let (key, principal) = (cursor.counted()?, cursor.counted()?);
        let vouched = if is_vouched { Some(Vouched::decode(cursor)?) } else { None };
        Ok(Self {
            first: has(CONTINUES).then_some(first),
            key: SessionKey(Arc::from(text(&key, "key")?)),
            principal: Arc::from(text(&principal, "principal")?),
            vouched,
            expiry_s: has(EXPIRES).then_some(expiry_s),
            unsent,
            marked: has(MARKED),
            away_since_unix_ms: has(AWAY).then_some(away_since),
        })
    }
}

impl Vouched {
    fn decode(cursor: &mut Cursor) -> Result<Self, RecordError> {
        let source = Arc::from(text(&cursor.counted()?, "source")?);
        let count = cursor.u16()?;
        let groups: Result<Vec<Arc<str>>, _> =
            (0..count).map(|_| Ok(Arc::from(text(&cursor.counted()?, "group")?))).collect();
        Ok(Self { source, groups: groups?.into() })
    }
}

impl Wanted {
    fn flags(&self) -> u8 {
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        self.max_qos as u8
            | flag(self.no_local, NO_LOCAL)
            | flag(self.retain_as_published, RETAIN)
            | flag(self.id.is_some(), HAS_ID)
    }
}

fn name_of(subscription: &Subscription) -> String {
    let filter = subscription.filter.as_str();
    subscription.group.as_ref().map_or_else(|| filter.to_owned(), |group| format!("$share/{group}/{filter}"))
}

fn decode_subscription(cursor: &mut Cursor) -> Result<Record, RecordError> {
    let session = RecordId(cursor.u64()?);
    let (flags, id) = (cursor.u8()?, cursor.u32()?);
    let name = cursor.counted()?;
    let subscription = Subscription::parse(text(&name, "filter")?).map_err(|_| RecordError::Impossible("filter"))?;
    let wanted = Wanted {
        max_qos: Qos::from_u8(flags & QOS_BITS).ok_or(RecordError::Impossible("QoS"))?,
        no_local: flags & NO_LOCAL != 0,
        retain_as_published: flags & RETAIN != 0,
        id: (flags & HAS_ID != 0).then_some(id),
    };
    Ok(Record::Subscription(session, subscription, wanted))
}

fn decode_delivery(cursor: &mut Cursor) -> Result<Record, RecordError> {
    let (session, message) = (RecordId(cursor.u64()?), RecordId(cursor.u64()?));
    let sequence = Sequence(cursor.u64()?);
    let (flags, share) = (cursor.u8()?, cursor.u32()?);
    let qos = Qos::from_u8(flags & QOS_BITS).filter(|qos| *qos != Qos::AtMostOnce);
    let mut ids = SmallVec::new();
    while !cursor.0.is_empty() {
        ids.push(cursor.u32()?);
    }
    let manner = Manner { qos: qos.ok_or(RecordError::Impossible("QoS"))?, retain: flags & RETAIN != 0, share, ids };
    Ok(Record::Delivery { session, message, sequence, manner })
}
