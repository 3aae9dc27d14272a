//! `GET /api/v1/status` and `GET /api/v1/listeners`: the counters of `/metrics` that people look at first.

use std::sync::atomic::Ordering::Relaxed;

use fogmux_bus::{Door, Timestamp};
use fogmux_http::api::{
    DoorStatus, ListenerEntry, Listeners, Memory, Messages, Moment, PairStatus, Status, StoreStatus, Table, Visitor,
};
use fogmux_store::JournalStore;

use super::super::{conn::Conn, identity::Identity, state};
use crate::Shared;

/// The state of the gateway.
pub(super) fn status(conn: &Conn) -> Vec<u8> {
    let (ctx, shared) = (&conn.ctx, &*conn.ctx.shared);
    let bus = &shared.bus;
    let (count, now) = (bus.counters(), ctx.now());
    let counts = shared.metrics.counts();
    let (retained, retained_bytes) = bus.retained_size();
    Status {
        version: env!("CARGO_PKG_VERSION"),
        realm: &shared.realm,
        ready: state::ready(conn).is_ok(),
        started: Moment(ctx.unix_ms(Timestamp::ZERO)),
        uptime_seconds: now.since(Timestamp::ZERO).as_secs(),
        memory: Memory {
            resident_bytes: fogmux_memory::resident_bytes(),
            resident_bytes_max: fogmux_memory::resident_bytes_max(),
            mailbox_bytes: bus.memory().held(),
            pressure: bus.memory().pressure(),
        },
        messages: Messages {
            published: count.published.load(Relaxed),
            delivered: count.delivered.load(Relaxed),
            sent: count.sent.load(Relaxed),
            dropped: [&count.dropped_full, &count.dropped_expired, &count.dropped_too_large, &count.dropped_gone]
                .iter()
                .map(|dropped| dropped.load(Relaxed))
                .sum(),
            refused: count.refused.load(Relaxed),
        },
        retained: Table { count: retained, bytes: retained_bytes },
        subscriptions: Table { count: bus.subscriptions(), bytes: bus.subscriptions_bytes() },
        sessions: counts.sessions,
        sessions_away: counts.sessions_away,
        store: shared.metrics.store.get().map(store),
        doors: Door::ALL.iter().map(|door| door_status(shared, *door)).collect(),
        deliveries: deliveries(shared),
    }
    .to_json()
}

fn store(store: &JournalStore) -> StoreStatus<'static> {
    let count = store.counters();
    StoreStatus {
        state: count.state.name(),
        disk_bytes: count.disk_bytes,
        commits: count.commits,
        refused: count.refused,
        lost: count.has_lost(),
    }
}

fn door_status(shared: &Shared, door: Door) -> DoorStatus<'static> {
    let metrics = shared.metrics.of(door);
    DoorStatus {
        door: door.name(),
        connections: metrics.connections.get(),
        accepted: metrics.accepted.get(),
        rejected: metrics.rejected.get(),
        unauthenticated: metrics.unauthenticated.get(),
        unauthorized: metrics.unauthorized.get(),
        misbehaved: metrics.misbehaved.get(),
        timed_out: metrics.timed_out.get(),
        published: shared.bus.counters().published.of(door).map_or(0, |count| count.load(Relaxed)),
        read_bytes: metrics.bytes_in.get(),
        written_bytes: metrics.bytes_out.get(),
    }
}

fn deliveries(shared: &Shared) -> Vec<PairStatus<'static>> {
    let mut pairs = Vec::new();
    for pair in shared.metrics.deliveries.read() {
        let delivered = pair.count();
        if delivered > 0 {
            let mean_ms = pair.sum.as_secs_f64() * 1000.0 / delivered as f64;
            pairs.push(PairStatus { from: pair.from.name(), to: pair.to.name(), delivered, mean_ms });
        }
    }
    pairs
}

/// The addresses of the listeners, with the ports that they were given.
pub(super) fn listeners(conn: &Conn, identity: &Identity) -> Vec<u8> {
    let shared = &conn.ctx.shared;
    let entries = shared.listening.each().map(|(place, spot)| {
        let (listen, opened) = (&spot.listen, spot.address());
        let address = opened.unwrap_or(listen.address);
        let encrypted = listen.listener.has_certificate() && listen.security.profile.is_encrypted();
        ListenerEntry {
            listener: &listen.name,
            kind: listen.listener.name(),
            door: listen.listener.door().name(),
            address: address.to_string(),
            port: address.port(),
            open: opened.is_some(),
            error: spot.failure(),
            profile: if encrypted { listen.security.profile.name } else { fogmux_net::profile::NONE.name },
            encrypted,
            anonymous: shared.listening.admits(place),
            remote_anonymous: shared.listening.admits_remote(place),
        }
    });
    let who = identity.principal();
    let visitor = Visitor { local: conn.peer.is_loopback(), user: (!who.anonymous).then_some(&*who.name) };
    Listeners { listeners: entries.collect(), visitor }.to_json()
}
