//! Requests of which a turn has published a part, because their items have very many subscribers (ADR 0020): the rest
//! follows in later turns, and their answers behind it. Nothing that came behind them is handled before that.

use std::{collections::VecDeque, sync::Arc};

use fogmux_bus::{Completion, Completions, Message, Publication, Topic};
use smallvec::SmallVec;

use super::{
    core::Core,
    publish::{Head, Work},
};
use crate::turn::{self, Deliveries};

/// See the module.
#[derive(Debug)]
pub(super) struct Divided {
    /// The items that are not published, in their order. They were admitted with their requests.
    messages: Vec<Arc<Message>>,
    requests: VecDeque<Request>,
    /// Output of the machine that follows the answers: of input that came behind the requests and was read with them.
    pub(super) tail: Vec<u8>,
}

/// A request that is not answered.
#[derive(Debug)]
struct Request {
    id: Box<str>,
    from: Option<Box<str>>,
    topic: Topic,
    retain: bool,
    itemless: bool,
    /// The identifiers that the publisher chose, one for each item.
    ids: Vec<Option<Box<str>>>,
    done: Done,
}

/// The part of a request that was published.
#[derive(Debug, Default)]
pub(super) struct Done {
    /// Of each item whether it was refused, and its identifier.
    pub(super) results: Vec<(bool, u64)>,
    /// The commits that the answer waits for.
    pub(super) completions: SmallVec<[Completion; 1]>,
}

impl Done {
    /// Adds items, which are in the batch from `place` on. All items of a request in one batch are in one batch of the
    /// store of sessions; at most one is retained.
    pub(super) fn add(&mut self, items: &[Publication<'_>], completions: &Completions, place: usize) {
        self.results.extend(items.iter().map(|item| (item.outcome().refused, item.id().0)));
        let waits = |item: &Publication<'_>| item.meaning.is_state() || item.outcome().stored;
        if items.iter().any(waits) {
            self.completions.push(completions.of(place + items.len() - 1).clone());
        }
    }
}

impl Divided {
    /// The rest of these requests, of the first of which something may be done.
    pub(super) fn new(works: &[Work<'_>], done: Done, rest: &[Publication<'_>]) -> Self {
        let mut requests: VecDeque<_> = works.iter().map(Request::new).collect();
        if let Some(first) = requests.front_mut() {
            first.done = done;
        }
        let messages = rest.iter().map(|one| Arc::clone(one.share())).collect();
        Self { messages, requests, tail: Vec::new() }
    }

    /// The bytes that it holds, roughly.
    pub(super) fn bytes(&self) -> usize {
        self.messages.iter().map(|message| message.size()).sum()
    }
}

impl Request {
    fn new(work: &Work<'_>) -> Self {
        let head = work.head();
        Self {
            id: head.id.into(),
            from: head.from.map(Into::into),
            topic: head.topic.to_topic(),
            retain: head.retain,
            itemless: head.itemless,
            ids: work.ids().map(|id| id.map(Into::into)).collect(),
            done: Done::default(),
        }
    }

    fn head(&self) -> Head<'_> {
        Head {
            id: &self.id,
            from: self.from.as_deref(),
            topic: self.topic.as_ref(),
            retain: self.retain,
            itemless: self.itemless,
        }
    }
}

impl Core {
    /// Publishes more of what is divided, as much as others have to wait for.
    pub(super) fn publish_divided(&mut self, divided: Divided) {
        self.deliveries = Deliveries::default();
        let Divided { messages, mut requests, mut tail } = divided;
        let mut batch: Vec<Publication<'_>> = messages.iter().map(Publication::set_aside).collect();
        let published = self.ctx.worker.borrow_mut().publish_rest(&mut batch, &|_, _| {});
        self.note_published(&published);
        let mut place = 0;
        while let Some(mut request) = requests.pop_front() {
            let end = published.taken.min(place + request.ids.len() - request.done.results.len());
            request.done.add(batch.get(place..end).unwrap_or_default(), &published.completions, place);
            place = end;
            if request.done.results.len() < request.ids.len() {
                requests.push_front(request);
                let messages = messages.get(place..).unwrap_or_default().to_vec();
                return self.divide(Divided { messages, requests, tail });
            }
            self.settle(&request.head(), request.ids.iter().map(Option::as_deref), &request.done);
        }
        self.out.append(&mut tail);
    }

    /// Publishes the rest for a connection that has ended: it was received before, and nobody is left to be answered.
    pub(super) async fn publish_all_divided(&mut self) {
        while let Some(divided) = self.take_divided() {
            turn::others_first().await;
            self.publish_divided(divided);
        }
    }
}
