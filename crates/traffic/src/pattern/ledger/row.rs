//! Latencies before they are in a histogram.

use crate::measure::latency::Latency;

/// Equal latencies in a row: what came in one turn of what went out in one turn.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Row {
    latency_ns: u64,
    count: u64,
}

impl Row {
    #[inline]
    pub(super) fn add(&mut self, latency_ns: u64, to: &mut Latency) {
        if self.latency_ns != latency_ns {
            self.flush(to);
            self.latency_ns = latency_ns;
        }
        self.count += 1;
    }

    pub(super) fn flush(&mut self, to: &mut Latency) {
        if self.count > 0 {
            to.record_many_ns(self.latency_ns, self.count);
            self.count = 0;
        }
    }
}
