//! Retained messages for a new subscription, pulled in chunks as the client has room: a filter that matches everything
//! must not load everything into memory, nor count a multiple of the largest message for every client that reads
//! slowly.

use std::collections::{BTreeMap, HashMap};

use fogmux_bus::{Filter, Qos, ReadGate, Topic, durable::Gather};
use smallvec::SmallVec;
use tokio::io::{AsyncRead, AsyncWrite};

use super::{
    connection::{Connection, End, OUTPUT_BYTES_MAX},
    kept::{Body, Kept},
};

/// Messages pulled at once.
const CHUNK: usize = 32;
/// Their bytes: the message that passes them is the last. As many as wait in the output of a client that does not read.
const CHUNK_BYTES: usize = OUTPUT_BYTES_MAX;

/// The room for retained messages that are pulled at once.
#[derive(Debug)]
pub(super) struct Room {
    messages: usize,
    bytes: usize,
}

impl Room {
    pub(super) const fn new() -> Self {
        Self { messages: CHUNK, bytes: CHUNK_BYTES }
    }

    pub(super) const fn is_used_up(&self) -> bool {
        self.messages == 0 || self.bytes == 0
    }

    const fn use_up(&mut self, bytes: usize) {
        self.messages = self.messages.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

/// A subscription whose retained messages have not all been sent.
#[derive(Debug)]
pub(super) struct Pull {
    filter: Filter,
    qos: Qos,
    id: Option<u32>,
    after: Option<Topic>,
}

impl Pull {
    pub(super) const fn new(filter: Filter, qos: Qos, id: Option<u32>) -> Self {
        Self { filter, qos, id, after: None }
    }
}

/// Subscriptions whose retained messages have not all been sent, in the order in which they were made, one for each
/// filter. Each operation takes the same time however many there are.
#[derive(Debug, Default)]
pub(super) struct Pulls {
    by_number: BTreeMap<u64, Pull>,
    numbers: HashMap<Filter, u64>,
    next: u64,
}

impl Pulls {
    pub(super) fn len(&self) -> usize {
        self.by_number.len()
    }

    /// Adds one at the end. One that there is for the filter already gives way: its subscription has been replaced, and
    /// all retained messages are sent again ([MQTT-3.8.4-3]).
    pub(super) fn push(&mut self, pull: Pull) {
        self.remove(&pull.filter);
        self.next += 1;
        self.numbers.insert(pull.filter.clone(), self.next);
        self.by_number.insert(self.next, pull);
    }

    /// The filter is no longer subscribed to.
    pub(super) fn remove(&mut self, filter: &Filter) {
        if let Some(number) = self.numbers.remove(filter) {
            self.by_number.remove(&number);
        }
    }

    fn first(&self) -> Option<&Pull> {
        self.by_number.values().next()
    }

    /// The first goes on behind this topic, or is over.
    fn go_on(&mut self, after: Option<Topic>) {
        let Some(mut first) = self.by_number.first_entry() else { return };
        match after {
            Some(after) => first.get_mut().after = Some(after),
            None => {
                let pull = first.remove();
                self.numbers.remove(&pull.filter);
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Queues the next messages, as far as there is room.
    pub(super) fn pull(&mut self, room: &mut Room) -> Result<(), End> {
        let Some(pull) = self.rare.as_ref().and_then(|rare| rare.pulls.first()) else { return Ok(()) };
        let (bus, gate, gather) = (self.ctx.bus(), &self.client.gate, Gather::default());
        let queue = |mailbox: &mut super::mailbox::MqttMailbox| {
            // A link passes them on completely, which QoS 0 does not promise, however they were published.
            let qos_min = mailbox.announced().map_or(Qos::AtMostOnce, |_| Qos::AtLeastOnce);
            // Looked up while the mailbox is locked, so that a newer value is delivered behind this one.
            let chunk = bus.retained(&pull.filter, pull.after.as_ref(), room.messages, self.now);
            let mut pulled = 0_u64;
            let mut messages = chunk.messages.into_iter().peekable();
            while let Some(message) = messages.next() {
                let topic = message.topic.clone();
                if gate.may_read(&topic) {
                    let kept = Kept {
                        qos: pull.qos.min(message.qos.max(qos_min)),
                        // [MQTT-3.3.1-8]
                        retain: true,
                        timed: false,
                        ids: pull.id.into_iter().collect::<SmallVec<_>>(),
                        share: 0,
                        stored: None,
                        body: Body::Here(message),
                    };
                    pulled += 1;
                    room.use_up(kept.cost());
                    mailbox.pull(kept, &gather);
                }
                if room.is_used_up() && messages.peek().is_some() {
                    return (Some(topic), chunk.scanned, pulled);
                }
            }
            (chunk.next, chunk.scanned, pulled)
        };
        let (next, looks, pulled) = self.mailbox.with(queue).map_err(|_| End::Displaced)?;
        bus.counters().pulled(pulled);
        // Those of QoS 2 wait for it. Nobody is told of the others.
        drop(gather.append());
        self.work.looks = self.work.looks.saturating_add(u16::try_from(looks).unwrap_or(u16::MAX));
        self.rare().pulls.go_on(next);
        if self.pulls() == 0 {
            self.end_announcing();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pulls_keep_their_order_and_are_one_for_each_filter() {
        let pull = |text: &str| Pull::new(Filter::new(text).unwrap(), Qos::AtMostOnce, None);
        let mut pulls = Pulls::default();
        for text in ["a", "b", "c", "a", "d"] {
            pulls.push(pull(text));
        }
        pulls.remove(&Filter::new("c").unwrap());
        pulls.go_on(Some(Topic::new("b").unwrap()));
        let mut order = Vec::new();
        while let Some(first) = pulls.first() {
            order.push((first.filter.to_string(), first.after.is_some()));
            pulls.go_on(None);
        }
        assert_eq!(order, [("b".into(), true), ("a".into(), false), ("d".into(), false)]);
        assert!(pulls.numbers.is_empty());
    }
}
