//! `/metrics`: what the bus and the doors have counted, as OpenMetrics text.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use fogmux_http::{Kind, Problem};
use fogmux_store::State;
use http::Response;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{counter::ConstCounter, gauge::ConstGauge},
    registry::Registry,
};

use super::{payload::Payload, respond};
use crate::{Shared, WorkerContext, metrics::DoorMetrics};

const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// 200 with everything.
pub(super) fn respond(ctx: &WorkerContext) -> Response<Payload> {
    let mut registry = Registry::with_prefix("fogmux");
    registry.register_collector(Box::new(Snapshot(Arc::clone(&ctx.shared))));
    let mut text = String::with_capacity(8192);
    match prometheus_client::encoding::text::encode(&mut text, &registry) {
        Ok(()) => respond::own(CONTENT_TYPE, text),
        Err(_) => respond::problem(&Problem::new(Kind::Internal)),
    }
}

#[derive(Debug)]
struct Snapshot(Arc<Shared>);

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        self.encode_bus(&mut encoder)?;
        self.encode_store(&mut encoder)?;
        let metrics = &self.0.metrics;
        let missed = ConstCounter::new(metrics.missed_wakes.get());
        let help = "Tasks that slept on output that they could have sent (debug builds)";
        missed.encode(encoder.encode_descriptor("missed_wakes", help, None, missed.metric_type())?)?;
        let doors =
            [("mqtt", &metrics.mqtt), ("coap", &metrics.coap), ("http", &metrics.http), ("xmpp", &metrics.xmpp)];
        type Read = fn(&DoorMetrics) -> u64;
        let counters: [(&str, &str, Read); 8] = [
            ("door_accepted", "Connections accepted", |door| door.accepted.get()),
            ("door_rejected", "Connections turned away by a limit", |door| door.rejected.get()),
            ("door_unauthenticated", "Logins refused", |door| door.unauthenticated.get()),
            ("door_unauthorized", "Actions refused by a rule", |door| door.unauthorized.get()),
            ("door_misbehaved", "Peers that broke the protocol", |door| door.misbehaved.get()),
            ("door_timed_out", "Peers cut because they were too slow", |door| door.timed_out.get()),
            ("door_read_bytes", "Bytes read", |door| door.bytes_in.get()),
            ("door_written_bytes", "Bytes written", |door| door.bytes_out.get()),
        ];
        for (name, help, read) in counters {
            let mut family =
                encoder.encode_descriptor(name, help, None, prometheus_client::metrics::MetricType::Counter)?;
            for (door, metrics) in doors {
                ConstCounter::new(read(metrics)).encode(family.encode_family(&[("door", door)])?)?;
            }
        }
        let mut family = encoder.encode_descriptor(
            "door_connections",
            "Connections open",
            None,
            prometheus_client::metrics::MetricType::Gauge,
        )?;
        for (door, metrics) in doors {
            ConstGauge::new(metrics.connections.get()).encode(family.encode_family(&[("door", door)])?)?;
        }
        Ok(())
    }
}

impl Snapshot {
    fn encode_store(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let Some(store) = self.0.metrics.store.get() else { return Ok(()) };
        let count = store.counters();
        for (name, help, value) in [
            ("store_commits", "Commits written", count.commits),
            ("store_records", "Records written, after coalescing", count.records),
            ("store_written_bytes", "Bytes of those records", count.bytes),
            ("store_refused", "Writes refused because the store is read-only or busy", count.refused),
            ("store_damaged_records", "Records that could not be read at the start", count.damaged_records),
            ("store_damaged_blocks", "Damaged blocks met at the start", count.damaged_blocks),
            ("store_cut_bytes", "Bytes of torn writes cut from the journal at the start", count.cut_bytes),
            ("store_moved_aside", "Stores moved aside at the start for damage", count.moved_aside),
            ("store_lost_commits", "Commits that were missing at the start", count.lost_commits),
        ] {
            let metric = ConstCounter::new(value);
            metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)?;
        }
        let gauge = prometheus_client::metrics::MetricType::Gauge;
        let mut family = encoder.encode_descriptor("store_state", "1 for the state the store is in", None, gauge)?;
        for state in State::ALL {
            let is = ConstGauge::new(i64::from(state == count.state));
            is.encode(family.encode_family(&[("state", state.name())])?)?;
        }
        Ok(())
    }

    fn encode_bus(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let bus = &self.0.bus;
        let count = bus.counters();
        for (name, help, value) in [
            ("bus_published", "Publications that came in", &count.published),
            ("bus_delivered", "Deliveries handed to mailboxes", &count.delivered),
            ("bus_dropped_full", "Deliveries dropped because a queue was full", &count.dropped_full),
            ("bus_dropped_expired", "Deliveries dropped because they had expired", &count.dropped_expired),
            ("bus_dropped_too_large", "Deliveries dropped because they were too large", &count.dropped_too_large),
            ("bus_dropped_gone", "Deliveries to owners who had gone", &count.dropped_gone),
            ("bus_conflated", "Values overtaken by newer ones", &count.conflated),
            ("bus_refused", "Publications refused for lack of room", &count.refused),
            ("bus_unmatched", "Publications that nobody wanted", &count.unmatched),
            ("bus_route_hits", "Cached routes used", &count.route_hits),
            ("bus_route_misses", "Topics matched against the tree", &count.route_misses),
        ] {
            let metric = ConstCounter::new(value.load(Relaxed));
            metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)?;
        }
        let (retained, retained_bytes) = bus.retained_size();
        let (streams, parked) = self.0.http.streams.count();
        for (name, help, value) in [
            ("bus_retained_messages", "Messages kept", retained),
            ("bus_retained_bytes", "Bytes of messages kept", retained_bytes),
            ("bus_mailbox_bytes", "Bytes in mailboxes", bus.memory().used()),
            ("bus_subscriptions", "Subscriptions", bus.subscriptions()),
            ("http_event_streams", "Event streams", streams),
            ("http_event_streams_parked", "Event streams that wait for their reader", parked),
        ] {
            let metric = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)?;
        }
        Ok(())
    }
}
