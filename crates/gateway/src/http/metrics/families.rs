//! Families with labels by door: times of deliveries, queues, and handshakes that failed.

use std::{fmt, sync::atomic::Ordering::Relaxed, time::Duration};

use fogmux_bus::{Bus, Door};
use prometheus_client::{
    encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
};

use super::descriptor;
use crate::{
    delivery_times::AllDeliveryTimes,
    handshake_failures::HandshakeFailures,
    links::{Dropped, Links, Way},
};

/// The times of deliveries of all pairs of doors, those included that had none: a rate needs a beginning.
pub(super) fn deliveries(encoder: &mut DescriptorEncoder<'_>, times: &AllDeliveryTimes) -> fmt::Result {
    let help = "Time from when a publication was taken until a delivery of it was written, by the doors of publisher and \
                subscriber; of many publications a sample, in which each stands for 128";
    let mut family = descriptor(encoder, "delivery_seconds", help, MetricType::Histogram)?;
    for pair in times.read() {
        let labels = [("from", pair.from.name()), ("to", pair.to.name())];
        family.encode_family(&labels)?.encode_histogram::<NoLabelSet>(
            pair.sum.as_secs_f64(),
            pair.count(),
            &pair.buckets,
            None,
        )?;
    }
    Ok(())
}

/// Publications by door.
pub(super) fn published(encoder: &mut DescriptorEncoder<'_>, bus: &Bus) -> fmt::Result {
    let help = "Publications that came in by a door";
    let mut family = descriptor(encoder, "door_published", help, MetricType::Counter)?;
    for door in Door::ALL {
        let count = bus.counters().published.of(door).map_or(0, |count| count.load(Relaxed));
        ConstCounter::new(count).encode(family.encode_family(&[("door", door.name())])?)?;
    }
    Ok(())
}

/// Messages and bytes in the mailboxes of each door.
pub(super) fn queues(encoder: &mut DescriptorEncoder<'_>, bus: &Bus) -> fmt::Result {
    let depths = Door::ALL.map(|door| (door.name(), bus.memory().depth(door)));
    let help = "Messages that wait in the mailboxes of a door";
    let mut family = descriptor(encoder, "door_queue_messages", help, MetricType::Gauge)?;
    for (door, (messages, _)) in depths {
        gauge(messages).encode(family.encode_family(&[("door", door)])?)?;
    }
    let help = "Bytes in the mailboxes of a door, of messages in flight and of output included";
    let mut family = descriptor(encoder, "door_queue_bytes", help, MetricType::Gauge)?;
    for (door, (_, bytes)) in depths {
        gauge(bytes).encode(family.encode_family(&[("door", door)])?)?;
    }
    Ok(())
}

/// Spans of traces.
#[cfg(feature = "traces")]
pub(super) fn spans(encoder: &mut DescriptorEncoder<'_>, spans: &crate::traces::SpanQueue) -> fmt::Result {
    let help = "Spans that a collector of traces has taken";
    let exported = ConstCounter::new(spans.exported.get());
    exported.encode(descriptor(encoder, "trace_spans_exported", help, MetricType::Counter)?)?;
    let help = "Spans dropped because their queue was full, or because the collector did not take them";
    let mut family = descriptor(encoder, "trace_spans_dropped", help, MetricType::Counter)?;
    for (reason, count) in [("queue", &spans.dropped_full), ("collector", &spans.dropped_refused)] {
        ConstCounter::new(count.get()).encode(family.encode_family(&[("reason", reason)])?)?;
    }
    Ok(())
}

/// Links to other brokers.
pub(super) fn links(encoder: &mut DescriptorEncoder<'_>, links: &Links) -> fmt::Result {
    let each = links.each();
    let help = "Whether a link to another broker is connected";
    let mut family = descriptor(encoder, "link_up", help, MetricType::Gauge)?;
    for link in &each {
        let up = usize::from(link.connected_since_unix_ms().is_some());
        gauge(up).encode(family.encode_family(&[("link", link.name.as_str())])?)?;
    }
    type Read = fn(&Way) -> u64;
    let counters: [(&str, &str, Read); 2] = [
        ("link_messages", "Messages that a link has passed on; those sent again count again", |way| way.messages.get()),
        ("link_payload_bytes", "Bytes of the payloads that a link has passed on", |way| way.bytes.get()),
    ];
    for (name, help, read) in counters {
        let mut family = descriptor(encoder, name, help, MetricType::Counter)?;
        for link in &each {
            for (direction, way) in [("out", &link.out), ("in", &link.inward)] {
                let labels = [("link", link.name.as_str()), ("direction", direction)];
                ConstCounter::new(read(way)).encode(family.encode_family(&labels)?)?;
            }
        }
    }
    let help = "Messages that a link has dropped";
    let mut family = descriptor(encoder, "link_dropped", help, MetricType::Counter)?;
    for link in &each {
        for (direction, way) in [("out", &link.out), ("in", &link.inward)] {
            for reason in Dropped::ALL {
                let labels = [("link", link.name.as_str()), ("direction", direction), ("reason", reason.name())];
                ConstCounter::new(way.dropped(reason).get()).encode(family.encode_family(&labels)?)?;
            }
        }
    }
    let queues: Vec<_> = each.iter().map(|link| (link.name.as_str(), links.queue(link))).collect();
    let help = "Messages that wait for the broker of a link";
    let mut family = descriptor(encoder, "link_queue_messages", help, MetricType::Gauge)?;
    for (link, queue) in &queues {
        gauge(queue.messages).encode(family.encode_family(&[("link", *link)])?)?;
    }
    let help = "Bytes of the messages that wait for the broker of a link";
    let mut family = descriptor(encoder, "link_queue_bytes", help, MetricType::Gauge)?;
    for (link, queue) in &queues {
        gauge(queue.bytes).encode(family.encode_family(&[("link", *link)])?)?;
    }
    Ok(())
}

/// Handshakes that failed.
pub(super) fn handshakes(encoder: &mut DescriptorEncoder<'_>, failures: &HandshakeFailures) -> fmt::Result {
    let help = "Handshakes of TLS, DTLS and QUIC that failed, by reason";
    let mut family = descriptor(encoder, "handshake_failures", help, MetricType::Counter)?;
    for (door, transport, reason, count) in failures.each() {
        let labels = [("door", door.name()), ("transport", transport), ("reason", reason)];
        ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

/// A histogram without labels.
pub(super) fn histogram(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help): (&str, &str),
    times: &fogmux_store::Times,
) -> fmt::Result {
    let buckets: Vec<_> = times.buckets().map(|(bound, count)| (upper(bound), count)).collect();
    let mut family = descriptor(encoder, name, help, MetricType::Histogram)?;
    family.encode_histogram::<NoLabelSet>(times.sum().as_secs_f64(), times.count(), &buckets, None)
}

/// The upper bound of a bucket; the last has none.
fn upper(bound: Option<Duration>) -> f64 {
    bound.map_or(f64::INFINITY, |bound| bound.as_secs_f64())
}

fn gauge(value: usize) -> ConstGauge<i64> {
    ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX))
}
