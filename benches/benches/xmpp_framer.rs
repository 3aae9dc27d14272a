//! The XMPP framer and parser on what a publisher sends: pubsub publishes of one JSON reading, 32 in a row.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a bench that cannot go on fails")]

use std::{fmt::Write, hint::black_box, time::Duration};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use fogmux_xmpp::{Frame, Framer, Limits, Scope, parse};

const STANZAS: usize = 32;
const HEADER: &str = "<stream:stream xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams' \
                      to='localhost' version='1.0'>";

fn stanzas() -> String {
    (0..STANZAS).fold(String::new(), |mut all, n| {
        write!(
            all,
            "<iq type='set' id='p{n}' to='pubsub.localhost'><pubsub xmlns='http://jabber.org/protocol/pubsub'>\
             <publish node='plant/1/temperature'><item><json xmlns='urn:xmpp:json:0'>{{\"celsius\":21.5}}</json>\
             </item></publish></pubsub></iq>"
        )
        .unwrap();
        all
    })
}

fn opened(limits: &Limits) -> Framer {
    let mut framer = Framer::new(limits);
    framer.set_frame_bytes_max(limits.stanza_bytes_max);
    assert!(matches!(framer.next(HEADER.as_bytes()).unwrap().frame, Some(Frame::Header(_))));
    framer
}

// Feeds the bytes in pieces, as sockets give them; what is not used stays at the front.
fn read(framer: &mut Framer, bytes: &[u8], piece: usize, mut take: impl FnMut(&[u8])) {
    let (mut start, mut end) = (0, 0);
    while end < bytes.len() {
        end = (end + piece).min(bytes.len());
        loop {
            let framed = framer.next(&bytes[start..end]).unwrap();
            start += framed.used;
            match framed.frame {
                Some(Frame::Stanza(stanza)) => take(stanza),
                Some(Frame::Header(_) | Frame::End) => {}
                None => break,
            }
        }
    }
}

fn framing(c: &mut Criterion) {
    let limits = Limits::default();
    let text = stanzas();
    let mut framer = opened(&limits);
    let mut group = c.benchmark_group("xmpp_framer");
    group.throughput(Throughput::Elements(STANZAS as u64));
    for piece in [text.len(), 100] {
        let name = if piece == 100 { "in pieces of 100 bytes" } else { "whole" };
        group.bench_function(BenchmarkId::new("frame", name), |b| {
            b.iter(|| {
                read(&mut framer, black_box(text.as_bytes()), piece, |stanza| {
                    black_box(stanza);
                })
            });
        });
    }
    group.bench_function("frame and parse", |b| {
        b.iter(|| {
            read(&mut framer, black_box(text.as_bytes()), text.len(), |stanza| {
                black_box(parse::stanza(stanza, &Scope::default(), &limits).unwrap());
            });
        });
    });
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().warm_up_time(Duration::from_secs(1)).measurement_time(Duration::from_secs(3));
    targets = framing
}
criterion_main!(benches);
