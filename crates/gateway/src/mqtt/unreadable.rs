//! Messages that waited for a client while it lost the right to read them: rules that have changed, or a credential
//! that grants less than the one before. They were let in when they were published, and are looked at again when the
//! rules change and when the client returns, so that a delivery costs no second question.

use std::{cell::RefCell, collections::HashMap, rc::Rc, sync::Arc};

use fogmux_auth::{Access, Action};
use fogmux_bus::Completion;
use fogmux_mqtt::PacketId;
use foldhash::fast::RandomState;

use super::{
    access::Gate, claimed::Claimed, context::MqttContext, kept::Kept, leaving::hand_on_in_portions, mailbox::Unread,
};
use crate::shown::shown_client;

/// Answers about the topics of one queue, which has many messages of few topics.
#[derive(Debug)]
pub(super) struct Asked {
    access: Arc<Access>,
    /// Whether every topic is allowed that does not begin with `$`.
    is_open: bool,
    known: HashMap<Box<str>, bool, RandomState>,
}

impl Asked {
    pub(super) fn of(access: Arc<Access>) -> Self {
        Self { is_open: access.is_everything_allowed(Action::Read), access, known: HashMap::default() }
    }

    /// Whether the client may read a topic.
    pub(super) fn may_read(&mut self, topic: &str) -> bool {
        if self.is_open && !topic.starts_with('$') {
            return true;
        }
        if let Some(known) = self.known.get(topic) {
            return *known;
        }
        let may = self.access.may_read(topic);
        self.known.insert(topic.into(), may);
        may
    }
}

/// Drops what waits for a client and may not be read by it. What came by a shared subscription goes to other members.
/// Returns the identifiers of QoS 2 that are released, and what their PUBRELs wait for.
pub(super) fn drop_from(ctx: &Rc<MqttContext>, claimed: &Claimed, gate: &Gate) -> (Vec<PacketId>, Completion) {
    let access = gate.access();
    let asked = RefCell::new(Asked::of(Arc::clone(&access)));
    let found = claimed.with(|mailbox| {
        let groups = mailbox.shared_subscriptions();
        let unreadable = |topic: &str| !asked.borrow_mut().may_read(topic);
        let left_by = |kept: &Kept| {
            let message = kept.message()?;
            groups.get(&kept.share).filter(|_| unreadable(&message.topic)).cloned()
        };
        let left = (!groups.is_empty()).then(|| mailbox.take_shared(left_by, usize::MAX));
        (left, mailbox.drop_unreadable(&asked, &groups))
    });
    // The queue of a displaced connection belongs to the next one, which looks itself.
    let Ok((waited, unread)) = found else { return (Vec::new(), Completion::Ready) };
    let Unread { waited: dropped, left: in_flight, released, committed } = unread;
    for left in waited.into_iter().chain([in_flight]) {
        hand_on_in_portions(ctx, left);
    }
    if dropped > 0 {
        ctx.bus().counters().gone(dropped);
        let (principal, client) = (&*access.principal().name, shown_client(access.client()));
        tracing::info!(principal, client, dropped, "messages that waited are dropped: they may not be read any more");
    }
    (released, committed)
}
