//! The codecs of other projects behind one function: bytes in, a verdict out.

use std::cell::Cell;
use std::fmt::{self, Debug};
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Once};

use bytes::BytesMut;
use fogmux_mqtt::Version;
use mqtt_protocol_core::mqtt::common::Cursor;
use mqtt_protocol_core::mqtt::connection::{PacketBuildResult, PacketBuilder, PacketData, RawPacket};
use mqtt_protocol_core::mqtt::packet::{GenericPacketTrait as _, Packet as CorePacket, v3_1_1, v5_0};
use mqtt_protocol_core::mqtt::result_code::MqttError;
use rmqtt_codec::error::{DecodeError, EncodeError};
use tokio_util::codec::{Decoder, Encoder};

/// As large as any packet that is compared.
const BYTES_MAX: u32 = 1 << 20;

/// The codec of another project.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Peer {
    /// `rmqtt-codec`.
    Rmqtt,
    /// `mqtt-protocol-core`.
    Core,
    /// The module `protocol` of `rumqttd`.
    Rumqttd,
    /// `mqttbytes`, from which that of `rumqttd` and `rumqttc` began.
    Mqttbytes,
}

impl Peer {
    pub(crate) const ALL: [Self; 4] = [Self::Rmqtt, Self::Core, Self::Rumqttd, Self::Mqttbytes];
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rmqtt => "rmqtt-codec",
            Self::Core => "mqtt-protocol-core",
            Self::Rumqttd => "rumqttd",
            Self::Mqttbytes => "mqttbytes",
        })
    }
}

/// How a codec answers bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It reads a packet of so many bytes, and writes what it has read as these bytes.
    Packet { used: usize, again: Written },
    /// It waits for more.
    More,
    /// It refuses them, in its own words.
    Refused(String),
    /// It panics.
    Panicked(String),
}

/// How a codec writes a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// As these bytes.
    Bytes(Vec<u8>),
    /// Not at all.
    Refused(String),
    /// It panics.
    Panicked(String),
}

/// The answer of a peer to the packet at the front of the bytes.
pub(crate) fn read(peer: Peer, version: Version, bytes: &[u8]) -> Verdict {
    match (peer, version.is_v5()) {
        (Peer::Rmqtt, false) => tokio(rmqtt_codec::v3::Codec::new(BYTES_MAX), bytes),
        (Peer::Rmqtt, true) => tokio(rmqtt_codec::v5::Codec::new(BYTES_MAX, BYTES_MAX), bytes),
        (Peer::Core, v5) => core(v5, bytes),
        (Peer::Rumqttd, false) => rumqttd(rumqttd::protocol::v4::V4, bytes),
        (Peer::Rumqttd, true) => rumqttd(rumqttd::protocol::v5::V5, bytes),
        (Peer::Mqttbytes, false) => mqttbytes(bytes, mqttbytes::v4::read, write_v4),
        (Peer::Mqttbytes, true) => mqttbytes(bytes, mqttbytes::v5::read, write_v5),
    }
}

/// The packet that `mqtt-protocol-core` reads, for a comparison of fields.
pub(crate) fn core_packet(version: Version, bytes: &[u8]) -> Option<CorePacket> {
    guarded(|| core_read(version.is_v5(), bytes)).ok()?.ok()?.map(|(packet, _)| packet)
}

thread_local! {
    static IN_PEER: Cell<bool> = const { Cell::new(false) };
}

/// Runs a peer's code. Its panics are an answer and are not printed.
fn guarded<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !IN_PEER.get() {
                before(info);
            }
        }));
    });
    IN_PEER.set(true);
    let result = panic::catch_unwind(AssertUnwindSafe(run));
    IN_PEER.set(false);
    result.map_err(|cause| {
        let text = cause.downcast_ref::<String>().map(String::as_str).or_else(|| cause.downcast_ref::<&str>().copied());
        text.unwrap_or("?").to_owned()
    })
}

fn verdict<P, R: Debug, W: Debug>(
    read: impl FnOnce() -> Result<Option<(P, usize)>, R>,
    write: impl FnOnce(P) -> Result<Vec<u8>, W>,
) -> Verdict {
    match guarded(read) {
        Err(panic) => Verdict::Panicked(panic),
        Ok(Err(error)) => Verdict::Refused(format!("{error:?}")),
        Ok(Ok(None)) => Verdict::More,
        Ok(Ok(Some((packet, used)))) => {
            let again = match guarded(|| write(packet)) {
                Err(panic) => Written::Panicked(panic),
                Ok(Err(error)) => Written::Refused(format!("{error:?}")),
                Ok(Ok(bytes)) => Written::Bytes(bytes),
            };
            Verdict::Packet { used, again }
        }
    }
}

fn tokio<C, P>(codec: C, bytes: &[u8]) -> Verdict
where
    C: Decoder<Item = (P, u32), Error = DecodeError> + Encoder<P, Error = EncodeError> + Clone,
{
    let (mut reader, mut writer) = (codec.clone(), codec);
    let mut buffer = BytesMut::from(bytes);
    verdict(
        || {
            let read = reader.decode(&mut buffer)?;
            Ok::<_, DecodeError>(read.map(|(packet, _)| (packet, bytes.len() - buffer.len())))
        },
        |packet| {
            let mut out = BytesMut::new();
            writer.encode(packet, &mut out)?;
            Ok::<_, EncodeError>(out.to_vec())
        },
    )
}

fn core(v5: bool, bytes: &[u8]) -> Verdict {
    verdict(|| core_read(v5, bytes), |packet| Ok::<_, MqttError>(packet.to_continuous_buffer()))
}

/// Frames and parses as its own `Connection` does, which parses all types but PUBLISH without their flags.
fn core_read(v5: bool, bytes: &[u8]) -> Result<Option<(CorePacket, usize)>, MqttError> {
    let mut cursor = Cursor::new(bytes);
    match PacketBuilder::with_maximum_packet_size(BYTES_MAX).feed(&mut cursor) {
        PacketBuildResult::Incomplete => Ok(None),
        PacketBuildResult::Error(error) => Err(error),
        PacketBuildResult::Complete(raw) => {
            let used = usize::try_from(cursor.position()).unwrap_or(usize::MAX);
            let packet = if v5 { core_v5(&raw)? } else { core_v3(&raw)? };
            Ok(Some((packet, used)))
        }
    }
}

/// The body of a PUBLISH, which is parsed in place.
fn shared(raw: &RawPacket) -> Arc<[u8]> {
    match &raw.data {
        PacketData::Publish(body) => Arc::clone(body),
        PacketData::Normal(body) => Arc::from(body.as_slice()),
    }
}

fn core_v3(raw: &RawPacket) -> Result<CorePacket, MqttError> {
    Ok(match raw.packet_type() {
        1 => raw.parse_exact(v3_1_1::Connect::parse)?.into(),
        2 => raw.parse_exact(v3_1_1::Connack::parse)?.into(),
        3 => v3_1_1::Publish::parse(raw.flags(), shared(raw))?.0.into(),
        4 => raw.parse_exact(v3_1_1::Puback::parse)?.into(),
        5 => raw.parse_exact(v3_1_1::Pubrec::parse)?.into(),
        6 => raw.parse_exact(v3_1_1::Pubrel::parse)?.into(),
        7 => raw.parse_exact(v3_1_1::Pubcomp::parse)?.into(),
        8 => raw.parse_exact(v3_1_1::Subscribe::parse)?.into(),
        9 => raw.parse_exact(v3_1_1::Suback::parse)?.into(),
        10 => raw.parse_exact(v3_1_1::Unsubscribe::parse)?.into(),
        11 => raw.parse_exact(v3_1_1::Unsuback::parse)?.into(),
        12 => raw.parse_exact(v3_1_1::Pingreq::parse)?.into(),
        13 => raw.parse_exact(v3_1_1::Pingresp::parse)?.into(),
        14 => raw.parse_exact(v3_1_1::Disconnect::parse)?.into(),
        _ => return Err(MqttError::MalformedPacket),
    })
}

fn core_v5(raw: &RawPacket) -> Result<CorePacket, MqttError> {
    Ok(match raw.packet_type() {
        1 => raw.parse_exact(v5_0::Connect::parse)?.into(),
        2 => raw.parse_exact(v5_0::Connack::parse)?.into(),
        3 => v5_0::Publish::parse(raw.flags(), shared(raw))?.0.into(),
        4 => raw.parse_exact(v5_0::Puback::parse)?.into(),
        5 => raw.parse_exact(v5_0::Pubrec::parse)?.into(),
        6 => raw.parse_exact(v5_0::Pubrel::parse)?.into(),
        7 => raw.parse_exact(v5_0::Pubcomp::parse)?.into(),
        8 => raw.parse_exact(v5_0::Subscribe::parse)?.into(),
        9 => raw.parse_exact(v5_0::Suback::parse)?.into(),
        10 => raw.parse_exact(v5_0::Unsubscribe::parse)?.into(),
        11 => raw.parse_exact(v5_0::Unsuback::parse)?.into(),
        12 => raw.parse_exact(v5_0::Pingreq::parse)?.into(),
        13 => raw.parse_exact(v5_0::Pingresp::parse)?.into(),
        14 => raw.parse_exact(v5_0::Disconnect::parse)?.into(),
        15 => raw.parse_exact(v5_0::Auth::parse)?.into(),
        _ => return Err(MqttError::MalformedPacket),
    })
}

fn rumqttd(mut protocol: impl rumqttd::protocol::Protocol + Clone, bytes: &[u8]) -> Verdict {
    let writer = protocol.clone();
    let mut buffer = BytesMut::from(bytes);
    verdict(
        || match protocol.read_mut(&mut buffer, BYTES_MAX as usize) {
            Ok(packet) => Ok(Some((packet, bytes.len() - buffer.len()))),
            Err(rumqttd::protocol::Error::InsufficientBytes(_)) => Ok(None),
            Err(error) => Err(error),
        },
        |packet| {
            let mut out = BytesMut::new();
            writer.write(packet, &mut out)?;
            Ok::<_, rumqttd::protocol::Error>(out.to_vec())
        },
    )
}

fn mqttbytes<P>(
    bytes: &[u8],
    read: impl FnOnce(&mut BytesMut, usize) -> Result<P, mqttbytes::Error>,
    write: impl FnOnce(P, &mut BytesMut) -> Result<usize, mqttbytes::Error>,
) -> Verdict {
    let mut buffer = BytesMut::from(bytes);
    verdict(
        || match read(&mut buffer, BYTES_MAX as usize) {
            Ok(packet) => Ok(Some((packet, bytes.len() - buffer.len()))),
            Err(mqttbytes::Error::InsufficientBytes(_)) => Ok(None),
            Err(error) => Err(error),
        },
        |packet| {
            let mut out = BytesMut::new();
            write(packet, &mut out)?;
            Ok::<_, mqttbytes::Error>(out.to_vec())
        },
    )
}

fn write_v4(packet: mqttbytes::v4::Packet, out: &mut BytesMut) -> Result<usize, mqttbytes::Error> {
    use mqttbytes::v4::{Disconnect, Packet, PingReq, PingResp};
    match packet {
        Packet::Connect(packet) => packet.write(out),
        Packet::ConnAck(packet) => packet.write(out),
        Packet::Publish(packet) => packet.write(out),
        Packet::PubAck(packet) => packet.write(out),
        Packet::PubRec(packet) => packet.write(out),
        Packet::PubRel(packet) => packet.write(out),
        Packet::PubComp(packet) => packet.write(out),
        Packet::Subscribe(packet) => packet.write(out),
        Packet::SubAck(packet) => packet.write(out),
        Packet::Unsubscribe(packet) => packet.write(out),
        Packet::UnsubAck(packet) => packet.write(out),
        Packet::PingReq => PingReq.write(out),
        Packet::PingResp => PingResp.write(out),
        Packet::Disconnect => Disconnect.write(out),
    }
}

fn write_v5(packet: mqttbytes::v5::Packet, out: &mut BytesMut) -> Result<usize, mqttbytes::Error> {
    use mqttbytes::v5::{Packet, PingReq, PingResp};
    match packet {
        Packet::Connect(packet) => packet.write(out),
        Packet::ConnAck(packet) => packet.write(out),
        Packet::Publish(packet) => packet.write(out),
        Packet::PubAck(packet) => packet.write(out),
        Packet::PubRec(packet) => packet.write(out),
        Packet::PubRel(packet) => packet.write(out),
        Packet::PubComp(packet) => packet.write(out),
        Packet::Subscribe(packet) => packet.write(out),
        Packet::SubAck(packet) => packet.write(out),
        Packet::Unsubscribe(packet) => packet.write(out),
        Packet::UnsubAck(packet) => packet.write(out),
        Packet::PingReq => PingReq.write(out),
        Packet::PingResp => PingResp.write(out),
        Packet::Disconnect(packet) => packet.write(out),
    }
}
