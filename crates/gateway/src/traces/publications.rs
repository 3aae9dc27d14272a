//! Spans of publications: the choice of those that are traced, and the context that their messages go on with.

use std::sync::Arc;

use fogmux_bus::{Properties, Publication, Tracer};

use super::{
    Traces,
    context::{Context, state},
    identifiers::Identifiers,
    span::{Operation, Parent, Span, cut},
};
use crate::clock::Clock;

/// See the module; one for each worker.
pub(crate) struct Publications {
    traces: Arc<Traces>,
    clock: Clock,
    identifiers: Identifiers,
    /// Of the batch that is being published.
    begun: Vec<Begun>,
}

/// A publication that is traced.
struct Begun {
    /// In the batch.
    place: usize,
    own: Context,
    parent: Option<Parent>,
    taken_us: u64,
    before: Option<Arc<Properties>>,
}

impl Publications {
    pub(super) fn new(traces: Arc<Traces>, clock: Clock) -> Self {
        Self { traces, clock, identifiers: Identifiers::new(), begun: Vec::new() }
    }

    /// Chooses whether a message is traced: the context of its span, and the span before it.
    fn choose(&mut self, properties: Option<&Properties>) -> Option<(Context, Option<Parent>)> {
        let before = properties.and_then(Context::of);
        let trace = before.map_or_else(|| self.identifiers.trace(), |before| before.trace);
        let is_chosen = match before {
            Some(before) if self.traces.config.follow_parents => before.sampled,
            Some(_) | None => self.traces.chooses(trace),
        };
        let parent = before.map(|before| Parent { id: before.span, is_remote: true });
        is_chosen.then(|| (Context { trace, span: self.identifiers.span(), sampled: true }, parent))
    }

    fn span(&self, begun: &Begun, publication: &Publication<'_>, end_us: u64) -> Option<Span> {
        let outcome = publication.outcome();
        Some(Span {
            trace: begun.own.trace,
            id: begun.own.span,
            parent: begun.parent,
            state: publication.properties.as_deref().map(state).unwrap_or_default(),
            operation: Operation::Publish,
            door: publication.publisher.door?,
            start_unix_us: self.clock.unix_us(begun.taken_us),
            end_unix_us: self.clock.unix_us(end_us),
            topic: cut(publication.topic.as_str()),
            client: cut(&publication.publisher.client),
            body_bytes: publication.payload.as_slice().len(),
            refused: outcome.refused || outcome.precondition_failed,
        })
    }
}

impl Tracer for Publications {
    fn begin(&mut self, batch: &mut [Publication<'_>]) {
        // Empty unless a batch has panicked.
        self.begun.clear();
        let mut now_us = None;
        for (place, publication) in batch.iter_mut().enumerate() {
            if !publication.can_be_traced() {
                continue;
            }
            let Some((own, parent)) = self.choose(publication.properties.as_deref()) else { continue };
            let taken_us = *now_us.get_or_insert_with(|| self.clock.micros());
            let before = publication.properties.clone();
            publication.trace(own.put_into(before.as_deref()), taken_us);
            self.begun.push(Begun { place, own, parent, taken_us, before });
        }
    }

    fn end(&mut self, batch: &mut [Publication<'_>], taken: usize) {
        if self.begun.is_empty() {
            return;
        }
        let end_us = self.clock.micros();
        let mut begun = std::mem::take(&mut self.begun);
        let spans = begun.drain(..).filter_map(|begun| {
            let publication = batch.get_mut(begun.place)?;
            if begun.place < taken {
                return self.span(&begun, publication, end_us);
            }
            publication.restore(begun.before);
            None
        });
        self.traces.spans.push(spans);
        self.begun = begun;
    }
}

#[cfg(test)]
mod tests {
    use fogmux_bus::{Door, Payload, Publisher, Timestamp, TopicRef};

    use super::{super::TracesConfig, *};

    #[test]
    fn publications_that_were_not_taken_are_as_they_were() {
        let traces = Traces::new(TracesConfig { one_in: 1, follow_parents: true, queue_spans_max: 10 });
        let mut publications = traces.publications(Clock::start());
        let publisher = Arc::new(Publisher { door: Some(Door::Mqtt), ..(*Publisher::internal()).clone() });
        let internal = Publisher::internal();
        let topic = TopicRef::new("t").unwrap();
        let user = vec![("a".into(), "1".into())];
        let before = Arc::new(Properties { user, ..Properties::default() });
        let publication = |publisher| {
            let mut publication = Publication::new(topic, Payload::Slice(b"x"), publisher, Timestamp::ZERO, 0);
            publication.properties = Some(Arc::clone(&before));
            publication
        };
        let mut batch = [publication(&publisher), publication(&internal), publication(&publisher)];
        publications.begin(&mut batch);
        let count = |batch: &[Publication<'_>]| {
            let each = batch.iter().map(|one| one.properties.as_ref().map_or(0, |properties| properties.user.len()));
            each.collect::<Vec<_>>()
        };
        assert_eq!(count(&batch), [2, 1, 2]);
        publications.end(&mut batch, 2);
        assert_eq!(count(&batch), [2, 1, 1]);
        assert!(Arc::ptr_eq(batch[2].properties.as_ref().unwrap(), &before));
        assert!(batch[0].share().is_traced() && !batch[2].share().is_traced());
        let spans = traces.spans.take(10);
        let published = Context::of(batch[0].properties.as_ref().unwrap()).unwrap();
        assert_eq!(spans.len(), 1);
        assert_eq!((spans[0].trace, spans[0].id, spans[0].parent), (published.trace, published.span, None));
        // One that is shared keeps its properties.
        let message = Arc::clone(batch[2].share());
        let mut again = [Publication::of(&message)];
        publications.begin(&mut again);
        publications.end(&mut again, 1);
        assert_eq!((count(&again), traces.spans.take(10).len()), (vec![1], 0));
    }
}
