//! The record of a retained message: what the committer encodes and the start decodes, per message of 64 bytes.

#![expect(clippy::unwrap_used, reason = "a bench that cannot go on fails")]

use std::{hint::black_box, time::Duration};

use bytes::Bytes;
use criterion::{Criterion, criterion_group, criterion_main};
use fogmux_bus::{Door, Qos, Stored, Topic};
use fogmux_store::record::{Record, decode};

fn record(c: &mut Criterion) {
    let stored = Stored {
        topic: Topic::new("plant/1/temperature").unwrap(),
        payload: Bytes::from_static(&[0x2a; 64]),
        qos: Qos::AtLeastOnce,
        content_type: Some("application/json".into()),
        expires_unix_ms: None,
        properties: None,
        ingest_unix_ms: 1_790_000_000_000,
        principal: "sensor-1".into(),
        door: Some(Door::Mqtt),
    };
    let mut bytes = Vec::new();
    Record::from(&stored).encode(&mut bytes).unwrap();
    let mut group = c.benchmark_group("store_record_64B");
    group.bench_function("encode", |b| {
        let mut out = Vec::with_capacity(256);
        b.iter(|| {
            out.clear();
            Record::from(black_box(&stored)).encode(&mut out).unwrap();
            black_box(&out);
        });
    });
    group.bench_function("decode", |b| b.iter(|| black_box(decode(stored.topic.clone(), black_box(&bytes)).unwrap())));
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().warm_up_time(Duration::from_secs(1)).measurement_time(Duration::from_secs(3));
    targets = record
}
criterion_main!(benches);
