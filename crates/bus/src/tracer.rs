//! Tracing of publications (ADR 0071): the bus shows each batch to a tracer, and remembers which messages are traced.
//! It knows nothing of traces: their context is in the messages' own user properties.

use std::sync::Arc;

use crate::{
    message::{Message, Properties, Publication},
    sampling::Sample,
};

/// Sees the publications of one worker.
pub trait Tracer {
    /// A batch is about to be published. Chooses publications by [`Publication::trace`].
    fn begin(&mut self, batch: &mut [Publication<'_>]);

    /// The first `taken` of the batch are published and have their outcomes. The others will come again, and have to be
    /// as they were before ([`Publication::restore`]).
    fn end(&mut self, batch: &mut [Publication<'_>], taken: usize);
}

impl Publication<'_> {
    /// Whether it can be traced: not a message of the gateway itself, nor one that is shared already, whose properties
    /// cannot be changed any more.
    #[must_use]
    pub fn can_be_traced(&self) -> bool {
        self.publisher.door.is_some() && !self.is_shared()
    }

    /// Has it traced, with other properties. `taken_us` is the time in microseconds since the origin of its ingest.
    pub fn trace(&mut self, properties: Arc<Properties>, taken_us: u64) {
        self.properties = Some(properties);
        self.sample = Some(Sample::traced(taken_us));
    }

    /// Undoes [`Publication::trace`].
    pub fn restore(&mut self, properties: Option<Arc<Properties>>) {
        self.properties = properties;
        self.sample = None;
    }
}

impl Message {
    /// Whether it is traced. Messages of an earlier run are not.
    #[must_use]
    pub fn is_traced(&self) -> bool {
        self.sample.is_some_and(Sample::is_traced)
    }
}
