//! Spans of deliveries and reads, children of the publication's span.

use fogmux_bus::{Door, Message, Properties, Publication, Publisher};

use super::{
    context::{Context, state},
    identifiers::Identifiers,
    span::{Operation, Parent, Span, cut},
};

/// The part of a message that a delivery remembers until it is written.
#[derive(Clone, Debug)]
pub(crate) struct Traced {
    published: Context,
    state: Box<str>,
    topic: Box<str>,
    body_bytes: usize,
}

impl Traced {
    fn new(properties: Option<&Properties>, topic: &str, body_bytes: usize) -> Option<Self> {
        let properties = properties?;
        let published = Context::of(properties)?;
        Some(Self { published, state: state(properties), topic: cut(topic), body_bytes })
    }

    /// Of a publication that is traced.
    pub(crate) fn of_publication(publication: &Publication<'_>) -> Option<Self> {
        let (topic, payload) = (publication.topic.as_str(), publication.payload.as_slice());
        Self::new(publication.properties.as_deref(), topic, payload.len())
    }

    /// Of a message that is traced.
    pub(crate) fn of_message(message: &Message) -> Option<Self> {
        Self::new(message.properties.as_deref(), &message.topic, message.payload.len())
    }

    /// The span of a delivery that ends now. `elapsed_us` is how long it took; `None` for a read.
    fn span(&self, id: super::SpanId, to: Door, reader: &Publisher, now_unix_us: u64, elapsed_us: Option<u64>) -> Span {
        Span {
            trace: self.published.trace,
            id,
            parent: Some(Parent { id: self.published.span, is_remote: false }),
            state: self.state.clone(),
            operation: if elapsed_us.is_some() { Operation::Deliver } else { Operation::Read },
            door: to,
            start_unix_us: now_unix_us.saturating_sub(elapsed_us.unwrap_or(0)),
            end_unix_us: now_unix_us,
            topic: self.topic.clone(),
            client: cut(&reader.client),
            body_bytes: self.body_bytes,
            refused: false,
        }
    }
}

/// Makes the spans of one worker's deliveries.
#[derive(Debug)]
pub(crate) struct Deliveries(Identifiers);

impl Deliveries {
    pub(crate) fn new() -> Self {
        Self(Identifiers::new())
    }

    /// The span of a delivery to a client of a door; see [`Traced`].
    pub(crate) fn span(
        &mut self,
        traced: &Traced,
        (to, reader): (Door, &Publisher),
        now_unix_us: u64,
        elapsed_us: Option<u64>,
    ) -> Span {
        traced.span(self.0.span(), to, reader, now_unix_us, elapsed_us)
    }
}
