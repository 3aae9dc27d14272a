//! `/metrics`: the counters and gauges of the bus and the doors, as OpenMetrics or in Prometheus' own text format.

mod families;
mod process;

use std::sync::{Arc, atomic::Ordering::Relaxed};

use fogmux_http::{
    Kind, Problem,
    exposition::{self, Format},
};
use fogmux_net::pki::rollover::Phase;
use fogmux_store::State;
use http::{
    HeaderMap, Response,
    header::{ACCEPT, VARY},
};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
    registry::{Registry, Unit},
};

use super::{context::HttpContext, payload::Payload, respond};
use crate::{
    Shared,
    metrics::{Counts, DoorMetrics},
    process::Process,
};

/// Responds with all metrics, in the format that the client prefers.
pub(super) fn respond(ctx: &HttpContext, headers: &HeaderMap) -> Response<Payload> {
    let mut registry = Registry::default();
    let snapshot = Snapshot(Arc::clone(&ctx.shared), ctx.shared.metrics.counts());
    registry.sub_registry_with_prefix("fogmux").register_collector(Box::new(snapshot));
    registry.register_collector(Box::new(process::OfProcess(Process::read())));
    let mut text = String::with_capacity(64 << 10);
    if prometheus_client::encoding::text::encode(&mut text, &registry).is_err() {
        return respond::problem(&Problem::new(Kind::Internal));
    }
    let format = Format::choose(headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()));
    let text = match format {
        Format::OpenMetrics => text,
        Format::Text => exposition::text(&text),
    };
    let mut response = respond::own(format.content_type(), text);
    response.headers_mut().insert(VARY, http::HeaderValue::from_static("accept"));
    response
}

#[derive(Debug)]
struct Snapshot(Arc<Shared>, Counts);

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        process::build(&mut encoder)?;
        self.encode_bus(&mut encoder)?;
        self.encode_store(&mut encoder)?;
        let metrics = &self.0.metrics;
        let missed = ConstCounter::new(metrics.missed_wakes.get());
        let help = "Tasks that slept on output that they could have sent (debug builds)";
        missed.encode(encoder.encode_descriptor("missed_wakes", help, None, missed.metric_type())?)?;
        let reloads = [
            ("applied", &metrics.reloads.applied),
            ("partial", &metrics.reloads.partial),
            ("refused", &metrics.reloads.refused),
        ];
        let help = "Reloads by SIGHUP: of everything, of all but what the log names, and of nothing";
        let mut family = descriptor(&mut encoder, "reloads", help, MetricType::Counter)?;
        for (outcome, count) in reloads {
            ConstCounter::new(count.get()).encode(family.encode_family(&[("outcome", outcome)])?)?;
        }
        let refused = ConstCounter::new(self.0.verifiers.refused());
        let help = "Logins refused because too many waited for their password to be verified";
        refused.encode(encoder.encode_descriptor("logins_busy", help, None, refused.metric_type())?)?;
        let unlogged = ConstCounter::new(self.0.refusals.logins_suppressed());
        let help = "Refused logins without a line of their own in the log";
        unlogged.encode(encoder.encode_descriptor("logins_unlogged", help, None, unlogged.metric_type())?)?;
        let unlogged = ConstCounter::new(self.0.refusals.actions_suppressed());
        let help = "Refused actions without a line of their own in the log";
        unlogged.encode(encoder.encode_descriptor("actions_unlogged", help, None, unlogged.metric_type())?)?;
        let unlogged = ConstCounter::new(metrics.lines_unlogged.get());
        let help = "Other lines of the log that were left out because there were too many of their kind";
        unlogged.encode(encoder.encode_descriptor("log_lines_unlogged", help, None, unlogged.metric_type())?)?;
        let lost = ConstCounter::new(metrics.lines_lost.get());
        let help = "Lines of the log that were lost because standard error did not take them";
        lost.encode(encoder.encode_descriptor("log_lines_lost", help, None, lost.metric_type())?)?;
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
            let mut family = descriptor(&mut encoder, name, help, MetricType::Counter)?;
            for (door, metrics) in doors {
                ConstCounter::new(read(metrics)).encode(family.encode_family(&[("door", door)])?)?;
            }
        }
        families::queues(&mut encoder, &self.0.bus)?;
        families::deliveries(&mut encoder, &metrics.deliveries)?;
        families::handshakes(&mut encoder, &metrics.handshakes)?;
        #[cfg(feature = "traces")]
        if let Some(traces) = &self.0.traces {
            families::spans(&mut encoder, &traces.spans)?;
        }
        self.encode_certificates(&mut encoder)?;
        self.encode_listeners(&mut encoder)?;
        self.encode_discovery(&mut encoder)?;
        families::links(&mut encoder, &self.0.links)?;
        self.encode_mqtt_cut(&mut encoder)?;
        self.encode_shares(&mut encoder)?;
        let mut family = descriptor(&mut encoder, "door_connections", "Connections open", MetricType::Gauge)?;
        for (door, metrics) in doors {
            ConstGauge::new(metrics.connections.get()).encode(family.encode_family(&[("door", door)])?)?;
        }
        Ok(())
    }
}

impl Snapshot {
    fn encode_mqtt_cut(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let cut = &self.0.metrics.mqtt_cut;
        let help = "MQTT clients disconnected because they were too slow";
        let mut family = descriptor(encoder, "mqtt_cut", help, MetricType::Counter)?;
        for (reason, counter) in [
            ("queue_full", &cut.queue_full),
            ("stalled", &cut.stalled),
            ("silent", &cut.silent),
            ("unreachable", &cut.unreachable),
        ] {
            ConstCounter::new(counter.get()).encode(family.encode_family(&[("reason", reason)])?)?;
        }
        let help = "MQTT logins that ended because all logins under way held too much";
        let gave_way = ConstCounter::new(self.0.metrics.mqtt_only.logins_gave_way.get());
        gave_way.encode(descriptor(encoder, "mqtt_logins_gave_way", help, MetricType::Counter)?)
    }

    fn encode_discovery(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let help = "Answers to those who look for this gateway by multicast, sent and suppressed";
        let mut family = descriptor(encoder, "discovery_answers", help, MetricType::Counter)?;
        for (by, discovery) in [("coap", &self.0.metrics.coap_groups), ("mdns", &self.0.metrics.mdns)] {
            for (outcome, count) in [("sent", &discovery.answered), ("suppressed", &discovery.suppressed)] {
                ConstCounter::new(count.get()).encode(family.encode_family(&[("by", by), ("outcome", outcome)])?)?;
            }
        }
        Ok(())
    }

    fn encode_certificates(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let help = "When the certificate of a listener expires, in seconds since 1970";
        let mut family = descriptor(encoder, "certificate_not_after_seconds", help, MetricType::Gauge)?;
        for (listener, unix_s) in self.0.metrics.certificates.not_after_unix_s() {
            let gauge = ConstGauge::new(i64::try_from(unix_s).unwrap_or(i64::MAX));
            gauge.encode(family.encode_family(&[("listener", listener)])?)?;
        }
        self.encode_authorities(encoder)?;
        if let Some(unix_s) = self.0.metrics.certificates.of_acme_unix_s() {
            let help = "When the certificate of the ACME server expires, in seconds since 1970";
            let gauge = ConstGauge::new(i64::try_from(unix_s).unwrap_or(i64::MAX));
            gauge.encode(descriptor(encoder, "acme_certificate_not_after_seconds", help, MetricType::Gauge)?)?;
        }
        let acme = &self.0.metrics.acme;
        for (name, help, counter) in [
            ("acme_certificates", "Certificates that an ACME server has issued", &acme.issued),
            ("acme_failures", "Attempts to have a certificate issued that failed", &acme.failures),
        ] {
            ConstCounter::new(counter.get()).encode(descriptor(encoder, name, help, MetricType::Counter)?)?;
        }
        Ok(())
    }

    fn encode_authorities(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let certificates = &self.0.metrics.certificates;
        let authorities = certificates.authorities_not_after_unix_s();
        if authorities.is_empty() {
            return Ok(());
        }
        let help = "When the gateway's own authority ends, of both in a rollover, in seconds since 1970";
        let mut family = descriptor(encoder, "authority_not_after_seconds", help, MetricType::Gauge)?;
        for (subject, unix_s) in authorities {
            let gauge = ConstGauge::new(i64::try_from(unix_s).unwrap_or(i64::MAX));
            gauge.encode(family.encode_family(&[("authority", &*subject)])?)?;
        }
        let help = "Whether a rollover of the gateway's own authority is in this phase";
        let mut family = descriptor(encoder, "authority_rollover", help, MetricType::Gauge)?;
        for phase in [Phase::Begun, Phase::Switched] {
            let gauge = ConstGauge::new(i64::from(certificates.rollover() == Some(phase)));
            gauge.encode(family.encode_family(&[("phase", phase.name())])?)?;
        }
        Ok(())
    }

    fn encode_listeners(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let help = "Whether the address of a listener is open; 0 while it is tried again";
        let mut family = descriptor(encoder, "listener_open", help, MetricType::Gauge)?;
        for (_, spot) in self.0.listening.each() {
            let address = spot.address().unwrap_or(spot.listen.address).to_string();
            let gauge = ConstGauge::new(i64::from(spot.address().is_some()));
            gauge.encode(family.encode_family(&[("listener", &*spot.listen.name), ("address", &address)])?)?;
        }
        Ok(())
    }

    fn encode_shares(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let (shares, bus) = (&self.0.metrics.shares, &self.0.bus);
        let help = "Refusals because the rest of a table is reserved for principals who have less of it";
        let mut family = descriptor(encoder, "share_refused", help, MetricType::Counter)?;
        let count = bus.counters();
        let of_bus = [("retained", &count.share_retained), ("subscriptions", &count.share_subscriptions)];
        let of_bus = of_bus.map(|(table, counter)| (table, counter.load(Relaxed)));
        for (table, refused) in shares.each_refused().chain(of_bus) {
            ConstCounter::new(refused).encode(family.encode_family(&[("table", table)])?)?;
        }
        let help = "Bytes of unfinished CoAP uploads";
        let uploads = ConstGauge::new(self.0.metrics.coap_uploads_bytes.get());
        uploads.encode(descriptor(encoder, "coap_uploads_bytes", help, MetricType::Gauge)?)?;
        let too_long = ConstCounter::new(self.0.metrics.coap_too_long.get());
        let help = "CoAP messages not sent because the peer takes no message or DTLS record that large";
        too_long.encode(descriptor(encoder, "coap_too_long", help, MetricType::Counter)?)?;
        let evicted = &self.0.metrics.dtls_evicted;
        let help = "DTLS sessions that ended because the table was full, by the reason why it was this one";
        let mut family = descriptor(encoder, "dtls_evicted", help, MetricType::Counter)?;
        for (reason, count) in [
            ("principal", &evicted.principal),
            ("address", &evicted.address),
            ("anonymous", &evicted.anonymous),
            ("rest", &evicted.rest),
        ] {
            ConstCounter::new(count.get()).encode(family.encode_family(&[("reason", reason)])?)?;
        }
        let lost = ConstCounter::new(self.0.metrics.coap_events_lost.get());
        let help = "Large messages for CoAP observers, not retained, that went before they were fetched to the end";
        lost.encode(descriptor(encoder, "coap_events_lost", help, MetricType::Counter)?)?;
        let help = "Entries that ended for those of another principal";
        let mut family = descriptor(encoder, "share_gave_way", help, MetricType::Counter)?;
        for (table, gave_way) in shares.each_gave_way() {
            ConstCounter::new(gave_way).encode(family.encode_family(&[("table", table)])?)?;
        }
        let help = "Entries, or bytes, of the principal that has most";
        let mut family = descriptor(encoder, "share_largest", help, MetricType::Gauge)?;
        let (subscriptions, retained) = bus.largest_shares();
        let sessions = self.1.sessions_largest_share;
        let all = [("sessions", sessions), ("subscriptions", subscriptions), ("retained", retained)];
        for (table, entries) in all.into_iter().chain(self.1.largest.iter().copied()) {
            let gauge = ConstGauge::new(i64::try_from(entries).unwrap_or(i64::MAX));
            gauge.encode(family.encode_family(&[("table", table)])?)?;
        }
        Ok(())
    }

    fn encode_store(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let Some(store) = self.0.metrics.store.get() else { return Ok(()) };
        let count = store.counters();
        for (name, help, value) in [
            ("store_commits", "Commits written", count.commits),
            ("store_records", "Records written, after coalescing", count.records),
            ("store_written_bytes", "Bytes written for them, whole blocks", count.bytes),
            ("store_refused", "Writes refused because the disk takes nothing, or too much waits for it", count.refused),
            ("store_beyond_share", "Writes refused because the rest is reserved for others", count.beyond_share),
            ("store_failed", "Writes that were taken and that the disk then failed to take", count.failed),
            ("store_damaged_records", "Records that could not be read", count.damaged_records),
            ("store_damaged_blocks", "Blocks that could not be read at the start", count.damaged_blocks),
            ("store_damaged_files", "Files that were cut short or gone at the start", count.damaged_files),
            ("store_lost_commits", "Frames of commits that were missing at the start", count.lost_commits),
        ] {
            let metric = ConstCounter::new(value);
            metric.encode(descriptor(encoder, name, help, metric.metric_type())?)?;
        }
        for (name, help, value) in [
            ("store_disk_bytes", "Bytes of the store's files", count.disk_bytes),
            ("store_live_bytes", "Bytes in them of what is kept", count.live_bytes),
        ] {
            let metric = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            metric.encode(descriptor(encoder, name, help, MetricType::Gauge)?)?;
        }
        let help = "Time of a commit, until its data is on the disk where the durability asks for that";
        families::histogram(encoder, ("store_commit_seconds", help), &count.times.commits)?;
        let help = "Time of the synchronisations (fdatasync) of a commit, without its writes";
        families::histogram(encoder, ("store_sync_seconds", help), &count.times.syncs)?;
        let mut family = descriptor(encoder, "store_state", "1 for the state the store is in", MetricType::Gauge)?;
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
            ("bus_matched", "Deliveries that routing asked for", &count.matched),
            ("bus_delivered", "Deliveries handed to mailboxes", &count.delivered),
            ("bus_sent", "Messages that mailboxes handed to connections", &count.sent),
            ("bus_pulled", "Retained messages put into mailboxes for new subscriptions", &count.pulled),
            ("bus_restored", "Messages that waited for sessions which were restored at the start", &count.restored),
            ("bus_handed_on", "Messages that went to another member of a shared subscription", &count.handed_on),
            ("bus_dropped_full", "Deliveries dropped because a queue was full", &count.dropped_full),
            ("bus_dropped_expired", "Deliveries dropped because they had expired", &count.dropped_expired),
            ("bus_dropped_too_large", "Deliveries dropped because they were too large", &count.dropped_too_large),
            ("bus_dropped_gone", "Deliveries to owners who had gone", &count.dropped_gone),
            ("bus_conflated", "Values overtaken by newer ones", &count.conflated),
            ("bus_refused", "Publications refused: not storable, or at shutdown", &count.refused),
            ("bus_unkept", "Publications delivered but not retained: no room, or the store failed", &count.unkept),
            ("bus_unmatched", "Publications that nobody wanted", &count.unmatched),
            ("bus_route_hits", "Cached routes used", &count.route_hits),
            ("bus_route_misses", "Topics matched against the tree", &count.route_misses),
        ] {
            let metric = ConstCounter::new(value.load(Relaxed));
            metric.encode(descriptor(encoder, name, help, metric.metric_type())?)?;
        }
        let published = ConstCounter::new(count.published.load(Relaxed));
        let help = "Publications that came in";
        published.encode(descriptor(encoder, "bus_published", help, MetricType::Counter)?)?;
        families::published(encoder, bus)?;
        let (retained, retained_bytes) = bus.retained_size();
        for (name, help, value) in [
            ("bus_retained_messages", "Messages kept", retained),
            ("bus_retained_bytes", "Bytes of messages kept", retained_bytes),
            ("bus_mailbox_bytes", "Bytes in mailboxes", bus.memory().held()),
            ("bus_mailbox_messages", "Messages that wait in mailboxes", bus.memory().waiting()),
            ("bus_subscriptions", "Subscriptions", bus.subscriptions()),
            ("bus_subscriptions_bytes", "Bytes of subscriptions", bus.subscriptions_bytes()),
            ("logins_waiting", "Logins that wait for their password to be verified", self.0.verifiers.waiting()),
        ]
        .into_iter()
        .chain(self.1.gauges.iter().copied())
        {
            let metric = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            metric.encode(descriptor(encoder, name, help, metric.metric_type())?)?;
        }
        Ok(())
    }
}

/// Begins a metric family. A name that ends in a unit declares it (OpenMetrics §4.4.4).
fn descriptor<'e>(
    encoder: &'e mut DescriptorEncoder<'_>,
    name: &'e str,
    help: &str,
    kind: MetricType,
) -> Result<MetricEncoder<'e>, std::fmt::Error> {
    let units = [("_bytes", &Unit::Bytes), ("_seconds", &Unit::Seconds)];
    match units.into_iter().find_map(|(suffix, unit)| Some((name.strip_suffix(suffix)?, unit))) {
        Some((stem, unit)) => encoder.encode_descriptor(stem, help, Some(unit), kind),
        None => encoder.encode_descriptor(name, help, None, kind),
    }
}
