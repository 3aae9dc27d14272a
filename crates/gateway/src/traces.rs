//! Traces of messages (ADR 0071): a span for each publication that a door takes, and one for each delivery of it.
//!
//! The context of a trace (W3C Trace Context) travels in the user properties `traceparent` and `tracestate` of a
//! message (<https://w3c.github.io/trace-context-mqtt/>), and so through every door that has user properties. A
//! publication that is traced gets a `traceparent` of its own span; all others are as they came. Spans are put into a
//! bounded queue, which somebody else exports; nothing here waits for that.

mod context;
mod deliveries;
mod identifiers;
mod publications;
mod queue;
mod span;
mod state;

use std::sync::Arc;

pub(crate) use self::{
    context::{Context, PARENT, STATE},
    deliveries::{Deliveries, Traced},
    publications::Publications,
    state::bounded,
};
pub use self::{
    identifiers::{SpanId, TraceId},
    queue::SpanQueue,
    span::{Operation, Parent, Span, SpanKind},
};
use crate::clock::Clock;

/// The settings of traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TracesConfig {
    /// Of so many publications without a context one is traced; 0: none.
    pub one_in: u32,
    /// Whether a context decides by its sampled flag; otherwise its trace is chosen as a new one would be.
    pub follow_parents: bool,
    /// Spans that wait for the exporter, at most.
    pub queue_spans_max: usize,
}

/// The traces of a gateway.
#[derive(Debug)]
pub struct Traces {
    config: TracesConfig,
    /// The spans that have ended and wait for the exporter.
    pub spans: SpanQueue,
}

impl Traces {
    pub(crate) fn new(config: TracesConfig) -> Arc<Self> {
        Arc::new(Self { config, spans: SpanQueue::new(config.queue_spans_max) })
    }

    /// Sees the publications of one worker.
    pub(crate) fn publications(self: &Arc<Self>, clock: Clock) -> Publications {
        Publications::new(Arc::clone(self), clock)
    }

    /// Whether a trace is chosen that nobody else decides on. Gateways with the same setting choose the same traces.
    const fn chooses(&self, trace: TraceId) -> bool {
        match u64::MAX.checked_div(self.config.one_in as u64) {
            Some(highest) => trace.random_part() <= highest,
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{identifiers::Identifiers, *};

    #[test]
    fn one_in_so_many_traces_is_chosen() {
        let mut identifiers = Identifiers::seeded(7);
        for (one_in, least, most) in [(0, 0, 0), (1, 10_000, 10_000), (10, 850, 1150), (1000, 1, 30)] {
            let traces = Traces::new(TracesConfig { one_in, follow_parents: true, queue_spans_max: 1 });
            let chosen = (0..10_000).filter(|_| traces.chooses(identifiers.trace())).count();
            assert!((least..=most).contains(&chosen), "one in {one_in}: {chosen}");
        }
    }
}
