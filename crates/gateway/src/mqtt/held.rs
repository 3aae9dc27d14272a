//! The sessions of the door for the administration API: a list in pages, and the end of one.

use std::{rc::Rc, sync::Arc};

use fogmux_bus::{ListedSession, SessionKey, Subscription};
use tokio::{sync::oneshot, task::spawn_local};

use super::{
    context::MqttContext,
    mailbox::{MqttMailbox, Ousted},
    session::client_of,
};
use crate::{
    held::{Ended, HeldSession, HeldSessions},
    turn::Portion,
};

impl HeldSessions for Rc<MqttContext> {
    fn page(&self, after: u64, limit: usize) -> (Vec<HeldSession>, bool) {
        // The mailboxes are locked one after the other, without the registry.
        let (page, more) = self.door.sessions.page(after, limit);
        (page.into_iter().map(described).collect(), more)
    }

    fn subscriptions(&self, number: u64) -> Option<Vec<Subscription>> {
        let listed = self.door.sessions.numbered(number)?;
        Some(listed.slot.with(|mailbox| mailbox.subscribed()))
    }

    fn end(&self, number: u64) -> Option<Ended> {
        let gone = self.door.sessions.remove_numbered(number)?;
        let (client, principal) = (client(&gone.key), Arc::clone(&gone.principal));
        gone.slot.with(|mailbox| mailbox.ousted = Some(Ousted::Removed));
        // Its connection is displaced, and nobody reads it any more: other members of its groups go before it.
        gone.slot.release(gone.slot.claim(self.id));
        let departure = self.door.sessions.depart(&gone.key);
        let (done, ended) = oneshot::channel();
        let ctx = Self::clone(self);
        // A task of its own: the session ends whether the administrator waits or not.
        spawn_local(async move {
            let door = &ctx.door;
            door.end_session_in_portions(&ctx, &gone.slot, &mut Portion::new()).await;
            door.publish_will_of(&ctx, &gone.key);
            door.sessions.departed(&gone.key, &departure);
            let forgotten = gone.slot.with(|mailbox| mailbox.ended.take());
            let is_forgotten = match forgotten {
                Some(forgotten) => forgotten.await.is_ok(),
                None => true,
            };
            // An error: nobody waits any more.
            let _ = done.send(is_forgotten);
        });
        Some(Ended { client, principal, ending: Box::pin(async { ended.await.unwrap_or(false) }) })
    }
}

fn client(key: &SessionKey) -> Arc<str> {
    let client = client_of(key);
    if client.len() == key.0.len() { Arc::clone(&key.0) } else { client.into() }
}

fn described(listed: ListedSession<MqttMailbox>) -> HeldSession {
    let holds = listed.slot.with(|mailbox| mailbox.describe());
    HeldSession {
        number: listed.number,
        client: client(&listed.key),
        principal: listed.principal,
        connected: listed.connected,
        transient: listed.transient,
        expires: listed.expires,
        subscriptions: holds.subscriptions,
        queued: holds.queued,
        queued_bytes: holds.queued_bytes,
        inflight: holds.inflight,
        inflight_bytes: holds.inflight_bytes,
        durable: holds.durable,
    }
}
