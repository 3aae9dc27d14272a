//! Our MQTT codec against `rmqtt-codec` and `mqtt-protocol-core`: what we write they read with the same meaning, and
//! what they write of it we read back (ADR 0001).

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;

use bytes::BytesMut;
use fogmux_mqtt::{
    Ack, Connect, Limits, Outgoing, Packet, PacketId, Properties, PublishProperties, Qos, Subscribe, SubscribeEntries,
    SubscriptionOptions, TopicFilters, Unsubscribe, Version, Will, decode,
};
use mqtt_protocol_core::mqtt::packet::{self, Qos as CoreQos};
use proptest::{collection::vec, option, prelude::*};
use rmqtt_codec::{v3, v5};
use tokio_util::codec::{Decoder, Encoder};

const BYTES_MAX: u32 = 1 << 20;

#[derive(Clone, Debug)]
struct Said {
    topic: String,
    qos: Qos,
    retain: bool,
    utf8: bool,
    expiry: Option<u32>,
    content_type: Option<String>,
    response_topic: Option<String>,
    correlation: Option<Vec<u8>>,
    user: Vec<(Box<str>, Box<str>)>,
    payload: Vec<u8>,
}

impl Said {
    fn outgoing(&self) -> Outgoing<'_> {
        Outgoing {
            topic: &self.topic,
            qos: self.qos,
            retain: self.retain,
            utf8: self.utf8,
            expiry: self.expiry,
            content_type: self.content_type.as_deref(),
            response_topic: self.response_topic.as_deref(),
            correlation: self.correlation.as_deref(),
            user: &self.user,
            subscription_ids: &[],
            payload: &self.payload,
        }
    }

    fn id(&self) -> Option<PacketId> {
        PacketId::new(77).filter(|_| self.qos != Qos::AtMostOnce)
    }

    fn written(&self, version: Version) -> Vec<u8> {
        let mut out = Vec::new();
        self.outgoing().encode(version, self.id(), &mut out).unwrap();
        out
    }

    // Whether these bytes say it, properties included where the version has them.
    fn assert_said_by(&self, bytes: &[u8], version: Version) {
        let (packet, used) = decode(bytes, version, &Limits::default()).unwrap().unwrap();
        assert_eq!(used, bytes.len());
        let Packet::Publish(publish) = packet else { panic!("{packet:?}") };
        assert_eq!((publish.topic, publish.payload), (&*self.topic, &*self.payload));
        assert_eq!((publish.qos, publish.retain, publish.packet_id), (self.qos, self.retain, self.id()));
        if version.is_v5() {
            let said = PublishProperties::from(publish.properties);
            assert_eq!((said.utf8, said.expiry), (self.utf8, self.expiry));
            assert_eq!(said.content_type, self.content_type.as_deref());
            assert_eq!(said.response_topic, self.response_topic.as_deref());
            assert_eq!(said.correlation, self.correlation.as_deref());
            let user: Vec<_> = publish.properties.user().map(|(k, v)| (Box::from(k), Box::from(v))).collect();
            assert_eq!(user, self.user);
        }
    }
}

// Texts that no codec has an opinion on: control characters may be refused ([MQTT-1.5.4-3] leaves it open).
fn text() -> impl Strategy<Value = String> {
    "[a-zA-Z0-9 /é€𝄞_-]{1,20}"
}

fn said() -> impl Strategy<Value = Said> {
    let qos = prop::sample::select(vec![Qos::AtMostOnce, Qos::AtLeastOnce, Qos::ExactlyOnce]);
    let first = (text(), qos, any::<bool>(), any::<bool>(), option::of(1..=u32::MAX), option::of(text()));
    let second = (
        option::of(text()),
        option::of(vec(any::<u8>(), 0..20)),
        vec((text(), text()), 0..3),
        vec(any::<u8>(), 0..300),
    );
    (first, second).prop_map(
        |((topic, qos, retain, utf8, expiry, content_type), (response_topic, correlation, user, payload))| Said {
            topic,
            qos,
            retain,
            utf8,
            expiry,
            content_type,
            response_topic,
            correlation,
            user: user.into_iter().map(|(k, v)| (k.into(), v.into())).collect(),
            payload,
        },
    )
}

proptest! {
    #[test]
    fn rmqtt_reads_our_v5_publish_and_writes_it_back(said in said()) {
        let bytes = said.written(Version::V5);
        let mut codec = v5::Codec::new(BYTES_MAX, BYTES_MAX);
        let (packet, _) = codec.decode(&mut BytesMut::from(&bytes[..])).unwrap().unwrap();
        let v5::Packet::Publish(publish) = &packet else { panic!("{packet:?}") };
        prop_assert_eq!((&*publish.topic, &*publish.payload), (&*said.topic, &*said.payload));
        let properties = publish.properties.as_ref().unwrap();
        prop_assert_eq!(properties.content_type.as_deref(), said.content_type.as_deref());
        prop_assert_eq!(properties.message_expiry_interval.map(u32::from), said.expiry);
        let mut again = BytesMut::new();
        codec.encode(packet, &mut again).unwrap();
        said.assert_said_by(&again, Version::V5);
    }

    #[test]
    fn rmqtt_reads_our_v311_publish_and_writes_it_back(said in said()) {
        let bytes = said.written(Version::V311);
        let mut codec = v3::Codec::new(BYTES_MAX);
        let (packet, _) = codec.decode(&mut BytesMut::from(&bytes[..])).unwrap().unwrap();
        let mut again = BytesMut::new();
        codec.encode(packet, &mut again).unwrap();
        prop_assert_eq!(&again[..], &bytes[..]);
    }

    #[test]
    fn protocol_core_reads_our_publish_and_writes_it_back(said in said()) {
        let bytes = said.written(Version::V5);
        let at = 1 + bytes[1..].iter().position(|byte| byte & 0x80 == 0).unwrap() + 1;
        let (publish, used) = packet::v5_0::Publish::parse(bytes[0] & 0x0f, Arc::from(&bytes[at..])).unwrap();
        prop_assert_eq!(used, bytes.len() - at);
        prop_assert_eq!((publish.topic_name(), publish.payload().as_slice()), (&*said.topic, &*said.payload));
        let qos = match said.qos {
            Qos::AtMostOnce => CoreQos::AtMostOnce,
            Qos::AtLeastOnce => CoreQos::AtLeastOnce,
            Qos::ExactlyOnce => CoreQos::ExactlyOnce,
        };
        prop_assert_eq!((publish.qos(), publish.retain()), (qos, said.retain));
        said.assert_said_by(&publish.to_continuous_buffer(), Version::V5);
    }

    /// Neither must take for a PUBLISH what we refuse for a reason of the standard; where they do, we know which.
    #[test]
    fn what_we_read_of_any_bytes_rmqtt_reads_as_well(said in said(), at in any::<prop::sample::Index>(), value: u8) {
        let mut bytes = said.written(Version::V311);
        let at = at.index(bytes.len());
        bytes[at] = value;
        if let Ok(Some((Packet::Publish(publish), used))) = decode(&bytes, Version::V311, &Limits::default()) {
            let mut buffer = BytesMut::from(&bytes[..used]);
            match v3::Codec::new(BYTES_MAX).decode(&mut buffer) {
                Ok(Some((v3::Packet::Publish(theirs), _))) => {
                    prop_assert_eq!((publish.topic, publish.payload), (&*theirs.topic, &*theirs.payload));
                }
                other => prop_assert!(false, "{publish:?} is {other:?} to them"),
            }
        }
    }
}

fn bytes_of(packet: &Packet<'_>, version: Version) -> Vec<u8> {
    let mut out = Vec::new();
    packet.encode(version, &mut out).unwrap();
    out
}

/// Every other packet, byte for byte through `rmqtt-codec` and back.
#[test]
fn rmqtt_writes_our_other_packets_as_we_do() {
    let id = PacketId::new(5).unwrap();
    let entries = [("a/+/#", SubscriptionOptions::default()), ("b", SubscriptionOptions::default())];
    let will = Will { qos: Qos::AtLeastOnce, retain: true, topic: "w", payload: b"gone", properties: Properties::NONE };
    let connect = |version| Connect {
        version,
        bridge: false,
        clean_start: true,
        keep_alive: 30,
        client_id: "client",
        will: Some(will),
        user: Some("user"),
        password: Some(b"password"),
        properties: Properties::NONE,
    };
    let subscribe = Subscribe { packet_id: id, properties: Properties::NONE, entries: SubscribeEntries::new(&entries) };
    let unsubscribe =
        Unsubscribe { packet_id: id, properties: Properties::NONE, filters: TopicFilters::new(&["a/+/#", "b"]) };
    for version in [Version::V311, Version::V5] {
        let packets = [
            Packet::Connect(connect(version)),
            Packet::Subscribe(subscribe),
            Packet::Unsubscribe(unsubscribe),
            Packet::Puback(Ack::success(id)),
            Packet::Pubrec(Ack::success(id)),
            Packet::Pubrel(Ack::success(id)),
            Packet::Pubcomp(Ack::success(id)),
            Packet::Pingreq,
            Packet::Pingresp,
        ];
        for packet in &packets {
            let bytes = bytes_of(packet, version);
            let again = through_rmqtt(&bytes, version);
            let (read, _) = decode(&again, version, &Limits::default()).unwrap().unwrap();
            assert_eq!(&read, packet, "{version:?} {:?}", packet.kind());
        }
    }
}

fn through_rmqtt(bytes: &[u8], version: Version) -> BytesMut {
    let (mut buffer, mut again) = (BytesMut::from(bytes), BytesMut::new());
    if version.is_v5() {
        let mut codec = v5::Codec::new(BYTES_MAX, BYTES_MAX);
        let (packet, _) = codec.decode(&mut buffer).unwrap().unwrap();
        codec.encode(packet, &mut again).unwrap();
    } else {
        let mut codec = v3::Codec::new(BYTES_MAX);
        let (packet, _) = codec.decode(&mut buffer).unwrap().unwrap();
        codec.encode(packet, &mut again).unwrap();
    }
    again
}
