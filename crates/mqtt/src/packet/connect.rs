//! CONNECT (§3.1).

use super::{PacketType, put_header};
use crate::cursor::Cursor;
use crate::property::{Place, Properties, Property};
use crate::writer::put_field;
use crate::{DecodeError, EncodeError, Qos, Version};

const FLAG_RESERVED: u8 = 0x01;
const FLAG_CLEAN_START: u8 = 0x02;
const FLAG_WILL: u8 = 0x04;
const FLAG_WILL_RETAIN: u8 = 0x20;
const FLAG_PASSWORD: u8 = 0x40;
const FLAG_USER: u8 = 0x80;
const WILL_QOS_SHIFT: u8 = 3;
/// The bit of the protocol level by which a Mosquitto bridge announces itself (its option `try_private`).
const LEVEL_BRIDGE: u8 = 0x80;

/// A client asks for a connection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Connect<'a> {
    /// The protocol the connection will speak.
    pub version: Version,
    /// Whether the client is a bridge to another broker, which Mosquitto announces in 3.1 and 3.1.1 by the top bit of
    /// the level: its subscriptions have No Local and Retain As Published, options that only version 5 can express.
    pub bridge: bool,
    /// Whether an existing session is discarded (§3.1.2.4); Clean Session before version 5.
    pub clean_start: bool,
    /// Seconds; zero for none (§3.1.2.10).
    pub keep_alive: u16,
    /// Empty when the server shall choose (§3.1.3.1).
    pub client_id: &'a str,
    /// The message to publish when the client is lost.
    pub will: Option<Will<'a>>,
    /// User Name.
    pub user: Option<&'a str>,
    /// Password; any bytes.
    pub password: Option<&'a [u8]>,
    /// Version 5 only.
    pub properties: Properties<'a>,
}

/// The Will Message (§3.1.2.5).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Will<'a> {
    /// QoS of the message.
    pub qos: Qos,
    /// Whether it is retained.
    pub retain: bool,
    /// Its topic.
    pub topic: &'a str,
    /// Any bytes.
    pub payload: &'a [u8],
    /// Version 5 only.
    pub properties: Properties<'a>,
}

impl<'a> Connect<'a> {
    pub(super) fn decode(mut cursor: Cursor<'a>) -> Result<Self, DecodeError> {
        let (version, bridge) = version(&mut cursor)?;
        let flags = cursor.u8()?;
        check_flags(flags, version)?;
        let keep_alive = cursor.u16()?;
        let properties = properties(&mut cursor, version, Place::Connect)?;
        let client_id = cursor.string()?;
        let will = if flags & FLAG_WILL != 0 { Some(Will::decode(&mut cursor, flags, version)?) } else { None };
        let user = if flags & FLAG_USER != 0 { Some(cursor.string()?) } else { None };
        let password = if flags & FLAG_PASSWORD != 0 { Some(cursor.binary()?) } else { None };
        cursor.finish()?;
        let clean_start = flags & FLAG_CLEAN_START != 0;
        Ok(Self { version, bridge, clean_start, keep_alive, client_id, will, user, password, properties })
    }

    /// The client's Maximum Packet Size in bytes, 2³² − 1 if it sets none (§3.1.2.11.4).
    #[must_use]
    pub fn packet_bytes_max(&self) -> u32 {
        let said = |property| if let Property::MaximumPacketSize(max) = property { Some(max) } else { None };
        self.properties.iter().find_map(said).unwrap_or(u32::MAX)
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let v5 = self.version.is_v5();
        let name = self.version.protocol_name();
        let mut flags = if self.clean_start { FLAG_CLEAN_START } else { 0 };
        let mut length = name.len() + 6 + 2 + self.client_id.len();
        if v5 {
            length += self.properties.written_len();
        }
        if let Some(will) = &self.will {
            flags |= FLAG_WILL | will.qos.bits() << WILL_QOS_SHIFT | if will.retain { FLAG_WILL_RETAIN } else { 0 };
            length += 4 + will.topic.len() + will.payload.len();
            length += if v5 { will.properties.written_len() } else { 0 };
        }
        if let Some(user) = self.user {
            flags |= FLAG_USER;
            length += 2 + user.len();
        }
        if let Some(password) = self.password {
            flags |= FLAG_PASSWORD;
            length += 2 + password.len();
        }
        put_header(out, PacketType::Connect.first_byte(), length)?;
        put_field(out, name.as_bytes())?;
        let level = self.version.level() | if self.bridge && !v5 { LEVEL_BRIDGE } else { 0 };
        out.extend_from_slice(&[level, flags]);
        out.extend_from_slice(&self.keep_alive.to_be_bytes());
        if v5 {
            self.properties.write(out);
        }
        put_field(out, self.client_id.as_bytes())?;
        if let Some(will) = &self.will {
            if v5 {
                will.properties.write(out);
            }
            put_field(out, will.topic.as_bytes())?;
            put_field(out, will.payload)?;
        }
        self.user.map_or(Ok(()), |user| put_field(out, user.as_bytes()))?;
        self.password.map_or(Ok(()), |password| put_field(out, password))
    }
}

impl<'a> Will<'a> {
    fn decode(cursor: &mut Cursor<'a>, flags: u8, version: Version) -> Result<Self, DecodeError> {
        let qos = Qos::from_bits(flags >> WILL_QOS_SHIFT & 3)?;
        let properties = properties(cursor, version, Place::Will)?;
        let topic = cursor.topic_name()?;
        if topic.is_empty() {
            return Err(DecodeError::TopicEmpty);
        }
        let payload = cursor.binary()?;
        Ok(Self { qos, retain: flags & FLAG_WILL_RETAIN != 0, topic, payload, properties })
    }
}

/// The version ([MQTT-3.1.2-1], [MQTT-3.1.2-2]) and whether the level announces a bridge.
fn version(cursor: &mut Cursor<'_>) -> Result<(Version, bool), DecodeError> {
    let name = cursor.binary()?;
    match (name, cursor.u8()?) {
        (b"MQIsdp", 3) => Ok((Version::V31, false)),
        (b"MQTT", 4) => Ok((Version::V311, false)),
        (b"MQTT", 5) => Ok((Version::V5, false)),
        (b"MQIsdp", 0x83) => Ok((Version::V31, true)),
        (b"MQTT", 0x84) => Ok((Version::V311, true)),
        (b"MQIsdp" | b"MQTT", level) => Err(DecodeError::ProtocolLevel(level)),
        _ => Err(DecodeError::ProtocolName),
    }
}

fn check_flags(flags: u8, version: Version) -> Result<(), DecodeError> {
    if flags & FLAG_RESERVED != 0 {
        return Err(DecodeError::ConnectFlags);
    }
    let will_qos = flags >> WILL_QOS_SHIFT & 3;
    if will_qos == 3 {
        return Err(DecodeError::Qos);
    }
    if flags & FLAG_WILL == 0 && (will_qos != 0 || flags & FLAG_WILL_RETAIN != 0) {
        return Err(DecodeError::WillFlags);
    }
    if !version.is_v5() && flags & FLAG_PASSWORD != 0 && flags & FLAG_USER == 0 {
        return Err(DecodeError::PasswordWithoutUser);
    }
    Ok(())
}

fn properties<'a>(cursor: &mut Cursor<'a>, version: Version, place: Place) -> Result<Properties<'a>, DecodeError> {
    if version.is_v5() { Properties::read(cursor, place) } else { Ok(Properties::NONE) }
}
