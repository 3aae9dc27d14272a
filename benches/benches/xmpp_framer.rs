//! The XMPP framer and parser beside `rxml` and `xmpp-parsers`: 32 pubsub publishes of one JSON reading, as a publisher
//! sends them.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a bench that cannot go on fails")]

use std::{fmt::Write, hint::black_box, time::Duration};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use fogmux_xmpp::{Frame, Framer, IqHead, Limits, Query, Scope, parse};
use xmpp_parsers::{iq::Iq, minidom::Element, pubsub::PubSub};

const STANZAS: usize = 32;
const HEADER: &str = "<stream:stream xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams' \
                      to='localhost' version='1.0'>";

fn stanzas() -> String {
    (0..STANZAS).fold(String::new(), |mut all, n| {
        write!(
            all,
            "<iq xmlns='jabber:client' type='set' id='p{n}' to='pubsub.localhost'><pubsub xmlns='http://jabber.org/protocol/pubsub'>\
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
    // Theirs has no framer: its reader is `rxml`, whose events tokio-xmpp turns into stanzas.
    group.bench_function("rxml events", |b| {
        let whole = format!("{HEADER}{text}");
        b.iter(|| {
            let (mut parser, mut rest) = (rxml::Parser::new(), black_box(whole.as_bytes()));
            while let Ok(Some(event)) = rxml::Parse::parse(&mut parser, &mut rest, false) {
                black_box(event);
            }
        });
    });
    group.bench_function("frame and parse", |b| {
        b.iter(|| {
            read(&mut framer, black_box(text.as_bytes()), text.len(), |stanza| {
                black_box(parse::stanza(stanza, &Scope::default(), &limits).unwrap());
            });
        });
    });
    group.finish();
}

// One stanza to its request, without framing.
fn parsing(c: &mut Criterion) {
    let limits = Limits::default();
    let text = stanzas();
    let mut all = Vec::new();
    read(&mut opened(&limits), text.as_bytes(), text.len(), |stanza| all.push(stanza.to_vec()));
    let mut group = c.benchmark_group("xmpp_parse");
    group.throughput(Throughput::Elements(STANZAS as u64));
    group.bench_function("fogmux tree", |b| {
        b.iter(|| {
            for stanza in black_box(&all) {
                black_box(parse::stanza(stanza, &Scope::default(), &limits).unwrap());
            }
        });
    });
    group.bench_function("minidom tree", |b| {
        b.iter(|| {
            for stanza in black_box(&all) {
                black_box(Element::from_reader(stanza.as_slice()).unwrap());
            }
        });
    });
    group.bench_function("fogmux request", |b| {
        b.iter(|| {
            for stanza in black_box(&all) {
                let element = parse::stanza(stanza, &Scope::default(), &limits).unwrap();
                let head = IqHead::of(&element).unwrap();
                black_box(Query::of(&element, head.kind).unwrap());
            }
        });
    });
    group.bench_function("xmpp-parsers request", |b| {
        b.iter(|| {
            for stanza in black_box(&all) {
                let iq = Iq::try_from(Element::from_reader(stanza.as_slice()).unwrap()).unwrap();
                let Iq::Set { payload, .. } = iq else { panic!("not a request") };
                black_box(PubSub::try_from(payload).unwrap());
            }
        });
    });
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().warm_up_time(Duration::from_secs(1)).measurement_time(Duration::from_secs(3));
    targets = framing, parsing
}
criterion_main!(benches);
