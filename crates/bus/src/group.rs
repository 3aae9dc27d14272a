//! Shared subscriptions (MQTT 5.0 §4.8.2): the choice of the member that gets a message.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    sync::Arc,
};

use crate::{
    id::SlotIds,
    limits::{CANDIDATES_MAX, READERS_MAX},
    mailbox::Readiness,
    route::{Standing, Sub},
    topic::TopicRef,
};

/// A shared group: `count` members in [`Routes::entries`](crate::route::Routes), from `first` on.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) first: usize,
    count: usize,
    turn: Cell<usize>,
    connected: RefCell<Connected>,
}

impl Group {
    pub(crate) fn new(first: usize, count: usize) -> Self {
        Self { first, count, turn: Cell::new(0), connected: RefCell::default() }
    }

    /// Chooses the member that gets the next message: the next that is ready, otherwise the next of those that keep up
    /// best, and one without a connection only if none has one.
    pub(crate) fn choose(&self, ids: &SlotIds, standing: impl Fn(usize) -> Option<Standing>) -> Option<usize> {
        if self.count > CANDIDATES_MAX {
            let member = self.connected.borrow_mut().choose(ids.connections(), self.count, &standing);
            if member.is_some() {
                return member;
            }
        }
        let member = choose(self.turn.get(), self.count, standing)?;
        self.turn.set((member + 1) % self.count);
        Some(member)
    }
}

/// The connected members of a group that is too large to look at all of them for each message.
#[derive(Debug, Default)]
struct Connected {
    /// [`SlotIds::connections`] when they were last looked up.
    as_of: Option<u64>,
    members: Vec<usize>,
    turn: usize,
}

impl Connected {
    /// Looks them up if a connection has come or gone since, and chooses one.
    fn choose(&mut self, now: u64, count: usize, standing: impl Fn(usize) -> Option<Standing>) -> Option<usize> {
        if self.as_of.replace(now) != Some(now) {
            self.members.clear();
            self.members.extend((0..count).filter(|member| matches!(standing(*member), Some(Standing::Here(_)))));
        }
        let of_connected = |index: usize| standing(*self.members.get(index)?);
        let chosen = choose(self.turn, self.members.len(), of_connected)?;
        self.turn = (chosen + 1) % self.members.len();
        self.members.get(chosen).copied()
    }
}

/// The members of a shared group as the tree has them, and the member whose turn it is.
pub(crate) struct Members {
    /// Those with a connection first.
    all: Vec<Arc<Sub>>,
    connected: usize,
    turn: usize,
    /// Those that may read a topic, by topic, so that gates are not asked anew for each message.
    readers: HashMap<Box<str>, Vec<usize>>,
    /// The number of members in `readers`.
    remembered: usize,
}

impl Members {
    pub(crate) fn new(mut all: Vec<Arc<Sub>>) -> Self {
        let is_away = |sub: &Arc<Sub>| sub.subscriber.standing() == Standing::Away;
        all.sort_by_key(is_away);
        let connected = all.partition_point(|sub| !is_away(sub));
        Self { all, connected, turn: 0, readers: HashMap::new(), remembered: 0 }
    }

    /// Chooses the member for a message on `topic`, among those that may read it, however many may not.
    pub(crate) fn choose(&mut self, topic: TopicRef<'_>) -> Option<Arc<Sub>> {
        self.look_up(topic.as_str());
        let readers = self.readers.get(topic.as_str())?;
        let standing = |reader: usize| Some(self.all.get(*readers.get(reader)?)?.subscriber.standing());
        let turn = readers.partition_point(|member| *member < self.turn);
        let connected = readers.partition_point(|member| *member < self.connected);
        let reader = choose(turn, connected, standing).or_else(|| choose(turn, readers.len(), standing))?;
        let member = *readers.get(reader)?;
        self.turn = member + 1;
        self.all.get(member).cloned()
    }

    /// Asks the gates of all members whether they may read a topic, unless they were asked.
    fn look_up(&mut self, topic: &str) {
        if self.readers.contains_key(topic) {
            return;
        }
        let may_read = |sub: &Arc<Sub>| sub.options.gate.as_ref().is_none_or(|gate| gate.may_read(topic));
        let readers: Vec<usize> =
            self.all.iter().enumerate().filter(|(_, sub)| may_read(sub)).map(|(member, _)| member).collect();
        if self.remembered + readers.len() > READERS_MAX {
            self.readers.clear();
            self.remembered = 0;
        }
        // A topic that nobody may read counts, too.
        self.remembered += readers.len().max(1);
        self.readers.insert(topic.into(), readers);
    }
}

/// Chooses among `count` members, beginning at `turn`: the first that is ready, otherwise the first of those that keep
/// up best. A member whose `standing` is `None` is not chosen.
fn choose(turn: usize, count: usize, standing: impl Fn(usize) -> Option<Standing>) -> Option<usize> {
    let mut best: Option<(Standing, usize)> = None;
    for step in 0..count.min(CANDIDATES_MAX) {
        let member = (turn + step) % count;
        let Some(standing) = standing(member) else { continue };
        if best.is_none_or(|(least, _)| standing < least) {
            best = Some((standing, member));
        }
        if standing == Standing::Here(Readiness::Ready) {
            break;
        }
    }
    best.map(|(_, member)| member)
}
