//! The MQTT codec beside `rumqttd`, `rmqtt-codec` and `mqtt-protocol-core`: a 64-byte PUBLISH of version 5, decoded and
//! encoded. Each reads what a socket turn gives, 64 packets one behind the other, in the form it wants to have it.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a bench that cannot go on fails")]

use std::{hint::black_box, sync::Arc, time::Duration};

use bytes::BytesMut;
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use fogmux_mqtt::{Limits, Outgoing, Packet, PacketId, Qos, Version, decode};
use mqtt_protocol_core::mqtt;
use rumqttd::protocol::{Protocol, v5::V5};
use tokio_util::codec::{Decoder, Encoder};

const PACKETS: usize = 64;
const TOPIC: &str = "plant/1/temperature";
const PACKET_BYTES_MAX: u32 = 1 << 20;

fn outgoing() -> Outgoing<'static> {
    Outgoing { topic: TOPIC, qos: Qos::AtLeastOnce, payload: &[0x2a; 64], ..Outgoing::default() }
}

fn packet() -> Vec<u8> {
    let mut out = Vec::new();
    outgoing().encode(Version::V5, PacketId::new(7), &mut out).unwrap();
    out
}

fn decoding(c: &mut Criterion) {
    let turn = packet().repeat(PACKETS);
    let mut group = c.benchmark_group("mqtt_decode_publish_64B");
    group.throughput(Throughput::Elements(PACKETS as u64));
    group.bench_function("fogmux", |b| {
        b.iter(|| {
            let mut rest = turn.as_slice();
            while let Some((packet, used)) = decode(black_box(rest), Version::V5, &Limits::default()).unwrap() {
                black_box(&packet);
                rest = &rest[used..];
            }
        });
    });
    group.bench_function("rumqttd", |b| {
        b.iter_batched_ref(
            || BytesMut::from(turn.as_slice()),
            |buffer| {
                while !buffer.is_empty() {
                    black_box(V5.read_mut(buffer, PACKET_BYTES_MAX as usize).unwrap());
                }
            },
            BatchSize::SmallInput,
        );
    });
    group.bench_function("rmqtt-codec", |b| {
        let mut codec = rmqtt_codec::v5::Codec::new(PACKET_BYTES_MAX, PACKET_BYTES_MAX);
        b.iter_batched_ref(
            || BytesMut::from(turn.as_slice()),
            |buffer| {
                while !buffer.is_empty() {
                    black_box(codec.decode(buffer).unwrap());
                }
            },
            BatchSize::SmallInput,
        );
    });
    group.bench_function("mqtt-protocol-core", |b| {
        // It parses one packet behind its fixed header, out of shared bytes.
        let body: Arc<[u8]> = Arc::from(&packet()[2..]);
        let flags = packet()[0] & 0x0f;
        b.iter(|| {
            for _ in 0..PACKETS {
                black_box(mqtt::packet::v5_0::Publish::parse(flags, Arc::clone(&body)).unwrap());
            }
        });
    });
    group.finish();
}

fn encoding(c: &mut Criterion) {
    let bytes = packet();
    let mut group = c.benchmark_group("mqtt_encode_publish_64B");
    group.throughput(Throughput::Elements(PACKETS as u64));
    group.bench_function("fogmux", |b| {
        let (outgoing, id) = (outgoing(), PacketId::new(7));
        let mut out = Vec::with_capacity(bytes.len() * PACKETS);
        b.iter(|| {
            out.clear();
            for _ in 0..PACKETS {
                black_box(&outgoing).encode(Version::V5, id, &mut out).unwrap();
            }
            black_box(&out);
        });
    });
    group.bench_function("fogmux packet", |b| {
        let (packet, _): (Packet<'_>, _) = decode(&bytes, Version::V5, &Limits::default()).unwrap().unwrap();
        let mut out = Vec::with_capacity(bytes.len() * PACKETS);
        b.iter(|| {
            out.clear();
            for _ in 0..PACKETS {
                black_box(&packet).encode(Version::V5, &mut out).unwrap();
            }
            black_box(&out);
        });
    });
    group.bench_function("rumqttd", |b| {
        let packet = V5.read_mut(&mut BytesMut::from(bytes.as_slice()), PACKET_BYTES_MAX as usize).unwrap();
        let mut out = BytesMut::with_capacity(bytes.len() * PACKETS);
        b.iter(|| {
            out.clear();
            for _ in 0..PACKETS {
                V5.write(black_box(&packet).clone(), &mut out).unwrap();
            }
            black_box(&out);
        });
    });
    group.bench_function("rmqtt-codec", |b| {
        let mut codec = rmqtt_codec::v5::Codec::new(PACKET_BYTES_MAX, PACKET_BYTES_MAX);
        let (packet, _) = codec.decode(&mut BytesMut::from(bytes.as_slice())).unwrap().unwrap();
        let mut out = BytesMut::with_capacity(bytes.len() * PACKETS);
        b.iter(|| {
            out.clear();
            for _ in 0..PACKETS {
                codec.encode(black_box(&packet).clone(), &mut out).unwrap();
            }
            black_box(&out);
        });
    });
    group.bench_function("mqtt-protocol-core", |b| {
        let (packet, _) = mqtt::packet::v5_0::Publish::parse(bytes[0] & 0x0f, Arc::from(&bytes[2..])).unwrap();
        b.iter(|| {
            for _ in 0..PACKETS {
                black_box(black_box(&packet).to_continuous_buffer());
            }
        });
    });
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().warm_up_time(Duration::from_secs(1)).measurement_time(Duration::from_secs(3));
    targets = decoding, encoding
}
criterion_main!(benches);
