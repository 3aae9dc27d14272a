//! DTLS sessions in a full table (ADR 0062): the principals that share it, and counters of the sessions that gave way.

use std::sync::Arc;

use fogmux_dtls::{Counters, Evicted};
use fogmux_net::{HandshakeFailure, dtls::Principals};

use super::transport::Listener;
use crate::{Shared, credential};

/// Names the principal of a handshake, as a request on its session would be judged now.
pub(super) fn principals(shared: &Arc<Shared>, listener: Listener) -> Principals {
    let shared = Arc::clone(shared);
    Arc::new(move |channel| {
        let shown = credential::shown_by(&shared, channel, listener.sources).ok()??;
        Some(Arc::clone(&shown.name))
    })
}

/// The counters of an endpoint as far as the metrics have them.
#[derive(Debug, Default)]
pub(super) struct Counted {
    crowded: u64,
    evicted: Evicted,
}

impl Counted {
    /// Adds what is new to the metrics: sessions and handshakes without room, and sessions that gave way.
    pub(super) fn note(&mut self, shared: &Shared, now: &Counters) {
        let Counters { crowded, evicted, .. } = *now;
        if (crowded, evicted) == (self.crowded, self.evicted) {
            return;
        }
        let before = std::mem::replace(self, Self { crowded, evicted });
        shared.metrics.coap.rejected.add(crowded - before.crowded);
        shared.metrics.handshakes.note_dtls(HandshakeFailure::GaveWay, crowded - before.crowded);
        let counters = &shared.metrics.dtls_evicted;
        counters.principal.add(evicted.principal - before.evicted.principal);
        counters.address.add(evicted.address - before.evicted.address);
        counters.anonymous.add(evicted.anonymous - before.evicted.anonymous);
        counters.rest.add(evicted.rest - before.evicted.rest);
    }
}
