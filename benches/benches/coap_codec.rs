//! The CoAP codec beside `coap-lite`: a confirmable PUT with path, format and 64 bytes, and its answer.

#![expect(clippy::unwrap_used, reason = "a bench that cannot go on fails")]

use std::{hint::black_box, time::Duration};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use fogmux_coap::{Code, Encoder, Message, OptionNumber, Request, Token, Type};

const PAYLOAD: [u8; 64] = [0x2a; 64];

fn put(out: &mut Vec<u8>) {
    let token = Token::from_u64(0x0102_0304_0506_0708);
    Encoder::new(out, Type::Confirmable, Code::PUT, 4711, &token)
        .option(OptionNumber::URI_PATH, b"ps")
        .option(OptionNumber::URI_PATH, b"plant")
        .option(OptionNumber::URI_PATH, b"1")
        .option(OptionNumber::URI_PATH, b"temperature")
        .uint(OptionNumber::CONTENT_FORMAT, 50)
        .payload(&PAYLOAD);
}

fn decoding(c: &mut Criterion) {
    let mut datagram = Vec::new();
    put(&mut datagram);
    let mut group = c.benchmark_group("coap_decode_put_64B");
    group.throughput(Throughput::Elements(1));
    group.bench_function("fogmux", |b| {
        b.iter(|| {
            // Options are read lazily; a server reads them all once.
            let message = Message::decode(black_box(&datagram)).unwrap();
            black_box(message.options().count());
            message
        });
    });
    group.bench_function("fogmux request", |b| {
        b.iter(|| black_box(Request::parse(Message::decode(black_box(&datagram)).unwrap()).unwrap()));
    });
    group.bench_function("coap-lite", |b| {
        b.iter(|| black_box(coap_lite::Packet::from_bytes(black_box(&datagram)).unwrap()));
    });
    group.finish();
}

fn encoding(c: &mut Criterion) {
    let mut datagram = Vec::new();
    put(&mut datagram);
    let mut group = c.benchmark_group("coap_encode_put_64B");
    group.throughput(Throughput::Elements(1));
    group.bench_function("fogmux", |b| {
        let mut out = Vec::with_capacity(256);
        b.iter(|| {
            out.clear();
            put(black_box(&mut out));
        });
    });
    group.bench_function("coap-lite", |b| {
        let packet = coap_lite::Packet::from_bytes(&datagram).unwrap();
        b.iter(|| black_box(black_box(&packet).to_bytes().unwrap()));
    });
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().warm_up_time(Duration::from_secs(1)).measurement_time(Duration::from_secs(3));
    targets = decoding, encoding
}
criterion_main!(benches);
