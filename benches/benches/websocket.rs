//! The WebSocket framing beside `tungstenite`: 32 masked messages of 64 bytes as MQTT clients send them, and one of
//! 64 KiB.

#![expect(clippy::unwrap_used, reason = "a bench that cannot go on fails")]

use std::hint::black_box;
use std::io::Cursor;
use std::time::Duration;

use bytes::BytesMut;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use fogmux_benches::Wire;
use fogmux_http::websocket::{Opcode, Receiver, Role, push_frame};
use tungstenite::protocol::WebSocketContext;
use tungstenite::protocol::frame::Frame;
use tungstenite::protocol::frame::coding::{Data, OpCode};

const MASK: Option<[u8; 4]> = Some([0x37, 0xfa, 0x21, 0x3d]);
/// Number and size of messages.
const LOADS: [(usize, usize); 2] = [(32, 64), (1, 64 << 10)];

fn receiving(c: &mut Criterion) {
    let mut group = c.benchmark_group("websocket_receive");
    for (count, size) in LOADS {
        let mut bytes = Vec::new();
        (0..count).for_each(|_| push_frame(Opcode::Binary, &vec![0x2a; size], MASK, &mut bytes));
        let name = format!("{count} of {size} B");
        group.throughput(Throughput::Elements(count as u64));
        group.bench_function(BenchmarkId::new("fogmux", &name), |b| {
            let mut receiver = Receiver::new(Role::Server, u64::MAX);
            let mut buffer = BytesMut::new();
            b.iter(|| {
                buffer.extend_from_slice(&bytes);
                while let Some(incoming) = receiver.receive(&mut buffer).unwrap() {
                    black_box(incoming);
                }
            });
        });
        group.bench_function(BenchmarkId::new("tungstenite", &name), |b| {
            let mut context = WebSocketContext::new(tungstenite::protocol::Role::Server, None);
            let mut wire = Wire(Cursor::new(bytes.clone()));
            b.iter(|| {
                wire.0.set_position(0);
                for _ in 0..count {
                    black_box(context.read(&mut wire).unwrap());
                }
            });
        });
    }
    group.finish();
}

fn sending(c: &mut Criterion) {
    let mut group = c.benchmark_group("websocket_send");
    for (count, size) in LOADS {
        let payload = bytes::Bytes::from(vec![0x2a; size]);
        let name = format!("{count} of {size} B");
        group.throughput(Throughput::Elements(count as u64));
        let mut out = Vec::with_capacity(count * (size + 14));
        group.bench_function(BenchmarkId::new("fogmux", &name), |b| {
            b.iter(|| {
                out.clear();
                (0..count).for_each(|_| push_frame(Opcode::Binary, black_box(&payload), None, &mut out));
            });
        });
        group.bench_function(BenchmarkId::new("tungstenite", &name), |b| {
            b.iter(|| {
                out.clear();
                for _ in 0..count {
                    let frame = Frame::message(black_box(payload.clone()), OpCode::Data(Data::Binary), true);
                    frame.format(&mut out).unwrap();
                }
            });
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().warm_up_time(Duration::from_secs(1)).measurement_time(Duration::from_secs(3));
    targets = receiving, sending
}
criterion_main!(benches);
