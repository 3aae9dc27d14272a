//! The bounded queue between workers and the exporter: what does not fit is dropped and counted.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

use super::span::Span;
use crate::counter::Counter;

/// See the module.
#[derive(Debug)]
pub struct SpanQueue {
    spans: Mutex<VecDeque<Span>>,
    spans_max: usize,
    /// Rings when it is half full.
    half_full: Notify,
    /// Spans that the collector has taken.
    pub exported: Counter,
    /// Spans that were dropped because the queue was full.
    pub dropped_full: Counter,
    /// Spans that were dropped because the collector refused them, or was not there at the end.
    pub dropped_refused: Counter,
}

impl SpanQueue {
    pub(super) fn new(spans_max: usize) -> Self {
        Self {
            spans: Mutex::default(),
            spans_max,
            half_full: Notify::new(),
            exported: Counter::default(),
            dropped_full: Counter::default(),
            dropped_refused: Counter::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Span>> {
        self.spans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds spans, under one lock. Never waits for the exporter.
    pub(crate) fn push(&self, spans: impl Iterator<Item = Span>) {
        let mut dropped = 0;
        let mut queue = self.lock();
        let before = queue.len();
        for span in spans {
            if queue.len() < self.spans_max {
                queue.push_back(span);
            } else {
                dropped += 1;
            }
        }
        let half = self.spans_max.div_ceil(2);
        let rings = before < half && queue.len() >= half;
        drop(queue);
        if rings {
            self.half_full.notify_one();
        }
        if dropped > 0 {
            self.dropped_full.add(dropped);
        }
    }

    /// Takes the oldest spans, at most so many.
    #[must_use]
    pub fn take(&self, spans_max: usize) -> Vec<Span> {
        let mut queue = self.lock();
        let count = queue.len().min(spans_max);
        let taken = queue.drain(..count).collect();
        if queue.is_empty() {
            *queue = VecDeque::new();
        }
        taken
    }

    /// Completes when the queue has become half full since this completed last.
    pub async fn half_full(&self) {
        self.half_full.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use fogmux_bus::Door;

    use super::{
        super::{SpanId, TraceId, span::Operation},
        *,
    };

    fn span(number: u8) -> Span {
        Span {
            trace: TraceId([1; 16]),
            id: SpanId([number; 8]),
            parent: None,
            state: "".into(),
            operation: Operation::Publish,
            door: Door::Mqtt,
            start_unix_us: 0,
            end_unix_us: 0,
            topic: "".into(),
            client: "".into(),
            body_bytes: 0,
            refused: false,
        }
    }

    #[tokio::test]
    async fn what_does_not_fit_is_dropped_and_counted() {
        let queue = SpanQueue::new(4);
        queue.push((1..=1).map(span));
        assert!(tokio::time::timeout(std::time::Duration::ZERO, queue.half_full()).await.is_err());
        queue.push((2..=7).map(span));
        queue.half_full().await;
        assert_eq!(queue.dropped_full.get(), 3);
        let taken = |count| queue.take(count).iter().map(|span| span.id.0[0]).collect::<Vec<_>>();
        assert_eq!((taken(3), taken(3), taken(3)), (vec![1, 2, 3], vec![4], vec![]));
    }
}
